//! How a frame is lent to the second class and returned, without the arena's lock.
//!
//! ```text
//! Free(g) or Rented(g) --begin_filling--> Filling(g+1) --seal--> Rented(g+1) --claim--> Claimed
//!                                            |                       |
//!                                            +------give_back--------+--> Free(g+1)
//! ```
//!
//! * **No late store**: the second class writes a frame only while it is `Filling`, which no claim
//!   takes. The seal is its last access for writing, so a tenant that sleeps can never wake up in
//!   the middle of a store into a frame that was claimed.
//! * **No stale copy**: a reader copies the bytes, and uses them only if the frame is still lent
//!   with the generation that it had before the copy
//!   ([`is_still_lent`](DescriptorOf::is_still_lent)).
//!
//! Park's DMEM (§2.4.2) discards page by page, under a lock. Here a claim's compare-and-swap
//! discards the whole frame.

use super::{DescriptorOf, State, Status, following};
use mneme_sync::Word;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};

impl<W: Word> DescriptorOf<W> {
    /// Takes a frame with the (free or rented) status `seen` for filling; returns its new
    /// generation, or `None` if its status has changed.
    pub fn begin_filling(&self, seen: Status) -> Option<u32> {
        if !seen.state.is_claimable() {
            return None;
        }
        let generation = following(seen.generation);
        self.change(seen, State::Filling, generation)?;
        // SYNC: pairs with two fences. As a Release fence with the one in `is_still_lent`: a reader
        // that copied a byte stored from now on finds the new generation. As a SeqCst fence with
        // the one that a claim passes after it has taken the arena's lock: either the claim sees
        // this frame filling, or the caller sees that the lock is held.
        W::fence(SeqCst);
        Some(generation)
    }

    /// Ends the filling of a frame: from now on a claim may take it. Returns whether it was being
    /// filled.
    pub fn seal(&self, generation: u32) -> bool {
        let filling = Status {
            state: State::Filling,
            ..Status::free(generation)
        };
        self.change(filling, State::Rented, generation).is_some()
    }

    /// Frees a lent frame whose status is still `seen`. Returns whether it did.
    pub fn give_back(&self, seen: Status) -> bool {
        seen.state.is_lent() && self.change(seen, State::Free, seen.generation).is_some()
    }

    /// The frame's generation, if it is lent.
    #[inline]
    pub fn lent(&self) -> Option<u32> {
        self.status()
            .filter(|status| status.state.is_lent())
            .map(|status| status.generation)
    }

    /// Whether the bytes copied from the frame, since [`lent`](Self::lent) returned this
    /// generation, belong to the second class.
    #[inline]
    pub fn is_still_lent(&self, generation: u32) -> bool {
        // SYNC: pairs with the fences in `begin_filling` and `DescriptorTable::write_run`.
        W::fence(Acquire);
        self.lent() == Some(generation)
    }

    fn change(&self, seen: Status, state: State, generation: u32) -> Option<()> {
        let new = Status {
            state,
            ..Status::free(generation)
        };
        // SYNC: pairs with `raw`. Release: a thread that claims the frame after a seal is ordered
        // after all stores of the filling. Acquire: those of the filling are ordered after those of
        // the previous claim.
        self.status
            .compare_exchange(seen.pack(), new.pack(), AcqRel, Acquire)
            .ok()
            .map(|_| ())
    }
}
