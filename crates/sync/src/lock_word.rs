//! **One owner at a time, and a dead owner is followed by one who knows**: the word of a robust
//! lock.
//!
//! The word names its owner by slot and tenancy, so that nobody is ever in doubt whom to ask
//! whether he lives, and a slot's later owner is not taken for the one who locked. A sequence
//! number changes at every acquisition: a waiter that found the owner dead takes the lock over
//! by an exchange from exactly the word it judged. The *news* bit stays from the moment the lock
//! is taken over from the dead until somebody says that what it guards is repaired, however many
//! owners (who may die in turn) come between.

use crate::SlotId;
use crate::word::Word;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A lock in shared memory, handed over with the news when its owner dies.
#[repr(transparent)]
#[derive(Default)]
pub struct RobustLock {
    pub(crate) word: AtomicU64,
}

const _: () = assert!(size_of::<RobustLock>() == 8);

// SAFETY: one atomic word, any value of which is a state of the lock.
unsafe impl mneme_sys::Shared for RobustLock {}

/// The word, decoded: slot (16 bits, 0: free), tenancy (16), news (1), sequence (31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockState(pub(crate) u64);

/// An owner: slot and tenancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) slot: SlotId,
    pub(crate) tenancy: u16,
}

const OWNER: u64 = u32::MAX as u64;
const NEWS: u64 = 1 << 32;
const SEQUENCE: u32 = 33;

impl LockState {
    pub(crate) const fn owner(self) -> Option<Owner> {
        match self.0 as u16 {
            0 => None,
            slot => Some(Owner {
                slot: SlotId(slot),
                tenancy: (self.0 >> 16) as u16,
            }),
        }
    }

    /// What the lock guards may be half changed.
    pub(crate) const fn has_news(self) -> bool {
        self.0 & NEWS != 0
    }

    const fn held_by(self, owner: Owner, news: bool) -> LockState {
        let sequence = (self.0 >> SEQUENCE).wrapping_add(1) << SEQUENCE;
        LockState(
            sequence
                | if news { NEWS } else { 0 }
                | (owner.tenancy as u64) << 16
                | owner.slot.0 as u64,
        )
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Clean,
    /// Ours; the news is that an owner died and nobody has repaired since.
    OwnerDied,
    /// Somebody has it: the word, to be judged.
    Busy(LockState),
}

/// Takes the lock if it is free.
pub(crate) fn acquire<W: Word>(word: &W, me: Owner) -> Attempt {
    let mut seen = LockState(word.load(Relaxed));
    while seen.owner().is_none() {
        let mine = seen.held_by(me, seen.has_news());
        // SYNC: pairs with the Release store in `release`: we see what the last owner did.
        match word.compare_exchange(seen.0, mine.0, Acquire, Relaxed) {
            Ok(_) if seen.has_news() => return Attempt::OwnerDied,
            Ok(_) => return Attempt::Clean,
            Err(now) => seen = LockState(now),
        }
    }
    Attempt::Busy(seen)
}

/// Takes the lock from an owner that was found dead *after* `judged` was read.
pub(crate) fn take_over<W: Word>(word: &W, judged: LockState, me: Owner) -> Attempt {
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
pub(crate) fn release<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchanges in `acquire` and `take_over`.
    word.store(held & !OWNER, Release);
}

/// Forgets the news: the owner has repaired what the lock guards.
pub(crate) fn repaired<W: Word>(word: &W) {
    let held = word.load(Relaxed);
    // SYNC: pairs with the exchange in `take_over`: if we die after this, the repair is visible.
    word.store(held & !NEWS, Release);
}

/// Nobody is attached who could hold the lock: whoever did is gone, and the next to take it is told. Nothing is done to
/// a free one. The tenancies that it names may begin anew, and then mean others.
pub(crate) fn orphan<W: Word>(word: &W) {
    let held = LockState(word.load(Relaxed));
    if held.owner().is_some() {
        // SYNC: pairs with the exchange in `acquire`.
        word.store((held.0 | NEWS) & !OWNER, Release);
    }
}

/// The word now, for those who only look.
pub(crate) fn look<W: Word>(word: &W) -> LockState {
    // SYNC: pairs with the Release store in `release`.
    LockState(word.load(Acquire))
}
