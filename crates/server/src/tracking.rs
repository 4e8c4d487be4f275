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

/// Of these prefixes, which a client wants in this order, the first that overlaps with a later one,
/// and the first such: their places.
pub(crate) fn overlapping(prefixes: &[&[u8]]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    order.sort_by_key(|place| (prefixes[*place], *place));
    // Prefixes of the one at hand, the shortest first.
    let (mut outer, mut first): (Vec<usize>, Option<usize>) = (Vec::new(), None);
    for place in order {
        while let Some(top) = outer.last()
            && !prefixes[place].starts_with(prefixes[*top])
        {
            outer.pop();
        }
        if let Some(top) = outer.last() {
            let earlier = place.min(*top);
            first = Some(first.map_or(earlier, |first| first.min(earlier)));
        }
        outer.push(place);
    }
    let first = first?;
    let mut later = first + 1..prefixes.len();
    let second = later.find(|other| {
        let (one, other) = (prefixes[first], prefixes[*other]);
        one.starts_with(other) || other.starts_with(one)
    });
    second.map(|second| (first, second))
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
        // More than one, in case that the limit was lowered.
        let wanted = (keys - most).min(DROPPED);
        let others = |shard: &Shard| -> Vec<Box<[u8]>> {
            let others = shard.keys().filter(|other| ***other != *key);
            others.take(wanted).cloned().collect()
        };
        let found = others(&shard);
        drop(shard);
        match found.is_empty() {
            true => {
                let mut shards = self.shards.iter().map(|shard| others(&lock(shard)));
                shards.find(|found| !found.is_empty()).unwrap_or_default()
            }
            false => found,
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
    /// Which of its prefixes `prefix` overlaps with: the first in their order.
    pub fn overlaps(&self, prefix: &[u8]) -> Option<&[u8]> {
        let own = &self.prefixes;
        // A client may ask for all keys beside those with its prefixes.
        if own.contains::<[u8]>(&[]) {
            return Some(&[]);
        }
        let until = (Bound::Unbounded, Bound::Included(prefix));
        let from = (Bound::Excluded(prefix), Bound::Unbounded);
        let before = own.range::<[u8], _>(until).next_back();
        let behind = own.range::<[u8], _>(from).next();
        let found = (before.filter(|own| prefix.starts_with(own)))
            .or(behind.filter(|own| own.starts_with(prefix)));
        found.map(|own| &**own)
    }

    /// Bytes that it takes, and its prefixes in the table.
    pub fn bytes(&self) -> usize {
        let of_prefixes = |prefix: &Box<[u8]>| 2 * (prefix.len() + PREFIX);
        size_of::<Self>() + self.prefixes.iter().map(of_prefixes).sum::<usize>()
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

    fn overlap(one: &[u8], other: &[u8]) -> bool {
        one.starts_with(other) || other.starts_with(one)
    }

    #[test]
    fn overlapping_prefixes_are_found_in_the_order_in_which_they_are_wanted() {
        let texts = texts();
        let mut lot = 1u64;
        for round in 0..5_000 {
            let wanted: Vec<&[u8]> = (0..round % 7)
                .map(|_| {
                    lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    &texts[(lot >> 40) as usize % texts.len()][..]
                })
                .collect();
            let pairs = (0..wanted.len()).flat_map(|one| {
                let later = one + 1..wanted.len();
                later.map(move |other| (one, other))
            });
            let mut pairs = pairs.filter(|(one, other)| overlap(wanted[*one], wanted[*other]));
            let first = pairs.next();
            assert_eq!(overlapping(&wanted), first, "{wanted:?}");
            if first.is_none() {
                let mode = TrackingMode {
                    prefixes: wanted.iter().map(|prefix| Box::from(*prefix)).collect(),
                    ..TrackingMode::default()
                };
                for text in &texts {
                    let own = mode.prefixes.iter().find(|own| overlap(own, text));
                    assert_eq!(
                        mode.overlaps(text),
                        own.map(|own| &**own),
                        "{wanted:?} {text:?}"
                    );
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
