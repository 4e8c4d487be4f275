//! Segments as this process has them mapped.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mneme_sync::{Participants, Stats};
use mneme_sys::{Access, Region, RegionError, Reserve, Window};

use super::{Map, ProcessMap};
use crate::segment::control::open_way;
use crate::segment::presence::{Presence, Way};
use crate::segment::{data, grow_region};
use crate::{GrowError, MapError, Segment};

/// A segment that this process has mapped: shared by all that use it here. It ends with the last of
/// them, and gives the addresses back.
///
/// Its region's memory may be used while a section is inside of it, or while it is kept.
pub(crate) struct Placed {
    segment: Segment,
    /// Dropped under the map's lock, so that the place is free once the map says so.
    region: ManuallyDrop<Region>,
    participants: Participants,
    /// Says on the data that this process takes part.
    _presence: Presence,
    map: &'static ProcessMap,
    /// It lies at its address. Changes under the map's lock.
    home: AtomicBool,
    /// How many need it there for good. Changes under the map's lock.
    kept: AtomicUsize,
}

impl Placed {
    pub(crate) fn new(
        segment: Segment,
        region: Region,
        (participants, presence): (Participants, Presence),
        home: bool,
    ) -> Self {
        Self {
            segment,
            region: ManuallyDrop::new(region),
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

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn participants(&self) -> &Participants {
        &self.participants
    }

    /// Where it belongs.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let base = self.region.base().addr();
        base..base + self.region.max()
    }

    #[inline]
    pub(crate) fn is_home(&self) -> bool {
        // SYNC: pairs with the Release store in `set_home`: a thread that sees it there sees all of
        // it.
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

    /// Allows stores too, if that is wanted.
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
        // In a forked child the table is the parent's, perhaps locked, and the memory was withheld.
        if self.map.is_forked() {
            return;
        }
        let (uuid, base) = (self.segment.uuid(), self.region.base().addr());
        // SAFETY: dropped here and nowhere else; nobody has the mapping any more.
        self.map.end(uuid, base, || unsafe {
            ManuallyDrop::drop(&mut self.region)
        });
    }
}

/// A segment that lies at its address in this process for as long as this lives, for code that uses
/// its memory without sections. `Send + Sync`; a forked child may not touch the memory.
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
        self.0.region.base()
    }

    /// Nothing is committed: never so, for a segment has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.region.is_empty()
    }

    /// Committed bytes that are mapped here. [`refresh`](Self::refresh) follows others' growth.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.region.len()
    }

    /// Whether stores are possible. Once they are, they stay so while anybody in the process has
    /// the segment mapped.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.region.access()
    }

    /// Figures of the segment's control region: how many processes and threads take part. All are 0
    /// in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.participants.stats()
    }

    /// The segment's participants and locks, for code that lays the segment out itself.
    ///
    /// # Safety
    /// Gate 0 is the lock that sections take, and [`Participants::region`] leads to its words. Code
    /// that changes these words, or takes the lock of a dead owner without repairing what that
    /// owner was changing, lets a section of the segment run beside a writer: two `&mut` to one
    /// value.
    #[must_use]
    pub unsafe fn participants(&self) -> &Participants {
        &self.0.participants
    }

    /// The mapped data, of which nothing is known: for crates that lay it out themselves.
    ///
    /// # Safety
    /// A segment with an address has a heap, whose contents have types. What is read or written of
    /// them without the segment's lock, or against their types, is undefined behaviour in sections.
    /// Of a [floating](crate::SegmentBuilder::floating) one everything beyond the header is the
    /// caller's, and the bytes are to be read and written by the caller alone.
    #[must_use]
    pub unsafe fn region(&self) -> &Region {
        &self.0.region
    }

    /// Brings the bytes of `range` into memory now, and into this process' page tables: threads
    /// that enter later meet no faults. Costs as [`Region::prefault`].
    ///
    /// # Errors
    /// There is no memory for it; the range is not committed.
    pub fn prefault(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.0.region.prefault(range)
    }

    /// Follows growth by others; returns the length. A forked child follows nobody.
    ///
    /// # Errors
    /// The data file was truncated.
    pub fn refresh(&self) -> Result<usize, RegionError> {
        if self.0.map.is_forked() {
            return Ok(self.len());
        }
        self.0.region.refresh()
    }

    /// Makes the segment at least `bytes` long, in place; returns its length.
    ///
    /// # Errors
    /// As [`Segment::grow`]; it is mapped for reading only; [`MapError::Forked`].
    pub fn grow(&self, bytes: usize) -> Result<usize, GrowError> {
        if self.0.map.is_forked() {
            return Err(MapError::Forked.into());
        }
        grow_region(&self.0.region, bytes)
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
    /// process a participant. What is mapped already is shared, and becomes writable in place if
    /// that is asked. Nothing of the data is touched: 15 us, whatever
    /// the size, and 0.3 us where it is mapped already.
    ///
    /// This takes no lock: others may be changing what the segment holds. As long as the result
    /// lives, no other segment can have the address in this process; those of an
    /// [`Attachment`](crate::Attachment) can.
    ///
    /// # Errors
    /// [`MapError::Occupied`] if another segment lies there in this process for good,
    /// [`MapError::Busy`] if threads are in a section of it; [`MapError::Contents`] if another
    /// crate lays it out, which [`parts`](Segment::parts) are for; the permissions of the data, or
    /// of `control`, forbid it; a part is damaged or gone.
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
    /// By the mapping that it has.
    Mapped(Arc<Placed>),
    /// Once more, without a mapping.
    Apart(
        Participants,
        #[expect(dead_code, reason = "held, not read")] Presence,
    ),
}

impl Participation {
    /// Takes part in a segment. A process that has it mapped stays one participant, so that a
    /// search for other processes does not find this one.
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

/// Where a segment's data is to be mapped.
pub(crate) enum Location {
    /// At any free address, for it floats.
    Anywhere,
    /// At its address, now or later.
    Window { window: Window, home: bool },
}

/// Maps the data of a segment, and says on them that this process takes part, having come that way.
pub(crate) fn map_data(
    segment: &Segment,
    access: Access,
    location: Location,
    way: Way,
) -> Result<(Region, Presence), MapError> {
    let meta = segment.meta();
    // For reading too, if that is allowed: it may become a writer in place.
    let file = match (data::open_for(meta, Access::ReadWrite), access) {
        (Ok(file), _) => file,
        (Err(_), Access::ReadOnly) => data::open_for(meta, Access::ReadOnly)?,
        (Err(refused), Access::ReadWrite) => return Err(refused),
    };
    // Before it is mapped: a header that is gone would be found by a fault.
    data::examine_file(&file, meta)?;
    let presence = Presence::announce(&file, &meta.data, way)?;
    let (max, pages) = (meta.max_size, meta.pages);
    let (Some(base), Location::Window { window, home }) = (meta.base, location) else {
        return Ok((data::map_floating(file, access, max, pages)?, presence));
    };
    let map = if home {
        Region::map_at
    } else {
        Region::map_parked
    };
    let reserve = Reserve::AtGrowth;
    let file = file.into();
    let region = map(file, access, max, pages, reserve, &window, base)?;
    Ok((region, presence))
}
