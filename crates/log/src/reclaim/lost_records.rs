//! Large records that the index does not lead to: their writer died, or gave up, before it
//! published them or after it had replaced them. Compaction finds lost ordinary records by itself.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use mneme_arena::Frame;
use mneme_sync::Slot;

use super::Reclaim;
use crate::error::Corrupt;
use crate::index::bucket::Entry;
use crate::index::lookup::Lookup;
use crate::log::head::Leave;
use crate::log::segment::{State, frame_byte};
use crate::region::mem::Loc;

impl Reclaim {
    /// Condemns the large records that are lost. Returns how many.
    pub(crate) fn condemn_lost(&self, slot: &Slot<'_>) -> usize {
        // Cleared first: a thread that loses a record after this requests another look. SYNC: pairs
        // with the Release store in `suspect_lost`.
        if self.session().tables.header().lost.swap(0, AcqRel) == 0 {
            return 0;
        }
        mneme_sys::fault!("log.lost.taken");
        // A head may append behind the lost record.
        self.log().leave_segments(slot, Leave::BehindLarge);
        let mut condemned = 0;
        for (frame, info, word, state) in self.log().segments() {
            if !word.large() {
                continue;
            }
            if state != State::Closed || !self.log().grace_over(info) {
                // The record may be about to be published.
                self.log().suspect_lost();
                continue;
            }
            let _pin = slot.pin();
            // Checked again under the pin: until the pin ends the record stays where it is. A
            // damaged segment is kept, for the check to report, and does not stop the search for
            // others.
            if info.state() == word
                && let Ok(Some(bytes)) = self.lost_bytes(frame)
            {
                // `fetch_max`: the record may have been counted already.
                info.dead.fetch_max(bytes, Relaxed);
                self.log().mark_large_dead(frame, bytes);
                condemned += 1;
            }
        }
        condemned
    }

    /// Bytes of the large record at `frame` if the index does not lead to it. The caller is pinned.
    fn lost_bytes(&self, frame: Frame) -> Result<Option<u64>, Corrupt> {
        if self.is_found(frame)? {
            return Ok(None);
        }
        let record = self.session().mem.record(Loc::of_byte(frame_byte(frame)))?;
        Ok(Some(record.header().size()))
    }

    /// Whether the index leads to the large record at `frame`. The caller is pinned.
    fn is_found(&self, frame: Frame) -> Result<bool, Corrupt> {
        let loc = Loc::of_byte(frame_byte(frame));
        let record = self.session().mem.record(loc)?;
        let Some(root) = self.index().root(record.header().space())? else {
            return Ok(false);
        };
        let place = self.index().place(record.key());
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(false);
        };
        let entry = Entry::new(place.tag, loc);
        Ok(self.session().mem.find_entry(segment, entry)?.is_some())
    }
}
