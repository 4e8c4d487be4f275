//! Turns offsets in the control region into references. No other module does.
//!
//! [`ControlRegion::new`] checks the geometry against the region once. The region only grows, its
//! base does not move, and everything in it is atomic, so the references are valid as long as the
//! region.

use crate::SlotId;
use crate::layout::{ControlHeader, ProcessEntry, SlotLines, TableGeometry};
use mneme_sys::{Region, RegionError};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

pub(crate) struct ControlRegion {
    header: NonNull<ControlHeader>,
    processes: NonNull<ProcessEntry>,
    slots: NonNull<SlotLines>,
    undo: NonNull<AtomicU64>,
    geometry: TableGeometry,
    /// Keeps the memory mapped. It is the last field, because it must be dropped last.
    region: Region,
}

// SAFETY: the pointers lead into the region, which this owns and which is `Send` and `Sync`, and
// only to atomics.
unsafe impl Send for ControlRegion {}
// SAFETY: as above.
unsafe impl Sync for ControlRegion {}

impl ControlRegion {
    pub(crate) fn new(
        region: Region,
        geometry: TableGeometry,
    ) -> Result<ControlRegion, RegionError> {
        let processes = geometry.max_processes as usize;
        let slots = usize::from(geometry.max_threads);
        let words = slots * geometry.undo_stride() / 8;
        Ok(ControlRegion {
            header: NonNull::from(region.at::<ControlHeader>(geometry.header() as u64)?),
            processes: NonNull::from(
                region.slice_at::<ProcessEntry>(geometry.processes() as u64, processes)?,
            )
            .cast(),
            slots: NonNull::from(region.slice_at::<SlotLines>(geometry.slots() as u64, slots)?)
                .cast(),
            undo: NonNull::from(region.slice_at::<AtomicU64>(geometry.undo() as u64, words)?)
                .cast(),
            geometry,
            region,
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn geometry(&self) -> TableGeometry {
        self.geometry
    }

    pub(crate) fn header(&self) -> &ControlHeader {
        // SAFETY: checked in `new`; see the module's documentation.
        unsafe { self.header.as_ref() }
    }

    /// All process entries; entry `i` has index `i + 1`.
    pub(crate) fn processes(&self) -> &[ProcessEntry] {
        let count = self.geometry.max_processes as usize;
        // SAFETY: checked in `new`; see the module's documentation.
        unsafe { std::slice::from_raw_parts(self.processes.as_ptr(), count) }
    }

    pub(crate) fn process(&self, index: u16) -> Option<&ProcessEntry> {
        self.processes().get(usize::from(index).checked_sub(1)?)
    }

    /// All slots; slot `i` has id `i + 1`.
    pub(crate) fn all_slots(&self) -> &[SlotLines] {
        let count = usize::from(self.geometry.max_threads);
        // SAFETY: checked in `new`; see the module's documentation.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), count) }
    }

    pub(crate) fn slot(&self, id: SlotId) -> Option<&SlotLines> {
        self.all_slots().get(usize::from(id.0).checked_sub(1)?)
    }

    /// Every slot that was ever claimed, with its id.
    ///
    /// The mark of the highest slot is read by the call, not by the iteration. A reclaimer must
    /// therefore call this after its heavy barrier, and after reading an epoch that it will declare
    /// over. It then finds every slot that it must find: a thread raises the mark before it claims
    /// a slot, and so before the light barrier of its first pin.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (SlotId, &SlotLines)> {
        // SYNC: pairs with the AcqRel maximum in `Inner::claim_slot`.
        let highest = self.header().highest_slot.word.load(Acquire);
        self.all_slots()
            .iter()
            .take(usize::try_from(highest).unwrap_or(usize::MAX))
            .zip(1_u16..)
            .map(|(lines, id)| (SlotId(id), lines))
    }

    /// The undo area of a slot, as words. Empty for an id that does not exist.
    pub(crate) fn undo(&self, id: SlotId) -> &[AtomicU64] {
        let Some(index) = usize::from(id.0).checked_sub(1) else {
            return &[];
        };
        if index >= usize::from(self.geometry.max_threads) {
            return &[];
        }
        let words = self.geometry.undo_bytes / 8;
        // SAFETY: `index` is below the number of areas that `new` checked; the stride is at least
        // the area's length.
        unsafe {
            let first = self
                .undo
                .as_ptr()
                .add(index * self.geometry.undo_stride() / 8);
            std::slice::from_raw_parts(first, words)
        }
    }

    /// Zeroes everything behind the control header. Nobody may be attached.
    pub(crate) fn clear_slots(&self) -> Result<(), RegionError> {
        let begin = self.geometry.processes();
        let words = (self.geometry.end() - begin) / 8;
        for word in self.region.slice_at::<AtomicU64>(begin as u64, words)? {
            // Only nonzero words are written, so a fresh region's pages stay unallocated.
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        Ok(())
    }
}
