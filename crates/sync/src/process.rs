//! The word that says what a process entry is: free, live, or being reaped, and which incarnation.
//!
//! The word changes only under the liveness lock of the entry's index: by the process that holds
//! it, or by the reaper that has taken it from the dead.

use crate::atomics::Word;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// A process has attached under it; whether it lives is the kernel's to say.
    Live,
    /// A reaper has found its process dead. It stays so until the last slot is clear, over the
    /// deaths of reapers.
    Reaping,
}

/// A decoded entry word: state (8 bits), incarnation (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) incarnation: u32,
}

pub(crate) fn read<W: Word>(word: &W) -> Status {
    // SYNC: pairs with the Release store in `write`.
    let word = word.load(Acquire);
    let state = match word as u8 {
        1 => State::Live,
        2 => State::Reaping,
        _ => State::Free,
    };
    Status {
        state,
        incarnation: (word >> 8) as u32,
    }
}

pub(crate) fn write<W: Word>(word: &W, status: Status) {
    let state = match status.state {
        State::Free => 0,
        State::Live => 1,
        State::Reaping => 2,
    };
    // SYNC: pairs with the Acquire load in `read`.
    word.store(state | u64::from(status.incarnation) << 8, Release);
}
