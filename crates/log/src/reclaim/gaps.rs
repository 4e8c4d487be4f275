//! Reusing what dead records leave in log segments of bulk records.
//!
//! Moving records of hundreds of kilobytes because some between them have died is expensive, and
//! takes free space that a full store does not have. So a *gap*, which is dead records side by side
//! in a closed segment and any unused space after its last record, is given to a head, which
//! appends there. First one filler replaces the dead records; from then on a walk steps over it.
//!
//! **The bytes of a gap are overwritten after a grace period** that began when its records were
//! found dead: all readers that may know them have unpinned. Meanwhile the segment belongs to the
//! caller, as a victim does. It is opened again, in a new life: a thread that saw the earlier life
//! can no longer act on it, and it becomes a victim again only after a grace period of its next
//! closing.
//!
//! The smallest sufficient gap is taken, in the segment with the least free space that has one
//! (best fit). If there is none, a *window* is cleared: a sequence of records and the gaps between
//! them that is long enough, and whose live records fit gaps of other segments. The window with the
//! fewest live bytes is chosen, if these are at most twice the bytes of the record that is to be
//! stored.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};

use mneme_arena::{FRAME_BYTES, Frame};
use mneme_sync::Slot;

use crate::error::WriteError;
use crate::log::head::Leave;
use crate::log::segment::{State, StateWord, frame_byte};
use crate::reclaim::Reclaim;
use crate::reclaim::survivors::Walk;
use crate::region::layout::{Head, LogSegmentInfo};
use crate::region::mem::Loc;
use crate::region::record::Header;

/// Shorter gaps are not used.
const MIN_GAP: u64 = 64 << 10;
/// The number of segments that are walked for one gap.
const LOOKS: usize = 64;
/// The limit for the bytes that are moved, as a multiple of the record's.
const MOST_MOVED: u64 = 2;
/// The number of windows, cheapest first, whose records are tried for places elsewhere.
const WINDOWS: usize = 64;
/// How often a thread checks whether the readers have left, giving up its processor in between.
const GRACE_LOOKS: u32 = 64;

impl Reclaim {
    /// Gives `head` a gap for a record of `wanted` bytes. The caller is not pinned.
    pub(crate) fn reuse_gap(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        wanted: u64,
    ) -> Result<Reuse, WriteError> {
        let wanted = wanted.max(MIN_GAP);
        let mut all: Vec<(u64, Frame, StateWord)> = self
            .log()
            .segments()
            .filter(|(_, info, word, state)| {
                *state == State::Closed
                    && word.bulk()
                    && free_within(info) >= wanted
                    && !info.is_deprioritised()
                    && self.log().grace_over(info)
            })
            .map(|(frame, info, word, _)| (free_within(info), frame, word))
            .collect();
        all.sort_unstable_by_key(|(free, frame, _)| (*free, frame.0));
        for &(_, frame, word) in all.iter().take(LOOKS) {
            let claimed = word.to(State::Compacting, Some(slot.id()));
            if !self.session().tables.info(frame).change(word, claimed) {
                continue;
            }
            mneme_sys::fault!("log.gap.claimed");
            let reused = self.reuse_gap_of(slot, head, (frame, claimed), wanted);
            let info = self.session().tables.info(frame);
            if let Err(WriteError::Corrupt(_)) = reused {
                info.deprioritise();
                info.trust();
            }
            if let Ok(Reuse::Done) = reused {
                return reused;
            }
            // This fails if another life has begun.
            info.change(claimed, claimed.to(State::Closed, None));
            match reused {
                Ok(Reuse::NoGap) => {}
                // The check reports a damaged one.
                Err(WriteError::Corrupt(_)) => {}
                other => return other,
            }
        }
        Ok(Reuse::NoGap)
    }

