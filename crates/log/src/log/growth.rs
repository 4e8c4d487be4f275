//! Grows a store while it is in use: nothing moves, and no thread waits.
//!
//! The tables were laid out for the maximum size of the store. Growing commits memory after the
//! present end and hands it to the arena. Other openings of the region notice when they first load
//! a location beyond what they have mapped.

use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::FRAME_BYTES;
use mneme_sync::Slot;
use mneme_sys::RegionError;

use crate::error::GrowError;
use crate::log::Log;

impl Log {
    /// The present size of the store in bytes, whatever part of it this opening has mapped.
    pub(crate) fn capacity(&self) -> u64 {
        self.region_frames().saturating_sub(self.extra_frames()) * FRAME_BYTES
    }

    fn region_frames(&self) -> u64 {
        u64::from(self.arena.end_frame())
    }

    /// Frames of the region that are no part of the capacity.
    pub(crate) fn extra_frames(&self) -> u64 {
        // Relaxed: the number stands for itself.
        self.session().tables.header().extra.load(Relaxed)
    }

    /// Lets a store that is being loaded use at least `bytes` bytes more than its capacity, until
    /// [`end_extension`](Self::end_extension). No other opening has the store.
    pub(crate) fn extend(&self, slot: &Slot<'_>, bytes: u64) -> Result<(), GrowError> {
        let before = self.region_frames();
        self.grow_region(slot, before * FRAME_BYTES + bytes)?;
        let grown = self.region_frames() - before;
        self.session()
            .tables
            .header()
            .extra
            .fetch_add(grown, Relaxed);
        Ok(())
    }

    /// Keeps as many frames free as the store is larger than its capacity.
    pub(crate) fn end_extension(&self) -> Result<(), RegionError> {
        let reserve = self.reserve_for(self.capacity() / FRAME_BYTES) + self.extra_frames();
        self.arena.set_reserve(reserve as u32)
    }

    /// Bytes that the store may grow to.
    pub(crate) fn max_capacity(&self) -> u64 {
        let stats = self.arena.stats();
        let frames = u64::from(stats.own) + u64::from(stats.frames) + u64::from(stats.growable);
        (frames * FRAME_BYTES).min(self.session().mem.region().max() as u64)
    }

    /// An upper bound on its size in bytes, at little cost.
    #[inline]
    pub(crate) fn most_bytes(&self) -> u64 {
        self.session().mem.region().max() as u64
    }

    /// Frames that only compaction may claim, in a store of `frames` frames: a 50th, but not fewer
    /// than when the store was created.
    fn reserve_for(&self, frames: u64) -> u64 {
        (frames / 50).max(self.session().tables.geometry.reserve_frames)
    }

    /// See [`LogStore::grow`](crate::LogStore::grow).
    pub(crate) fn grow(&self, slot: &Slot<'_>, bytes: u64) -> Result<u64, GrowError> {
        let max = self.max_capacity();
        if bytes > max {
            return Err(GrowError::BeyondMax { asked: bytes, max });
        }
        let machine = mneme_sys::total_memory();
        if self.session().mem.region().is_private() && bytes > machine {
            return Err(GrowError::TooLarge {
                asked: bytes,
                machine,
            });
        }
        self.grow_region(slot, bytes)?;
        mneme_sys::fault!("log.grow.grown");
        let extra = self
            .region_frames()
            .saturating_sub(bytes.div_ceil(FRAME_BYTES));
        self.session()
            .tables
            .header()
            .extra
            .fetch_min(extra, Relaxed);
        // If two threads grow at once, or one died before this step, the reserve is smaller than a
        // 50th and still enough for compaction to start.
        self.end_extension()?;
        Ok(self.capacity())
    }

    fn grow_region(&self, slot: &Slot<'_>, bytes: u64) -> Result<(), GrowError> {
        self.arena.grow(slot, bytes).map_err(|e| match e {
            mneme_arena::GrowError::BeyondMax { wanted, max } => {
                GrowError::BeyondMax { asked: wanted, max }
            }
            mneme_arena::GrowError::Stalled(stalled) => GrowError::Stalled(stalled),
            mneme_arena::GrowError::Region(error) => GrowError::Region(error),
        })?;
        Ok(())
    }
}
