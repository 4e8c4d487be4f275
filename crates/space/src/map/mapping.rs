//! Segments that this process has mapped.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mneme_sync::{Participants, Stats};
use mneme_sys::{Access, Region, RegionError, Reserve, SwitchedFile, SwitchedWindow, Window};

use super::{Map, ProcessMap, kernel};
use crate::segment::control::open_way;
use crate::segment::presence::{Presence, Way};
use crate::segment::{data, grow_region};
use crate::{FileError, MapError, Segment};

/// A segment that this process has mapped, shared by all its users in the process. When the last
/// user drops it, the addresses are released.
///
/// Its memory may be used while a section is inside it, or while it is kept at its address.
pub(crate) struct Placed {
    segment: Segment,
    /// Dropped under the map's lock, so that the addresses are free once the map says so.
    region: ManuallyDrop<Region>,
    /// Where the segment lies at its address by a kernel module; the region lies elsewhere then.
    view: ManuallyDrop<Option<SwitchedFile>>,
    participants: Participants,
    /// Records on the data file that this process is a participant.
    _presence: Presence,
    map: &'static ProcessMap,
    /// Whether it lies at its address. Changed only under the map's lock.
    home: AtomicBool,
    /// The number of users that need it to stay at its address. Changed only under the map's lock.
    kept: AtomicUsize,
}

impl Placed {
    pub(crate) fn new(
        segment: Segment,
        (region, view): (Region, Option<SwitchedFile>),
        (participants, presence): (Participants, Presence),
        home: bool,
    ) -> Self {
        Self {
            segment,
            region: ManuallyDrop::new(region),
            view: ManuallyDrop::new(view),
            participants,
            _presence: presence,
            map: ProcessMap::get(),
            home: AtomicBool::new(home),
            kept: AtomicUsize::new(0),
        }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The segment's bytes by their offsets. Pointers into the segment are made from
    /// [`first_byte`](Self::first_byte).
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Whether a kernel module shows it.
    #[cfg(all(test, not(miri)))]
    pub(super) fn is_switched(&self) -> bool {
        self.view.is_some()
    }

    /// The address of the first byte.
    pub(crate) fn first_byte(&self) -> NonNull<u8> {
        let view = self.view.as_ref();
        view.map_or_else(|| self.region.first_byte(), SwitchedFile::first_byte)
    }

    pub(crate) fn participants(&self) -> &Participants {
        &self.participants
    }

    /// The addresses that the segment belongs at.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let base = self.first_byte().addr().get();
        base..base + self.region.max()
    }

    /// Takes it away from its address.
    ///
    /// # Safety
    /// Until it has been brought [back](Self::unpark), nobody may use a pointer or reference into
    /// it.
    pub(super) unsafe fn park(&self) -> Result<(), RegionError> {
        match &*self.view {
            // SAFETY: the caller's promise.
            None => unsafe { self.region.park() },
            // SAFETY: as above.
            Some(view) => unsafe { view.hide() }.map_err(kernel::failed("hide a segment")),
        }
    }

    /// Brings it to its address, at which nothing lies.
    pub(super) fn unpark(&self) -> Result<(), RegionError> {
        match &*self.view {
            None => self.region.unpark(),
            // SAFETY: nothing else is there.
            Some(view) => unsafe { view.show() }.map_err(kernel::failed("show a segment")),
        }
    }

    /// Makes `len` bytes, which the region has, present at the segment's address.
    #[inline]
    pub(crate) fn reach(&self, len: usize) -> Result<(), RegionError> {
        match &*self.view {
            None => Ok(()),
            Some(view) => view
                .follow(len)
                .map_err(kernel::failed("show more of a segment")),
        }
    }

    /// Follows growth by others; returns the length.
    pub(crate) fn refresh(&self) -> Result<usize, RegionError> {
        let len = self.region.refresh()?;
        self.reach(len)?;
        Ok(len)
    }

    /// Makes the segment at least `bytes` long; returns its new length.
    pub(crate) fn grow(&self, bytes: usize) -> Result<usize, MapError> {
        let len = grow_region(&self.region, bytes)?;
        self.reach(len).map_err(MapError::Grow)?;
        Ok(len)
    }

    #[inline]
    pub(crate) fn is_home(&self) -> bool {
        // SYNC: pairs with the Release store in `set_home`: a thread that sees the flag sees the
        // whole mapping.
        self.home.load(Ordering::Acquire)
    }

