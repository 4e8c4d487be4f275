//! Which clients have read which keys, of those that track them. See [`crate::track_keys`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the table, each under a lock of its own.
const SHARDS: usize = 64;

/// Keys that are dropped at most when one is entered.
const DROPPED: usize = 4;

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

/// How many bytes two texts begin with that are equal.
fn common(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
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
    /// because there are more than `most`; 0: however many there are.
    pub fn remember(&self, client: u64, key: &[u8], most: usize) -> Vec<Box<[u8]>> {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(clients) => {
                let is_new = clients.insert(client);
                self.items.fetch_add(usize::from(is_new), Ordering::Relaxed);
                return Vec::new();
            }
            None => shard.insert(key.into(), BTreeSet::from([client])),
        };
        self.items.fetch_add(1, Ordering::Relaxed);
        let keys = self.keys.fetch_add(1, Ordering::Relaxed) + 1;
        if most == 0 || keys <= most {
            return Vec::new();
        }
        drop(shard);
        // More than one, in case that the limit was lowered.
        let wanted = (keys - most).min(DROPPED);
        let (mut others, place) = (Vec::new(), Self::shard_of(key));
        for shard in self.shards[place..].iter().chain(&self.shards[..place]) {
            let left = wanted - others.len();
            if left == 0 {
                break;
            }
            let shard = lock(shard);
            let keys = shard.keys().filter(|other| ***other != *key);
            others.extend(keys.take(left).cloned());
        }
        others
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

    /// The clients with a prefix of `key`. Other prefixes cost little, however many there are.
    pub fn broadcasting(&self, key: &[u8]) -> Vec<u64> {
        let (prefixes, mut found) = (lock(&self.prefixes), Vec::new());
        // All prefixes of the key that are not found yet are prefixes of this, too.
        let mut rest = Some(key);
        while let Some(bounds) = rest
            && let until = (Bound::Unbounded, Bound::Included(bounds))
            && let Some((last, clients)) = prefixes.range::<[u8], _>(until).next_back()
        {
            let shared = common(last, key);
            rest = match shared == last.len() {
                true => {
                    found.extend(clients);
                    shared.checked_sub(1)
                }
                // The last that is not behind them begins otherwise, and so do all between.
                false => Some(shared),
            }
            .map(|len| &key[..len]);
        }
        found
    }

    /// Keeps of the table only the clients of which `tracks` holds, in one part of it after the
    /// other: a client waits no longer than for one.
    pub fn retain(&self, tracks: impl Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            // Asked while nobody enters anything in this part: what is there of a client that has
            // begun anew stays, or was entered before it ended.
            let mut known = HashMap::new();
            let mut tracks = |client| *known.entry(client).or_insert_with(|| tracks(client));
            shard.retain(|_, clients| {
                let before = clients.len();
                clients.retain(|client| tracks(*client));
                (self.items).fetch_sub(before - clients.len(), Ordering::Relaxed);
                !clients.is_empty()
            });
            self.keys.fetch_sub(before - shard.len(), Ordering::Relaxed);
            if shard.len() < shard.capacity() / 4 {
                shard.shrink_to_fit();
            }
        }
    }
}

impl TrackingMode {
    /// Which of its prefixes `prefix` overlaps with.
    pub fn overlap(&self, prefix: &[u8]) -> Option<&[u8]> {
        let own = &self.prefixes;
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

    /// Bytes that it takes, and its prefixes in the table.
    pub fn bytes(&self) -> usize {
        let lengths = self.prefixes.iter().map(|prefix| prefix.len());
        size_of::<Self>() + lengths.map(|len| 2 * (len + PREFIX)).sum::<usize>()
    }

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
            let mut mode = TrackingMode::default();
            for _ in 0..8 {
                lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let text = &texts[(lot >> 40) as usize % texts.len()];
                let overlaps = |own: &[u8]| own.starts_with(text) || text.starts_with(own);
                match mode.overlap(text) {
                    Some(own) => assert!(overlaps(own), "{own:?} {text:?}"),
                    None => {
                        assert!(!mode.prefixes.iter().any(|own| overlaps(own)), "{text:?}");
                        mode.prefixes.insert(text[..].into());
                    }
                }
            }
        }
    }

    #[test]
    fn the_clients_are_found_that_have_a_prefix_of_a_key() {
        let (texts, mut lot) = (texts(), 1u64);
        for _ in 0..500 {
            let table = Tracking::default();
            for (client, prefix) in texts.iter().enumerate() {
                lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if (lot >> 40) % 3 == 0 {
                    table.broadcast(client as u64, &BTreeSet::from([Box::from(&prefix[..])]));
                }
            }
            let prefixes = lock(&table.prefixes).clone();
            for key in &texts {
                let mut found = table.broadcasting(key);
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
