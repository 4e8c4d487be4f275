//! The arena grows with its region, up to the maximum that its tables were made for; nothing is
//! moved.
//!
//! The region grows first, outside the arena's lock, because allocating gigabytes takes time. Then,
//! under the lock, the intent, descriptors and zones of the new frames are written, and the growth
//! takes effect by one store of the new end. If the thread dies before that store, the next owner
//! of the lock discards the new frames, and the next growth finds the region large enough; if it
//! dies later, the next owner derives bitmap and tree.

use crate::GrowError;
use crate::arena::Arena;
use crate::descriptor::Status;
use crate::frame::FRAME_BYTES;
use crate::repair::ArenaIntent;
use crate::zone::planned;
use mneme_sync::{Lane, Slot};
use mneme_sys::RegionHeader;
use std::sync::atomic::Ordering::Release;

impl Arena {
    /// Grows the region and the arena to `new_len` bytes, rounded up to whole frames. Does nothing
    /// if the arena is already that large. New frames are spread over the nodes.
    ///
    /// # Errors
    /// `new_len` is beyond the maximum, or there is not enough memory; the arena then keeps its
    /// size.
    pub fn grow(&self, slot: &Slot<'_>, new_len: u64) -> Result<(), GrowError> {
        let max = (u64::from(self.geometry.max_frames) * FRAME_BYTES).min(self.region.max() as u64);
        if new_len > max {
            return Err(GrowError::BeyondMax {
                wanted: new_len,
                max,
            });
        }
        // At most `max_frames`, which is a u32.
        let to = new_len.div_ceil(FRAME_BYTES) as u32;
        self.region.refresh()?;
        self.region.grow((u64::from(to) * FRAME_BYTES) as usize)?;
        mneme_sys::fault!("arena.grow.region");

        let guard = self.lock::<GrowError>(slot)?;
        let from = self.end_frame();
        if to <= from {
            return Ok(());
        }
        let (table, summary) = (self.table()?, self.summary()?);
        let zones = planned(&self.raw_zones()?, from, to, self.nodes());
        self.bind(&zones, from..to);
        let intent = slot.intent(Lane::Arena);
        intent.begin(ArenaIntent::Grow as u16, &[u64::from(from), u64::from(to)]);
        mneme_sys::fault!("arena.grow.intent");
        for frame in from..to {
            if let Some(descriptor) = table.get(frame) {
                descriptor.set(Status::free(0));
            }
            mneme_sys::fault!("arena.grow.descriptor");
        }
        self.store_zones(&zones)?;
        mneme_sys::fault!("arena.grow.zones");
        // SYNC: pairs with the Acquire load in `end_frame`: a thread that sees the new frames sees
        // their descriptors.
        self.header()?.end_frame.store(to, Release);
        mneme_sys::fault!("arena.grow.end");
        RegionHeader::set_committed(&self.region, u64::from(to) * FRAME_BYTES)?;
        summary.mark(from..to, true);
        mneme_sys::fault!("arena.grow.summary");
        summary.refresh(from..to);
        drop(guard);
        mneme_sys::fault!("arena.grow.unlocked");
        intent.clear();
        Ok(())
    }
}
