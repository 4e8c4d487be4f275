//! All clients of a server, and the number of clients that were disconnected because of their
//! memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::{Arrival, Entry};

/// All clients of a server.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_id: BTreeMap<u64, Arc<Entry>>,
    /// The clients of each user, by the user's name.
    by_user: HashMap<Arc<[u8]>, BTreeSet<u64>>,
}

impl Entries {
    fn leave_user(&mut self, id: u64, user: &[u8]) {
        if let Some(ids) = self.by_user.get_mut(user)
            && ids.remove(&id)
            && ids.is_empty()
        {
            self.by_user.remove(user);
        }
    }
}

impl Clients {
    /// Adds a client that has just connected.
    pub fn enter(&self, arrival: Arrival) -> Arc<Entry> {
        // SYNC: pairs with nothing; numbers only have to be distinct.
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Arc::new(Entry::new(id, arrival));
        self.entries().by_id.insert(id, Arc::clone(&entry));
        entry
    }

    /// Removes a client.
    pub fn leave(&self, id: u64) {
        let mut entries = self.entries();
        if let Some(entry) = entries.by_id.remove(&id) {
            let user = Arc::clone(&entry.state().user);
            entries.leave_user(id, &user);
        }
    }

    /// Makes it a client of this user.
    pub fn set_user(&self, entry: &Entry, name: &Arc<[u8]>) {
        let mut entries = self.entries();
        let before = std::mem::replace(&mut entry.state().user, Arc::clone(name));
        entries.leave_user(entry.id, &before);
        // One that was killed is no longer there.
        if entries.by_id.contains_key(&entry.id) {
            let ids = entries.by_user.entry(Arc::clone(name));
            ids.or_default().insert(entry.id);
        }
    }

    /// The clients of a user.
    pub fn of_user(&self, name: &[u8]) -> Vec<Arc<Entry>> {
        let entries = self.entries();
        let ids = entries.by_user.get(name).into_iter().flatten();
        ids.filter_map(|id| entries.by_id.get(id).map(Arc::clone))
            .collect()
    }

    /// Removes a client from the list for good. None of its commands is executed in a section whose
    /// thread was notified of this, or that begins after the caller's exclusive section. Its own
    /// thread must still close the connection.
    pub fn kill(&self, entry: &Entry) {
        entry.kill();
        self.leave(entry.id);
    }

    /// All clients, in the order of their arrival.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.entries().by_id.values().map(Arc::clone).collect()
    }

    /// The clients with these numbers, in this order, and as often as they are named.
    pub fn named(&self, ids: &[u64]) -> Vec<Arc<Entry>> {
        let entries = self.entries();
        ids.iter()
            .filter_map(|id| entries.by_id.get(id).map(Arc::clone))
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time in milliseconds before the next attempt, after an attempt that found no client to
/// evict.
const AGAIN_MS: u64 = 100;

/// Evictions of clients.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// The number of clients that were disconnected because of their memory.
    count: AtomicU64,
    /// Locked by the evicting thread; the time in milliseconds before which another attempt would
    /// be useless.
    again_ms: Mutex<u64>,
}

impl Evictions {
    /// The number of clients that were disconnected because of their memory.
    pub fn count(&self) -> u64 {
        // SYNC: pairs with nothing; a statistic.
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub fn add(&self) {
        // SYNC: as above.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets the count.
    pub fn reset(&self) {
        // SYNC: as above.
        self.count.store(0, Ordering::Relaxed);
    }

    /// Calls `evict`, which returns whether it freed enough, unless another thread is evicting or
    /// an attempt has just failed.
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