    /// Makes the head for bulk records append to a gap, for the copy of a record of `bytes` bytes.
    /// Returns false if there is no gap. The caller is not pinned.
    pub(crate) fn make_way_for_copy(
        &self,
        slot: &Slot<'_>,
        bytes: u64,
    ) -> Result<bool, WriteError> {
        if !self.log().is_bulk(bytes) || self.log().is_large(bytes) {
            return Ok(false);
        }
        // The segment whose gap took the previous copy may have other gaps.
        self.log().stamp_segments();
        let head = self.log().bulk_head(self.session().topology.current_node());
        Ok(self.reuse_gap(slot, head, bytes)? == Reuse::Done)
    }

    /// Clears a window for a record of `wanted` bytes, and gives it to `head`. The caller is not
    /// pinned.
    pub(crate) fn clear_window(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        wanted: u64,
    ) -> Result<Reuse, WriteError> {
        // The head's own segment is one of them.
        self.log().leave_segments(slot, Leave::BehindLarge);
        self.log().stamp_segments();
        let (mut layouts, mut busy) = (Vec::new(), false);
        for (frame, info, word, state) in self.log().segments() {
            if layouts.len() == LOOKS {
                break;
            }
            busy |= word.bulk() && matches!(state, State::Compacting | State::Condemned);
            if state == State::Closed
                && word.bulk()
                && !info.is_deprioritised()
                && self.log().grace_over(info)
                && let Some(layout) = self.layout_of(slot, frame, word)?
            {
                layouts.push(layout);
            }
        }
        // Moved records may also open a segment in free frames.
        let stats = self.log().arena.stats();
        let free = stats.free.saturating_sub(stats.reserved);
        let run = u64::from(free.min(stats.longest_run)) * FRAME_BYTES;
        let Some((which, window)) = cheapest_window(&layouts, wanted, run) else {
            return Ok(match busy {
                true => Reuse::NotNow,
                false => Reuse::NoGap,
            });
        };
        let Layout { frame, word, .. } = layouts[which];
        let node = self.log().arena.node_of(frame);
        let Some((first, _worker)) = self.hold_worker(slot, node) else {
            return Ok(Reuse::NotNow);
        };
        let claimed = word.to(State::Compacting, Some(slot.id()));
        if !self.session().tables.info(frame).change(word, claimed) {
            return Ok(Reuse::NotNow);
        }
        mneme_sys::fault!("log.window.claimed");
        let lane = self.lane(first, node);
        let moved = self.move_records(slot, &lane, frame, window, None);
        let info = self.session().tables.info(frame);
        let reused = match moved {
            Ok(Walk::Empty) => self.reuse_gap_of(slot, head, (frame, claimed), wanted),
            Ok(_) => Ok(Reuse::NoGap),
            Err(error) => Err(error),
        };
        if let Ok(Reuse::Done) = reused {
            return reused;
        }
        if let Err(WriteError::Corrupt(_)) = reused {
            info.deprioritise();
            info.trust();
        }
        info.change(claimed, claimed.to(State::Closed, None));
        reused
    }

