//! Spaces: named sets of segments, each with the access that attachments get.
//!
//! ```text
//! spaces/<name>/meta      JSON: identity, version, the members
//! spaces/<name>/control   participants, and the version word
//! spaces/<name>/lock      locked while the members are being changed
//! spaces/<name>/calls     the mailbox of its residents (`call`), if it ever had any
//! ```
//! **A space has, at every instant, the members of one version**: a change writes a description
//! with the next version aside and renames it over the old one, under a lock that the kernel drops
//! for the dead. Then it raises the version word, by which attached processes notice
//! ([`version`]). A member is named by its name *and* its identity: what was made anew under its
//! name is not taken for it. Segments know nothing of spaces; one that is removed leaves a stale
//! member.
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
pub use error::{SpaceChangeError, SpaceCreateError, SpaceOpenError, SpaceRemoveError};
pub(crate) use mend::{control_damage, mend_control};
use meta::{LAST_VERSION, MemberEntry, SpaceMeta};
use version::VersionWord;

use crate::{
    AttachError, Attachment, DescriptionError, FileError, Name, OpenError, Registry, RegistryError,
    Segment, Uuid,
};

/// Segments that a space can have.
pub const MAX_MEMBERS: usize = 1024;

/// A named set of segments of a registry. A clone is another handle to it, not another space
/// ([`clone_as`](Space::clone_as) makes that). `Send + Sync`.
///
/// A handle maps nothing and keeps nobody from changing or removing the space.
#[derive(Debug, Clone)]
pub struct Space(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    name: Name,
    uuid: Uuid,
}

/// What a space is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceInfo {
    /// Counts the changes of members and permissions, from 1.
    pub version: u64,
    /// Which users may see and attach it (read), and change its members (write).
    pub mode: u32,
    /// The space that it was cloned from.
    pub cloned_from: Option<Uuid>,
    /// In the order in which they were added.
    pub members: Vec<MemberInfo>,
}

/// A member of a space, as the space names it; the segment itself may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// The segment's name.
    pub name: Name,
    /// The segment's identity.
    pub uuid: Uuid,
    /// What attachments of the space may do with it.
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
    /// Opens the space of that name. Its description is checked; its members are not looked at.
    ///
    /// # Errors
    /// [`SpaceOpenError::NotFound`]; the description cannot be read, or is damaged.
    pub fn open(registry: &Registry, name: &str) -> Result<Self, SpaceOpenError> {
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

    /// Its name when it was opened.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Its identity, which no other space ever has.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    /// Its registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The directory in which its description and its control file are.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.0.registry.space_directory(&self.0.name)
    }

    fn control(&self) -> PathBuf {
        self.directory().join("control")
    }

    /// The description that the space has now.
    fn meta(&self) -> Result<SpaceMeta, SpaceOpenError> {
        let meta = read(self.registry(), self.name())?;
        if meta.uuid != self.uuid() {
            return Err(SpaceOpenError::Replaced {
                name: self.name().to_string(),
                expected: self.uuid(),
                found: meta.uuid,
            });
        }
        Ok(meta)
    }

    /// What it is at this moment.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`SpaceOpenError::Replaced`].
    pub fn info(&self) -> Result<SpaceInfo, SpaceOpenError> {
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

    /// Its members, in the order in which they were added.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    pub fn members(&self) -> Result<Vec<MemberInfo>, SpaceOpenError> {
        Ok(self.meta()?.infos())
    }

    /// Maps the version word, and makes this process a participant of the space if it may be one.
    pub(crate) fn version_word(&self) -> Result<VersionWord, SpaceOpenError> {
        let opened = VersionWord::open(&self.control(), self.uuid());
        opened.map_err(SpaceOpenError::Control)
    }

    /// The members and the version they are of, each found and known to be the segment that was
    /// added. They are the space's until `word` is *greater* than the version.
    pub(crate) fn read_members(
        &self,
        word: &VersionWord,
    ) -> Result<(u64, Vec<Member>), SpaceOpenError> {
        // Before the description, so that this is no older.
        let seen = word.load();
        let meta = self.meta()?;
        // The changer died in between, or is about to do this.
        word.raise(meta.version);
        let members = meta.members.iter().map(|entry| self.member(entry));
        let members = members.collect::<Result<_, _>>()?;
        // A greater word that is possible comes with a description from a backup; what is
        // impossible is damage, and makes processes that watch it ask each time.
        let version = match seen {
            ..=LAST_VERSION => seen.max(meta.version),
            _ => meta.version,
        };
        Ok((version, members))
    }

    fn member(&self, entry: &MemberEntry) -> Result<Member, SpaceOpenError> {
        let described = Segment::described(self.registry(), &entry.name);
        let segment = described.map_err(|source| SpaceOpenError::Member {
            name: entry.name.clone(),
            source: Box::new(source),
        })?;
        if segment.uuid() != entry.uuid {
            return Err(SpaceOpenError::Stale {
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

    /// Attaches the space: its segments, each with the access that the space gives it. The
    /// attachment follows what the space becomes: each section has the members that the space had
    /// when it began.
    ///
    /// # Errors
    /// [`AttachError::Space`] if the space or a member cannot be opened; as [`Attachment::new`].
    pub fn attach(&self) -> Result<Attachment, AttachError> {
        Attachment::following(self, Access::ReadWrite)
    }

    /// Attaches the space for reading only, whatever it gives.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_read_only(&self) -> Result<Attachment, AttachError> {
        Attachment::following(self, Access::ReadOnly)
    }
}

/// The description of the space that has this name now.
fn read(registry: &Registry, name: &Name) -> Result<SpaceMeta, SpaceOpenError> {
    let directory = registry.space_directory(name);
    SpaceMeta::read(&directory).map_err(|error| match error {
        // Nothing of that name, unless the directory is there.
        DescriptionError::File(_) if matches!(directory.try_exists(), Ok(false)) => {
            SpaceOpenError::NotFound {
                name: name.to_string(),
                registry: registry.root().to_owned(),
            }
        }
        other => other.into(),
    })
}

/// What is wrong with a space's members, one line for each that is stale.
pub(crate) fn stale_members(registry: &Registry, meta: &SpaceMeta) -> Vec<String> {
    let judge = |entry: &MemberEntry| match Segment::open(registry, &entry.name) {
        Err(OpenError::NotFound { .. }) => {
            Some(format!("its member {:?} does not exist", entry.name))
        }
        Ok(segment) if segment.uuid() != entry.uuid => Some(format!(
            "its member {:?} was removed, and is another segment now",
            entry.name
        )),
        // For a damaged one the error names its path.
        _ => None,
    };
    meta.members.iter().filter_map(judge).collect()
}
