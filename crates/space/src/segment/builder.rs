//! Creates segments.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use mneme_sys::{Access, FRAME, PagePolicy, Region};

use super::addresses::choose_base;
use super::control::make_control;
use super::meta::{SegmentMeta, data_name};
use super::{Backing, Segment, data, meta, permissions};
use crate::heap::{self, HeapError};
use crate::making::{Making, PublishedDirectory};
use crate::registry::json;
use crate::{ContentsInfo, CreateError, FileError, Name, OpenError, Registry, RegistryError, Uuid};

/// The options for a new segment. Created by [`Registry::segment`].
#[derive(Debug, Clone)]
#[must_use = "nothing is made before `create`"]
pub struct SegmentBuilder<'a> {
    registry: &'a Registry,
    name: String,
    size: usize,
    max_size: usize,
    mode: u32,
    backing: Backing,
    pages: PagePolicy,
    place: Placement,
    beside: bool,
}

/// Where to place a new segment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placement {
    /// In slots that no other segment has.
    Slot,
    /// At an address that the caller chooses, inside the registry's window.
    At(usize),
    /// At the address that its contents were created for, wherever that is.
    AsBefore(usize),
    Floating,
}

impl Registry {
    /// Begins to describe a new segment. By default it has 2 MiB and may grow to 1 GiB, is kept in
    /// memory, is accessible only to its owner, and gets addresses that no other segment of the
    /// registry has.
    ///
    /// ```no_run
    /// use mneme_space::{Backing, Registry};
    /// let registry = Registry::open_default()?;
    /// let genome = registry.segment("genome").size(8 << 30).mode(0o660).create()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn segment(&self, name: &str) -> SegmentBuilder<'_> {
        SegmentBuilder {
            registry: self,
            name: name.to_owned(),
            size: FRAME,
            max_size: 0,
            mode: 0o600,
            backing: Backing::default(),
            pages: PagePolicy::default(),
            place: Placement::Slot,
            beside: false,
        }
    }
}

impl SegmentBuilder<'_> {
    /// The initial size in bytes, rounded up to multiples of 2 MiB. Memory or disk space for it is
    /// allocated when the segment is created.
    pub fn size(mut self, bytes: usize) -> Self {
        self.size = bytes;
        self
    }

    /// The maximum size in bytes, rounded up to multiples of 2 MiB: at least `size`, by default 1
    /// GiB. It occupies addresses, in slots of 1 GiB, but no memory.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// The users who may read and write the segment, as a file mode; the default is 0600. Users who
    /// may read it may also take its locks, and could break them: see
    /// [`SegmentInfo::readers_could_break_writers`](crate::SegmentInfo::readers_could_break_writers).
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Where the bytes are kept; the default is [`Backing::Shared`].
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// The kind of pages that the segment prefers; the default is [`PagePolicy::Huge`].
    pub fn pages(mut self, pages: PagePolicy) -> Self {
        self.pages = pages;
        self
    }

    /// The address of the first byte, a multiple of 1 GiB inside the registry's window. Another
    /// segment may have the same address; one process cannot have both mapped at the same time.
    pub fn base(mut self, address: usize) -> Self {
        self.place = Placement::At(address);
        self
    }

    /// Gives the segment no address of its own: for contents without pointers to themselves.
    pub fn floating(mut self) -> Self {
        self.place = Placement::Floating;
        self
    }

    /// Allows a [name that is reserved](Name::beside) for servers and upgrades, which keep segments
    /// beside others.
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Opens the segment of that name, whatever its properties, or creates it as described if there
    /// is none. If several processes do so at once, one creates it and all open it.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`CreateError::Open`] if the segment exists but cannot be
    /// opened.
    pub fn open_or_create(self) -> Result<Segment, CreateError> {
        let (registry, name) = (self.registry, self.name.clone());
        match Segment::open(registry, &name) {
            Err(OpenError::NotFound { .. }) => {}
            found => return Ok(found?),
        }
        match self.create() {
            Err(CreateError::Exists { .. }) => Ok(Segment::open(registry, &name)?),
            made => made,
        }
    }

    /// Creates the segment, completely or not at all. Takes half a millisecond, plus the time to
    /// allocate its memory (measured: 0.08 s for a GiB of tmpfs).
    ///
    /// # Errors
    /// [`CreateError::Exists`] if the name is taken; [`CreateError::Data`] if memory or disk space
    /// is not available; other causes have one variant each.
    pub fn create(self) -> Result<Segment, CreateError> {
        let (plan, size) = self.plan(None)?;
        let max_size = plan.max_size;
        plan.build(|file, meta| {
            let refused = |source| CreateError::Data {
                path: meta.data.clone(),
                source,
            };
            let region = data::map_floating(file, Access::ReadWrite, max_size, meta.pages)
                .map_err(refused)?;
            region.grow(size).map_err(refused)?;
            mneme_sys::fault!("space.create.reserved");
            if meta.base.is_some() {
                make_heap(&region)?;
            }
            let mut words = [0; 8];
            words[data::word::BASE] = meta.base.map_or(0, |base| base as u64);
            data::write_header(&region, meta.uuid, words).map_err(refused)?;
            mneme_sys::fault!("space.create.header");
            data::make_durable(&region, &meta.data).map_err(refused)
        })
    }
}

