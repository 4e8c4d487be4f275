//! Which clients have read which keys, of those that track them. See [`crate::track_keys`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the table, each under a lock of its own.
const SHARDS: usize = 64;

/// Keys that are dropped at most when one is entered, or keys of so many times its bytes.
const DROPPED: usize = 4;

/// Bytes that a key takes beside its own: its place in a part of the table, which may just have
/// grown, the header of its allocation, and a node of clients.
const KEY: usize = 256;

/// Bytes that each client of a key takes beside that.
const CLIENT: usize = 24;

/// Bytes of the table for each key that the settings allow.
const BYTES_PER_KEY: usize = 512;

/// Places of a part of the table that are kept, however few are in use.
const KEPT: usize = 64;

/// Bytes that a prefix takes at most beside its own, in the table or as one of a client.
const PREFIX: usize = 256;

/// How a client tracks.
#[derive(Debug, Default)]
pub(crate) struct TrackingMode {
    /// The client that gets its messages; 0: itself.
    pub redirect: u64,
    /// Whether that one was found to be gone.
    pub is_broken: AtomicBool,
    /// Whether it gets messages of all keys with its prefixes.
    pub broadcasts: bool,
    /// Whether only the keys are tracked that it reads after `CLIENT CACHING YES`.
    pub opts_in: bool,
    /// Whether the keys are not tracked that it reads after `CLIENT CACHING NO`.
    pub opts_out: bool,
    /// Whether it gets no messages of its own changes.
    pub skips_own: bool,
}

/// The prefixes of the keys that a client gets messages of. None is the beginning of another, but
/// for the empty one.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    own: BTreeSet<Box<[u8]>>,
    bytes: usize,
}

/// How large the table may become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLimits {
    keys: usize,
    bytes: usize,
}

/// What is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableTotals {
    pub keys: usize,
    /// Clients of all these keys.
    pub items: usize,
    /// What all that takes.
    pub bytes: usize,
    pub prefixes: usize,
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
    /// What both take.
    bytes: AtomicUsize,
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
            bytes: AtomicUsize::new(0),
            prefixes: Mutex::default(),
        }
    }
}

