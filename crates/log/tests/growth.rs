//! A store that grows while it is in use, in one process and seen from another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_log::{GrowError, LogStore, OpenError, PagePolicy, WriteError, control_bytes};
use mneme_sys::{Access, Region, ScriptedLiveness};

const SMALL: u64 = 64 << 20;
const LARGE: u64 = 192 << 20;

fn put_until_full(store: &LogStore, first: u64) -> u64 {
    for key in first.. {
        match store.put(&key.to_le_bytes(), &[key as u8; 1000]) {
            Ok(()) => {}
            Err(WriteError::OutOfMemory { .. }) => return key,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

fn assert_holds(store: &LogStore, keys: u64) {
    for key in 0..keys {
        let found = store.get(&key.to_le_bytes()).unwrap().unwrap();
        assert_eq!(*found, [key as u8; 1000], "key {key}");
    }
    assert_eq!(store.len(), keys);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_full_store_that_grows_has_space_again() {
    let store = LogStore::builder()
        .capacity(SMALL)
        .max_capacity(LARGE)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .open_private()
        .unwrap();
    assert_eq!(
        (store.stats().capacity, store.stats().max_capacity),
        (SMALL, LARGE)
    );
    let few = put_until_full(&store, 0);
    assert_eq!(
        store.grow(SMALL + (32 << 20) - 5).unwrap(),
        SMALL + (32 << 20)
    );
    let more = put_until_full(&store, few);
    assert!(more > few + 28_000, "{few} {more}");
    // Growing to a smaller size does nothing.
    assert_eq!(store.grow(SMALL).unwrap(), SMALL + (32 << 20));
    assert!(matches!(
        store.grow(LARGE + 1),
        Err(GrowError::BeyondMax { max: LARGE, .. })
    ));
    assert_eq!(store.grow(LARGE).unwrap(), LARGE);
    let most = put_until_full(&store, more);
    let stats = store.stats();
    assert!(most * 1000 > LARGE * 8 / 10, "{stats:?}");
    assert!(stats.reserve_bytes * 50 >= LARGE - (4 << 20), "{stats:?}");
    assert_holds(&store, most);
}

#[test]
fn another_process_follows_growth() {
    let (len, max) = (SMALL as usize, LARGE as usize);
    let data = Region::memfd("growing", len, max, PagePolicy::Small).unwrap();
    let control_len = control_bytes().next_multiple_of(2 << 20);
    let control = Region::memfd("control", control_len, control_len, PagePolicy::Small).unwrap();
    let script = ScriptedLiveness::new();
    let again = |r: &Region| {
        let fd = r.duplicate_fd().unwrap().unwrap();
        Region::map(fd, Access::ReadWrite, r.max(), PagePolicy::Small).unwrap()
    };
    let builder = || LogStore::builder().maintainer(false);
    let one = builder()
        .create_in(again(&data), again(&control), Arc::new(script.process(1)))
        .unwrap();
    let other = builder()
        .open_in(again(&data), again(&control), Arc::new(script.process(2)))
        .unwrap();
    let few = put_until_full(&one, 0);
    one.grow(LARGE / 2).unwrap();
    let more = put_until_full(&one, few);
    assert!(more > few + 20_000);
    // It has never accessed anything beyond the old end.
    assert_holds(&other, more);
    assert_eq!(other.stats().capacity, LARGE / 2);
    other.grow(LARGE).unwrap();
    let most = put_until_full(&other, more);
    assert_holds(&one, most);
}

#[test]
fn a_maximum_below_the_capacity_is_refused() {
    let refused = LogStore::builder()
        .capacity(LARGE)
        .max_capacity(SMALL)
        .open_private();
    assert!(matches!(
        refused.err(),
        Some(OpenError::MaxBelowCapacity {
            capacity: LARGE,
            max: SMALL
        })
    ));
}

/// Its index takes frames for its present records, not for those that it may have one day.
#[test]
fn a_small_store_that_may_become_large_is_a_small_one() {
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let store = builder.max_capacity(64 << 30).open_private().unwrap();
    for i in 0..2_000u32 {
        store.put(&i.to_le_bytes(), &[7; 100]).unwrap();
    }
    let stats = store.stats();
    assert!(stats.index_bytes <= 4 << 20, "{stats:?}");
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}