    /// The places of the live records of a closed segment. The segment is claimed meanwhile.
    /// `None`: another thread has it, or it is damaged.
    fn layout_of(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        word: StateWord,
    ) -> Result<Option<Layout>, WriteError> {
        let info = self.session().tables.info(frame);
        let claimed = word.to(State::Compacting, Some(slot.id()));
        if !info.change(word, claimed) {
            return Ok(None);
        }
        mneme_sys::fault!("log.window.looked");
        let mut live = Vec::new();
        let counted = self.visit_live(slot, frame, |record| live.push(record));
        if let Err(WriteError::Corrupt(_)) = counted {
            info.deprioritise();
            info.trust();
        }
        info.change(claimed, claimed.to(State::Closed, None));
        match counted {
            Ok(()) => Ok(Some(Layout {
                frame,
                word,
                live,
                end: info.capacity(),
            })),
            Err(WriteError::Corrupt(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// As [`reuse_gap`](Self::reuse_gap), for the segment that the caller has claimed.
    fn reuse_gap_of(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        (frame, claimed): (Frame, StateWord),
        wanted: u64,
    ) -> Result<Reuse, WriteError> {
        let session = self.session();
        let info = session.tables.info(frame);
        let end = info.written_at(frame)?;
        let Some(gap) = self.best_gap(slot, frame, end, wanted)? else {
            return Ok(Reuse::NoGap);
        };
        mneme_sys::fault!("log.gap.found");
        // After the records were seen dead. Without the barrier no grace period begins.
        let Ok(epoch) = session.participants.advance() else {
            return Ok(Reuse::NotNow);
        };
        let is_over = (0..GRACE_LOOKS).any(|_| {
            let is_over = session.participants.quiescent(epoch);
            if !is_over {
                std::thread::yield_now();
            }
            is_over
        });
        // The sweep of a dropped index follows the locations of records that count as dead.
        if !is_over || session.tables.header().sweeps_due() {
            return Ok(Reuse::NotNow);
        }
        let first = frame_byte(frame);
        let fill = |range: Range<u64>| -> Result<(), WriteError> {
            let filler = Header::filler(range.end - range.start);
            let at = session.mem.word(Loc::of_byte(first + range.start))?;
            // SYNC: pairs with the Acquire fence of a walk.
            at.store(filler.0, Release);
            Ok(())
        };
        if gap.end > end {
            // The unused space first: no header leads beyond the written part.
            fill(end..gap.end)?;
            info.set_used(gap.end);
            mneme_sys::fault!("log.gap.used");
            info.dead.fetch_add(gap.end - end, Relaxed);
        }
        fill(gap.clone())?;
        mneme_sys::fault!("log.gap.filler");
        let gap = first + gap.start..first + gap.end;
        Ok(
            match self.log().adopt_gap(slot, head, (frame, claimed), gap)? {
                true => Reuse::Done,
                false => Reuse::NotNow,
            },
        )
    }

    /// The shortest gap of at least `wanted` bytes in the claimed segment at `frame`, whose written
    /// part has `end` bytes.
    fn best_gap(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        end: u64,
        wanted: u64,
    ) -> Result<Option<Range<u64>>, WriteError> {
        let (mut from, mut best) = (0, None);
        let mut look = |gap: Range<u64>| {
            let length = |gap: &Range<u64>| gap.end - gap.start;
            let is_better = best.as_ref().is_none_or(|best| length(&gap) < length(best));
            if length(&gap) >= wanted && is_better {
                best = Some(gap);
            }
        };
        self.visit_live(slot, frame, |live| {
            look(from..live.start);
            from = live.end;
        })?;
        look(from..self.session().tables.info(frame).capacity().max(end));
        Ok(best)
    }
}

/// Where the live records of a closed segment lie, in order.
struct Layout {
    frame: Frame,
    word: StateWord,
    live: Vec<Range<u64>>,
    end: u64,
}

impl Layout {
    fn gaps(&self) -> impl Iterator<Item = u64> {
        let starts = self
            .live
            .iter()
            .map(|record| record.start)
            .chain([self.end]);
        let ends = [0]
            .into_iter()
            .chain(self.live.iter().map(|record| record.end));
        ends.zip(starts)
            .map(|(end, start)| start.saturating_sub(end))
    }

    /// The windows of at least `wanted` bytes, none of them within another, each as its live bytes,
    /// its first record, the record after its last, and its bytes.
    fn windows(&self, wanted: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<u64>)> {
        let end_of = |behind: usize| self.live.get(behind).map_or(self.end, |next| next.start);
        let (mut behind, mut sum) = (0, 0);
        (0..=self.live.len()).map_while(move |first| {
            let from = match first {
                0 => 0,
                _ => self.live[first - 1].end,
            };
            while behind < first || (behind < self.live.len() && end_of(behind) < from + wanted) {
                sum += self.live[behind].end - self.live[behind].start;
                behind += 1;
            }
            let window = (sum, first..behind, from..end_of(behind));
            if let Some(record) = self.live.get(first).filter(|_| behind > first) {
                sum -= record.end - record.start;
            }
            (window.2.end >= from + wanted).then_some(window)
        })
    }
}

/// The window of at least `wanted` bytes with the fewest live ones whose records all fit gaps of
/// other segments, or `run` free bytes, and the segment in which it lies.
fn cheapest_window(layouts: &[Layout], wanted: u64, run: u64) -> Option<(usize, Range<u64>)> {
    let mut all: Vec<_> = (0..layouts.len())
        .flat_map(|i| layouts[i].windows(wanted).map(move |window| (window, i)))
        .filter(|((live, ..), _)| *live < MOST_MOVED * wanted)
        .collect();
    all.sort_by_key(|((live, ..), _)| *live);
    let fits = |which: usize, records: &Range<usize>| {
        let others = layouts.iter().enumerate().filter(|(i, _)| *i != which);
        let mut gaps: Vec<u64> = others.flat_map(|(_, other)| other.gaps()).collect();
        gaps.push(run);
        let mut sizes: Vec<u64> = layouts[which].live[records.clone()]
            .iter()
            .map(|record| record.end - record.start)
            .collect();
        sizes.sort_unstable();
        sizes.into_iter().rev().all(|size| {
            let best = gaps.iter_mut().filter(|gap| **gap >= size).min();
            best.is_some_and(|gap| {
                *gap -= size;
                true
            })
        })
    };
    let found = all
        .into_iter()
        .take(WINDOWS)
        .find(|((_, records, _), which)| fits(*which, records));
    found.map(|((.., window), which)| (which, window))
}

/// The result of an attempt to reuse a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reuse {
    Done,
    /// No gap is long enough.
    NoGap,
    /// A reader or another thread blocks it.
    NotNow,
}

/// Bytes of a segment that belong to no live record.
pub(crate) fn free_within(info: &LogSegmentInfo) -> u64 {
    info.capacity().saturating_sub(info.live())
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use mneme_sys::NodeId;

    use super::*;
    use crate::store::{LogStore, MIN_CAPACITY};

    /// A full store whose head for bulk records has a gap.
    fn scene() -> LogStore {
        let builder = LogStore::builder().capacity(MIN_CAPACITY);
        let store = builder.maintainer(false).open_private().unwrap();
        let value = vec![1; 1 << 20];
        let stored = (0..64u8).take_while(|i| store.put(&[*i], &value).is_ok());
        let stored = stored.count() as u8;
        for i in 0..stored / 2 {
            store.remove(&[i]).unwrap();
        }
        store.put(b"in a gap", &value[..500_000]).unwrap();
        assert!(
            store
                .inner()
                .log()
                .bulk_head(NodeId(0))
                .gap
                .end
                .load(Relaxed)
                != 0
        );
        store
    }

    #[test]
    fn a_damaged_gap_refuses_writes() {
        let value = vec![2; 100_000];
        let refuses = |damage: &dyn Fn(&LogStore, &Head), mend: &dyn Fn(&LogStore, &Head)| {
            let store = scene();
            let head = store.inner().log().bulk_head(NodeId(0));
            damage(&store, head);
            let refused = store.put(b"another", &value);
            assert!(
                matches!(refused, Err(WriteError::Corrupt(_))),
                "{refused:?}"
            );
            assert_eq!(store.get(b"in a gap").unwrap().unwrap().len(), 500_000);
            mend(&store, head);
            store.put(b"another", &value).unwrap();
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        };
        // Beyond its segment, backwards, not a multiple of 8.
        for by in [1 << 40, u64::MAX - (64 << 20), 4] {
            refuses(
                &|_, head| _ = head.gap.end.fetch_add(by, Relaxed),
                &|_, head| _ = head.gap.end.fetch_sub(by, Relaxed),
            );
        }
        // The header there: not a record's, and one that leads beyond the gap.
        for change in [u64::MAX, 1 << 45] {
            let flip = |store: &LogStore, head: &Head| {
                let at = Loc::of_byte(head.gap.at.load(Relaxed));
                store
                    .inner()
                    .session()
                    .mem
                    .word(at)
                    .unwrap()
                    .fetch_xor(change, Relaxed);
            };
            refuses(&flip, &flip);
        }
    }
}