/// How many bytes two texts begin with that are equal.
fn common(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// Bytes that a key takes that `clients` clients have read.
fn bytes_of(key: &[u8], clients: usize) -> usize {
    KEY + key.len() + CLIENT * clients
}

/// Gives memory back of a part of the table of which a quarter at most is in use.
fn shrink(shard: &mut Shard) {
    if shard.capacity() > KEPT && shard.len() < shard.capacity() / 4 {
        shard.shrink_to(2 * shard.len());
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
    pub fn broadcast(&self, client: u64, prefixes: &Prefixes) {
        for prefix in prefixes.iter() {
            // Each by itself: others wait no longer than for one.
            let mut all = lock(&self.prefixes);
            all.entry(prefix.into()).or_default().insert(client);
        }
    }

    /// Ends that.
    pub fn end_broadcast(&self, client: u64, prefixes: &Prefixes) {
        for prefix in prefixes.iter() {
            let mut all = lock(&self.prefixes);
            if let Some(clients) = all.get_mut(prefix) {
                clients.remove(&client);
                if clients.is_empty() {
                    all.remove(prefix);
                }
            }
        }
    }

    /// What is in the table.
    pub fn totals(&self) -> TableTotals {
        // SYNC: pairs with nothing; statistics, here and below, and limits that may be exceeded by
        // what other threads add at this moment.
        let counts = [&self.keys, &self.items, &self.bytes];
        let [keys, items, bytes] = counts.map(|count| count.load(Ordering::Relaxed));
        TableTotals {
            keys,
            items,
            bytes,
            prefixes: lock(&self.prefixes).len(),
        }
    }

    fn shard_of(key: &[u8]) -> usize {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash >> 32) as usize % SHARDS
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[Self::shard_of(key)])
    }

    /// Enters a client that is about to read `key`. Returns other keys that are to be invalidated,
    /// because the table is larger than it may be.
    pub fn remember(&self, client: u64, key: &[u8], limits: TableLimits) -> Vec<Box<[u8]>> {
        let mut shard = self.shard(key);
        let added = match shard.get_mut(key) {
            Some(clients) => match clients.insert(client) {
                true => CLIENT,
                false => return Vec::new(),
            },
            None => {
                shard.insert(key.into(), BTreeSet::from([client]));
                self.keys.fetch_add(1, Ordering::Relaxed);
                bytes_of(key, 1)
            }
        };
        self.items.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(added, Ordering::Relaxed);
        drop(shard);
        // More than what was added, in case that a limit was lowered.
        self.surplus(limits, (DROPPED, DROPPED * added), key)
    }

    /// Keys other than `except` that are to be invalidated because the table is larger than it may
    /// be: at most so many, or of so many bytes, to begin with.
    pub fn surplus(
        &self,
        limits: TableLimits,
        (most, most_bytes): (usize, usize),
        except: &[u8],
    ) -> Vec<Box<[u8]>> {
        let excess =
            |count: &AtomicUsize, limit| count.load(Ordering::Relaxed).saturating_sub(limit);
        let mut keys = excess(&self.keys, limits.keys).min(most);
        let mut bytes = excess(&self.bytes, limits.bytes).min(most_bytes);
        let (mut others, place) = (Vec::new(), Self::shard_of(except));
        for shard in self.shards[place..].iter().chain(&self.shards[..place]) {
            if (keys, bytes) == (0, 0) {
                break;
            }
            let shard = lock(shard);
            for (other, clients) in shard.iter().filter(|(other, _)| ***other != *except) {
                if (keys, bytes) == (0, 0) {
                    break;
                }
                keys = keys.saturating_sub(1);
                bytes = bytes.saturating_sub(bytes_of(other, clients.len()));
                others.push(other.clone());
            }
        }
        others
    }

    /// Takes out the clients that have read `key`.
    pub fn take(&self, key: &[u8]) -> Vec<u64> {
        let mut shard = self.shard(key);
        let taken = shard.remove(key);
        if let Some(clients) = &taken {
            shrink(&mut shard);
            self.forgotten(key, clients.len());
        }
        drop(shard);
        taken.into_iter().flatten().collect()
    }

    /// Removes a key that `clients` clients had read from the totals.
    fn forgotten(&self, key: &[u8], clients: usize) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(clients, Ordering::Relaxed);
        let bytes = bytes_of(key, clients);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The prefixes of `key` that clients broadcast. Others cost little, however many there are.
    pub fn prefixes_of<'k>(&self, key: &'k [u8]) -> Vec<&'k [u8]> {
        let (prefixes, mut found) = (lock(&self.prefixes), Vec::new());
        // All prefixes of the key that are not found yet are prefixes of this, too.
        let mut rest = Some(key);
        while let Some(bounds) = rest
            && let until = (Bound::Unbounded, Bound::Included(bounds))
            && let Some((last, _)) = prefixes.range::<[u8], _>(until).next_back()
        {
            let shared = common(last, key);
            rest = match shared == last.len() {
                true => {
                    found.push(&key[..shared]);
                    shared.checked_sub(1)
                }
                // The last that is not behind them begins otherwise, and so do all between.
                false => Some(shared),
            }
            .map(|len| &key[..len]);
        }
        found
    }

    /// The clients that broadcast this prefix.
    pub fn broadcasting(&self, prefix: &[u8]) -> Vec<u64> {
        let prefixes = lock(&self.prefixes);
        prefixes
            .get(prefix)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// Keeps of the table only the clients of which `tracks` holds, in one part of it after the
    /// other: a client waits no longer than for one.
    pub fn retain(&self, tracks: impl Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            // Asked while nobody enters anything in this part: what is there of a client that has
            // begun anew stays, or was entered before it ended.
            let mut known = HashMap::new();
            let mut tracks = |client| *known.entry(client).or_insert_with(|| tracks(client));
            shard.retain(|key, clients| {
                let before = clients.len();
                clients.retain(|client| tracks(*client));
                if clients.is_empty() {
                    self.forgotten(key, before);
                    return false;
                }
                let gone = before - clients.len();
                self.items.fetch_sub(gone, Ordering::Relaxed);
                self.bytes.fetch_sub(CLIENT * gone, Ordering::Relaxed);
                true
            });
            shrink(&mut shard);
        }
    }
}

impl TableLimits {
    /// Of so many keys, 0 for any number, and of so many bytes for each of them, but not more than
    /// `most_bytes`.
    pub fn new(keys: usize, most_bytes: Option<usize>) -> Self {
        let keys = if keys == 0 { usize::MAX } else { keys };
        let bytes = keys.saturating_mul(BYTES_PER_KEY);
        TableLimits {
            keys,
            bytes: most_bytes.map_or(bytes, |most| bytes.min(most)),
        }
    }
}

