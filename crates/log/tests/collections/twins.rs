//! Broken twins: with one step left out, collections do not pass these tests.

use std::sync::Arc;

use mneme_log::breakage::STEPS;
use mneme_log::{Expiry, LogStore, Transaction, collection_of, leaf_numbers};
use mneme_sys::fault::{self, Action};

use super::memory::{CAPACITY, Memory, NOW, POLICIES, two, two_of};
use super::{LARGE, LEAVES, counts, get, put, rename, set};

/// The tests that detect each twin.
const CATCHES: [mneme_testkit::Step; STEPS.len()] = [
    (
        "main.noted",
        &[super::the_removal_of_a_main_frees_its_collection_and_no_other],
    ),
    ("reap.mains", &[what_a_dead_thread_has_removed_is_freed]),
    (
        "load.spares",
        &[what_no_key_leads_to_stays_while_a_store_is_loaded],
    ),
    (
        "look.valid",
        &[
            a_look_that_a_change_and_compaction_overtake_begins_again,
            super::a_look_at_a_collection_of_a_cleared_database_shows_no_part_of_it,
        ],
    ),
    (
        "sweep.anchor",
        &[a_collection_that_is_renamed_under_a_sweep_stays],
    ),
    (
        "txn.checked",
        &[a_change_of_a_collection_that_another_overtakes_begins_again],
    ),
    (
        "txn.expired",
        &[a_collection_whose_main_has_expired_is_not_continued],
    ),
    (
        "space.sweep",
        &[super::a_full_store_takes_back_what_is_dead_before_it_refuses_a_write],
    ),
    (
        "space.noted",
        &[a_transaction_gets_the_space_of_what_another_has_removed],
    ),
    (
        "evict.bytes",
        &[super::no_more_mains_are_evicted_than_needed],
    ),
];

#[test]
fn every_step_is_needed() {
    mneme_testkit::every_step_is_needed(&STEPS, &CATCHES, fault::leave_out);
}

#[test]
fn what_a_dead_thread_has_removed_is_freed() {
    type Way = (&'static str, fn(&LogStore));
    const WAYS: [Way; 2] = [
        ("log.published", |store| {
            put(store, 0, b"k", 1);
            store.remove(b"k").unwrap();
        }),
        // No other thread has seen the main.
        ("txn.cleared", |store| {
            let make_and_remove = |t: &mut Transaction<'_>| {
                set(t, 0, b"k", (1, Expiry::Never))?;
                t.remove(b"k")
            };
            store.transaction(make_and_remove).unwrap();
        }),
    ];
    for (place, way) in WAYS {
        let (memory, store) = Memory::new();
        memory.abandon(1, place, move || way(&store));
        let store = memory.open(2);
        store.reap().unwrap();
        while store.sweep_collections().unwrap() {}
        assert_eq!(counts(&store), (0, 0), "{place}");
    }
}

/// A base file is older than a part of what the journal has about a collection, and newer than the
/// rest.
#[test]
fn what_no_key_leads_to_stays_while_a_store_is_loaded() {
    let (_memory, store, _other, _clock) = two(POLICIES[0]);
    store.spare_collections(true);
    put(&store, 0, b"k", 1);
    let main = store.transaction(|t| t.read(b"k", |s| s.map(|s| s.value.to_vec())));
    let main = main.unwrap().unwrap();
    store.put(b"k", b"string").unwrap();
    assert!(!store.sweep_collections().unwrap());
    let put = |t: &mut Transaction<'_>| {
        let mut database = t.database(0)?;
        database.put_kind(b"renamed", &main, LARGE, Expiry::Never)
    };
    store.transaction(put).unwrap();
    store.spare_collections(false);
    store.sweep_collections().unwrap();
    assert_eq!(get(&store, 0, b"renamed"), Some(1));
    assert_eq!(counts(&store), (1, LEAVES));
}

