//! Operations whose time grows with the store end soon after they are cancelled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;

use mneme_log::LogStore;

/// A store with many log segments, in which one of four records is left.
fn sparse() -> LogStore {
    let store = LogStore::builder()
        .capacity(256 << 20)
        .maintainer(false)
        .open_private()
        .unwrap();
    let key = |i: u32| i.to_le_bytes();
    for i in 0..60_000 {
        store.put(&key(i), &[7; 1_000]).unwrap();
    }
    for i in (0..60_000).filter(|i| i % 4 != 0) {
        store.remove(&key(i)).unwrap();
    }
    store
}

/// Returns true this many times, and false from then on.
fn so_often(times: u32, asked: &Cell<u32>) -> impl Fn() -> bool + '_ {
    move || {
        asked.set(asked.get() + 1);
        asked.get() <= times
    }
}

#[test]
fn a_compaction_ends_between_two_segments() {
    let (store, asked) = (sparse(), Cell::new(0));
    assert_eq!(store.compact_while(so_often(3, &asked)).unwrap(), 3);
    let rest = store.compact().unwrap();
    assert!(rest > 3, "{rest}");
    assert!(store.check().unwrap().is_sound());
    assert_eq!(store.len(), 15_000);
}

#[test]
fn a_compaction_ends_though_others_leave_work_behind_it_without_pause() {
    let (store, asked) = (sparse(), Cell::new(0));
    let segments = store.stats().segments as usize;
    let mut i = 0u32;
    // A writer that makes more than one segment stale between two moves.
    let moved = store.compact_while(|| {
        asked.set(asked.get() + 1);
        for _ in 0..500 {
            i = i.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (i >> 8) % 15_000 * 4;
            store.put(&key.to_le_bytes(), &[8; 1_000]).unwrap();
        }
        asked.get() < 1_000
    });
    assert!(asked.get() < 1_000, "it goes on and on");
    assert!((2..=segments).contains(&moved.unwrap()), "{segments}");
    assert!(store.check().unwrap().is_sound());
    assert_eq!(store.len(), 15_000);
}

#[test]
fn a_check_that_is_given_up_reports_nothing() {
    let (store, asked) = (sparse(), Cell::new(0));
    let whole = store.check_while(&so_often(u32::MAX, &asked)).unwrap();
    assert_eq!(whole, Some(store.check().unwrap()));
    let all = asked.take();
    assert!(all > 200, "asked {all} times");
    for times in [0, 10, all / 2, all - 1] {
        asked.set(0);
        assert_eq!(store.check_while(&so_often(times, &asked)).unwrap(), None);
        // Once more for each of the databases, and a few times in the end.
        assert!(asked.get() <= times + 80, "{} of {all}", asked.get());
    }
    assert!(store.check().unwrap().is_sound());
}
