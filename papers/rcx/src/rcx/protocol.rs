//! **The item locks alone exclude. Lanes only decide which thread of a node tries first**, so no
//! fault of a lane can let two owners in or keep all out.
//!
//! Two steps, written over abstract words like every protocol of this crate: [`elect`] takes the
//! lanes of one node, all or none, within a bound; [`enter`] takes the item locks in ascending
//! order, waiting for each. `docs/design/rcx.md` argues both case by case.

use super::lanes::{Chosen, Refused, Strategy};
use mneme_sync::Word;
use mneme_sync::lock_word::{self, Attempt, LockState, Owner};

/// Whether lanes come before the first try of the items or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeLanes {
    /// Items are tried first. An update that meets nobody touches no lane.
    #[default]
    WhenBusy,
    /// Lanes come first, as in the paper.
    Always,
}

/// The items of one call, in ascending order of their ids.
pub(crate) trait Items {
    type Error;

    fn len(&self) -> usize;
    /// Takes the lock of one item if it is free.
    fn try_lock(&mut self, item: usize) -> bool;
    /// Takes the lock of one item, waiting for its owner.
    fn lock(&mut self, item: usize) -> Result<(), Self::Error>;
    /// Lets go of all that are held, the last first.
    fn release(&mut self);
}

/// Takes the locks of all items; returns what `elect` came to, if it was asked.
///
/// Locks are waited for in ascending order, so threads never wait for each other in a circle. On
/// failure nothing is held.
#[inline]
pub(crate) fn enter<I: Items, L>(
    items: &mut I,
    when: TakeLanes,
    elect: impl FnOnce() -> Option<L>,
) -> Result<Option<L>, I::Error> {
    if when == TakeLanes::WhenBusy {
        if (0..items.len()).all(|item| items.try_lock(item)) {
            return Ok(None);
        }
        // Waiting for the busy one while the others are held would make their waiters wait for it.
        items.release();
    }
    let lanes = elect();
    for item in 0..items.len() {
        if let Err(error) = items.lock(item) {
            items.release();
            // `lanes` goes after the items.
            return Err(error);
        }
        mneme_sys::fault!("rcx.update.item");
    }
    mneme_sys::fault!("rcx.update.locked");
    Ok(lanes)
}

/// How long a thread tries to become its node's leader.
pub(crate) trait Bound {
    /// Waits a little for the lane of a stripe; false if the bound is reached.
    fn wait(&mut self, stripe: usize) -> bool;
    /// Whether this owner of a lane is known to be dead. A system call, which may be saved by
    /// saying no before `wait` has been called for some time.
    fn is_dead(&self, owner: Owner) -> bool;
}

/// Transactions of a call that may meet others before it takes its lanes one by one. Each that
/// aborts costs about as much as that.
const CONFLICTS: u32 = 2;

/// Takes all lanes, or none if that does not succeed within the bound. The lane of a dead leader is
/// freed on the way: it guards nothing, so there is nothing to repair.
pub(crate) fn elect<W: Word>(
    lanes: &Chosen<'_, W>,
    me: Owner,
    strategy: &Strategy,
    bound: &mut impl Bound,
) -> bool {
    let mut conflicts = 0;
    for attempt in 0.. {
        let strategy = match conflicts < CONFLICTS {
            true => strategy,
            false => &Strategy::OrderedCas,
        };
        let (lane, seen) = match strategy.try_acquire_all(lanes, me, attempt) {
            Ok(()) => return true,
            // Another try would end in the same way.
            Err(Refused::Capacity) => return false,
            Err(Refused::Conflict) => {
                conflicts += 1;
                // Nothing is known to be busy, so there is nothing to wait for.
                continue;
            }
            Err(Refused::Busy(lane, seen)) => (lane, seen),
        };
        let goes_on = bound.wait(lane);
        if seen.owner().is_some_and(|owner| bound.is_dead(owner)) {
            free_of_the_dead(lanes.word(lane), seen, me);
        }
        if !goes_on {
            return false;
        }
    }
    false
}

/// Frees a lane whose owner was found dead after `seen` was read.
fn free_of_the_dead<W: Word>(lane: &W, seen: LockState, me: Owner) {
    if lock_word::take_over(lane, seen, me) == Attempt::OwnerDied {
        lock_word::repaired(lane);
        lock_word::release(lane);
    }
}

/// Gives up the lanes, the last first.
pub(crate) fn step_down<W: Word>(lanes: &Chosen<'_, W>) {
    for stripe in lanes.stripes().rev() {
        lock_word::release(lanes.word(stripe));
    }
}
