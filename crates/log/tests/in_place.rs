//! A store that overwrites values in place returns the same results as one that appends, and no
//! reader ever gets a torn value.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_log::{Cursor, Decision, Expiry, LogStore, UpdatePolicy, WriteError};

fn open() -> LogStore {
    LogStore::builder()
        .capacity(64 << 20)
        .update_policy(UpdatePolicy::InPlace)
        .maintainer(false)
        .open_private()
        .unwrap()
}

const KEYS: u32 = 50;

fn key(i: u32) -> [u8; 4] {
    (i % KEYS).to_be_bytes()
}

/// A value whose bytes are all equal, with a length that belongs to them.
fn value(n: u32) -> Vec<u8> {
    vec![n as u8; 500 + (n as u8) as usize % 60 * 60]
}

fn is_whole(value: &[u8]) -> bool {
    value
        .first()
        .is_some_and(|n| *value == self::value(u32::from(*n))[..])
}

/// Writers, updaters and compaction beside every kind of reader.
#[test]
fn no_reader_sees_a_torn_value() {
    let store = open();
    for i in 0..KEYS {
        store.put(&key(i), &value(59)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let going = || !stop.load(Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            while going() {
                for key in &keys {
                    assert!(is_whole(&store.get(key).unwrap().unwrap()));
                }
                store
                    .get_many(&keys, |_, value| assert!(is_whole(value.unwrap())))
                    .unwrap();
                let mut cursor = Cursor::START;
                while cursor != Cursor::END {
                    cursor = store
                        .scan(cursor, 20, |key, value| {
                            assert!(key.len() != 4 || is_whole(value));
                        })
                        .unwrap();
                }
                let read = |n: u32| store.transaction(|t| t.get(&key(n)));
                let read: Result<_, WriteError> = read(7);
                assert!(is_whole(&read.unwrap().unwrap()));
            }
        });
        scope.spawn(|| {
            for n in (0u32..).take_while(|_| going()) {
                let updated = store.update(&key(n), |old| {
                    assert!(is_whole(old.unwrap()));
                    Decision::Replace(value(n))
                });
                updated.unwrap();
                // Stale records, so that there is something to compact.
                store
                    .put(
                        &(1u64 << 40 | u64::from(n % 9_000)).to_be_bytes(),
                        &[0; 5_000],
                    )
                    .unwrap();
                if n % 9_000 == 8_999 {
                    store.compact().unwrap();
                }
            }
        });
        for n in 0..120_000u32 {
            store.put(&key(n.wrapping_mul(7)), &value(n)).unwrap();
        }
        stop.store(true, Relaxed);
    });
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_value_that_fits_is_overwritten_and_costs_nothing() {
    let store = open();
    for i in 0..1_000u32 {
        store.put(&i.to_be_bytes(), &[1; 900]).unwrap();
    }
    let before = store.stats();
    for round in 0..300usize {
        for i in 0..1_000u32 {
            store
                .put(&i.to_be_bytes(), &vec![round as u8; 600 + round])
                .unwrap();
        }
    }
    let after = store.stats();
    // 270 MB were written into 64 MiB.
    assert_eq!(after.live_bytes, before.live_bytes);
    assert_eq!(
        (after.stale_bytes, after.free_bytes),
        (before.stale_bytes, before.free_bytes)
    );
    for i in 0..1_000u32 {
        assert_eq!(store.get(&i.to_be_bytes()).unwrap().unwrap(), vec![43; 899]);
    }
}

#[test]
fn a_value_that_does_not_fit_is_appended() {
    let store = open();
    for len in [
        0, 7, 8, 9, 100, 4096, 4097, 100_000, 3, 4096, 64, 5_000_000, 1,
    ] {
        let value: Vec<u8> = (0..len).map(|i| (i ^ len) as u8).collect();
        store.put(b"key", &value).unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), value, "{len}");
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn an_expiry_comes_and_goes_with_the_value() {
    let store = open();
    store
        .put_until(b"k", b"12345678", Expiry::At(u64::MAX >> 1))
        .unwrap();
    store
        .put_until(b"k", b"1234", Expiry::At(u64::MAX >> 2))
        .unwrap();
    assert_eq!(store.expiry(b"k").unwrap(), Some(Expiry::At(u64::MAX >> 2)));
    store.put(b"k", b"123").unwrap();
    assert_eq!(store.expiry(b"k").unwrap(), Some(Expiry::Never));
    // A record without a word for it is stored again.
    store.put(b"plain", b"1").unwrap();
    store.put_until(b"plain", b"2", Expiry::At(5)).unwrap();
    assert!(store.get(b"plain").unwrap().is_none());
    // An expired one is inserted again, in place.
    let updated = store.update(b"plain", |old| {
        assert!(old.is_none());
        Decision::Replace(b"3".to_vec())
    });
    assert_eq!(updated.unwrap(), mneme_log::Updated::Inserted);
    assert_eq!(store.get(b"plain").unwrap().unwrap(), b"3");
    assert_eq!(store.len(), 2);
}

