//! All clients of a server, and how many of them have been disconnected for their memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::{Arrival, Entry};

/// All clients of a server.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
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

    /// Removes a client from the list for good. None of its commands is executed in a section that
    /// this is announced to, or that begins after the caller's exclusive one. Its own thread has
    /// still to close the connection.
    pub fn kill(&self, entry: &Entry) {
        entry.kill();
        self.leave(entry.id);
    }

    /// All clients, in the order of their arrival.
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

/// How soon clients are looked at again after none was found that may be evicted.
const AGAIN_MS: u64 = 100;

/// What has been evicted.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Clients disconnected for their memory.
    count: AtomicU64,
    /// One thread at a time; the millisecond before which it is in vain.
    again_ms: Mutex<u64>,
}

impl Evictions {
    /// Clients disconnected for their memory.
    pub fn count(&self) -> u64 {
        // SYNC: pairs with nothing; a statistic.
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub fn add(&self) {
        // SYNC: as above.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins anew.
    pub fn reset(&self) {
        // SYNC: as above.
        self.count.store(0, Ordering::Relaxed);
    }

    /// Calls `evict`, which returns whether it was enough, unless another thread is at it or it was
    /// in vain a moment ago.
    pub fn attempt(&self, now_ms: impl FnOnce() -> u64, evict: impl FnOnce() -> bool) {
        let mut again_ms = match self.again_ms.try_lock() {
            Ok(again_ms) => again_ms,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let now_ms = now_ms();
        if now_ms >= *again_ms && !evict() {
            *again_ms = now_ms + AGAIN_MS;
        }
    }
}
