//! Segments: named, persistent ranges of memory, each with its address, size and permissions.

mod addresses;
pub(crate) mod backing;
pub(crate) mod builder;
pub(crate) mod clone;
pub(crate) mod control;
pub(crate) mod data;
pub(crate) mod durable;
pub(crate) mod import;
pub(crate) mod mend;
pub(crate) mod meta;
pub(crate) mod note;
pub(crate) mod parts;
pub(crate) mod permissions;
pub(crate) mod presence;
mod remove;
mod rename;
mod restore;
mod writers;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mneme_sys::{Access, PagePolicy, RegionHeader};

pub use backing::Backing;
pub use builder::SegmentBuilder;
pub use import::Importable;
use meta::SegmentMeta;
pub use parts::Parts;
pub use presence::Presence;
pub use restore::Condition;

use crate::{ContentsInfo, FileError, MapError, Name, OpenError, Registry, Uuid};

/// A named segment of a registry. Cloning the handle creates no new segment
/// ([`clone_as`](Segment::clone_as) does). `Send + Sync`.
///
/// A handle maps nothing, and does not prevent the segment's removal.
#[derive(Debug, Clone)]
pub struct Segment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    name: Name,
    meta: SegmentMeta,
}

/// A segment's properties at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The committed length in bytes.
    pub size: usize,
    /// The maximum length in bytes.
    pub max_size: usize,
    /// The address at which it is mapped; `None` if it floats.
    pub base: Option<usize>,
    /// The permissions of its data file.
    pub mode: u32,
    /// Where its bytes are kept.
    pub backing: Backing,
    /// The data file.
    pub data: PathBuf,
    /// The segment that it was cloned from.
    pub cloned_from: Option<Uuid>,
    /// The format of its data, if another crate lays them out.
    pub contents: Option<ContentsInfo>,
    /// Whether a process died or panicked while changing the contents and another process has
    /// noticed, or the machine went down before changes were [written
    /// through](crate::Attachment::sync). For contents that another crate lays out: whether the
    /// machine went down while they were in use.
    pub poisoned: bool,
}

impl SegmentInfo {
    /// Whether users who may only read the segment could disrupt the sections of those who may
    /// write it. Readers take locks too, so every user who may read the data may write the file
    /// with the locks. If a reader writes garbage there, two sections may change the segment at
    /// once. That is possible where a mode such as 0644 or 0640 lets some users read only. For
    /// contents that another crate lays out, see that crate for what readers could do.
    #[must_use]
    pub fn readers_could_break_writers(&self) -> bool {
        let (readers, writers) = (self.mode & 0o444, self.mode & 0o222);
        self.contents.is_none() && writers != 0 && readers & !(writers << 1) != 0
    }
}

impl Segment {
    /// Opens the segment of that name. Checks its description and its data's header; maps nothing.
    /// Takes some 6 us.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]; one variant for each part that may be missing or damaged.
    pub fn open(registry: &Registry, name: &str) -> Result<Self, OpenError> {
        let segment = Self::described(registry, name)?;
        data::examine(segment.meta())?;
        Ok(segment)
    }

    /// A handle to the segment of that name from its description alone, whether or not its data are
    /// available. It serves to describe a segment that cannot be opened; calls that need the data
    /// fail.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]; the description is missing or damaged.
    pub fn described(registry: &Registry, name: &str) -> Result<Self, OpenError> {
        let name = Name::new(name)?;
        let directory = registry.segment_directory(&name);
        match SegmentMeta::read(&directory) {
            Ok(meta) => Ok(Self::new(registry.clone(), name, meta)),
            // A dangling link still occupies the name.
            Err(_) if is_missing(&directory) => Err(OpenError::NotFound {
                name: name.to_string(),
                registry: registry.root().to_owned(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn new(registry: Registry, name: Name, meta: SegmentMeta) -> Self {
        Self(Arc::new(Inner {
            registry,
            name,
            meta,
        }))
    }

    /// The segment's name when the handle was opened.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The segment's identity, which no other segment ever has.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0.meta.uuid
    }

    /// The address of its first byte in every process; `None` if it floats.
    #[must_use]
    pub fn base(&self) -> Option<usize> {
        self.0.meta.base
    }

    /// Bytes that it may grow to.
    #[must_use]
    pub fn max_size(&self) -> usize {
        self.0.meta.max_size
    }

    /// The kind of pages that the segment prefers.
    #[must_use]
    pub fn pages(&self) -> PagePolicy {
        self.0.meta.pages
    }

    /// Where the segment's bytes are kept.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        &self.0.meta.backing
    }

    /// Whether the segment is kept in memory, which is lost at a reboot.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.0.meta.backing.is_memory()
    }

    /// The segment's registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn meta(&self) -> &SegmentMeta {
        &self.0.meta
    }

    /// The directory with the segment's description, its control file and the link to its data.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.0.registry.segment_directory(&self.0.name)
    }

