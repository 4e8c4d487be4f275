//! A store can be nearly filled with values from 64 KiB to 8 MiB before it counts as full, also
//! after changes in any order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::collections::BTreeMap;

use memory::Memory;
use mneme_log::{Evict, Expiry, LogStore, PagePolicy, Part, Patch, WriteError};
use mneme_testkit::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The lengths of values.
#[derive(Clone, Copy, Debug)]
enum Mix {
    /// All lengths in this range with equal probability.
    Even(u64, u64),
    /// Each power of two with equal probability.
    Log(u64, u64),
    All(u64),
    /// Short ones, and occasionally a long one.
    WithShort(u64, u64),
}

impl Mix {
    fn length(self, random: &mut Random) -> usize {
        let between = |random: &mut Random, from, to| from + random.below(to - from + 1);
        let length = match self {
            Mix::Even(from, to) => between(random, from, to),
            Mix::Log(from, to) => {
                let steps = (to / from).ilog2();
                let from = from << random.below(u64::from(steps));
                between(random, from, 2 * from)
            }
            Mix::All(length) => length,
            Mix::WithShort(from, to) => match random.below(100) {
                0 => between(random, from, to),
                _ => between(random, 100, 3000),
            },
        };
        length as usize
    }
}

/// The expected content of a store: a length for each key.
struct Expected {
    mix: Mix,
    random: Random,
    all: BTreeMap<u64, usize>,
    next: u64,
    bytes: Vec<u8>,
}

fn word(key: u64, length: usize) -> [u8; 8] {
    (key ^ (length as u64) << 20)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_le_bytes()
}

impl Expected {
    fn new(mix: Mix) -> Expected {
        Expected {
            mix,
            random: Random::new(7),
            all: BTreeMap::new(),
            next: 0,
            bytes: vec![0; 9 << 20],
        }
    }

