//! Spaces: named sets of segments, each with the access that attachments get.
//!
//! ```text
//! spaces/<name>/meta      JSON: identity, version, the members
//! spaces/<name>/control   participants, and the version word
//! spaces/<name>/lock      locked while the members are being changed
//! spaces/<name>/calls     the mailbox of its residents (`call`), if it ever had any
//! ```
//! **At every instant a space has the members of exactly one version.** To change them, a process
//! writes a description with the next version to a separate file and renames it over the old one,
//! under a lock that the kernel releases if the process dies. Then it raises the version word,
//! through which attached processes notice the change ([`version`]). A member is recorded by name
//! *and* identity, so a new segment of the same name is not mistaken for it. Segments do not know
//! the spaces that they belong to; removing a segment leaves a stale member.
//!
//! SpaceJMP's virtual address spaces (§3.1, §4.2): `vas_create`, `vas_find`, `vas_clone`,
//! `seg_attach`.

mod builder;
mod change;
mod error;
mod mend;
pub(crate) mod meta;
mod permissions;
mod remove;
#[cfg(all(test, not(miri)))]
mod tests;
pub(crate) mod version;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use mneme_sys::Access;

pub use builder::SpaceBuilder;
pub use error::SpaceError;
pub(crate) use mend::{control_damage, mend_control};
use meta::{LAST_VERSION, MemberEntry, SpaceMeta};
use version::VersionWord;

use crate::{
    Attachment, DescriptionError, EnterError, FileError, Name, OpenError, Registry, RegistryError,
    Segment, Uuid,
};

/// The maximum number of a space's members.
pub const MAX_MEMBERS: usize = 1024;

/// A named set of segments of a registry. Cloning the handle creates no new space
/// ([`clone_as`](Space::clone_as) does). `Send + Sync`.
///
/// A handle maps nothing, and prevents nobody from changing or removing the space.
#[derive(Debug, Clone)]
pub struct Space(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    name: Name,
    uuid: Uuid,
}

/// A space's properties at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceInfo {
    /// Counts the changes of members and permissions, from 1.
    pub version: u64,
    /// The users who may see and attach it (read), and change its members (write), as a file mode.
    pub mode: u32,
    /// The space that it was cloned from.
    pub cloned_from: Option<Uuid>,
    /// The members, in the order in which they were added.
    pub members: Vec<MemberInfo>,
}

/// A member as the space's description records it; the segment itself may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// The segment's name.
    pub name: Name,
    /// The segment's identity.
    pub uuid: Uuid,
    /// The access that attachments of the space get.
    pub access: Access,
}

/// A member whose segment was found, and is the one that was added.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) segment: Segment,
    pub(crate) access: Access,
}

impl Registry {
    /// The names of all spaces, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn spaces(&self) -> Result<Vec<Name>, RegistryError> {
        self.names("spaces")
    }

    /// The directory of a space of that name, whether it exists or not.
    fn space_directory(&self, name: &Name) -> PathBuf {
        self.root().join("spaces").join(name)
    }
}

impl Space {
    /// Opens the space of that name. Checks its description, but not its members.
    ///
    /// # Errors
    /// [`SpaceError::NotFound`]; the description cannot be read, or is damaged.
    pub fn open(registry: &Registry, name: &str) -> Result<Self, SpaceError> {
        let name = Name::new(name)?;
        let meta = read(registry, &name)?;
        Ok(Self::new(registry.clone(), name, meta.uuid))
    }

    fn new(registry: Registry, name: Name, uuid: Uuid) -> Self {
        Self(Arc::new(Inner {
            registry,
            name,
            uuid,
        }))
    }

