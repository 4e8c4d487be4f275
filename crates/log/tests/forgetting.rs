//! How much a full store evicts for one write: what the write needs and little more, and nothing
//! for one that is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::time::Duration;

use mneme_log::{Evict, Expiry, LogStore};

const CAPACITY: u64 = 256 << 20;
const UNTIL: Expiry = Expiry::At(u64::MAX >> 1);

fn open(evict: Evict) -> LogStore {
    let builder = LogStore::builder().capacity(CAPACITY).maintainer(false);
    builder.evict(evict).open_private().unwrap()
}

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

fn sound(store: &LogStore) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// However long the values are.
#[test]
fn one_write_forgets_a_small_part_of_what_expires() {
    for evict in [Evict::ExpiringLru, Evict::ExpiringSoonest] {
        for size in [60_000, 2_000_000, 10_000_000] {
            let store = open(evict);
            let value = vec![1; size];
            let mut before = 0;
            for i in 0..(2 * CAPACITY) as u32 / size as u32 {
                store.put_until(&key(i), &value, UNTIL).unwrap();
                let forgotten = (before + 1u64).saturating_sub(store.len());
                assert!(
                    forgotten * size as u64 <= CAPACITY / 8,
                    "{evict:?}, {size} bytes: {forgotten} records for one"
                );
                before = store.len();
            }
            assert!(before * size as u64 > CAPACITY / 2, "{evict:?}, {size}");
            sound(&store);
        }
    }
}

/// Half of the store in one piece, although a head continues in the middle of it.
#[test]
fn a_value_of_more_than_half_of_the_store_is_stored() {
    let store = open(Evict::Lru);
    (0..150_000).for_each(|i| store.put(&key(i), &[7; 1000]).unwrap());
    store.put(b"large", &vec![1; 150 << 20]).unwrap();
    assert!(store.len() > 40_000, "{} records are left", store.len());
    sound(&store);
}

/// Half of the store in one piece, if nothing may be evicted and all records were removed.
#[test]
fn an_emptied_store_takes_a_value_of_more_than_half_of_it() {
    let store = open(Evict::None);
    (0..150_000).for_each(|i| store.put(&key(i), &[7; 1000]).unwrap());
    for i in 0..150_000 {
        assert!(store.remove(&key(i)).unwrap());
    }
    store.put(b"large", &vec![1; 150 << 20]).unwrap();
    sound(&store);
}

/// Its index lies in the middle, and does not move.
#[test]
fn nothing_is_evicted_for_a_value_that_the_index_leaves_no_space_for() {
    let store = open(Evict::Lru);
    for i in 0..60 {
        store.put(&key(i), &vec![1; 2_000_000]).unwrap();
    }
    // Longer indexes take frames after these.
    (100..400_000).for_each(|i| store.put(&key(i), &[7; 100]).unwrap());
    let before = store.len();
    let stored = store.put(b"large", &vec![1; 200 << 20]).is_ok();
    assert!(
        stored || store.len() > before / 2,
        "refused, and {} of {before} records are left",
        store.len()
    );
    sound(&store);
}

/// Removed space is not free yet because of a reader: the write waits for it, and does not report
/// that the store is full.
#[test]
fn a_store_that_evicts_expiring_records_waits_for_readers() {
    for evict in [Evict::Lru, Evict::ExpiringLru] {
        let store = open(evict);
        let value = vec![1; 1_500_000];
        (0..118).for_each(|i| store.put_until(&key(i), &value, UNTIL).unwrap());
        std::thread::scope(|scope| {
            let (held, is_held) = mpsc::channel();
            let store = &store;
            scope.spawn(move || {
                let value = store.get(&key(50)).unwrap();
                held.send(value.is_some()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            });
            assert!(is_held.recv().unwrap());
            for i in 0..11 {
                assert!(store.remove(&key(i)).unwrap());
            }
            let put = store.put_until(b"large", &vec![2; 30_000_000], UNTIL);
            assert!(put.is_ok(), "{evict:?}: {put:?}");
        });
        sound(&store);
    }
}
