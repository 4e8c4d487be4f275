//! Large records and the space behind them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mneme_arena::{Frame, LendingOptions, MAX_RECORD, Stored};
use mneme_log::{LogStore, PagePolicy};
use mneme_sys::NodeId;

fn open() -> LogStore {
    LogStore::builder()
        .capacity(64 << 20)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .open_private()
        .unwrap()
}

/// More than half a frame: a frame never has two.
const LARGE: usize = 1_100_000;

fn large(round: u64) -> Vec<u8> {
    vec![round as u8; LARGE]
}

fn small(key: u64) -> [u8; 1000] {
    [key as u8; 1000]
}

/// Rounds of one large record and 800 kB of small ones; returns how many fitted.
fn fill(store: &LogStore) -> u64 {
    for round in 0..100u64 {
        let mut whole = store
            .put(&(round << 32).to_le_bytes(), &large(round))
            .is_ok();
        for i in 1..=800 {
            let key = round << 32 | i;
            whole = whole && store.put(&key.to_le_bytes(), &small(key)).is_ok();
        }
        if !whole {
            return round;
        }
    }
    unreachable!()
}

#[test]
fn the_rest_of_a_large_records_extent_holds_small_records() {
    let store = open();
    let rounds = fill(&store);
    // 60 MB are available, in frames of 2 MiB. A round takes a frame; once it took nearly two.
    assert!(rounds >= 25, "{rounds} rounds: {:?}", store.stats());
    let stats = store.stats();
    assert!(stats.live_bytes * 100 > stats.capacity * 75, "{stats:?}");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn small_records_outlive_the_large_one_before_them() {
    let store = open();
    let rounds = fill(&store);
    for round in 0..rounds {
        assert!(store.remove(&(round << 32).to_le_bytes()).unwrap());
    }
    let before = store.stats();
    store.compact().unwrap();
    store.compact().unwrap();
    let after = store.stats();
    let won = after.free_bytes - before.free_bytes;
    assert!(won > rounds * LARGE as u64 * 8 / 10, "{before:?} {after:?}");
    for key in (0..rounds).flat_map(|round| (1..=800).map(move |i| round << 32 | i)) {
        assert_eq!(store.get(&key.to_le_bytes()).unwrap().unwrap(), small(key));
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// Enough is free, but nowhere in one piece.
#[test]
fn large_records_make_way_for_larger_ones() {
    let store = open();
    let key = |i: u64| i.to_le_bytes();
    let mut stored = 0;
    while store.put(&key(stored), &large(stored)).is_ok() {
        stored += 1;
    }
    for i in (0..stored).step_by(2) {
        assert!(store.remove(&key(i)).unwrap());
    }
    store.compact().unwrap();
    for (i, mib) in [(1000, 5), (1001, 7)] {
        store.put(&key(i), &vec![i as u8; mib << 20]).unwrap();
    }
    for i in (1..stored).step_by(2) {
        assert_eq!(*store.get(&key(i)).unwrap().unwrap(), large(i));
    }
    assert_eq!(*store.get(&key(1001)).unwrap().unwrap(), vec![233; 7 << 20]);
    let stats = store.stats();
    // A window is emptied, not the store.
    assert!(stats.moved_bytes < 16 << 20, "{stats:?}");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_large_record_outlives_the_small_ones_behind_it() {
    let store = open();
    let rounds = fill(&store);
    for key in (0..=rounds).flat_map(|round| (1..=800).map(move |i| round << 32 | i)) {
        store.remove(&key.to_le_bytes()).unwrap();
    }
    store.compact().unwrap();
    // Their space is lost only while the large record lives.
    for round in 0..rounds {
        let key = (round << 32).to_le_bytes();
        assert_eq!(store.get(&key).unwrap().unwrap(), *large(round));
        assert!(store.remove(&key).unwrap());
    }
    store.compact().unwrap();
    store.compact().unwrap();
    let stats = store.stats();
    assert!(stats.free_bytes * 10 > stats.capacity * 8, "{stats:?}");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert!(fill(&store) >= rounds - 1);
}

/// As long as a head continues after a large record, its segment cannot be a victim: the head must
/// leave.
#[test]
fn a_removed_large_record_is_freed_although_a_head_continued_behind_it() {
    for maintainer in [false, true] {
        let store = LogStore::builder()
            .capacity(64 << 20)
            .maintainer(maintainer)
            .page_policy(PagePolicy::Small)
            .open_private()
            .unwrap();
        store.put(b"large", &vec![1; 30 << 20]).unwrap();
        store.remove(b"large").unwrap();
        store.put(b"large", &vec![2; 40 << 20]).unwrap();
        store.remove(b"large").unwrap();
        store.put(b"large", &vec![3; 12 << 20]).unwrap();
        store.put(b"behind it", b"small").unwrap();
        for round in 0..20 {
            store.put(b"large", &vec![round; 12 << 20]).unwrap();
        }
        assert_eq!(store.get(b"behind it").unwrap().unwrap(), b"small");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Small records also use the space of a large one that was removed.
#[test]
fn small_records_fill_what_a_large_one_has_left() {
    let store = open();
    let fit = |from: u64| {
        (from..)
            .take_while(|i| store.put(&i.to_le_bytes(), &small(*i)).is_ok())
            .count()
    };
    let all = fit(0);
    for i in 0..all as u64 {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    store.put(b"large", &vec![1; 40 << 20]).unwrap();
    store.remove(b"large").unwrap();
    let again = fit(1 << 32);
    assert!(again > all - all / 20, "{again} of {all}");
}

/// A frame that is being filled for a tenant lies within the longest free run. A large record that
/// needs such a run gets another.
#[test]
fn a_large_record_finds_its_run_beside_a_frame_that_a_tenant_fills() {
    let lending = LendingOptions {
        records: 1000,
        max_frames: u32::MAX,
    };
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let builder = builder.page_policy(PagePolicy::Small).lend_idle(lending);
    let store = builder.open_private().unwrap();
    // A frame for each, one after the other.
    let one = vec![1; 1_900_000];
    let all = (0..100u64)
        .take_while(|i| store.put(&i.to_le_bytes(), &one).is_ok())
        .count() as u64;
    let gone = (4..13).chain((14..all).step_by(2));
    for i in gone.clone() {
        assert!(store.remove(&i.to_le_bytes()).unwrap());
    }
    store.compact().unwrap();
    let cache = store.discardable().unwrap();
    let arena = cache.arena();
    let run = arena.stats().longest_run;
    assert!((9..14).contains(&run), "{run}");
    let extents: Vec<_> = arena.extents().map(|found| found.extent).collect();
    let behind = extents
        .windows(2)
        .find(|pair| pair[1].start.0 - pair[0].start.0 > run);
    let middle = behind.unwrap()[1].start.0 - run / 2;
    // From the highest idle frame down.
    let slot = arena.participants().slot().unwrap();
    let copy = vec![2; MAX_RECORD - 8];
    let filled = (0..100u64).find(|i| {
        let stored = cache.put(&slot, NodeId(0), &i.to_le_bytes(), &copy);
        assert_eq!(stored.unwrap(), Stored::Kept);
        arena.being_filled() == [Frame(middle)]
    });
    assert!(filled.is_some(), "no tenant came to frame {middle}");
    assert!(arena.stats().longest_run < run);
    let long = vec![3; (run as usize - 1) << 21];
    store.put(b"long", &long).unwrap();
    assert!(store.get(b"long").unwrap().unwrap() == long);
    for i in (0..all).filter(|i| !gone.clone().any(|gone| gone == *i)) {
        assert!(store.get(&i.to_le_bytes()).unwrap().unwrap() == one, "{i}");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    let lent = store.stats().lent.unwrap();
    assert!(lent.discards > 0 && lent.kept > 0, "{lent:?}");
}
