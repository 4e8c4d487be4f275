//! **No reader is inside together with a writer**: the protocol of a
//! [`FencedGate`](crate::FencedGate).
//!
//! A reader sets a bit in its own slot, passes the light barrier and checks whether the gate is
//! closed; it writes to no shared line. The gate *is* the word of a robust lock, and is closed
//! while somebody owns the lock. A writer takes the lock, passes the heavy barrier and then waits
//! until no slot has the bit set. By the barrier's contract at least one of the two sees the other;
//! if both do, the reader retreats.
//!
//! After Corbet's and Russell's big-reader locks.

use crate::atomics::{Barrier, Word};
use crate::lock_word::{self, LockState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Sets the bit and checks the gate. If the gate is closed, or the guarded data may need repair,
/// clears the bit again and returns `Err` with the gate's word.
pub(crate) fn enter<W: Word>(
    inside: &W,
    bit: u64,
    gate: &W,
    barrier: &impl Barrier,
) -> Result<(), LockState> {
    // SYNC: pairs with the Acquire load in `is_inside`. A plain store: only its owner writes the
    // word.
    inside.store(inside.load(Relaxed) | bit, Release);
    barrier.light();
    // SYNC: the load in `look` pairs with the lock's release, so this thread sees what the last
    // writer did.
    let seen = lock_word::look(gate);
    if seen.owner().is_none() && !seen.owner_died() {
        return Ok(());
    }
    leave(inside, bit);
    Err(seen)
}

/// Clears the bit.
pub(crate) fn leave<W: Word>(inside: &W, bit: u64) {
    // SYNC: pairs with the Acquire load in `is_inside`: this thread's accesses inside are over.
    inside.store(inside.load(Relaxed) & !bit, Release);
}

/// Whether this slot's thread is still inside. For the thread that has closed the gate and passed
/// the heavy barrier.
pub(crate) fn is_inside<W: Word>(inside: &W, bit: u64) -> bool {
    // SYNC: pairs with the Release stores in `enter` and `leave`.
    inside.load(Acquire) & bit != 0
}
