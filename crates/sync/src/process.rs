//! The word that holds the state of a process entry (free, live, or being reaped) and its
//! incarnation.
//!
//! The word changes only under the liveness lock of the entry's index: by the process that holds
//! the lock, or by the reaper that has taken it from a dead one.

use crate::atomics::Word;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    /// A process has attached with it; the kernel knows whether that process is alive.
    Live,
    /// A reaper has found its process dead. The entry stays in this state until its last slot is
    /// clear, even if reapers die.
    Reaping,
}

/// The name of an opening in words of shared memory: the entry of its process, and the entry's
/// incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpeningName {
    pub(crate) process: u16,
    pub(crate) incarnation: u32,
}

impl OpeningName {
    /// The name as a word, which is never zero.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.process) | u64::from(self.incarnation) << 16
    }

    pub(crate) fn of_word(word: u64) -> OpeningName {
        OpeningName {
            process: word as u16,
            incarnation: (word >> 16) as u32,
        }
    }
}

/// A decoded entry word: state (8 bits), incarnation (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotStatus {
    pub(crate) state: SlotState,
    pub(crate) incarnation: u32,
}

pub(crate) fn read<W: Word>(word: &W) -> SlotStatus {
    // SYNC: pairs with the Release store in `write`.
    let word = word.load(Acquire);
    let state = match word as u8 {
        1 => SlotState::Live,
        2 => SlotState::Reaping,
        _ => SlotState::Free,
    };
    SlotStatus {
        state,
        incarnation: (word >> 8) as u32,
    }
}

pub(crate) fn write<W: Word>(word: &W, status: SlotStatus) {
    let state = match status.state {
        SlotState::Free => 0,
        SlotState::Live => 1,
        SlotState::Reaping => 2,
    };
    // SYNC: pairs with the Acquire load in `read`.
    word.store(state | u64::from(status.incarnation) << 8, Release);
}
