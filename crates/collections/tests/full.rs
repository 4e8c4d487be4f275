//! Large values in a store that is full and may not evict: a change that finds no space has changed
//! nothing, and removals of elements still work.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_collections::{
    CollectionError, End, Hash, List, Set, SortedRange, SortedSet, check_while,
};
use mneme_log::{Evict, LogStore, UpdatePolicy, WriteError};

const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];
/// Elements of each value.
const MANY: u32 = 3000;

fn store(policy: UpdatePolicy) -> LogStore {
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    builder.update_policy(policy).open_private().unwrap()
}

fn element(i: u32) -> Vec<u8> {
    format!("element {i:06}, which has some bytes").into_bytes()
}

fn is_full<T: std::fmt::Debug>(done: Result<T, CollectionError>, of: &str) {
    let is_full = matches!(
        done,
        Err(CollectionError::Store(WriteError::OutOfMemory { .. }))
    );
    assert!(is_full, "{of}: {done:?}");
}

fn is_sound(store: &LogStore) {
    assert_eq!(check_while(store, &|| true).unwrap(), Vec::<String>::new());
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// One large value of each type.
fn fill_values(store: &LogStore) {
    let elements: Vec<_> = (0..MANY).map(element).collect();
    let slices: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    let pairs: Vec<_> = slices.iter().map(|field| (*field, &b"value"[..])).collect();
    Hash::of(store, b"hash").unwrap().set_many(&pairs).unwrap();
    Set::of(store, b"set").unwrap().add_many(&slices).unwrap();
    let scored: Vec<_> = slices
        .iter()
        .zip(0..)
        .map(|(m, i)| (*m, f64::from(i)))
        .collect();
    let sorted = SortedSet::of(store, b"sorted").unwrap();
    sorted.set_many(&scored).unwrap();
    List::of(store, b"list")
        .unwrap()
        .push(End::Back, &slices)
        .unwrap();
}

/// Puts strings until there is no space for the shortest. Returns their number.
fn fill_up(store: &LogStore) -> u32 {
    let mut stored = 0u32;
    for len in [100_000, 10_000, 1000, 100, 1] {
        while store.put(&stored.to_le_bytes(), &vec![7; len]).is_ok() {
            stored += 1;
        }
    }
    stored
}

#[test]
fn a_change_of_many_elements_that_finds_no_space_changes_nothing() {
    for policy in POLICIES {
        let store = store(policy);
        fill_values(&store);
        fill_up(&store);
        let elements: Vec<_> = (MANY / 2..3 * MANY).map(element).collect();
        let slices: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        let new: Vec<_> = slices
            .iter()
            .map(|field| (*field, &b"another"[..]))
            .collect();
        for key in [&b"hash"[..], b"new hash"] {
            let hash = Hash::of(&store, key).unwrap();
            let before = hash.pairs().unwrap();
            is_full(hash.set_many(&new), "hash");
            assert_eq!(hash.pairs().unwrap(), before);
        }
        for key in [&b"set"[..], b"new set"] {
            let set = Set::of(&store, key).unwrap();
            let before = set.members().unwrap();
            is_full(set.add_many(&slices), "set");
            assert_eq!(set.members().unwrap(), before);
        }
        let scored: Vec<_> = slices.iter().map(|m| (*m, 0.5)).collect();
        for key in [&b"sorted"[..], b"new sorted"] {
            let set = SortedSet::of(&store, key).unwrap();
            let all = || {
                let all = set.range(&SortedRange::Ranks(0, -1), false).unwrap();
                all.iter().map(|(m, s)| (m.to_vec(), s)).collect::<Vec<_>>()
            };
            let before = all();
            is_full(set.set_many(&scored), "sorted set");
            assert_eq!(all(), before);
        }
        for (key, end) in [(&b"list"[..], End::Front), (b"new list", End::Back)] {
            let list = List::of(&store, key).unwrap();
            let before = list.range(0..usize::MAX).unwrap();
            is_full(list.push(end, &slices), "list");
            assert_eq!(list.range(0..usize::MAX).unwrap(), before);
        }
        is_sound(&store);
    }
}

/// Element by element, then as a whole.
#[test]
fn what_removes_elements_of_a_full_store_never_lacks_space() {
    for policy in POLICIES {
        let store = store(policy);
        fill_values(&store);
        fill_up(&store);
        let (hash, set) = (
            Hash::of(&store, b"hash").unwrap(),
            Set::of(&store, b"set").unwrap(),
        );
        let sorted = SortedSet::of(&store, b"sorted").unwrap();
        let list = List::of(&store, b"list").unwrap();
        for i in 0..MANY {
            let element = element((i * 7) % MANY);
            let what = format!("{policy:?}, removal {i}");
            assert!(hash.remove(&element).expect(&what), "{what}");
            assert!(set.remove(&element).expect(&what), "{what}");
            assert!(sorted.remove(&element).expect(&what), "{what}");
            assert!(list.pop(End::Back).expect(&what).is_some(), "{what}");
        }
        for key in [&b"hash"[..], b"set", b"sorted", b"list"] {
            assert!(!store.remove(key).unwrap());
        }
        is_sound(&store);
        let report = store.check().unwrap();
        assert_eq!((report.collections, report.inner_records), (0, 0));
    }
}

/// Others store so much, again and again, that it is evicted while it is read as a whole.
#[test]
fn a_hash_that_is_evicted_while_it_is_read_is_whole_or_gone() {
    let builder = LogStore::builder().capacity(64 << 20).evict(Evict::Lru);
    let store = builder.open_private().unwrap();
    let fields: Vec<_> = (0..500).map(element).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let (mut whole, mut gone) = (0, 0);
            while !is_over.load(Relaxed) {
                let pairs = Hash::of(&store, b"hash").unwrap().pairs().unwrap();
                assert!([0, fields.len()].contains(&pairs.len()), "{}", pairs.len());
                let of_first = pairs.first().map(|(_, value)| value.clone());
                assert!(
                    pairs
                        .iter()
                        .all(|(_, value)| Some(value) == of_first.as_ref())
                );
                match of_first {
                    Some(_) => whole += 1,
                    None => gone += 1,
                }
            }
            (whole, gone)
        });
        for round in 0..10u32 {
            let value = round.to_le_bytes();
            let pairs: Vec<_> = fields.iter().map(|f| (&f[..], &value[..])).collect();
            Hash::of(&store, b"hash").unwrap().set_many(&pairs).unwrap();
            // Twice the capacity of the store. What is read often may stay.
            for other in 0..12_000u32 {
                let key = [round.to_le_bytes(), other.to_le_bytes()].concat();
                store.put(&key, &[7; 10_000]).unwrap();
            }
        }
        is_over.store(true, Relaxed);
        let (whole, gone) = read.join().unwrap();
        assert!(whole > 0, "{whole} times whole, {gone} times gone");
    });
    assert!(store.stats().evicted > 0);
    is_sound(&store);
}

/// Others that its thread serves wait meanwhile.
#[test]
fn a_writer_that_finds_no_space_frees_no_more_of_a_removed_value_than_it_needs() {
    for policy in POLICIES {
        let store = store(policy);
        let hash = Hash::of(&store, b"hash").unwrap();
        for first in (0..100_000).step_by(1000) {
            let elements: Vec<_> = (first..first + 1000).map(element).collect();
            let pairs: Vec<_> = elements.iter().map(|of| (&of[..], &of[..])).collect();
            hash.set_many(&pairs).unwrap();
        }
        fill_up(&store);
        let before = store.check().unwrap().inner_records;
        assert!(store.remove(b"hash").unwrap());
        store.put(b"after", b"value").unwrap();
        let left = store.check().unwrap().inner_records;
        assert!(left > before / 4 && left < before, "{left} of {before}");
        // The rest goes as more is needed, or is freed by the maintainer.
        for i in 0..100u32 {
            store.put(&i.to_be_bytes(), &[7; 50_000]).unwrap();
        }
        store.sweep_collections().unwrap();
        let report = store.check().unwrap();
        assert_eq!((report.collections, report.inner_records), (0, 0));
        is_sound(&store);
    }
}
