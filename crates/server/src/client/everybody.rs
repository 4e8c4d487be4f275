//! All clients of a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Entry;

/// All clients of a server.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
}

/// How a client has come.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub peer: String,
    pub local: String,
    pub descriptor: i32,
    pub now_ms: u64,
    pub thread: usize,
    pub key: usize,
}

impl Clients {
    /// Enters a client that has just connected.
    pub fn enter(&self, arrival: Arrival) -> Arc<Entry> {
        // SYNC: pairs with nothing; all that counts is that no two get the same.
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Arc::new(Entry::new(id, arrival));
        self.entries().insert(id, Arc::clone(&entry));
        entry
    }

    /// Takes a client out.
    pub fn leave(&self, id: u64) {
        self.entries().remove(&id);
    }

    /// Takes a client out for good: from here on it is not listed. If the caller is in an exclusive section, none of
    /// its commands is executed any more. Its own thread has still to close the connection.
    pub fn kill(&self, entry: &Entry) {
        entry.kill();
        self.leave(entry.id);
    }

    /// Everybody, in the order they came.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.entries().values().map(Arc::clone).collect()
    }

    /// Those with these numbers, in this order, as often as they are named.
    pub fn named(&self, ids: &[u64]) -> Vec<Arc<Entry>> {
        let entries = self.entries();
        ids.iter()
            .filter_map(|id| entries.get(id).map(Arc::clone))
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
