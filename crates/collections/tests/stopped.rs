//! A live local program is stopped in the middle of a change of a large value: the others are
//! served, or fail at once and name the process that they wait for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../log/tests/memory/mod.rs"]
mod memory;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use memory::stopped::{Looked, Stopped};
use memory::{CAPACITY, Memory};
use mneme_collections::{CollectionError, End, Hash, List, SortedSet, anchor_of, check_while};
use mneme_log::{Anchor, LogStore, UpdatePolicy, WriteError};

/// Other values, which usually lie elsewhere in the index than what the stopped program has locked.
const OTHERS: u32 = 64;

fn key(i: u32) -> Vec<u8> {
    format!("other {i}").into_bytes()
}

fn elements(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let each = range.map(|i| format!("element {i}, which is some {}", "bytes ".repeat(8)));
    each.map(String::into_bytes).collect()
}

fn slices(elements: &[Vec<u8>]) -> Vec<&[u8]> {
    elements.iter().map(Vec::as_slice).collect()
}

/// Whether it was done. If not, the error named the process that holds the lock.
fn is_served<T>(done: Result<T, CollectionError>) -> bool {
    match done {
        Ok(_) => true,
        Err(CollectionError::Store(WriteError::Stalled(stalled))) => {
            assert_eq!(stalled.pid, std::process::id(), "{stalled}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A large value, and a change that adds so much to it that its leaves are split, and its tree gets
/// more records.
type Change = (&'static str, fn(&LogStore, std::ops::Range<u32>));

const CHANGES: [Change; 3] = [
    ("hash", |store, range| {
        let elements = elements(range);
        let pairs: Vec<_> = elements.iter().map(|e| (&e[..], &b"value"[..])).collect();
        Hash::of(store, b"hash").unwrap().set_many(&pairs).unwrap();
    }),
    ("sorted set", |store, range| {
        let elements = elements(range);
        let scores = (0u32..).map(f64::from);
        let scored: Vec<_> = elements.iter().map(Vec::as_slice).zip(scores).collect();
        let set = SortedSet::of(store, b"sorted set").unwrap();
        set.set_many(&scored).unwrap();
    }),
    ("list", |store, range| {
        let list = List::of(store, b"list").unwrap();
        list.push(End::Back, &slices(&elements(range))).unwrap();
    }),
];

/// Any read of the value, and any change.
fn use_value(store: &LogStore, of: &str) -> [bool; 2] {
    let database = store.database(0).unwrap();
    match of {
        "hash" => {
            let hash = Hash::new(database, b"hash");
            [is_served(hash.pairs()), is_served(hash.set(b"f", b"v"))]
        }
        "sorted set" => {
            let set = SortedSet::new(database, b"sorted set");
            [is_served(set.rank(b"m")), is_served(set.set(b"m", 1.0))]
        }
        _ => {
            let list = List::new(database, b"list");
            let all = list.range(0..usize::MAX);
            [is_served(all), is_served(list.push(End::Front, &[b"i"]))]
        }
    }
}

fn anchor(store: &LogStore, of: &str) -> Anchor {
    let anchor = store.transaction(|t| anchor_of(t, (0, of.as_bytes())));
    anchor.unwrap().unwrap()
}

#[test]
fn a_writer_that_is_stopped_within_a_split_is_named_and_delays_no_other_value() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        for (of, change) in CHANGES {
            // Each wait takes a second.
            let places = match (policy, of) {
                (UpdatePolicy::Append, "hash") => &["txn.locked", "txn.noted", "txn.applied"][..],
                (UpdatePolicy::Append, _) => &["txn.committed"],
                _ => &["txn.locked"],
            };
            for place in places {
                let context = format!("{policy:?}, {of}, {place}");
                let clock = Arc::new(Looked::default());
                let builder = LogStore::builder().update_policy(policy);
                let builder = builder.clock(clock.clone()).entropy([7; 24]);
                let (memory, store) = Memory::built(CAPACITY, CAPACITY, builder);
                change(&store, 0..500);
                for i in 0..OTHERS {
                    let key = key(i);
                    Hash::of(&store, &key).unwrap().set(b"f", b"old").unwrap();
                }
                let before = anchor(&store, of);
                let theirs = memory.open(2);
                // The change of that many elements is one transaction.
                let stopped = Stopped::at(place, 1, move || {
                    change(&theirs, 500..900);
                });
                let took = |work: &dyn Fn() -> [bool; 2]| {
                    let before = clock.0.load(Relaxed);
                    (work(), clock.0.load(Relaxed) - before)
                };
                // The first one to wait for it waits a second, and after that nobody does.
                let ([_, is_changed], _) = took(&|| use_value(&store, of));
                assert!(!is_changed, "{context}");
                let ([_, is_changed], ms) = took(&|| use_value(&store, of));
                assert!(!is_changed && ms < 200, "{context}: {ms} ms");
                let mut served = 0;
                for i in 0..OTHERS {
                    let key = key(i);
                    let hash = Hash::of(&store, &key).unwrap();
                    let (done, ms) = took(&|| {
                        let get = hash.get(b"f");
                        if let Ok(value) = &get {
                            assert_eq!(value.as_deref(), Some(&b"old"[..]));
                        }
                        [is_served(get), is_served(hash.set(b"g", b"new"))]
                    });
                    served += u32::from(done == [true; 2]);
                    assert!(ms < 200, "{context}, other {i}: {ms} ms");
                }
                assert!(served > OTHERS / 2, "{context}: {served} served");
                stopped.finish();
                assert_eq!(use_value(&store, of), [true; 2], "{context}");
                let after = anchor(&store, of);
                assert_eq!(after.count, 901, "{context}");
                let records = |anchor: Anchor| anchor.leaves + anchor.tree.numbers;
                assert!(records(after) > records(before) + 4, "{context}");
                assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
                memory::sound(&store, &context);
            }
        }
    }
}
