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

use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::Frame;
use mneme_sync::Slot;

use crate::core::Core;
use crate::error::WriteError;
use crate::head::LARGE_SHARE;
use crate::layout::{Head, SegmentInfo};
use crate::segment::{State, StateWord};
use crate::survivors::Walk;

impl Core {
    /// Moves one victim's records, or finds large ones that nobody needs. False: no victim is worth
    /// it, or none can be had now.
    pub(crate) fn compact(&self, slot: &Slot<'_>) -> Result<bool, WriteError> {
        let geometry = &self.tables.geometry;
        for i in 0..geometry.survivors {
            let head = self.tables.head(geometry.heads + i);
            let Some(held) = head.lock.try_lock(slot) else {
                continue;
            };
            let _guard = self.inherit_head(head, held);
            let Some((frame, word)) = self.claim_victim(slot) else {
                return Ok(self.condemn_lost(slot)? > 0);
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
            let Some(benefit) = benefit(info, self.segment_bytes(), now) else {
                continue;
            };
            if best.as_ref().is_none_or(|b| benefit > b.0) {
                best = Some((benefit, frame, word));
            }
        }
        let (_, frame, word) = best?;
        mneme_sys::fault!("compact.chosen");
        let claimed = word.to(State::Compacting, Some(slot.id()));
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
        let info = self.tables.info(frame);
        if let Err(WriteError::Corrupt(_)) = walk {
            // The last that is chosen again: others are worth more, whose records can be followed.
            info.closed_at.store(u64::MAX, Relaxed);
        }
        info.change(word, word.to(State::Closed, None));
        walk.map(|_| false)
    }

    /// Whether compaction is due: fewer free frames than a few segments beyond the reserve.
    pub(crate) fn wants_compaction(&self) -> bool {
        let stats = self.arena.stats();
        let geometry = &self.tables.geometry;
        let ahead = (u64::from(stats.frames) / 32).max(2 * geometry.segment_frames);
        u64::from(stats.free) < geometry.reserve_frames + ahead
    }
}

/// How attractive a closed segment is as a victim (Nibble §3.2); `None` if a copy would gain nothing.
fn benefit(info: &SegmentInfo, segment_bytes: u64, now: u64) -> Option<f64> {
    let gain = gain(info, segment_bytes)?;
    let u = 1.0 - gain as f64 / info.capacity() as f64;
    let age = now.saturating_sub(info.closed_at.load(Relaxed)) as f64 + 1.0;
    Some((1.0 - u) * age / (1.0 + u))
}

/// Bytes won by compacting a closed segment, if they are worth a copy of the others.
///
/// An unused end counts only if it is longer than any that an ordinary closing leaves: the copies
/// would end in as long a one.
pub(crate) fn gain(info: &SegmentInfo, segment_bytes: u64) -> Option<u64> {
    // A segment whose lengths are damaged is left alone.
    let used = info.written()?;
    let capacity = info.capacity().max(used);
    let tail = capacity - used;
    let gain = used - info.live().min(used)
        + if tail > segment_bytes / LARGE_SHARE {
            tail
        } else {
            0
        };
    (gain >= capacity / 256).then_some(gain)
}