    /// The file with the segment's participants and locks.
    pub(crate) fn control(&self) -> PathBuf {
        self.directory().join("control")
    }

    /// The segment's properties at this moment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn info(&self) -> Result<SegmentInfo, OpenError> {
        Ok(self.examine()?.0)
    }

    /// The segment's properties at this moment, and the header that they were read from.
    fn examine(&self) -> Result<(SegmentInfo, RegionHeader), OpenError> {
        let meta = self.meta();
        let header = data::examine(meta)?;
        let found = fs::metadata(&meta.data).map_err(FileError::at("examine", &meta.data))?;
        let info = SegmentInfo {
            // At most the file's length, which a process could map.
            size: usize::try_from(header.committed_len).unwrap_or(usize::MAX),
            max_size: meta.max_size,
            base: meta.base,
            mode: found.permissions().mode() & 0o777,
            backing: meta.backing.clone(),
            data: meta.data.clone(),
            cloned_from: meta.cloned_from,
            contents: meta.contents.clone(),
            poisoned: (meta.contents.is_none()
                && header.client[data::word::POISON] > data::word::state::CHANGING)
                || !durable::is_of_this_boot(header.client[data::word::UNSYNCED], meta),
        };
        Ok((info, header))
    }

    /// Changes the read and write permissions, as `chmod` does. A process that has the segment
    /// mapped keeps its access until it maps the segment again. Give read-only permission only to
    /// users whom you trust as much as the segment's writers: see
    /// [`SegmentInfo::readers_could_break_writers`].
    ///
    /// # Errors
    /// The files belong to another user. If the process dies half-way, some files keep their old
    /// permissions; calling this again completes the change.
    pub fn set_mode(&self, mode: u32) -> Result<(), FileError> {
        permissions::apply(&self.directory(), &self.meta().data, mode & 0o777)
    }

    /// Makes the segment at least `bytes` long, up to its maximum; memory or disk space is
    /// allocated now. Processes that have it mapped extend their mappings when they need to.
    /// Returns the new size.
    ///
    /// # Errors
    /// [`MapError::Grow`] beyond the maximum size, or if memory or disk space is not available;
    /// [`MapError::Contents`] if another crate manages the segment's growth.
    pub fn grow(&self, bytes: usize) -> Result<usize, MapError> {
        self.without_contents()?;
        let meta = self.meta();
        let write = Access::ReadWrite;
        data::examine(meta)?;
        let file = data::open(&meta.data, write)?;
        let region = data::map_floating(file, write, meta.max_size, meta.pages)?;
        grow_region(&region, bytes)
    }
}

/// Whether nothing has that name, not even a link.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|refused| refused.kind() == ErrorKind::NotFound)
}

/// Grows the file and then records the new length in its header, so a length in a header is always
/// backed by the file.
pub(crate) fn grow_region(region: &mneme_sys::Region, bytes: usize) -> Result<usize, MapError> {
    region.refresh().map_err(MapError::Grow)?;
    region.grow(bytes).map_err(MapError::Grow)?;
    mneme_sys::fault!("space.grow.reserved");
    RegionHeader::set_committed(region, region.len() as u64).map_err(MapError::Grow)?;
    mneme_sys::fault!("space.grow.recorded");
    Ok(region.len())
}
