//! Makes a run of free frames for a large record, when there are enough free frames but no such
//! run.
//!
//! Everything else leaves large records where they are. This searches for the window of frames that
//! costs the fewest bytes to empty: its closed log segments are moved as compaction moves its
//! victims, large records to extents of their own. Index frames cannot move, and nothing waits for
//! open segments: a window with either does not count. Other threads may take the freed frames
//! first, so the caller retries, a bounded number of times.

use std::ops::Range;

use mneme_arena::{ExtentState, FRAME_BYTES, Frame};
use mneme_sync::Slot;

use crate::error::WriteError;
use crate::log::segment::{State, StateWord, TAG_INDEX, TAG_LOG};
use crate::reclaim::Reclaim;

/// A piece of the arena: a free run, or an extent.
struct Piece {
    start: u32,
    frames: u32,
    /// Bytes that must be moved to empty it; `None`: it cannot be emptied now.
    cost: Option<u64>,
    victim: Option<(Frame, StateWord)>,
}

impl Reclaim {
    /// Whether a claim of `frames` frames fails only because there is no such run.
    pub(crate) fn lacks_run(&self, frames: u32) -> bool {
        let stats = self.log().arena.stats();
        stats.free >= stats.reserved.saturating_add(frames) && stats.longest_run < frames
    }

    /// Empties the cheapest window of `frames` adjacent frames. Returns false if there is none.
    pub(crate) fn vacate(&self, slot: &Slot<'_>, frames: u32) -> Result<bool, WriteError> {
        let pieces = self.pieces();
        let mut moved = false;
        for &(frame, word) in self.cheapest_window(&pieces, frames).iter() {
            moved |= self.compact_this(slot, frame, word)?;
        }
        Ok(moved)
    }

    /// Whether a run of `frames` frames would be free between those of the index if nothing else
    /// were in the store.
    pub(crate) fn could_lie(&self, frames: u32) -> bool {
        let stats = self.log().arena.stats();
        let (mut from, end) = (stats.own, stats.own + stats.frames);
        let index = self
            .log()
            .arena
            .extents()
            .filter(|found| found.tag == TAG_INDEX);
        for extent in index.map(|found| found.extent) {
            if extent.start.0.saturating_sub(from) >= frames {
                return true;
            }
            from = extent.start.0.saturating_add(extent.frames);
        }
        end.saturating_sub(from) >= frames
    }

    /// The arena's extents and the free runs between them, by address.
    fn pieces(&self) -> Vec<Piece> {
        let stats = self.log().arena.stats();
        let (mut next, end) = (stats.own, stats.own + stats.frames);
        let mut pieces = Vec::new();
        // A frame that is being filled for the second class cannot be emptied.
        let filling = self.log().arena.being_filled();
        let piece = |range: Range<u32>, cost: Option<u64>| Piece {
            start: range.start,
            frames: range.end - range.start,
            cost,
            victim: None,
        };
        let free = |pieces: &mut Vec<Piece>, mut from: u32, to: u32| {
            for &Frame(frame) in &filling {
                if (from..to).contains(&frame) {
                    pieces.push(piece(from..frame, Some(0)));
                    pieces.push(piece(frame..frame + 1, None));
                    from = frame + 1;
                }
            }
            pieces.push(piece(from..to, Some(0)));
        };
        for found in self.log().arena.extents() {
            let (frame, frames) = (found.extent.start, found.extent.frames);
            if frame.0 < next || frame.0.saturating_add(frames) > end {
                // Its owner changed during the walk.
                continue;
            }
            if frame.0 > next {
                free(&mut pieces, next, frame.0);
            }
            let info = self.session().tables.info(frame);
            let word = info.state();
            let movable = found.tag == TAG_LOG
                && found.state == ExtentState::Held
                && word.state() == Some(State::Closed)
                && self.log().grace_over(info);
            pieces.push(Piece {
                start: frame.0,
                frames,
                cost: movable.then(|| info.live()),
                victim: movable.then_some((frame, word)),
            });
            next = frame.0 + frames;
        }
        if next < end {
            free(&mut pieces, next, end);
        }
        pieces
    }

    /// The victims in the cheapest window; of equally cheap windows the last, because new extents
    /// are claimed from the front.
    fn cheapest_window(&self, pieces: &[Piece], frames: u32) -> Vec<(Frame, StateWord)> {
        let free: u64 = pieces
            .iter()
            .filter(|piece| piece.victim.is_none() && piece.cost.is_some())
            .map(|piece| u64::from(piece.frames))
            .sum();
        let mut best: Option<(u64, &[Piece])> = None;
        for first in 0..pieces.len() {
            let node = self.log().arena.node_of(Frame(pieces[first].start));
            let (mut long, mut cost, mut inside) = (0, 0, 0);
            for (n, piece) in pieces[first..].iter().enumerate() {
                let Some(bytes) = piece.cost else {
                    break;
                };
                if self.log().arena.node_of(Frame(piece.start)) != node {
                    break;
                }
                long += piece.frames;
                cost += bytes;
                if piece.victim.is_none() {
                    inside += u64::from(piece.frames);
                }
                if best.is_some_and(|(least, _)| cost > least) {
                    break;
                }
                if long >= frames {
                    // There must be free space elsewhere for what is moved.
                    if cost > 0 && cost <= (free - inside) * FRAME_BYTES {
                        best = Some((cost, &pieces[first..=first + n]));
                    }
                    break;
                }
            }
        }
        let window = best.map_or(&[][..], |(_, window)| window);
        window.iter().filter_map(|piece| piece.victim).collect()
    }
}
