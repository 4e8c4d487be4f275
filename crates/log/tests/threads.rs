//! Many threads at once on one store: every value read is one that was stored, and the final state
//! is right.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use mneme_log::{Cursor, Decision, LogStore, WriteError};
use mneme_testkit::Random;

fn open(capacity: u64, maintainer: bool) -> LogStore {
    LogStore::builder()
        .capacity(capacity)
        .maintainer(maintainer)
        .open_private()
        .unwrap()
}

/// Values name their owner and have a checksum, so that a torn or misplaced one is noticed.
fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut v = Vec::with_capacity(len + 16);
    v.extend_from_slice(&key.to_le_bytes());
    v.extend_from_slice(&version.to_le_bytes());
    v.extend((0..len).map(|i| (key ^ version ^ i as u64) as u8));
    v
}

fn check(key: u64, v: &[u8]) -> u64 {
    let word = |i: usize| u64::from_le_bytes(v[i..i + 8].try_into().unwrap());
    let version = word(8);
    assert_eq!(
        v,
        value(key, version, v.len() - 16),
        "a whole value of the right key"
    );
    version
}

#[test]
fn readers_see_whole_values_while_writers_churn_a_nearly_full_store() {
    for maintainer in [false, true] {
        let store = open(64 << 20, maintainer);
        let keys = 60_000u64;
        let per_writer = keys / 3;
        let done = AtomicBool::new(false);
        let latest: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        for k in 0..keys {
            store.put(&k.to_le_bytes(), &value(k, 0, 500)).unwrap();
        }
        std::thread::scope(|s| {
            let writers: Vec<_> = (0..3u64)
                .map(|w| {
                    let (store, latest) = (&store, &latest);
                    s.spawn(move || {
                        let mut random = Random::new(w + 1);
                        for n in 1..60_000u64 {
                            // Each writer has its own keys, so the newest version is known.
                            let k = w * per_writer + random.next() % per_writer;
                            let len = 400 + (random.next() % 200) as usize;
                            if random.next().is_multiple_of(8) {
                                let pairs: Vec<_> = (0..20)
                                    .map(|i| w * per_writer + (k + i) % per_writer)
                                    .map(|k| (k.to_le_bytes(), value(k, n, len)))
                                    .collect();
                                store.put_many(&pairs).unwrap();
                                for (k, _) in &pairs {
                                    latest[u64::from_le_bytes(*k) as usize].store(n, Relaxed);
                                }
                            } else {
                                store.put(&k.to_le_bytes(), &value(k, n, len)).unwrap();
                                latest[k as usize].store(n, Relaxed);
                            }
                        }
                    })
                })
                .collect();
            for r in 0..2u64 {
                let (store, done, latest) = (&store, &done, &latest);
                s.spawn(move || {
                    let mut random = Random::new(r + 100);
                    while !done.load(Relaxed) {
                        let k = random.next() % keys;
                        let known = latest[k as usize].load(Relaxed);
                        let found = store.get(&k.to_le_bytes()).unwrap().expect("never removed");
                        assert!(
                            check(k, &found) >= known,
                            "no stale value after an acknowledged write"
                        );
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Relaxed);
        });
        for k in 0..keys {
            let found = store.get(&k.to_le_bytes()).unwrap().unwrap();
            assert_eq!(check(k, &found), latest[k as usize].load(Relaxed));
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        assert_eq!(store.len(), keys);
    }
}

#[test]
fn concurrent_updates_of_one_key_are_all_counted() {
    let store = open(64 << 20, true);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    let add = |old: Option<&[u8]>| {
                        let n = old.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                        Decision::Replace((n + 1).to_le_bytes().to_vec())
                    };
                    store.update(b"counter", add).unwrap();
                }
            });
        }
    });
    assert_eq!(
        store.get(b"counter").unwrap().unwrap(),
        80_000u64.to_le_bytes()
    );
}