/// Some leaves are read before the change, the others after it, wherever they are then.
#[test]
fn a_look_that_a_change_and_compaction_overtake_begins_again() {
    let (_memory, store, other, _clock) = two(POLICIES[0]);
    put(&store, 0, b"k", 1);
    let mut looks = 0;
    let looked = store.look(b"k", LARGE, |look| {
        looks += 1;
        let mut round = |number| look.inner(number).unwrap().unwrap()[0];
        let mut numbers = leaf_numbers(LEAVES);
        let first = round(numbers.next().unwrap());
        if looks == 1 {
            let change = || {
                put(&other, 0, b"k", 2);
                while other.compact().unwrap() > 0 {}
            };
            std::thread::scope(|scope| scope.spawn(change).join().unwrap());
        }
        (first, round(numbers.next().unwrap()))
    });
    assert_eq!((looked.unwrap(), looks), (Some((2, 2)), 2));
}

/// Between reading the anchor and checking the main, which has moved by then.
#[test]
fn a_collection_that_is_renamed_under_a_sweep_stays() {
    let (_memory, store, other, _clock) = two(POLICIES[0]);
    put(&store, 0, b"k", 1);
    // Any collection may be dead.
    store.spare_collections(false);
    let renaming = move || other.transaction(|t| rename(t, b"k", b"n")).unwrap();
    fault::arm(
        "sweep.collections.anchor",
        Action::Call(Arc::new(renaming)),
        1,
    );
    store.sweep_collections().unwrap();
    fault::disarm();
    assert_eq!(get(&store, 0, b"n"), Some(1));
    assert_eq!(counts(&store), (1, LEAVES));
}

#[test]
fn a_change_of_a_collection_that_another_overtakes_begins_again() {
    for policy in POLICIES {
        let (_memory, store, other, _clock) = two(policy);
        put(&store, 0, b"k", 1);
        let mut attempts = 0;
        let next = |t: &mut Transaction<'_>| {
            attempts += 1;
            let id = t.read(b"k", |s| collection_of(s.unwrap().value).unwrap())?;
            let round = t.anchor(id)?.unwrap().count as u8;
            if attempts == 1 {
                std::thread::scope(|scope| {
                    scope.spawn(|| put(&other, 0, b"k", 5)).join().unwrap();
                });
            }
            set(t, 0, b"k", (round + 1, Expiry::Never))
        };
        store.transaction(next).unwrap();
        assert_eq!((get(&store, 0, b"k"), attempts), (Some(6), 2));
    }
}

#[test]
fn a_collection_whose_main_has_expired_is_not_continued() {
    for policy in POLICIES {
        let (_memory, store, _other, clock) = two(policy);
        let id = || {
            let read = |t: &mut Transaction<'_>| {
                t.read(b"k", |s| s.map(|s| collection_of(s.value).unwrap()))
            };
            store.transaction(read).unwrap()
        };
        let expiring = (1, Expiry::At(NOW + 10));
        store.transaction(|t| set(t, 0, b"k", expiring)).unwrap();
        let old = id();
        clock.advance_ms(20);
        put(&store, 0, b"k", 2);
        assert_ne!(id(), old);
        assert_eq!(get(&store, 0, b"k"), Some(2));
        while store.sweep_collections().unwrap() {}
        assert_eq!(counts(&store), (1, LEAVES));
    }
}

/// The writer has removed none of them, so it knows of no particular collection.
#[test]
fn a_transaction_gets_the_space_of_what_another_has_removed() {
    let builder = LogStore::builder().capacity(CAPACITY as u64);
    let (_memory, one, other, _clock) = two_of(builder);
    let put = |i: u32| one.transaction(|t| set(t, 0, &i.to_le_bytes(), (1, Expiry::Never)));
    let stored = (0..).find(|i| put(*i).is_err()).unwrap();
    (0..stored).for_each(|i| assert!(other.remove(&i.to_le_bytes()).unwrap()));
    let put = |t: &mut Transaction<'_>| t.put(b"key", &[1; 100_000]);
    one.transaction(put).unwrap();
}
