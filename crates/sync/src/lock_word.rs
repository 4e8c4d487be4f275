//! **One owner at a time, and the next owner learns of an owner's death**: the word of a robust
//! lock, for words of any kind. Programs use [`RobustLock`]. These functions are for other locks
//! with such a word, and for running the protocol in a model checker or a simulator.
//!
//! The word names its owner by slot and generation, so a waiter knows which process to ask the
//! kernel about, and does not mistake a slot's later owner for the one that took the lock. A
//! sequence number changes at every acquisition: a waiter that found the owner dead takes the lock
//! over by an exchange from exactly the word that it examined. The *owner-died* bit is set when the
//! lock is taken over from a dead owner, and stays set until an owner declares the guarded data
//! repaired, however many owners (which may die in turn) come between.

use crate::SlotId;
use crate::atomics::Word;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock in shared memory. If its owner dies, the next owner learns it.
#[repr(transparent)]
#[derive(Default)]
pub struct RobustLock {
    pub(crate) word: AtomicU64,
}

const _: () = assert!(size_of::<RobustLock>() == 8);

// SAFETY: one atomic word, every value of which is a state of the lock.
unsafe impl mneme_sys::InRegion for RobustLock {}

/// The decoded word: slot (16 bits, 0: free), generation (16), owner died (1), sequence (31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockState(pub u64);

/// An owner: slot and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The thread's slot.
    pub slot: SlotId,
    /// The owner's generation in the slot, see [`Slot::generation`](crate::Slot::generation).
    pub generation: u16,
}

const OWNER: u64 = u32::MAX as u64;
const OWNER_DIED: u64 = 1 << 32;
const SEQUENCE: u32 = 33;

impl LockState {
    /// The current owner; `None` for a free lock.
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

    /// Whether the guarded data may be half changed.
    #[must_use]
    pub const fn owner_died(self) -> bool {
        self.0 & OWNER_DIED != 0
    }

    /// This state with `owner` as owner. The owner-died bit is kept, or set if `owner_died`.
    const fn held_by(self, owner: Owner, owner_died: bool) -> LockState {
        // The sequence is the highest field, so its carry is lost.
        let counted = (self.0 & !OWNER).wrapping_add(1 << SEQUENCE);
        let owner_died = if owner_died { OWNER_DIED } else { 0 };
        LockState(counted | owner_died | (owner.generation as u64) << 16 | owner.slot.0 as u64)
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The lock was taken, and the guarded data are consistent.
    Clean,
    /// The lock was taken; an owner died, and nobody has repaired the data since.
    OwnerDied,
    /// Another owner has it; the word names that owner.
    Busy(LockState),
}

/// Takes the lock if it is free.
#[inline(always)]
pub fn acquire<W: Word>(word: &W, me: Owner) -> Attempt {
    let mut seen = LockState(word.load(Relaxed));
    while seen.owner().is_none() {
        let mine = seen.held_by(me, false);
        // SYNC: pairs with the Release store in `release`: this thread sees what the last owner
        // did.
        match word.compare_exchange(seen.0, mine.0, Acquire, Relaxed) {
            Ok(_) if seen.owner_died() => return Attempt::OwnerDied,
            Ok(_) => return Attempt::Clean,
            Err(now) => seen = LockState(now),
        }
    }
    Attempt::Busy(seen)
}

/// Takes the lock if it is free and no owner has died, in one attempt.
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
    // SYNC: the dead owner's stores are visible because it was found dead: the kernel released its
    // liveness lock after its last store. Acquire is for an earlier take-over.
    match word.compare_exchange(judged.0, mine.0, Acquire, Relaxed) {
        Ok(_) => Attempt::OwnerDied,
        Err(now) => Attempt::Busy(LockState(now)),
    }
}

/// Releases the lock. Only the owner may call this. A plain store, because nobody else changes the
/// word while the owner is alive.
#[inline(always)]
pub fn release<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchanges in `acquire` and `take_over`.
    word.store(held & !OWNER, Release);
}

/// Clears the owner-died bit: the owner has repaired what the lock guards.
pub fn repaired<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchange in `take_over`: if this thread dies after this, the repair is
    // visible.
    word.store(held & !OWNER_DIED, Release);
}

/// Sets the owner-died bit: the owner has left the guarded data half changed.
pub fn needs_repair<W: Word>(word: &W) {
    // SYNC: as in `repaired`.
    word.store(word.load(Relaxed) | OWNER_DIED, Release);
}

/// Frees a lock that no attached process can hold, and tells the next owner that its owner is gone.
/// A free lock is unchanged. Generations may restart afterwards, and then name other owners.
pub fn orphan<W: Word>(word: &W) {
    let held = LockState(word.load(Relaxed));
    if held.owner().is_some() {
        // SYNC: pairs with the exchange in `acquire`.
        word.store((held.0 | OWNER_DIED) & !OWNER, Release);
    }
}

/// Reads the word without changing anything.
pub fn look<W: Word>(word: &W) -> LockState {
    // SYNC: pairs with the Release store in `release`.
    LockState(word.load(Acquire))
}