    /// The space's name when the handle was opened.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The space's identity, which no other space ever has.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    /// The space's registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The directory with the space's description and its control file.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.0.registry.space_directory(&self.0.name)
    }

    fn control(&self) -> PathBuf {
        self.directory().join("control")
    }

    /// The space's current description.
    fn meta(&self) -> Result<SpaceMeta, SpaceError> {
        let meta = read(self.registry(), self.name())?;
        if meta.uuid != self.uuid() {
            return Err(SpaceError::Replaced {
                name: self.name().to_string(),
                expected: self.uuid(),
                found: meta.uuid,
            });
        }
        Ok(meta)
    }

    /// The space's properties at this moment.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`SpaceError::Replaced`].
    pub fn info(&self) -> Result<SpaceInfo, SpaceError> {
        let meta = self.meta()?;
        Ok(SpaceInfo {
            version: meta.version,
            mode: self.mode()?,
            cloned_from: meta.cloned_from,
            members: meta.infos(),
        })
    }

    fn mode(&self) -> Result<u32, FileError> {
        let path = self.directory().join("meta");
        let found = fs::metadata(&path).map_err(FileError::at("examine", &path))?;
        Ok(found.permissions().mode() & 0o777)
    }

    /// The space's members, in the order in which they were added.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    pub fn members(&self) -> Result<Vec<MemberInfo>, SpaceError> {
        Ok(self.meta()?.infos())
    }

    /// Maps the version word, and makes this process a participant of the space if it has the
    /// permission.
    pub(crate) fn version_word(&self) -> Result<VersionWord, SpaceError> {
        let opened = VersionWord::open(&self.control(), self.uuid());
        opened.map_err(SpaceError::Control)
    }

    /// The members and their version. Each member's segment was found, and is the one that was
    /// added. They are current until `word` is *greater* than the version.
    pub(crate) fn read_members(
        &self,
        word: &VersionWord,
    ) -> Result<(u64, Vec<Member>), SpaceError> {
        // Read before the description, so that the word is no newer than it.
        let seen = word.load();
        let meta = self.meta()?;
        // The process that changed the space died in between, or is about to do this itself.
        word.raise(meta.version);
        let members = meta.members.iter().map(|entry| self.member(entry));
        let members = members.collect::<Result<_, _>>()?;
        // The word can be greater, within its range, if the description was restored from a backup.
        // A value out of range is damage, and makes processes that watch the word read the
        // description each time.
        let version = match seen {
            ..=LAST_VERSION => seen.max(meta.version),
            _ => meta.version,
        };
        Ok((version, members))
    }

    fn member(&self, entry: &MemberEntry) -> Result<Member, SpaceError> {
        let described = Segment::described(self.registry(), &entry.name);
        let segment = described.map_err(|source| SpaceError::Member {
            name: entry.name.clone(),
            source: Box::new(source),
        })?;
        if segment.uuid() != entry.uuid {
            return Err(SpaceError::Stale {
                name: entry.name.clone(),
                expected: entry.uuid,
                found: segment.uuid(),
            });
        }
        Ok(Member {
            segment,
            access: entry.access,
        })
    }

    /// Attaches the space: its segments, each with the access that the space gives. The attachment
    /// follows the space's changes: each section has the members that the space had when the
    /// section began.
    ///
    /// # Errors
    /// [`EnterError::Space`] if the space or a member cannot be opened; otherwise as
    /// [`Attachment::new`].
    pub fn attach(&self) -> Result<Attachment, EnterError> {
        Attachment::following(self, Access::ReadWrite)
    }

    /// Attaches the space for reading only, whatever access it gives.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_read_only(&self) -> Result<Attachment, EnterError> {
        Attachment::following(self, Access::ReadOnly)
    }
}

/// The description of the space that has this name at this moment.
fn read(registry: &Registry, name: &Name) -> Result<SpaceMeta, SpaceError> {
    let directory = registry.space_directory(name);
    SpaceMeta::read(&directory).map_err(|error| match error {
        // There is no space of that name, unless the directory exists.
        DescriptionError::File(_) if matches!(directory.try_exists(), Ok(false)) => {
            SpaceError::NotFound {
                name: name.to_string(),
                registry: registry.root().to_owned(),
            }
        }
        other => other.into(),
    })
}

/// Describes what is wrong with a space's members, one line for each that is stale.
pub(crate) fn stale_members(registry: &Registry, meta: &SpaceMeta) -> Vec<String> {
    let judge = |entry: &MemberEntry| match Segment::open(registry, &entry.name) {
        Err(OpenError::NotFound { .. }) => {
            Some(format!("its member {:?} does not exist", entry.name))
        }
        Ok(segment) if segment.uuid() != entry.uuid => Some(format!(
            "its member {:?} was removed, and is another segment now",
            entry.name
        )),
        // For a damaged segment, the error contains its path.
        _ => None,
    };
    meta.members.iter().filter_map(judge).collect()
}
