//! Randomly drawn keys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

use std::collections::HashMap;

use mneme_log::{Draw, Drawn, Expiry, LogStore};

fn store() -> LogStore {
    LogStore::builder()
        .capacity(64 << 20)
        .open_private()
        .unwrap()
}

/// By drawing n keys k times each, measured by chi squared. A fair draw fails once in a million
/// times (Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection",
/// lemma 1).
fn assert_fair(store: &LogStore, database: usize, keys: usize) {
    let database = store.database(database).unwrap();
    let each = 60;
    let mut drawn: HashMap<Vec<u8>, f64> = HashMap::new();
    for _ in 0..keys * each {
        *drawn
            .entry(database.random_key().unwrap().unwrap())
            .or_default() += 1.0;
    }
    assert_eq!(drawn.len(), keys, "every key comes up");
    let expected = each as f64;
    let chi_squared: f64 = drawn
        .values()
        .map(|times| (times - expected).powi(2) / expected)
        .sum();
    let freedom = keys as f64 - 1.0;
    let rare = f64::ln(1e6);
    assert!(
        (chi_squared - freedom).abs() < 2.0 * (freedom * rare).sqrt() + 2.0 * rare,
        "{keys} keys: {chi_squared}"
    );
}

#[test]
fn every_key_is_as_likely_as_any_other() {
    let store = store();
    let mut stored = 0;
    // Few, many, and shapes of the index in which some pages have split and others not.
    for keys in [1, 2, 3, 15, 17, 100, 700, 2_500] {
        while stored < keys {
            store
                .database(1)
                .unwrap()
                .put(format!("key {stored}").as_bytes(), b"")
                .unwrap();
            stored += 1;
        }
        assert_fair(&store, 1, keys);
    }
}

#[test]
fn no_key_of_another_database_none_that_has_expired_and_none_of_none() {
    let store = store();
    assert_eq!(store.random_key().unwrap(), None);
    for i in 0..1_000 {
        let key = format!("key {i}");
        let passed = Expiry::At(1);
        store.put_until(key.as_bytes(), b"", passed).unwrap();
        store.database(2).unwrap().put(key.as_bytes(), b"").unwrap();
    }
    assert_eq!(store.random_key().unwrap(), None);
    store.put(b"the only one", b"").unwrap();
    for _ in 0..10 {
        assert_eq!(store.random_key().unwrap().unwrap(), b"the only one");
    }
}

#[test]
fn the_few_keys_left_of_many_are_found() {
    let store = store();
    let key = |i: u32| format!("key {i}").into_bytes();
    for i in 0..20_000 {
        store.put(&key(i), b"").unwrap();
    }
    for i in 7..20_000 {
        store.remove(&key(i)).unwrap();
    }
    assert_fair(&store, 0, 7);
}

/// A draw from an index that was made for many more keys takes many short steps, and its result is
/// just as fair.
#[test]
fn a_draw_of_few_among_many_empty_buckets_takes_short_steps() {
    let builder = LogStore::builder().capacity(128 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    let key = |i: u32| format!("key {i}").into_bytes();
    for i in 0..200_000 {
        store.put(&key(i), b"").unwrap();
    }
    for i in 3..200_000 {
        store.remove(&key(i)).unwrap();
    }
    let (mut draw, mut steps) = (Draw::default(), 1);
    let drawn = loop {
        match store.draw(&mut draw).unwrap() {
            Drawn::Unfinished => steps += 1,
            drawn => break drawn,
        }
    };
    assert!((0..3).any(|i| drawn == Drawn::Key(key(i))), "{drawn:?}");
    // By the size that the index still has, not by its content.
    let buckets = store.stats().index_used_bytes / 128;
    assert!(
        steps > buckets / 4_096 && steps < 16 + buckets / 256,
        "{steps} steps, {buckets} buckets"
    );
    assert_fair(&store, 0, 3);
    for i in 0..3 {
        store.remove(&key(i)).unwrap();
    }
    assert_eq!(store.random_key().unwrap(), None);
}

/// Keys that are added during a draw neither delay it nor fill its memory.
#[test]
fn a_draw_ends_although_keys_are_added_meanwhile() {
    let store = store();
    store.put(b"first", b"").unwrap();
    let mut draw = Draw::default();
    for i in 0u32.. {
        match store.draw(&mut draw).unwrap() {
            Drawn::Unfinished => assert!(i < 100_000),
            Drawn::Nothing => panic!("the first is there"),
            Drawn::Key(key) => {
                assert!(store.contains(&key).unwrap());
                break;
            }
        }
        for j in 0..if i < 5_000 { 4 } else { 0 } {
            store.put(&(4 * i + j).to_le_bytes(), b"").unwrap();
        }
    }
}
