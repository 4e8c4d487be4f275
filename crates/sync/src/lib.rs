//! Who may touch what, when: participants, slots, pins, epochs, locks over shared memory.

mod alone;
mod big_reader;
mod counters;
mod epoch;
mod error;
mod fold;
mod gate;
mod intent;
mod layout;
#[cfg(all(test, not(miri)))]
mod litmus;
mod local;
mod lock_word;
mod map;
#[cfg(test)]
mod models;
mod open;
mod opening;
mod participants;
mod patience;
mod pin;
mod process;
mod reap;
mod reclaim;
mod robust_lock;
mod slot;
mod stats;
mod tenancy;
mod undo;
mod word;

pub use big_reader::{BigReader, Exclusive, GateError, OpPin};
pub use epoch::Epoch;
pub use error::{
    AttachError, CreateError, Holding, OpenError, ReapError, Revoked, SlotError, Stalled,
};
pub use intent::{Intent, IntentLine, Lane};
pub use layout::{COUNTERS, GATES, INTENT_WORDS};
pub use participants::{ControlOptions, Participants};
pub use pin::{Pin, RevocablePin};
pub use reap::{DeadSlot, Reaped};
pub use reclaim::REVOKE_AFTER;
pub use robust_lock::{Acquired, Guard, LOCK_PATIENCE, RobustLock};
pub use slot::{Slot, SlotId};
pub use stats::{OldestPin, Stats};
pub use undo::UndoArea;
pub use word::Word;
