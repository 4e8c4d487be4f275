//! Compaction: moving the live records out of a log segment so that its memory is whole again.
//!
//! A victim is the closed segment of greatest benefit, `(1 - u) * age / (1 + u)` at utilisation `u`
//! (Nibble §3.2), among those whose grace period is over: every record in it was published or given
//! up. Its records are walked from header to header; one is live if the index of its database names
//! exactly this place. Live ones are copied to a survivors' head, *then* the bucket is locked, the
//! entry compared once more and swapped; whoever lost the race leaves a dead copy. Readers are never
//! in the way: the old bytes stay until the last of them has unpinned.
//!
//! Any thread may do this, as many at once as there are survivors' heads.

use mneme_arena::{Class, Frame};
use mneme_sync::Slot;

use crate::core::Core;
use crate::error::WriteError;
use crate::layout::{Head, SegmentInfo};
use crate::mem::Loc;
use crate::ops::{Expect, Published};
use crate::record::{Header, Record};
use crate::segment::{State, StateWord, frame_byte};

/// Records moved under one pin.
const CHUNK: usize = 64;

/// How a walk over a victim's records ended.
enum Walk {
    /// All its live records lie elsewhere.
    Empty,
    /// There is no room for the survivors.
    NoRoom,
}

impl Core {
    /// Moves one victim's records. False: no victim is worth it, or none can be had now.
    pub(crate) fn compact(&self, slot: &Slot<'_>) -> Result<bool, WriteError> {
        let geometry = &self.tables.geometry;
        for i in 0..geometry.survivors {
            let head = self.tables.head(geometry.heads + i);
            let Some(held) = head.lock.try_lock(slot) else {
                continue;
            };
            let _guard = self.inherit_head(head, held);
            let Some((frame, word)) = self.claim_victim(slot) else {
                return Ok(false);
            };
            mneme_sys::fault!("compact.claimed");
            return self.compact_victim(slot, head, frame, word);
        }
        Ok(false)
    }

    /// Claims the closed segment of greatest benefit.
    fn claim_victim(&self, slot: &Slot<'_>) -> Option<(Frame, StateWord)> {
        let now = self.clock.now_ns();
        let mut best: Option<(f64, Frame, StateWord)> = None;
        for (frame, info, word, state) in self.segments() {
            if state != State::Closed || word.large() || !self.grace_over(info) {
                continue;
            }
            let Some(benefit) = benefit(info, now) else {
                continue;
            };
            if best.as_ref().is_none_or(|b| benefit > b.0) {
                best = Some((benefit, frame, word));
            }
        }
        let (_, frame, word) = best?;
        let claimed = StateWord::new(State::Compacting, Some(slot.id()), false);
        self.tables
            .info(frame)
            .change(word, claimed)
            .then_some((frame, claimed))
    }

    /// Walks a claimed victim, condemns it if that emptied it, else gives it back.
    fn compact_victim(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        frame: Frame,
        word: StateWord,
    ) -> Result<bool, WriteError> {
        let walk = self.move_records(slot, head, frame);
        if let Ok(Walk::Empty) = walk {
            mneme_sys::fault!("compact.moved");
            self.condemn(frame, word);
            mneme_sys::fault!("compact.condemned");
            return Ok(true);
        }
        self.tables
            .info(frame)
            .change(word, StateWord::new(State::Closed, None, false));
        walk.map(|_| false)
    }

    fn move_records(&self, slot: &Slot<'_>, head: &Head, frame: Frame) -> Result<Walk, WriteError> {
        let end = self.tables.info(frame).used();
        let mut at = 0;
        while at < end {
            let pin = slot.pin();
            for _ in 0..CHUNK {
                if at >= end {
                    break;
                }
                let loc = Loc::of_byte(frame_byte(frame) + at);
                let record = self.mem.record(loc)?;
                at += record.header().size();
                let Some(root) = self.root(record.header().database())? else {
                    continue;
                };
                let place = self.place(record.key());
                // A transaction's lock is no obstacle: its bucket names the old place or the new one.
                let Some(segment) = self.mem.index_segment(&root, place)? else {
                    continue;
                };
                let live = self.mem.find_in(segment, place.tag, record.key())?;
                if live.is_none_or(|found| found.entry.loc() != loc) {
                    continue;
                }
                let header = record.header();
                let Some(copy) = self.copy_record(slot, head, record)? else {
                    return Ok(Walk::NoRoom);
                };
                mneme_sys::fault!("compact.copied");
                let key = record.key();
                let swapped = self.publish(
                    slot,
                    &pin,
                    &root,
                    place,
                    key,
                    Some(copy),
                    header.size(),
                    Expect::At(loc),
                )?;
                debug_assert!(matches!(swapped, Published::Replaced | Published::Conflict));
                mneme_sys::fault!("compact.swapped");
            }
        }
        Ok(Walk::Empty)
    }

    /// Copies a record to the survivors' head.
    fn copy_record(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        record: Record<'_>,
    ) -> Result<Option<Loc>, WriteError> {
        let headers: [Header; 1] = [record.header()];
        let mut locs = [Loc::of_byte(0)];
        if self.append_held(slot, head, &headers, &mut locs, Class::Reserved)? == 0 {
            return Ok(None);
        }
        let bytes = record.whole();
        let to = self.mem.address(locs[0], bytes.len() as u64)?;
        // SAFETY: `append_held` gave these bytes to this thread alone; the header, already written
        // there, is skipped, for others may be reading it.
        unsafe {
            to.add(8)
                .copy_from_nonoverlapping(bytes.as_ptr().add(8), bytes.len() - 8)
        };
        Ok(Some(locs[0]))
    }

    /// Whether compaction is due: fewer free frames than a few segments beyond the reserve.
    pub(crate) fn wants_compaction(&self) -> bool {
        let stats = self.arena.stats();
        let geometry = &self.tables.geometry;
        let ahead = (u64::from(stats.frames) / 32).max(2 * geometry.segment_frames);
        u64::from(stats.free) < geometry.reserve_frames + ahead
    }
}

/// What compacting a segment gains; `None` if it gains nothing worth a copy.
fn benefit(info: &SegmentInfo, now: u64) -> Option<f64> {
    let capacity = info.capacity() as f64;
    let u = info.live() as f64 / capacity;
    // Below a fiftieth dead, copying 50 bytes would win one.
    if u > 0.98 {
        return None;
    }
    let age =
        now.saturating_sub(info.closed_at.load(std::sync::atomic::Ordering::Relaxed)) as f64 + 1.0;
    Some((1.0 - u) * age / (1.0 + u))
}