/// A long value, which is never overwritten, is copied whatever is overwritten beside it.
#[test]
fn a_long_value_is_read_beside_busy_neighbours() {
    let store = open();
    let long = vec![1; 32 << 20];
    store.put(b"long", &long).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Some in each bucket of the index.
            for i in (0..2_000u32).cycle() {
                store.put(&i.to_be_bytes(), b"v").unwrap();
                if stop.load(Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..3 {
            assert_eq!(*store.get(b"long").unwrap().unwrap(), *long);
        }
        stop.store(true, Relaxed);
    });
}

/// An update is decided again only if its own key has changed, whatever happens beside it.
#[test]
fn other_changes_in_the_bucket_do_not_restart_an_update() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = LogStore::builder()
            .capacity(64 << 20)
            .update_policy(policy)
            .maintainer(false)
            .open_private()
            .unwrap();
        let later = Expiry::At(u64::MAX);
        // One with and one without slack, each with and without an expiry.
        for (key, len, expiry) in [
            (b"a", 10, Expiry::Never),
            (b"b", 10, later),
            (b"c", 9_000, Expiry::Never),
            (b"d", 9_000, later),
        ] {
            store.put_until(key, &vec![1; len], expiry).unwrap();
            for new in [len, 20_000] {
                let mut decisions = 0;
                let updated = store.update_stored(key, |_| {
                    decisions += 1;
                    assert!(decisions < 5, "{policy:?} {len} {expiry:?}");
                    // Something changes in every bucket.
                    std::thread::scope(|s| {
                        s.spawn(|| {
                            for i in 0..5_000u32 {
                                store.put(&i.to_be_bytes(), b"beside").unwrap();
                            }
                        });
                    });
                    Decision::Replace(vec![2; new])
                });
                updated.unwrap();
                assert_eq!(decisions, 1, "{policy:?} {len} {expiry:?}");
                assert_eq!(store.get(key).unwrap().unwrap(), vec![2; new]);
            }
        }
    }
}

/// An update whose value another thread overwrites meanwhile is decided again.
#[test]
fn a_value_overwritten_meanwhile_is_decided_on_anew() {
    let store = open();
    store.put(b"k", &[1; 100]).unwrap();
    let mut seen = Vec::new();
    let updated = store.update(b"k", |old| {
        seen.push(old.unwrap()[0]);
        if seen.len() == 1 {
            store.put(b"k", &[7; 100]).unwrap();
        }
        Decision::Replace(vec![seen[seen.len() - 1] + 1; 100])
    });
    updated.unwrap();
    assert_eq!(seen, [1, 7]);
    assert_eq!(store.get(b"k").unwrap().unwrap(), [8; 100]);
}

/// A value that an update has made longer has slack for growth: it is copied each time it doubles,
/// not at each update.
#[test]
fn a_value_that_grows_bit_by_bit_is_seldom_appended() {
    let store = open();
    let mut expected = Vec::new();
    // Everything written to an open log segment.
    let written = || store.stats().live_bytes + store.stats().stale_bytes;
    let mut moved = 0;
    for i in 0..256u32 {
        let was = written();
        expected.extend([i as u8; 16]);
        let append = |old: Option<&[u8]>| {
            Decision::Replace([old.unwrap_or_default(), &[i as u8; 16]].concat())
        };
        store.update(b"grows", append).unwrap();
        assert_eq!(store.get(b"grows").unwrap().unwrap(), expected);
        moved += u32::from(written() != was);
    }
    assert!(moved <= 10, "appended {moved} times");
    // A value that shrinks, or is put again, keeps its place.
    store.put(b"grows", b"short").unwrap();
    assert_eq!(store.get(b"grows").unwrap().unwrap(), b"short");
    store.compact().unwrap();
    assert_eq!(store.get(b"grows").unwrap().unwrap(), b"short");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
