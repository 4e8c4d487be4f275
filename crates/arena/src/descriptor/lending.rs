//! How a frame goes to the second class and back, without the arena's lock.
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
//! * **No stale copy**: a reader copies the bytes, and believes them only if the frame is lent with
//!   the generation it had before the copy ([`is_still_lent`](DescriptorOf::is_still_lent)).
//!
//! Park's DMEM (§2.4.2) discards page by page, under a lock. Here a claim's CAS is the discard.

use super::{DescriptorOf, State, Status, following};
use mneme_sync::Word;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};

impl<W: Word> DescriptorOf<W> {
    /// Takes a frame that `seen` describes (free or rented) for filling; its new generation.
    /// `None` if it is something else by now.
    pub fn begin_filling(&self, seen: Status) -> Option<u32> {
        if !seen.state.is_claimable() {
            return None;
        }
        let generation = following(seen.generation);
        self.change(seen, State::Filling, generation)?;
        // SYNC: pairs with two fences. As a Release fence with the one in `is_still_lent`: a reader
        // that copied a byte stored from now on finds the new generation. As a SeqCst fence with
        // the one that a claim makes after it has taken the arena's lock: either the claim sees
        // this frame filling, or the caller sees the lock held.
        W::fence(SeqCst);
        Some(generation)
    }

    /// Ends the filling of a frame: from now on a claim may have it. Whether it was filling.
    pub fn seal(&self, generation: u32) -> bool {
        let filling = Status {
            state: State::Filling,
            ..Status::free(generation)
        };
        self.change(filling, State::Rented, generation).is_some()
    }

    /// Makes a lent frame free, of which `seen` was read. Whether it did.
    pub fn give_back(&self, seen: Status) -> bool {
        seen.state.is_lent() && self.change(seen, State::Free, seen.generation).is_some()
    }

    /// The generation of a frame that is lent.
    #[inline]
    pub fn lent(&self) -> Option<u32> {
        self.status()
            .filter(|status| status.state.is_lent())
            .map(|status| status.generation)
    }

    /// Whether what was copied from the frame, since [`lent`](Self::lent) gave this generation, is
    /// the second class' still.
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
        // SYNC: pairs with `raw`. Release: who claims the frame after a seal comes after all stores
        // of the filling. Acquire: those of the filling come after those of the claim before.
        self.status
            .compare_exchange(seen.pack(), new.pack(), AcqRel, Acquire)
            .ok()
            .map(|_| ())
    }
}