impl<'a> SegmentBuilder<'a> {
    /// Checks the options; returns the plan and the initial size in bytes.
    pub(super) fn plan(
        self,
        contents: Option<ContentsInfo>,
    ) -> Result<(SegmentPlan<'a>, usize), CreateError> {
        let impossible = CreateError::Size {
            size: self.size,
            max: self.max_size,
        };
        let round = |bytes: usize| bytes.checked_next_multiple_of(FRAME);
        let default = if self.max_size == 0 {
            1 << 30
        } else {
            self.max_size
        };
        let max = default.max(self.size);
        let (Some(size), Some(max_size)) = (round(self.size), round(max)) else {
            return Err(impossible);
        };
        let asked = self.max_size == 0 || self.max_size >= self.size;
        if size == 0 || max_size > 1 << 46 || !asked {
            return Err(impossible);
        }
        if let Some(contents) = contents.as_ref().filter(|held| !held.is_named()) {
            let kind = contents.kind.clone();
            return Err(CreateError::Kind { kind });
        }
        let place = match (self.place, &contents) {
            (Placement::At(base), Some(_)) => {
                return Err(CreateError::Base {
                    base,
                    max: max_size,
                    why: "what another crate lays out has no address",
                });
            }
            (_, Some(_)) => Placement::Floating,
            (place, None) => place,
        };
        let name = match self.beside {
            true => Name::new(&self.name)?,
            false => Name::of_new(&self.name)?,
        };
        let backing = self.backing.absolute()?;
        let directory = backing.directory(self.registry, size)?;
        let plan = SegmentPlan {
            registry: self.registry,
            name,
            max_size,
            mode: self.mode & 0o777,
            backing,
            directory,
            pages: self.pages,
            place,
            cloned_from: None,
            contents,
        };
        Ok((plan, size))
    }
}

/// A segment about to be created, new or as a clone.
pub(super) struct SegmentPlan<'a> {
    pub(super) registry: &'a Registry,
    pub(super) name: Name,
    pub(super) max_size: usize,
    pub(super) mode: u32,
    pub(super) backing: Backing,
    pub(super) directory: PathBuf,
    pub(super) pages: PagePolicy,
    pub(super) place: Placement,
    pub(super) cloned_from: Option<Uuid>,
    pub(super) contents: Option<ContentsInfo>,
}

/// A segment under construction: it has a description and an empty data file.
pub(super) struct BegunSegment {
    making: Making,
    pub(super) meta: SegmentMeta,
}

impl BegunSegment {
    pub(super) fn control(&self) -> PathBuf {
        self.making.directory().join("control")
    }

    /// Links the data file, which has its initial size, to the directory.
    pub(super) fn link(&self, file: &File) -> Result<(), CreateError> {
        self.meta.backing.accepts(file, &self.meta.data)?;
        let link = self.making.directory().join("data");
        symlink(&self.meta.data, &link).map_err(FileError::at("link", &link))?;
        mneme_sys::fault!("space.create.linked");
        Ok(())
    }
}

