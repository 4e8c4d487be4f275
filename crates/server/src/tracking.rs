//! Which clients have read which keys, of those that track them. See [`crate::track_keys`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the table, each under a lock of its own.
const SHARDS: usize = 64;

/// How a client tracks.
#[derive(Debug, Default)]
pub(crate) struct TrackingMode {
    /// The client that gets its messages; 0: itself.
    pub redirect: u64,
    /// Whether that one was found to be gone.
    pub is_broken: AtomicBool,
    /// Whether it gets messages of all keys with its prefixes.
    pub broadcasts: bool,
    /// None of which is the beginning of another.
    pub prefixes: BTreeSet<Box<[u8]>>,
    /// Whether only the keys are tracked that it reads after `CLIENT CACHING YES`.
    pub opts_in: bool,
    /// Whether the keys are not tracked that it reads after `CLIENT CACHING NO`.
    pub opts_out: bool,
    /// Whether it gets no messages of its own changes.
    pub skips_own: bool,
}

type Shard = HashMap<Box<[u8]>, BTreeSet<u64>>;

/// Which clients have read which keys.
#[derive(Debug)]
pub(crate) struct Tracking {
    clients: AtomicUsize,
    shards: Box<[Mutex<Shard>]>,
    /// Keys in the table.
    keys: AtomicUsize,
    /// Clients of all these keys.
    items: AtomicUsize,
    /// By prefix, the clients that broadcast.
    prefixes: Mutex<BTreeMap<Box<[u8]>, BTreeSet<u64>>>,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            clients: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            prefixes: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracking {
    /// Whether any client tracks. A thread asks when it enters a section.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.clients() > 0
    }

    /// How many clients track.
    pub fn clients(&self) -> usize {
        // SYNC: pairs with nothing: a client that begins to track waits for the sections that may
        // have begun too early to see it.
        self.clients.load(Ordering::Relaxed)
    }

    /// Counts a client that begins to track.
    pub fn begin(&self) {
        // SYNC: as in `clients`.
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that ends it. Whether it was the last.
    pub fn end(&self) -> bool {
        // SYNC: as in `clients`.
        self.clients.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Begins to broadcast keys with these prefixes to a client, which may be so already.
    pub fn broadcast(&self, client: u64, prefixes: &BTreeSet<Box<[u8]>>) {
        let mut all = lock(&self.prefixes);
        for prefix in prefixes {
            all.entry(prefix.clone()).or_default().insert(client);
        }
    }

    /// Ends that.
    pub fn end_broadcast(&self, client: u64, prefixes: &BTreeSet<Box<[u8]>>) {
        let mut all = lock(&self.prefixes);
        for prefix in prefixes {
            if let Some(clients) = all.get_mut(prefix) {
                clients.remove(&client);
                if clients.is_empty() {
                    all.remove(prefix);
                }
            }
        }
    }

    /// Keys in the table, clients that have read them, in all, and prefixes.
    pub fn totals(&self) -> (usize, usize, usize) {
        // SYNC: pairs with nothing; statistics, here and below, and a limit that may be exceeded by
        // what other threads add at this moment.
        let [keys, items] = [&self.keys, &self.items].map(|count| count.load(Ordering::Relaxed));
        (keys, items, lock(&self.prefixes).len())
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Enters a client that is about to read `key`. Returns another key that is to be invalidated,
    /// because there are more than `most`; 0: however many there are.
    pub fn remember(&self, client: u64, key: &[u8], most: usize) -> Option<Box<[u8]>> {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(clients) => {
                let is_new = clients.insert(client);
                self.items.fetch_add(usize::from(is_new), Ordering::Relaxed);
                return None;
            }
            None => shard.insert(key.into(), BTreeSet::from([client])),
        };
        self.items.fetch_add(1, Ordering::Relaxed);
        let keys = self.keys.fetch_add(1, Ordering::Relaxed) + 1;
        let is_full = most > 0 && keys > most;
        let other = shard.keys().find(|other| ***other != *key);
        match is_full {
            true => other.cloned().or_else(|| {
                drop(shard);
                let first = |shard: &Mutex<Shard>| {
                    lock(shard).keys().find(|other| ***other != *key).cloned()
                };
                self.shards.iter().find_map(first)
            }),
            false => None,
        }
    }

    /// Takes out the clients that have read `key`.
    pub fn take(&self, key: &[u8]) -> Vec<u64> {
        let taken = self.shard(key).remove(key);
        if let Some(clients) = &taken {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.items.fetch_sub(clients.len(), Ordering::Relaxed);
        }
        taken.into_iter().flatten().collect()
    }

    /// The clients with a prefix of `key`.
    pub fn broadcasting(&self, key: &[u8]) -> Vec<u64> {
        let prefixes = lock(&self.prefixes);
        let of_key = prefixes
            .iter()
            .filter(|(prefix, _)| key.starts_with(prefix));
        of_key
            .flat_map(|(_, clients)| clients.iter().copied())
            .collect()
    }

    /// Keeps of the table only the clients of which `tracks` holds.
    pub fn retain(&self, tracks: impl Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|_, clients| {
                let before = clients.len();
                clients.retain(|client| tracks(*client));
                (self.items).fetch_sub(before - clients.len(), Ordering::Relaxed);
                !clients.is_empty()
            });
            self.keys.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
    }
}

impl TrackingMode {
    /// Whether a command tracks its keys, of a client that said this by `CLIENT CACHING` just now.
    pub fn tracks(&self, caching: Option<bool>) -> bool {
        match (self.broadcasts, self.opts_in, self.opts_out) {
            (true, ..) => false,
            (_, true, _) => caching == Some(true),
            (.., true) => caching != Some(false),
            _ => true,
        }
    }
}