    /// Stores a value, in one opening of the store or another, marked at both ends and in the
    /// middle. Returns false if the store is full.
    fn put(&mut self, stores: &[LogStore], key: u64) -> bool {
        let store = &stores[key as usize % stores.len()];
        let length = self.mix.length(&mut self.random);
        let bytes = &mut self.bytes[..length];
        for at in [0, length / 2, length - 8] {
            bytes[at..at + 8].copy_from_slice(&word(key, length));
        }
        match store.put(&key.to_le_bytes(), bytes) {
            Ok(()) => {
                self.all.insert(key, length);
                true
            }
            Err(WriteError::OutOfMemory { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    }

    /// Fills the store. Returns the share of it that the values take.
    fn fill(&mut self, stores: &[LogStore]) -> f64 {
        loop {
            let key = self.next;
            self.next += 1;
            if !self.put(stores, key) {
                break;
            }
        }
        let live: usize = self.all.values().sum();
        live as f64 / stores[0].stats().capacity as f64
    }

    /// Overwrites and removes as many values as there are.
    fn churn(&mut self, stores: &[LogStore]) {
        let keys: Vec<u64> = self.all.keys().copied().collect();
        for _ in 0..keys.len() {
            let key = keys[self.random.below(keys.len() as u64) as usize];
            match self.random.below(3) {
                0 => {
                    let there = self.all.remove(&key).is_some();
                    assert_eq!(stores[0].remove(&key.to_le_bytes()).unwrap(), there);
                }
                _ => _ = self.put(stores, key),
            }
        }
    }

    fn holds(&self, store: &LogStore) {
        assert_eq!(store.len(), self.all.len() as u64);
        for (key, length) in &self.all {
            let value = store.get(&key.to_le_bytes()).unwrap().unwrap();
            assert_eq!(value.len(), *length, "key {key}");
            for at in [0, length / 2, length - 8] {
                assert_eq!(value[at..at + 8], word(*key, *length), "key {key} at {at}");
            }
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

const CAPACITY: u64 = 256 << 20;

/// Fills the store, then changes its content and fills it again, three times.
#[track_caller]
fn is_full_at(least: f64, stores: &[LogStore], mix: Mix) {
    let mut expected = Expected::new(mix);
    let mut shares = vec![expected.fill(stores)];
    for _ in 0..3 {
        expected.churn(stores);
        shares.push(expected.fill(stores));
        expected.holds(&stores[0]);
    }
    assert!(
        shares.iter().all(|share| *share >= least),
        "{mix:?}: {shares:.3?}"
    );
}

/// The longest value is at most a 64th of the store, or all have the same length and fit their
/// segments.
fn capacity_for(mix: Mix) -> u64 {
    match mix {
        Mix::Even(_, to) | Mix::Log(_, to) | Mix::WithShort(_, to) => CAPACITY.max(64 * to),
        Mix::All(_) => CAPACITY,
    }
}

fn private(capacity: u64, maintainer: bool) -> LogStore {
    let builder = LogStore::builder().capacity(capacity);
    let builder = builder
        .maintainer(maintainer)
        .page_policy(PagePolicy::Small);
    builder.open_private().unwrap()
}

const MIXES: [Mix; 7] = [
    Mix::Even(100 * KIB, 800 * KIB),
    Mix::Even(64 * KIB, 8 * MIB),
    Mix::Log(64 * KIB, 8 * MIB),
    Mix::All(600 * KIB),
    Mix::All(3 * MIB),
    Mix::All(4 * MIB),
    Mix::All(8 * MIB),
];

#[test]
fn a_store_of_bulk_values_is_full_only_when_they_take_nearly_all_of_it() {
    for mix in MIXES {
        is_full_at(0.85, &[private(capacity_for(mix), false)], mix);
    }
}

#[test]
fn a_maintained_store_of_bulk_values_is_as_full() {
    for mix in &MIXES[..2] {
        is_full_at(0.85, &[private(capacity_for(*mix), true)], *mix);
    }
}

#[test]
fn a_shared_store_of_bulk_values_is_as_full() {
    for mix in &MIXES[..2] {
        let (memory, store) = Memory::with(capacity_for(*mix) as usize);
        is_full_at(0.85, &[store, memory.open(2)], *mix);
    }
}

#[test]
fn short_and_bulk_values_share_a_store() {
    let mix = Mix::WithShort(64 * KIB, 8 * MIB);
    is_full_at(0.80, &[private(capacity_for(mix), false)], mix);
}

/// Old values are evicted for new ones of any length, wherever there are gaps.
#[test]
fn a_store_that_evicts_refuses_no_bulk_value() {
    for evict in [Evict::Lru, Evict::Random, Evict::ExpiringLru] {
        let builder = LogStore::builder().capacity(CAPACITY).evict(evict);
        let builder = builder.maintainer(false).page_policy(PagePolicy::Small);
        let store = builder.open_private().unwrap();
        let mut random = Random::new(3);
        for key in 0..300u64 {
            let value = vec![key as u8; MIXES[1].length(&mut random)];
            let until = Expiry::At(u64::MAX >> 1);
            store.put_until(&key.to_le_bytes(), &value, until).unwrap();
            let old = store.get(&(key / 2).to_le_bytes()).unwrap();
            assert!(old.is_none_or(|old| old.iter().all(|byte| *byte == (key / 2) as u8)));
        }
        let stats = store.stats();
        assert!(
            stats.evicted > 0 && stats.live_bytes > CAPACITY / 2,
            "{stats:?}"
        );
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A value that a reader keeps is not a gap, though it was removed.
#[test]
fn a_value_that_is_kept_keeps_its_place() {
    let (memory, store) = Memory::with(CAPACITY as usize);
    let reader = memory.open(2);
    let mut expected = Expected::new(Mix::All(3 * MIB));
    let stores = [store];
    expected.fill(&stores);
    let store = &stores[0];
    let key = 7u64.to_le_bytes();
    let kept = reader.get(&key).unwrap().unwrap();
    assert!(store.remove(&key).unwrap());
    let value = vec![0xee; 3 << 20];
    // There is nothing else to reuse, and it is not known how long the reader will stay.
    assert!(matches!(
        store.put(b"other", &value),
        Err(WriteError::Stalled(_))
    ));
    let length = expected.all.remove(&7).unwrap();
    assert_eq!(kept[length - 8..], word(7, length));
    drop(kept);
    store.put(b"other", &value).unwrap();
    assert!(store.remove(b"other").unwrap());
    expected.holds(store);
}

/// Values in reused places are changed in part, and get an expiry, in place.
#[test]
fn values_in_gaps_are_changed_where_they_lie() {
    let store = private(CAPACITY, false);
    let stores = [store];
    let mut expected = Expected::new(Mix::Even(100 * KIB, 2 * MIB));
    expected.fill(&stores);
    expected.churn(&stores);
    expected.fill(&stores);
    let store = &stores[0];
    let before = store.stats();
    for key in expected.all.keys() {
        let set = store.set_expiry(&key.to_le_bytes(), Expiry::At(u64::MAX >> 1));
        assert!(set.unwrap());
    }
    let after = store.stats();
    assert_eq!(
        (after.moved_bytes, after.live_bytes),
        (before.moved_bytes, before.live_bytes)
    );
    expected.holds(store);
    let keys: Vec<u64> = expected.all.keys().copied().collect();
    // Space for the patchable record that replaces a value at its first change of a part.
    for key in &keys[..keys.len() / 4] {
        store.remove(&key.to_le_bytes()).unwrap();
    }
    let patch = |key: u64, byte: u8| {
        let bytes = [byte; 1000];
        let patch = |_: Option<Part<'_>>| Patch::Write {
            at: 5000,
            bytes: bytes.to_vec().into(),
        };
        store
            .update_part(&key.to_le_bytes(), |_| 0..0, patch)
            .unwrap();
        let read = |part: Option<Part<'_>>| part.map(|part| part.bytes.to_vec());
        let read = store.read_part(&key.to_le_bytes(), |_| 5000..6000, read);
        assert_eq!(read.unwrap().unwrap(), bytes);
    };
    let key = keys[keys.len() - 1];
    patch(key, 1);
    let before = store.stats();
    (2..50).for_each(|byte| patch(key, byte));
    assert_eq!(store.stats().live_bytes, before.live_bytes);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
