//! Commands that wait for a key, such as `BLPOP`: **no wake-up is lost, and clients that wait for
//! the same key are served in the order of their arrival.**
//!
//! A command that finds nothing, or only keys for which other clients have waited longer, asks to
//! [wait](crate::command::Call::wait_for). Its client is added to the queues of its keys, and runs
//! the command once more ([`queues`]). Its thread then serves it no further until it is woken: the
//! command stays in the input, with everything after it. A command that may have made keys ready
//! wakes the first client of each key once its changes are made; for changes by local programs, the
//! change feed does so. A client that was woken runs its command again if one of these keys exists,
//! as in Redis 7.2, so no code but the command's own is needed. If the command finds something, the
//! client wakes the next one, because there may be more. Otherwise it keeps its place.

#[cfg(test)]
mod models;
mod queues;
#[cfg(test)]
mod tests;

/// The product's locks and atomics; a model checker supplies others.
mod primitives {
    pub use std::sync::atomic::{AtomicUsize, fence};
    pub use std::sync::{Mutex, MutexGuard};
}

pub(crate) use queues::{AfterLook, Awaited, AwaitedKey, Sleeper, WaitEnd, WaitQueues};

use crate::command::Group;
use mneme_collections::{LIST, SORTED_SET};
use mneme_log::ValueKind;

/// The number of counters for hashes of keys, which are checked before the queues: if clients wait
/// for ten thousand keys, two thirds of all other keys have a counter of zero.
pub(crate) const HASHES: usize = 1 << 15;

impl Group {
    /// The kind of value that commands of this group wait for, if they wait.
    pub fn awaited_kind(self) -> ValueKind {
        match self {
            Group::SortedSet => SORTED_SET,
            _ => LIST,
        }
    }
}

/// A client's wait, as its own thread sees it.
#[derive(Debug)]
pub(crate) struct KeyWait {
    /// When the wait ends, in milliseconds of the server's clock; `None`: never.
    pub ends_ms: Option<u64>,
    /// The keys that it waits for, until they are added to the queues.
    pub awaited: Option<Awaited>,
    /// The number of bytes that it takes in the queues.
    pub bytes: usize,
    /// Whether its command was counted, and shown to monitoring clients.
    pub is_counted: bool,
    /// Whether it must not be served further.
    pub is_asleep: bool,
    /// Whether its time is up.
    pub is_over: bool,
}
