//! Openings that may only read: their data are mapped read-only, and any store would end the test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use memory::{CAPACITY, Memory, POLICIES};
use mneme_log::{BatchError, Cursor, Decision, Evict, Expiry, GrowError, LogStore, WriteError};
use mneme_sys::Access;

const LARGE: usize = 3 << 20;

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

/// Calls everything that reads; returns the number of values. The keys from 0 to 99 are in database
/// 0 or in 9, which are swapped, each with a value of one byte repeated.
fn read_all(store: &LogStore) -> u32 {
    let keys: Vec<[u8; 4]> = (0..100).map(key).collect();
    let whole = |value: &[u8]| value.iter().all(|byte| *byte == value[0]);
    let mut found = 0;
    for number in [0, 9] {
        let db = store.database(number).unwrap();
        for key in &keys {
            let value = db.get(key).unwrap();
            assert!(value.is_none_or(|value| whole(&value)));
            db.contains(key).unwrap();
            db.expiry(key).unwrap();
        }
        let mut value = Vec::new();
        for key in &keys {
            let there = db.get_into(key, &mut value).unwrap();
            assert!(there || value.is_empty());
            assert!(!there || whole(&value));
        }
        let mut order = 0;
        db.copy_many(&keys, |i, value| {
            assert_eq!(i, order);
            order += 1;
            assert!(value.is_none_or(whole));
        })
        .unwrap();
        assert_eq!(order, keys.len());
        db.get_many(&keys, |_, value| {
            found += u32::from(value.is_some());
            assert!(value.is_none_or(whole));
        })
        .unwrap();
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            cursor = db
                .scan(cursor, 10, |_, value| assert!(whole(value)))
                .unwrap();
        }
        cursor = Cursor::START;
        while cursor != Cursor::END {
            cursor = db
                .scan_copied(cursor, 10, |_, value| assert!(whole(value)))
                .unwrap();
        }
        db.len();
    }
    store.stats();
    let read = store.transaction(|t| t.get(&key(1))).unwrap();
    assert!(read.is_none_or(|value| whole(&value)));
    found
}

