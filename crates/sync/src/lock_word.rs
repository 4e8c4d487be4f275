//! **One owner at a time, and the death of an owner is reported to the next**: the word of a robust
//! lock, over words of any kind. [`RobustLock`] is what a program locks. These functions are for
//! other locks of the same word, and for the protocol in a model checker or a simulator.
//!
//! The word names its owner by slot and generation, so that a waiter knows which process to ask the
//! kernel about, and does not take a slot's later owner for the one that locked. A sequence number
//! changes at every acquisition: a waiter that found the owner dead takes the lock over by an
//! exchange from exactly the word it judged. The *owner-died* bit stays from the moment the lock is
//! taken over from the dead until an owner says that what it guards is repaired, however many
//! owners (which may die in turn) come between.

use crate::SlotId;
use crate::atomics::Word;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock in shared memory. If its owner dies, the next owner is informed.
#[repr(transparent)]
#[derive(Default)]
pub struct RobustLock {
    pub(crate) word: AtomicU64,
}

const _: () = assert!(size_of::<RobustLock>() == 8);

// SAFETY: one atomic word, any value of which is a state of the lock.
unsafe impl mneme_sys::InRegion for RobustLock {}

/// The word, decoded: slot (16 bits, 0: free), generation (16), owner died (1), sequence (31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockState(pub u64);

/// An owner: slot and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The thread's slot.
    pub slot: SlotId,
    /// Which owner of the slot, see [`Slot::generation`](crate::Slot::generation).
    pub generation: u16,
}

const OWNER: u64 = u32::MAX as u64;
const OWNER_DIED: u64 = 1 << 32;
const SEQUENCE: u32 = 33;

impl LockState {
    /// The present owner; `None` for a free lock.
    #[must_use]
    pub const fn owner(self) -> Option<Owner> {
        match self.0 as u16 {
            0 => None,
            slot => Some(Owner {
                slot: SlotId(slot),
                generation: (self.0 >> 16) as u16,
            }),
        }
    }

    /// What the lock guards may be half changed.
    #[must_use]
    pub const fn owner_died(self) -> bool {
        self.0 & OWNER_DIED != 0
    }

    /// Held by `owner`. Whether an owner had died stays as it was, or is true from now on.
    const fn held_by(self, owner: Owner, owner_died: bool) -> LockState {
        // The highest field, so its carry is lost.
        let counted = (self.0 & !OWNER).wrapping_add(1 << SEQUENCE);
        let owner_died = if owner_died { OWNER_DIED } else { 0 };
        LockState(counted | owner_died | (owner.generation as u64) << 16 | owner.slot.0 as u64)
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Ours, and what it guards is whole.
    Clean,
    /// Ours; an owner died, and nobody has repaired since.
    OwnerDied,
    /// Somebody has it: the word, to be judged.
    Busy(LockState),
}

/// Takes the lock if it is free.
#[inline(always)]
pub fn acquire<W: Word>(word: &W, me: Owner) -> Attempt {
    let mut seen = LockState(word.load(Relaxed));
    while seen.owner().is_none() {
        let mine = seen.held_by(me, false);
        // SYNC: pairs with the Release store in `release`: we see what the last owner did.
        match word.compare_exchange(seen.0, mine.0, Acquire, Relaxed) {
            Ok(_) if seen.owner_died() => return Attempt::OwnerDied,
            Ok(_) => return Attempt::Clean,
            Err(now) => seen = LockState(now),
        }
    }
    Attempt::Busy(seen)
}

/// Takes the lock if it is free and no owner has died: one attempt.
#[inline(always)]
pub fn acquire_clean<W: Word>(word: &W, me: Owner) -> bool {
    let seen = LockState(word.load(Relaxed));
    if seen.owner().is_some() || seen.owner_died() {
        return false;
    }
    let mine = seen.held_by(me, false);
    // SYNC: as in `acquire`.
    word.compare_exchange(seen.0, mine.0, Acquire, Relaxed)
        .is_ok()
}

/// Takes the lock from an owner that was found dead *after* `judged` was read.
pub fn take_over<W: Word>(word: &W, judged: LockState, me: Owner) -> Attempt {
    let mine = judged.held_by(me, true);
    // SYNC: what the dead did is visible through the finding that it is dead (the kernel let go
    // of its liveness lock after its last store); Acquire for the case of a take-over before.
    match word.compare_exchange(judged.0, mine.0, Acquire, Relaxed) {
        Ok(_) => Attempt::OwnerDied,
        Err(now) => Attempt::Busy(LockState(now)),
    }
}

/// Lets go. Only the owner calls this. A plain store, for nobody else changes the word while the
/// owner lives.
#[inline(always)]
pub fn release<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchanges in `acquire` and `take_over`.
    word.store(held & !OWNER, Release);
}

/// Clears the owner-died bit: the owner has repaired what the lock guards.
pub fn repaired<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchange in `take_over`: if we die after this, the repair is visible.
    word.store(held & !OWNER_DIED, Release);
}

/// Sets the owner-died bit: the owner has left what the lock guards half changed.
pub fn needs_repair<W: Word>(word: &W) {
    // SYNC: as in `repaired`.
    word.store(word.load(Relaxed) | OWNER_DIED, Release);
}

/// No attached process can hold the lock: its owner is gone, and the next owner is informed. A free
/// lock stays as it is. Generations may begin anew afterwards, and then name other owners.
pub fn orphan<W: Word>(word: &W) {
    let held = LockState(word.load(Relaxed));
    if held.owner().is_some() {
        // SYNC: pairs with the exchange in `acquire`.
        word.store((held.0 | OWNER_DIED) & !OWNER, Release);
    }
}

/// The word now, for a look alone.
pub fn look<W: Word>(word: &W) -> LockState {
    // SYNC: pairs with the Release store in `release`.
    LockState(word.load(Acquire))
}
