//! Commands that wait for a key, such as `BLPOP`: **no wake-up is lost, and of the clients that
//! wait for a key the first to come is served first.**
//!
//! A command that finds nothing, or only what others have waited longer for, asks to
//! [wait](crate::command::Call::wait_for). Its client is entered in the queues of its keys, and
//! runs the command once more ([`queues`]). Until it is woken, its thread serves it no further: the
//! command stays in its input, with all that follows. A command that may have made keys ready wakes
//! the first client of each, once its changes are made; the change feed does so for those of local
//! programs. A client that was woken runs its command again if one of these keys is there, as in
//! Redis 7.2: so it needs no other code than the command's own. If it finds something, it wakes the
//! next one, for more may be there. If not, it keeps its place.

#[cfg(test)]
mod models;
mod queues;
#[cfg(test)]
mod tests;

/// The locks and words of the product; a model checker has others.
mod primitives {
    pub use std::sync::atomic::{AtomicUsize, fence};
    pub use std::sync::{Mutex, MutexGuard};
}

pub(crate) use queues::{AfterLook, Awaited, AwaitedKey, Sleeper, WaitEnd, WaitQueues};

use crate::command::Group;
use mneme_collections::{LIST, SORTED_SET};
use mneme_log::ValueKind;

/// Hashes of keys that are counted apart, before their queues are looked at: of ten thousand keys
/// that clients wait for, two in three other keys have a hash that is nobody's.
pub(crate) const HASHES: usize = 1 << 15;

impl Group {
    /// What commands of this group wait for, if they wait.
    pub fn awaited_kind(self) -> ValueKind {
        match self {
            Group::SortedSet => SORTED_SET,
            _ => LIST,
        }
    }
}

/// A client's wait, as its own thread has it.
#[derive(Debug)]
pub(crate) struct KeyWait {
    /// Until when, in milliseconds of the server's clock; `None` for ever.
    pub ends_ms: Option<u64>,
    /// What it waits for, until it is entered in the queues.
    pub awaited: Option<Awaited>,
    /// Bytes that it takes in the queues.
    pub bytes: usize,
    /// Whether its command was counted, and shown to those that monitor.
    pub is_counted: bool,
    /// Whether it is to be served no further.
    pub is_asleep: bool,
    /// Whether its time is up.
    pub is_over: bool,
}