#[test]
fn a_reader_reads_beside_a_writer_and_stores_nothing() {
    for policy in POLICIES {
        let (memory, writer) = Memory::growing(CAPACITY, 2 * CAPACITY, policy);
        for i in 0..100 {
            writer.put(&key(i), &[i as u8; 100]).unwrap();
        }
        writer.put_until(b"gone", &[1; 10], Expiry::At(1)).unwrap();
        writer.set_eviction(Evict::Lru).unwrap();
        let reader = memory.open_to_read(2);
        assert!(!reader.maintains());
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut found = 0;
                    while !done.load(Relaxed) || found == 0 {
                        found += read_all(&reader);
                        assert!(reader.get(b"gone").unwrap().is_none());
                    }
                });
            }
            for round in 0..20u32 {
                for i in 0..100 {
                    let value = vec![round as u8; 100 + (round * i) as usize % 3000];
                    let db = writer.database(if round % 2 == 0 { 0 } else { 9 }).unwrap();
                    db.put(&key(i), &value).unwrap();
                    db.put_until(&key(1000 + i), &value, Expiry::At(1 + u64::from(i)))
                        .unwrap();
                    db.set_expiry(&key(i), Expiry::At(u64::MAX >> 8)).unwrap();
                }
                writer
                    .transaction(|t| {
                        let mut db = t.database(if round % 2 == 0 { 0 } else { 9 })?;
                        for i in 0..10 {
                            db.put(&key(i), &[round as u8; 7])?;
                        }
                        Ok::<_, WriteError>(())
                    })
                    .unwrap();
                writer.put(b"large", &vec![round as u8; LARGE]).unwrap();
                writer.swap_databases(0, 9).unwrap();
                writer.compact().unwrap();
                writer.remove_expired().unwrap();
            }
            writer.grow(2 * CAPACITY as u64).unwrap();
            // More than fitted before, so that the reader must extend its mapping.
            writer.set_eviction(Evict::None).unwrap();
            for i in 0..25 {
                writer
                    .database(3)
                    .unwrap()
                    .put(&key(i), &vec![i as u8; LARGE])
                    .unwrap();
            }
            let db = reader.database(3).unwrap();
            for i in 0..25 {
                assert_eq!(*db.get(&key(i)).unwrap().unwrap(), vec![i as u8; LARGE]);
            }
            done.store(true, Relaxed);
        });
        assert_eq!(reader.stats().capacity, 2 * CAPACITY as u64);
        assert_eq!(reader.database(3).unwrap().len(), 25);
        assert_eq!(writer.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn every_change_through_a_reader_is_refused() {
    fn refused<T: std::fmt::Debug>(result: Result<T, WriteError>) {
        assert!(matches!(result, Err(WriteError::ReadOnly)), "{result:?}");
    }
    for policy in POLICIES {
        let (memory, writer) = Memory::with_policy(CAPACITY, policy);
        writer.put(b"k", b"v").unwrap();
        let store = memory.open_to_read(2);
        let db = store.database(0).unwrap();
        let far = Expiry::At(u64::MAX >> 8);
        refused(db.put(b"k", b"w"));
        refused(db.put_until(b"k", b"w", far));
        refused(db.set_expiry(b"k", far));
        refused(db.update_expiry(b"absent", |_| None));
        refused(db.remove(b"k"));
        refused(db.update(b"k", |_| Decision::Keep));
        refused(db.clear());
        refused(store.swap_databases(0, 1));
        refused(store.remove_expired());
        refused(store.compact());
        refused(store.reap());
        refused(store.check().map(|_| ()));
        refused(store.set_eviction(Evict::Lru));
        refused(store.transaction(|t| t.put(b"k", b"w")));
        refused(store.transaction(|t| t.remove(b"absent")));
        let batches: [Result<usize, BatchError>; 2] = [
            db.put_many(&[(b"k", b"w")]).map(|()| 1),
            db.remove_many(&[b"k"]),
        ];
        for batch in batches {
            let error = batch.unwrap_err();
            assert!(matches!(error.source, WriteError::ReadOnly), "{error}");
            assert_eq!(error.done, 0);
        }
        let grown = store.grow(CAPACITY as u64);
        assert!(matches!(grown, Err(GrowError::ReadOnly)), "{grown:?}");
        assert_eq!(store.get(b"k").unwrap().unwrap(), b"v");
        assert_eq!(writer.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Copies equal the stored bytes, for keys and values of all lengths, in both policies.
#[test]
fn a_copied_value_equals_the_lent_one() {
    for policy in POLICIES {
        let (memory, writer) = Memory::with_policy(CAPACITY, policy);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for (i, length) in [0, 1, 7, 8, 9, 100, 4096, 4097, 70_000, 1 << 20, LARGE]
            .into_iter()
            .enumerate()
        {
            let key: Vec<u8> = (0..length.min(60_000)).map(|b| (b * 7 + i) as u8).collect();
            let value: Vec<u8> = (0..length).map(|b| (b * 13 + i) as u8).collect();
            writer.put(&key, &value).unwrap();
            keys.push(key);
        }
        // Enough for more than one bucket, and some that have expired.
        for i in 0..2000 {
            let expiry = Expiry::At(if i % 3 == 0 { 1 } else { u64::MAX >> 8 });
            writer.put_until(&key(i), &key(i), expiry).unwrap();
            keys.push(key(i).to_vec());
        }
        keys.push(b"absent".to_vec());
        let reader = memory.open_to_read(2);
        let mut value = b"before".to_vec();
        let mut there = 0;
        for key in &keys {
            let found = reader.get_into(key, &mut value).unwrap();
            let lent = writer.get(key).unwrap();
            assert_eq!(found, lent.is_some());
            assert!(value == lent.as_deref().unwrap_or_default());
            there += usize::from(found);
        }
        let mut visited = 0;
        reader
            .copy_many(&keys, |i, value| {
                assert_eq!(i, visited);
                visited += 1;
                assert!(value == writer.get(&keys[i]).unwrap().as_deref());
            })
            .unwrap();
        assert_eq!(visited, keys.len());
        let (mut scanned, mut cursor) = (0, Cursor::START);
        while cursor != Cursor::END {
            cursor = reader
                .scan_copied(cursor, 3, |key, value| {
                    scanned += 1;
                    assert!(value == &*writer.get(key).unwrap().unwrap());
                })
                .unwrap();
        }
        assert_eq!(scanned, there);
    }
}

/// An opening that does not lend returns the same results as one that does, and its results hold
/// nothing: the thread that keeps them fills the store many times over.
#[test]
fn an_opening_that_does_not_lend_holds_nothing() {
    for policy in POLICIES {
        let (memory, writer) = Memory::with_policy(CAPACITY, policy);
        for i in 0..1000 {
            let expiry = Expiry::At(if i % 3 == 0 { 1 } else { u64::MAX >> 8 });
            writer.put_until(&key(i), &key(i), expiry).unwrap();
        }
        let large = vec![7; LARGE];
        writer.put(b"large", &large).unwrap();
        let copying = memory.open_to_copy(2, Access::ReadWrite);
        for i in 0..1001 {
            let (theirs, ours) = (copying.get(&key(i)).unwrap(), writer.get(&key(i)).unwrap());
            assert_eq!(theirs.as_deref(), ours.as_deref());
            assert_eq!(copying.contains(&key(i)).unwrap(), ours.is_some());
            let expires = ours.map(|_| Expiry::At(u64::MAX >> 8));
            assert_eq!(copying.expiry(&key(i)).unwrap(), expires);
        }
        assert_eq!(copying.len(), writer.len());
        let kept = copying.get(b"large").unwrap().unwrap();
        // The visitor is not pinned either.
        copying
            .get_many(&[b"large"], |_, value| {
                let value = value.unwrap();
                for round in 0..2 * CAPACITY / LARGE {
                    copying.put(b"other", &vec![round as u8; LARGE]).unwrap();
                    copying.put(b"large", &vec![round as u8; LARGE]).unwrap();
                }
                assert!(value == large);
            })
            .unwrap();
        assert!(kept == *large);
        assert_eq!(copying.check().unwrap().problems, Vec::<String>::new());
    }
}