    pub(crate) fn set_home(&self, home: bool) {
        // SYNC: pairs with the Acquire load in `is_home`.
        self.home.store(home, Ordering::Release);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn kept(&self, by: isize) {
        // Relaxed: read and written under the map's lock.
        let kept = self.kept.load(Ordering::Relaxed);
        self.kept
            .store(kept.saturating_add_signed(by), Ordering::Relaxed);
    }

    /// Makes the mapping writable too, if that is wanted.
    pub(crate) fn permit(&self, access: Access) -> Result<(), MapError> {
        if access == Access::ReadOnly {
            return Ok(());
        }
        match self.region.permit_writes() {
            Err(RegionError::Os { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
                Err(MapError::NotWritable {
                    path: self.segment.meta().data.clone(),
                    source,
                })
            }
            other => Ok(other?),
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // In a forked child the table is the parent's and may be locked, and the memory was not
        // inherited.
        if self.map.is_forked() {
            return;
        }
        let (uuid, base) = (self.segment.uuid(), self.addresses().start);
        // SAFETY: dropped only here; nobody uses the mapping any more.
        self.map.end(uuid, base, || unsafe {
            ManuallyDrop::drop(&mut self.view);
            ManuallyDrop::drop(&mut self.region);
        });
    }
}

/// A segment that stays at its address in this process as long as this value exists, for code that
/// uses its memory without sections. `Send + Sync`; a forked child must not touch the memory.
pub struct Mapping(Arc<Placed>);

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("segment", self.segment().name())
            .field("base", &self.base())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Mapping {
    /// The segment that is mapped.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.0.segment
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.0.first_byte().as_ptr()
    }

    /// Whether nothing is committed, which is never so: a segment has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.region.is_empty()
    }

    /// The committed length that is mapped here, in bytes. [`refresh`](Self::refresh) follows
    /// growth by others.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.region.len()
    }

    /// Statistics of the segment's control region: the numbers of participating processes and
    /// threads. All are 0 in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.participants.stats()
    }

    /// The segment's participants and locks, for code that lays out the segment's contents itself.
    ///
    /// # Safety
    /// Gate 0 is the lock that sections take, and [`Participants::region`] gives access to its
    /// words. Code that changes these words, or takes over a dead owner's lock without repairing
    /// what the owner was changing, allows a section of the segment to run at the same time as a
    /// writer: two `&mut` to one value.
    #[must_use]
    pub unsafe fn participants(&self) -> &Participants {
        &self.0.participants
    }

    /// The mapped data as bytes without a type, for crates that lay them out themselves.
    ///
    /// # Safety
    /// A segment with an address has a heap, whose contents have types. Reading or writing them
    /// without the segment's lock, or against their types, is undefined behaviour in sections. In a
    /// [floating](crate::SegmentBuilder::floating) segment everything beyond the header belongs to
    /// the caller, and only the caller may read and write the bytes. Where a kernel module shows
    /// the segment at its [address](Self::base), the region has the same bytes at another one.
    #[must_use]
    pub unsafe fn region(&self) -> &Region {
        &self.0.region
    }

    /// Brings the bytes of `range` into memory and into this process's page tables, so that threads
    /// that enter later have no page faults. Costs as much as [`Region::prefault`].
    ///
    /// # Errors
    /// There is not enough memory; the range is not committed.
    pub fn prefault(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.0.region.prefault(range)
    }

    /// Extends the mapping if others have grown the segment; returns the length. Does nothing in a
    /// forked child.
    ///
    /// # Errors
    /// The data file was truncated.
    pub fn refresh(&self) -> Result<usize, RegionError> {
        if self.0.map.is_forked() {
            return Ok(self.len());
        }
        self.0.refresh()
    }

    /// Makes the segment at least `bytes` long, in place; returns its new length.
    ///
    /// # Errors
    /// As [`Segment::grow`]; the segment is mapped for reading only; [`MapError::Forked`].
    pub fn grow(&self, bytes: usize) -> Result<usize, MapError> {
        if self.0.map.is_forked() {
            return Err(MapError::Forked);
        }
        self.0.grow(bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.0.map.is_forked() {
            self.0.map.release(&self.0);
        }
    }
}