#[test]
fn the_index_grows_and_shrinks_under_readers_and_scanners() {
    let store = open(128 << 20, true);
    let fixed = 5_000u64;
    for k in 0..fixed {
        store.put(&k.to_le_bytes(), &value(k, 1, 0)).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let churn: Vec<_> = (0..2u64)
            .map(|w| {
                let store = &store;
                s.spawn(move || {
                    for round in 0..4 {
                        let key = |i: u64| ((w + 1) << 32 | i).to_le_bytes();
                        for i in 0..40_000 {
                            store.put(&key(i), &value(i, round, 0)).unwrap();
                        }
                        for i in 0..40_000 {
                            assert!(store.remove(&key(i)).unwrap());
                        }
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !done.load(Relaxed) {
                for k in 0..fixed {
                    check(
                        k,
                        &store
                            .get(&k.to_le_bytes())
                            .unwrap()
                            .expect("present throughout"),
                    );
                }
            }
        });
        s.spawn(|| {
            while !done.load(Relaxed) {
                let mut seen = HashMap::new();
                let mut cursor = Cursor::START;
                while cursor != Cursor::END {
                    cursor = store
                        .scan(cursor, 50, |k, _| *seen.entry(k.to_vec()).or_insert(0) += 1)
                        .unwrap();
                }
                for k in 0..fixed {
                    assert!(
                        seen.contains_key(&k.to_le_bytes()[..]),
                        "a scan misses nothing that stays"
                    );
                }
            }
        });
        for c in churn {
            c.join().unwrap();
        }
        done.store(true, Relaxed);
    });
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.records, fixed);
}

/// A write between two results of one batch is in the second, also if the index grew meanwhile.
#[test]
fn a_batch_answers_in_order_though_the_index_grows_in_between() {
    for lending in [true, false] {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.lending(lending).open_private().unwrap();
        let names: Vec<String> = (0..32).map(|i| format!("key {i}")).collect();
        for name in &names {
            store.put(name.as_bytes(), b"before").unwrap();
        }
        let mut answers = Vec::new();
        let visit = |i: usize, value: Option<&[u8]>| {
            if i == 0 {
                for other in 0..3_000 {
                    store.put(format!("other {other}").as_bytes(), b"").unwrap();
                }
                store.put(names[31].as_bytes(), b"after").unwrap();
            }
            answers.push(value.map(<[u8]>::to_vec));
        };
        store.get_many(&names, visit).unwrap();
        assert_eq!(answers.len(), 32);
        assert!(
            answers[..31]
                .iter()
                .all(|a| a.as_deref() == Some(b"before"))
        );
        // A reader that copies has read all of a batch before the first result is visited.
        let last: &[u8] = if lending { b"after" } else { b"before" };
        assert_eq!(answers[31].as_deref(), Some(last), "lending: {lending}");
    }
}

#[test]
fn clearing_under_writers_leaves_a_sound_store() {
    let store = open(64 << 20, true);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..2u64)
            .map(|w| {
                let store = &store;
                s.spawn(move || {
                    let mut random = Random::new(w + 7);
                    for n in 0..100_000u64 {
                        let k = random.next() % 20_000;
                        let db = store.database((n % 3) as usize).unwrap();
                        match random.next() % 4 {
                            0 => drop(db.remove(&k.to_le_bytes()).unwrap()),
                            _ => db.put(&k.to_le_bytes(), &value(k, n, 100)).unwrap(),
                        }
                        if let Some(found) = db.get(&k.to_le_bytes()).unwrap() {
                            check(k, &found);
                        }
                    }
                })
            })
            .collect();
        s.spawn(|| {
            let mut n = 0;
            while !done.load(Relaxed) {
                store.database(n % 3).unwrap().clear().unwrap();
                n += 1;
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Relaxed);
    });
    store.compact().unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_value_that_is_kept_keeps_its_bytes() {
    let store = open(64 << 20, false);
    store.put(b"kept", &[42; 1000]).unwrap();
    let kept = store.get(b"kept").unwrap().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            // The pin keeps freed memory from being reused: writers get a bounded, explained wait.
            let refused = (0..1_000_000u64).find_map(|i| {
                let key = (i % 10).to_le_bytes();
                store
                    .put(&key, &[i as u8; 1000])
                    .and_then(|()| store.put(b"kept", &[43; 1000]))
                    .err()
            });
            assert!(
                matches!(refused, Some(WriteError::Stalled(_))),
                "{refused:?}"
            );
        });
    });
    assert_eq!(*kept, [42; 1000]);
    drop(kept);
    store.put(b"after", b"x").unwrap();
    assert_eq!(store.get(b"kept").unwrap().unwrap(), [43; 1000]);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_check_beside_readers_and_writers_finds_nothing() {
    let store = open(64 << 20, true);
    for k in 0..20_000u64 {
        store.put(&k.to_le_bytes(), &value(k, 0, 100)).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for w in 0..2u64 {
            let (store, done) = (&store, &done);
            s.spawn(move || {
                let mut random = Random::new(w + 77);
                let mut n = 0u64;
                while !done.load(Relaxed) {
                    n += 1;
                    // Keys come and go, in waves over which the index grows and shrinks.
                    let k = (w << 40) + random.next() % 30_000;
                    let wave = (n / 40_000).is_multiple_of(2);
                    if wave == (random.next() % 8 < 6) {
                        store.put(&k.to_le_bytes(), &value(k, n, 300)).unwrap();
                    } else {
                        store.remove(&k.to_le_bytes()).unwrap();
                    }
                    if n.is_multiple_of(100_000) {
                        store.database(1).unwrap().put(b"k", b"v").unwrap();
                        store.database(1).unwrap().clear().unwrap();
                    }
                }
            });
        }
        let mut found = Vec::new();
        for _ in 0..20 {
            found = store.check().unwrap().problems;
            if !found.is_empty() {
                break;
            }
        }
        done.store(true, Relaxed);
        assert_eq!(found, Vec::<String>::new());
    });
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
