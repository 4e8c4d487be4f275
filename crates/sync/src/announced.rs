//! Announcements: **a thread that stores a request to all others, and then collects the announced
//! intents, misses no thread that may not have seen the request.**
//!
//! A thread announces what it is about to do by an intent, passes the light barrier, and then loads
//! the word with the request. The requesting thread stores that word, passes the heavy barrier, and
//! then collects all intents. A thread whose intent is not among them sees the request; one whose
//! intent is among them may have loaded the word too early. The requesting thread does not wait for
//! those, because one of them may be stopped. Once an intent is gone, its operation is done or
//! undone, and the effect is visible.

use crate::atomics::Barrier;
use crate::participants::Participants;
use crate::{Lane, SlotError, SlotId, intent};
use std::sync::atomic::Ordering::Relaxed;

/// Intents that were in slots at one moment and may not be over yet.
#[derive(Clone, Debug, Default)]
pub struct Announced {
    intents: Vec<(SlotId, Lane, u64)>,
}

impl Announced {
    /// Whether all of them are over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.intents.is_empty()
    }

    /// A thread whose intent was not over when this was last [settled](Participants::settle).
    #[must_use]
    pub fn first(&self) -> Option<SlotId> {
        self.intents.first().map(|(slot, ..)| *slot)
    }
}

impl Participants {
    /// All intents of the given lanes, in any slot. Costs a barrier between processes, 2 to 10 us,
    /// and a load for each slot in use. Empty in a forked child.
    ///
    /// # Errors
    /// [`SlotError::Barrier`].
    pub fn announced(&self, lanes: &[Lane]) -> Result<Announced, SlotError> {
        let inner = self.inner();
        if inner.is_forked() {
            return Ok(Announced::default());
        }
        // SYNC: pairs with `light_barrier` and the one in `is_watched`: either the thread with an
        // intent sees the caller's earlier stores, or its intent is found here.
        inner.barrier().heavy()?;
        let lines = inner.control().slots().flat_map(|(slot, lines)| {
            lanes.iter().filter_map(move |&lane| {
                let standing = intent::standing(&lines.intents[lane as usize].head)?;
                Some((slot, lane, standing))
            })
        });
        Ok(Announced {
            intents: lines.collect(),
        })
    }

    /// A number that changes whenever a thread, except the one with slot `but`, announces an intent
    /// in one of those lanes. Costs a load for each slot in use. It establishes no memory order.
    #[must_use]
    pub fn announcements(&self, lanes: &[Lane], but: SlotId) -> u64 {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let others = inner.control().slots().filter(|(slot, _)| *slot != but);
        let each = others.flat_map(|(_, lines)| {
            // Relaxed: only a change matters.
            let head = |lane: &Lane| lines.intents[*lane as usize].head.load(Relaxed);
            lanes.iter().map(move |lane| intent::sequence(head(lane)))
        });
        each.fold(0, u64::wrapping_add)
    }

    /// Removes the intents that are over and returns their number. The effects of their operations
    /// are visible to the caller.
    pub fn settle(&self, announced: &mut Announced) -> usize {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let before = announced.intents.len();
        announced.intents.retain(|(slot, lane, standing)| {
            let lines = inner.control().slot(*slot);
            lines.is_some_and(|lines| {
                intent::standing(&lines.intents[*lane as usize].head) == Some(*standing)
            })
        });
        before - announced.intents.len()
    }
}
