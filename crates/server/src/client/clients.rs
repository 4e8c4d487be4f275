//! All clients of a server, and the memory that they take together: **bounded by
//! `maxmemory-clients`; beyond it the clients that take most are disconnected, the largest first**,
//! but for those that have asked for `CLIENT NO-EVICT`. Clients that have not authenticated go
//! before all others, so that strangers cannot have the server disconnect its users.
//!
//! Each connection adds its memory to its thread's sum at the end of a turn: buffers, the queue of
//! a transaction, watched keys. A turn in which a connection has grown compares the sums with the
//! limit. The limit is thus exceeded only briefly, by what one connection of each thread takes in
//! one turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::Entry;
use crate::settings::Key;
use crate::shared::Shared;

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

    /// Removes a client from the list for good. If the caller is in an exclusive section, none of
    /// the client's commands is executed afterwards. Its own thread has still to close the
    /// connection.
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

    /// Begins anew.
    pub fn reset(&self) {
        // SYNC: as above.
        self.count.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Bytes that all clients may take together; `None` is no limit.
    pub fn client_memory_limit(&self) -> Option<usize> {
        match self.settings.number(Key::MaxMemoryClients) {
            0 => None,
            percent if percent < 0 => {
                let bytes =
                    u128::from(self.store.capacity()) * u128::from(percent.unsigned_abs()) / 100;
                Some(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            bytes => usize::try_from(bytes).ok(),
        }
    }

    /// Bytes that all clients take.
    pub fn client_memory(&self) -> usize {
        let sums = self.threads.iter().map(|thread| thread.client_memory.get());
        sums.sum()
    }

    /// Disconnects the largest clients if all together take too much. Those that have not
    /// authenticated come first.
    pub fn evict_clients(&self) {
        let Some(limit) = self.client_memory_limit() else {
            return;
        };
        if self.client_memory() <= limit {
            return;
        }
        let mut again_ms = match self.evictions.again_ms.try_lock() {
            Ok(again_ms) => again_ms,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is at it.
            Err(TryLockError::WouldBlock) => return,
        };
        let now_ms = self.now_ms();
        if now_ms >= *again_ms && !self.evict_down_to(limit) {
            *again_ms = now_ms + AGAIN_MS;
        }
    }

    /// Returns whether those that are left are within the limit.
    fn evict_down_to(&self, limit: usize) -> bool {
        // Evicted clients are not listed, although their connections may not be closed yet.
        let mut clients: Vec<_> = (self.clients.list().into_iter())
            .map(|entry| {
                let authenticated = entry.state().authenticated;
                (authenticated, entry.memory.get(), entry)
            })
            .collect();
        let mut total: usize = clients.iter().map(|(_, bytes, _)| bytes).sum();
        clients.sort_unstable_by_key(|(authenticated, bytes, _)| {
            (*authenticated, std::cmp::Reverse(*bytes))
        });
        for (_, bytes, entry) in clients {
            if total <= limit {
                return true;
            }
            if entry.state().no_evict_on {
                continue;
            }
            total -= bytes;
            // SYNC: as in `Evictions::count`.
            self.evictions.count.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                client = entry.id,
                bytes,
                limit,
                "all clients together exceed maxmemory-clients; closing the connection of one"
            );
            self.kill(&entry);
        }
        total <= limit
    }
}