impl Segment {
    /// Maps the segment into this process, at its address or, if it floats, anywhere, and makes the
    /// process a participant. An existing mapping is shared, and becomes writable in place if
    /// requested. Takes 15 us for any size, because the data are not touched, and 0.3 us if the
    /// segment is already mapped.
    ///
    /// This takes no lock: others may be changing the segment's contents. As long as the result
    /// exists, no other segment can use the addresses in this process. Segments of an
    /// [`Attachment`](crate::Attachment), in contrast, can take turns.
    ///
    /// # Errors
    /// [`MapError::Occupied`] if another segment is mapped there in this process and cannot be
    /// moved, [`MapError::Busy`] if threads are in a section of it; [`MapError::Contents`] if
    /// another crate lays the segment out (use [`parts`](Segment::parts)); the permissions of the
    /// data or of `control` forbid it; a part is damaged or gone.
    pub fn map(&self, access: Access) -> Result<Mapping, MapError> {
        let map = ProcessMap::get();
        let placed = map.admit(self, access)?;
        map.keep(&placed)?;
        let mapping = Mapping(placed);
        mapping.refresh()?;
        Ok(mapping)
    }
}

/// This process as a participant of a segment.
pub(crate) enum Participation {
    /// Through an existing mapping.
    Mapped(Arc<Placed>),
    /// Separately, without a mapping.
    Apart(
        Participants,
        #[expect(dead_code, reason = "held, not read")] Presence,
    ),
}

impl Participation {
    /// Becomes a participant of a segment. A process that has it mapped remains one participant, so
    /// that a search for other processes does not find this one.
    pub(crate) fn begin(segment: &Segment) -> Result<Self, MapError> {
        if let Some(placed) = ProcessMap::get().placed(segment.uuid()) {
            return Ok(Self::Mapped(placed));
        }
        let (participants, way) = open_way(&segment.control(), segment.uuid())?;
        let path = &segment.meta().data;
        let presence = Presence::announce(&data::open(path, Access::ReadOnly)?, path, way)?;
        Ok(Self::Apart(participants, presence))
    }

    pub(crate) fn participants(&self) -> &Participants {
        match self {
            Self::Mapped(placed) => placed.participants(),
            Self::Apart(participants, _) => participants,
        }
    }
}

/// Where to map a segment's data.
pub(crate) enum Location {
    /// At any free address, because the segment floats.
    Anywhere,
    /// At the segment's address, now or later.
    Window { window: Window, home: bool },
    /// Anywhere, and a kernel module shows it at its address, later.
    Kernel { window: SwitchedWindow },
}

/// Maps the data of a segment, and records on the data file that this process participates through
/// `way`'s control file.
pub(crate) fn map_data(
    segment: &Segment,
    access: Access,
    location: Location,
    way: Way,
) -> Result<(Region, Option<SwitchedFile>, Presence), MapError> {
    let meta = segment.meta();
    // Open a mapping for reading with write permission too if that is allowed, so that it can
    // become writable in place.
    let file = match (data::open_for(meta, Access::ReadWrite), access) {
        (Ok(file), _) => file,
        (Err(_), Access::ReadOnly) => data::open_for(meta, Access::ReadOnly)?,
        (Err(refused), Access::ReadWrite) => return Err(refused),
    };
    // Checked before the file is mapped: a missing header would cause a fault.
    data::examine_file(&file, meta)?;
    let presence = Presence::announce(&file, &meta.data, way)?;
    let (max, pages) = (meta.max_size, meta.pages);
    let reserve = Reserve::AtGrowth;
    let (base, window, home) = match (meta.base, location) {
        (Some(base), Location::Window { window, home }) => (base, window, home),
        (Some(base), Location::Kernel { window }) => {
            let copy = file
                .try_clone()
                .map_err(FileError::at("open", &meta.data))?;
            let region = data::map_floating(file, access, max, pages)?;
            let view = kernel::view(&window, &copy, base, &region)?;
            return Ok((region, Some(view), presence));
        }
        (_, _) => {
            return Ok((
                data::map_floating(file, access, max, pages)?,
                None,
                presence,
            ));
        }
    };
    let map = if home {
        Region::map_at
    } else {
        Region::map_parked
    };
    let file = file.into();
    let region = map(file, access, max, pages, reserve, &window, base)?;
    Ok((region, None, presence))
}