impl Prefixes {
    /// In their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.own.iter().map(|prefix| &**prefix)
    }

    /// Adds one.
    pub fn insert(&mut self, prefix: &[u8]) {
        if self.own.insert(prefix.into()) {
            self.bytes += 2 * (prefix.len() + PREFIX);
        }
    }

    /// Adds all of `others`.
    pub fn append(&mut self, others: &Prefixes) {
        others.iter().for_each(|prefix| self.insert(prefix));
    }

    /// Bytes that they take here and in the table.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which of them `prefix` overlaps with.
    pub fn overlap(&self, prefix: &[u8]) -> Option<&[u8]> {
        let own = &self.own;
        // One beside all others, which do not overlap with each other: a client may ask for all
        // keys, too.
        let all: &[u8] = &[];
        let until = (Bound::Unbounded, Bound::Included(prefix));
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let candidates = [
            own.get(all),
            own.range::<[u8], _>(until).next_back(),
            own.range::<[u8], _>(from).next(),
        ];
        let mut candidates = candidates.into_iter().flatten();
        let found = candidates.find(|own| prefix.starts_with(own) || own.starts_with(prefix));
        found.map(|own| &**own)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of up to four of two letters.
    fn texts() -> Vec<Vec<u8>> {
        let mut texts = vec![Vec::new()];
        for at in 0..15 {
            texts.extend([b"a", b"b"].map(|letter| [&texts[at][..], letter].concat()));
        }
        texts
    }

    #[test]
    fn a_prefix_that_overlaps_with_one_of_a_client_is_found() {
        let (texts, mut lot) = (texts(), 1u64);
        for _ in 0..500 {
            let mut prefixes = Prefixes::default();
            for _ in 0..8 {
                lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let text = &texts[(lot >> 40) as usize % texts.len()];
                let overlaps = |own: &[u8]| own.starts_with(text) || text.starts_with(own);
                match prefixes.overlap(text) {
                    Some(own) => assert!(overlaps(own), "{own:?} {text:?}"),
                    None => {
                        assert!(!prefixes.iter().any(overlaps), "{text:?}");
                        prefixes.insert(text);
                    }
                }
            }
        }
    }

    /// Keys of many lengths, up to 32 KiB.
    fn keys(number: usize) -> impl Iterator<Item = Vec<u8>> {
        (0..number).map(|at| {
            let len = 8 << (at % 100 * 13 / 100);
            format!("{at:0len$}").into_bytes()
        })
    }

    #[test]
    fn the_bytes_of_the_table_are_bounded_and_each_entry_is_counted_until_it_is_gone() {
        let table = Tracking::default();
        let limits = TableLimits::new(2_000, None);
        let mut dropped = 0;
        for (at, key) in keys(5_000).enumerate() {
            for client in 0..3 {
                for other in table.remember(client, &key, limits) {
                    assert!(other != key[..].into(), "key {at} itself");
                    dropped += 1;
                    table.take(&other);
                }
            }
            let TableTotals { keys, bytes, .. } = table.totals();
            assert!(bytes <= 2_000 * BYTES_PER_KEY, "{bytes} bytes at key {at}");
            assert_eq!(keys + dropped, at + 1);
        }
        let TableTotals {
            keys: left, items, ..
        } = table.totals();
        assert!(left > 100 && left < 2_000, "{left} keys");
        assert_eq!(items, 3 * left);
        // A limit that was lowered is reached as more is entered, also if that is short.
        let lower = TableLimits::new(2_000, Some(50_000));
        for key in 0..2_000 {
            let key = format!("short:{key}").into_bytes();
            for other in table.remember(0, &key, lower) {
                table.take(&other);
            }
        }
        let bytes = table.totals().bytes;
        assert!(bytes <= 50_000, "{bytes} bytes");
        table.retain(|client| client != 0);
        table.retain(|_| false);
        assert_eq!((table.totals().keys, table.totals().bytes), (0, 0));
        let places = table.shards.iter().map(|shard| lock(shard).capacity());
        assert!(places.max() <= Some(2 * KEPT));
    }

    #[test]
    fn the_clients_are_found_that_have_a_prefix_of_a_key() {
        let (texts, mut lot) = (texts(), 1u64);
        for _ in 0..500 {
            let table = Tracking::default();
            for (client, prefix) in texts.iter().enumerate() {
                lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if (lot >> 40) % 3 == 0 {
                    let mut prefixes = Prefixes::default();
                    prefixes.insert(prefix);
                    table.broadcast(client as u64, &prefixes);
                }
            }
            let prefixes = lock(&table.prefixes).clone();
            for key in &texts {
                let found = table.prefixes_of(key).into_iter();
                let mut found: Vec<u64> = found.flat_map(|it| table.broadcasting(it)).collect();
                found.sort_unstable();
                let all = prefixes
                    .iter()
                    .filter(|(prefix, _)| key.starts_with(prefix));
                let mut expected: Vec<u64> = all.flat_map(|(_, clients)| clients.clone()).collect();
                expected.sort_unstable();
                assert_eq!(found, expected, "{key:?} of {prefixes:?}");
            }
        }
    }
}
