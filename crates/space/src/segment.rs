//! Segments: named, persistent ranges of memory, each with its place, its size, its permissions.

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

use crate::{ContentsInfo, FileError, GrowError, MapError, Name, OpenError, Registry, Uuid};

/// A named segment of a registry. A clone is another handle to it, not another segment
/// ([`clone_as`](Segment::clone_as) makes that). `Send + Sync`.
///
/// A handle maps nothing and keeps nobody from removing the segment.
#[derive(Debug, Clone)]
pub struct Segment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    name: Name,
    meta: SegmentMeta,
}

/// What a segment is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Committed bytes.
    pub size: usize,
    /// Bytes that it may grow to.
    pub max_size: usize,
    /// Where it is mapped; `None` if it floats.
    pub base: Option<usize>,
    /// The permissions of its data.
    pub mode: u32,
    /// What its bytes are kept in.
    pub backing: Backing,
    /// The file they are kept in.
    pub data: PathBuf,
    /// The segment that it was cloned from.
    pub cloned_from: Option<Uuid>,
    /// What its bytes are, if another crate lays them out.
    pub contents: Option<ContentsInfo>,
    /// Whether somebody died, or panicked, while changing what it holds, and somebody else has
    /// noticed; or the machine went down before changes were [written
    /// through](crate::Attachment::sync). Of contents that another crate lays out: whether the
    /// machine went down while they were in use.
    pub poisoned: bool,
}

impl SegmentInfo {
    /// Whether users who may only read the segment could break the sections of those who may write
    /// it. Readers take locks too, so that the file with the locks is writable for all who may read
    /// the data; nonsense that a reader writes there can let two sections change the segment at
    /// once. That can happen where a mode like 0644 or 0640 gives somebody reading alone. Of
    /// contents that another crate lays out, that crate says what its readers could do.
    #[must_use]
    pub fn readers_could_break_writers(&self) -> bool {
        let (readers, writers) = (self.mode & 0o444, self.mode & 0o222);
        self.contents.is_none() && writers != 0 && readers & !(writers << 1) != 0
    }
}

impl Segment {
    /// Opens the segment of that name. Its description and its data's header are checked; nothing
    /// is mapped. Some 6 us.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]; one variant for each part that may be missing or damaged.
    pub fn open(registry: &Registry, name: &str) -> Result<Self, OpenError> {
        let segment = Self::described(registry, name)?;
        data::examine(segment.meta())?;
        Ok(segment)
    }

    /// A handle to the segment of that name by its description alone, whether or not its data can
    /// be had. With it a caller can describe a segment that cannot be opened. Calls that need the
    /// data fail then.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]; the description is missing or damaged.
    pub fn described(registry: &Registry, name: &str) -> Result<Self, OpenError> {
        let name = Name::new(name)?;
        let directory = registry.segment_directory(&name);
        match SegmentMeta::read(&directory) {
            Ok(meta) => Ok(Self::new(registry.clone(), name, meta)),
            // A link to nowhere takes the name all the same.
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

    /// Its name when it was opened.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Its identity, which no other segment ever has.
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

    /// Which pages it would like.
    #[must_use]
    pub fn pages(&self) -> PagePolicy {
        self.0.meta.pages
    }

    /// What its bytes are kept in.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        &self.0.meta.backing
    }

    /// Whether its bytes are memory, which ends with the machine's boot.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.0.meta.backing.is_memory()
    }

    /// Its registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn meta(&self) -> &SegmentMeta {
        &self.0.meta
    }

    /// The directory in which its description, its control file and the link to its data are.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.0.registry.segment_directory(&self.0.name)
    }

    /// Where its participants and locks are.
    pub(crate) fn control(&self) -> PathBuf {
        self.directory().join("control")
    }

    /// What it is at this moment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn info(&self) -> Result<SegmentInfo, OpenError> {
        Ok(self.examine()?.0)
    }

    /// What it is at this moment, with the header that says so.
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

    /// Changes who may read and write it, as `chmod` does. A process that has it mapped keeps what
    /// it has until it maps the segment anew. Give reading alone to users whom you trust as you
    /// trust the segment's writers: see [`SegmentInfo::readers_could_break_writers`].
    ///
    /// # Errors
    /// The files belong to another user. A death half-way leaves some of the permissions as they
    /// were; calling it again completes them.
    pub fn set_mode(&self, mode: u32) -> Result<(), FileError> {
        permissions::apply(&self.directory(), &self.meta().data, mode & 0o777)
    }

    /// Makes it at least `bytes` long, up to its greatest size; its memory or space is taken now.
    /// Processes that have it mapped follow when they need to. Returns its size.
    ///
    /// # Errors
    /// [`GrowError::Region`] beyond the greatest size, or if the memory or space is not there;
    /// [`MapError::Contents`] if it grows by other means.
    pub fn grow(&self, bytes: usize) -> Result<usize, GrowError> {
        self.without_contents()?;
        let meta = self.meta();
        let write = Access::ReadWrite;
        data::examine(meta).map_err(MapError::from)?;
        let file = data::open(&meta.data, write).map_err(MapError::from)?;
        let region = data::map_floating(file, write, meta.max_size, meta.pages)?;
        grow_region(&region, bytes)
    }
}

/// Whether there is nothing of that name, not even a link.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|refused| refused.kind() == ErrorKind::NotFound)
}

/// Grows the file and then says so in its header: what a header has committed is there.
pub(crate) fn grow_region(region: &mneme_sys::Region, bytes: usize) -> Result<usize, GrowError> {
    region.refresh()?;
    region.grow(bytes)?;
    mneme_sys::fault!("space.grow.reserved");
    RegionHeader::set_committed(region, region.len() as u64)?;
    mneme_sys::fault!("space.grow.recorded");
    Ok(region.len())
}