impl<'a> SegmentPlan<'a> {
    /// A plan for a clone, at its original's address, so that pointers inside stay valid.
    pub(super) fn like(original: &'a Segment, name: Name, mode: u32) -> Result<Self, CreateError> {
        let meta = original.meta();
        let size = usize::try_from(data_len(&meta.data)).unwrap_or(usize::MAX);
        Ok(Self {
            registry: original.registry(),
            name,
            max_size: meta.max_size,
            mode,
            backing: meta.backing.clone(),
            directory: meta.backing.directory(original.registry(), size)?,
            pages: meta.pages,
            place: meta.base.map_or(Placement::Floating, Placement::AsBefore),
            cloned_from: Some(meta.uuid),
            contents: None,
        })
    }

    /// Builds the segment in a separate directory and names it last; `fill` writes the new data
    /// file's content.
    pub(super) fn build(
        self,
        fill: impl FnOnce(File, &SegmentMeta) -> Result<(), CreateError>,
    ) -> Result<Segment, CreateError> {
        let (begun, file) = self.begin()?;
        let check = file
            .try_clone()
            .map_err(FileError::at("open", &begun.meta.data))?;
        fill(file, &begun.meta)?;
        begun.link(&check)?;
        make_control(&begun.control(), begun.meta.uuid)?;
        mneme_sys::fault!("space.create.control");
        self.publish(begun)
    }

    fn exists(&self) -> CreateError {
        CreateError::Exists {
            name: self.name.to_string(),
        }
    }

    /// Writes the description in a separate directory, and creates the data file.
    pub(super) fn begin(&self) -> Result<(BegunSegment, File), CreateError> {
        let uuid = Uuid::random().map_err(RegistryError::Random)?;
        let begun = self.describe(uuid)?;
        let file = data::create(&begun.meta.data)?;
        mneme_sys::fault!("space.create.data");
        Ok((begun, file))
    }

    /// Writes the description in a separate directory; the data file that it names does not exist
    /// yet.
    pub(super) fn describe(&self, uuid: Uuid) -> Result<BegunSegment, CreateError> {
        let to = self.registry.segment_directory(&self.name);
        let claimed = Making::claim(self.registry, uuid, &to)?;
        let (lock, making) = claimed.ok_or_else(|| self.exists())?;
        let base = match self.place {
            Placement::Slot => Some(choose_base(self.registry, None, self.max_size)?),
            Placement::At(base) => Some(choose_base(self.registry, Some(base), self.max_size)?),
            Placement::AsBefore(base) => Some(base),
            Placement::Floating => None,
        };
        let meta = SegmentMeta {
            format: meta::FORMAT,
            made_as: self.name.to_string(),
            uuid,
            max_size: self.max_size,
            base,
            backing: self.backing.clone(),
            pages: self.pages,
            data: self.directory.join(data_name(self.registry.uuid(), uuid)),
            cloned_from: self.cloned_from,
            boot: self.backing.is_memory().then(Uuid::of_this_boot),
            contents: self.contents.clone(),
        };
        let description = making.directory().join("meta");
        json::write(&description, &meta, permissions::meta(self.mode))?;
        // From now on the description reserves the addresses.
        drop(lock);
        mneme_sys::fault!("space.create.described");
        Ok(BegunSegment { making, meta })
    }

    /// Sets the permissions and, last, the name.
    pub(super) fn publish(self, begun: BegunSegment) -> Result<Segment, CreateError> {
        let BegunSegment { making, meta } = begun;
        permissions::give_to_group(making.directory(), &meta.data)?;
        permissions::apply(making.directory(), &meta.data, self.mode)?;
        mneme_sys::fault!("space.create.whole");
        let to = self.registry.segment_directory(&self.name);
        match making.publish(&to)? {
            PublishedDirectory::Yes => Ok(Segment::new(self.registry.clone(), self.name, meta)),
            PublishedDirectory::Exists => Err(self.exists()),
        }
    }
}

/// Creates an empty heap in a new segment. An empty heap works at any address; its later contents
/// do not.
fn make_heap(region: &Region) -> Result<(), CreateError> {
    let base = NonNull::new(region.base()).ok_or(HeapError::Damaged)?;
    // SAFETY: just mapped for writing, at a multiple of 2 MiB, from a file that nobody else knows.
    unsafe { heap::format(base, region.len(), region.max(), true) }?;
    Ok(())
}

fn data_len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}
