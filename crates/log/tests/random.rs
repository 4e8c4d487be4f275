//! Keys drawn by lot.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

use std::collections::HashMap;

use mneme_log::{Expiry, LogStore};

fn store() -> LogStore {
    LogStore::builder()
        .capacity(64 << 20)
        .open_private()
        .unwrap()
}

/// By the draw of n keys k times each, as chi squared measures it, 5 standard deviations allowed: a
/// fair lot fails once in a million times.
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
    assert!(
        (chi_squared - freedom).abs() < 5.0 * (2.0 * freedom).sqrt() + 5.0,
        "{keys} keys: {chi_squared}"
    );
}

#[test]
fn every_key_is_as_likely_as_any_other() {
    let store = store();
    let mut stored = 0;
    // Few, many, and shapes of the index in which some segments have split and others not.
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
fn what_is_left_of_many_is_found() {
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
