//! **A writer meets no reader inside, and readers inside meet no writer**: the protocol of a
//! [`FencedGate`](crate::FencedGate).
//!
//! A reader marks a bit in its own slot, passes the light barrier and looks whether the gate is
//! raised: it writes no shared line. The gate *is* a robust lock's word, raised while somebody owns
//! it. A writer takes the lock, passes the heavy barrier and then waits until no slot shows the
//! bit. By the barrier's contract one of the two sees the other; both may, then the reader steps
//! back.
//!
//! After Corbet's and Russell's big-reader locks.

use crate::atomics::{Barrier, Word};
use crate::lock_word::{self, LockState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Sets the bit and looks at the gate. If the gate is raised, or the guarded data may need repair,
/// clears the bit again and returns `Err` with the gate's word.
pub(crate) fn enter<W: Word>(
    inside: &W,
    bit: u64,
    gate: &W,
    barrier: &impl Barrier,
) -> Result<(), LockState> {
    // SYNC: pairs with the Acquire load in `is_inside`. A plain store: the word is its owner's.
    inside.store(inside.load(Relaxed) | bit, Release);
    barrier.light();
    // SYNC: the look pairs with the lock's release: we see what was done under exclusion.
    let seen = lock_word::look(gate);
    if seen.owner().is_none() && !seen.owner_died() {
        return Ok(());
    }
    leave(inside, bit);
    Err(seen)
}

/// Clears the bit.
pub(crate) fn leave<W: Word>(inside: &W, bit: u64) {
    // SYNC: pairs with the Acquire load in `is_inside`: what was done inside is done.
    inside.store(inside.load(Relaxed) & !bit, Release);
}

/// For the thread that has raised the gate and passed the heavy barrier: whether this slot's thread
/// is still inside.
pub(crate) fn is_inside<W: Word>(inside: &W, bit: u64) -> bool {
    // SYNC: pairs with the Release stores in `enter` and `leave`.
    inside.load(Acquire) & bit != 0
}
