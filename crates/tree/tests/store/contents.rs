//! Contents: trees, hash tables, batches and transactions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{open, reopen};
use mneme_tree::{Batch, HashTable, MAX_KEY, StoreError};

#[test]
fn a_hash_table_is_a_map_in_the_order_of_its_hashes() {
    let (db, medium) = open();
    let table = db.hash_table("table").unwrap();
    assert!(matches!(
        db.tree("table"),
        Err(StoreError::OtherKind { .. })
    ));
    let key = |n: u32| match n % 50 {
        0 => [vec![7; MAX_KEY - 12], n.to_be_bytes().to_vec()].concat(),
        _ => format!("https://example.org/{n}").into_bytes(),
    };
    let mut model = BTreeMap::new();
    for n in 0..400_u32 {
        table.put(&key(n % 300), &n.to_be_bytes()).unwrap();
        model.insert(key(n % 300), n.to_be_bytes().to_vec());
        if n % 7 == 0 {
            table.remove(&key(n / 2)).unwrap();
            model.remove(&key(n / 2));
        }
    }
    let too_long = table.put(&[1; MAX_KEY - 7], b"");
    assert!(matches!(too_long, Err(StoreError::KeyTooLong { max, .. }) if max == MAX_KEY - 8));
    drop((table, db));
    let (db, _) = reopen(&medium);
    let table = db.hash_table("table").unwrap();
    for n in 0..300 {
        assert_eq!(table.get(&key(n)).unwrap(), model.get(&key(n)).cloned());
    }
    let snapshot = db.snapshot().unwrap();
    let pairs: Vec<_> = table.iter(&snapshot).unwrap().map(Result::unwrap).collect();
    let hashes = pairs
        .iter()
        .map(|(key, _)| HashTable::tree_key(key).unwrap());
    assert!(hashes.is_sorted());
    let reversed = table.iter(&snapshot).unwrap().rev().map(Result::unwrap);
    assert!(reversed.eq(pairs.iter().rev().copied()));
    let found = pairs
        .into_iter()
        .map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), model);
    db.check().unwrap();
    db.drop_tree("table").unwrap();
    assert!(matches!(
        table.get(b"a"),
        Err(StoreError::TreeDropped { .. })
    ));
    assert_eq!(db.stats().unwrap().entries, 0);
}

/// A name may lead to another table, with other keys, than the one of a handle.
#[test]
fn a_hash_table_is_iterated_by_its_number() {
    let ((db, _), (other, _)) = (open(), open());
    let before = db.snapshot().unwrap();
    let first = db.hash_table("table").unwrap();
    first.put(b"first", b"1").unwrap();
    let between = db.snapshot().unwrap();
    db.drop_tree("table").unwrap();
    let second = db.hash_table("table").unwrap();
    second.put(b"second", b"2").unwrap();
    let after = db.snapshot().unwrap();
    let keys = |table: &HashTable, snapshot| -> Option<Vec<Vec<u8>>> {
        match table.iter(snapshot) {
            Ok(pairs) => Some(pairs.map(|pair| pair.unwrap().0.to_vec()).collect()),
            Err(StoreError::TreeDropped { tree }) => {
                assert_eq!(tree, table.tree().number());
                None
            }
            Err(other) => panic!("{other}"),
        }
    };
    let found = [&before, &between, &after]
        .map(|snapshot| (keys(&first, snapshot), keys(&second, snapshot)));
    let one = |key: &[u8]| Some(vec![key.to_vec()]);
    assert_eq!(
        found,
        [(None, None), (one(b"first"), None), (None, one(b"second"))]
    );
    let foreign = other.snapshot().unwrap();
    assert!(matches!(first.iter(&foreign), Err(StoreError::OtherStore)));
}

/// Trees of two stores have the same numbers and nothing else in common.
#[test]
fn a_tree_of_another_store_is_refused() {
    let ((db, _), (other, _)) = (open(), open());
    let (own, foreign) = (db.tree("own").unwrap(), other.tree("foreign").unwrap());
    assert_eq!(own.number(), foreign.number());
    let mut batch = Batch::new();
    batch
        .put_in(&own, b"key", b"1")
        .put_in(&foreign, b"key", b"2");
    for db in [&db, &other] {
        assert!(matches!(db.apply(&batch), Err(StoreError::OtherStore)));
    }
    let mut tx = db.write();
    assert!(matches!(
        tx.put_in(&foreign, b"key", b"2"),
        Err(StoreError::OtherStore)
    ));
    assert!(matches!(
        tx.remove_in(&foreign, b"key"),
        Err(StoreError::OtherStore)
    ));
    assert!(matches!(
        tx.get_in(&foreign, b"key"),
        Err(StoreError::OtherStore)
    ));
    drop(tx);
    assert_eq!(
        (own.get(b"key").unwrap(), foreign.get(b"key").unwrap()),
        (None, None)
    );
}

#[test]
fn writers_combine_and_readers_see_whole_batches() {
    let (db, medium) = open();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Each batch writes one number under all of these keys.
                    let snapshot = db.snapshot().unwrap();
                    let group: Vec<_> = (0..4u8)
                        .map(|part| snapshot.get(&[0, part]).unwrap())
                        .collect();
                    assert!(group.iter().all(|value| *value == group[0]));
                    let seen = db.get(&[0, 3]).unwrap();
                    assert!(seen.as_deref() >= group[0], "time runs backwards");
                }
            });
        }
        let writers: Vec<_> = (1..=4u8)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..400u32 {
                        let mut batch = Batch::new();
                        batch.put(&[writer, (n % 200) as u8], &[writer; 300]);
                        if writer == 1 {
                            for part in 0..4u8 {
                                batch.put(&[0, part], &n.to_be_bytes());
                            }
                        }
                        db.apply(&batch).unwrap();
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    db.check().unwrap();
    assert_eq!(db.stats().unwrap().entries, 804);
    assert!(db.version().unwrap().number() <= 1602);
    drop(db);
    reopen(&medium).0.check().unwrap();
}

#[test]
fn a_transaction_that_panics_or_is_dropped_changes_nothing() {
    let (db, _) = open();
    db.put(b"a", b"1").unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut tx = db.write();
        tx.put(b"a", b"2").unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let mut tx = db.write();
    tx.remove(b"a").unwrap();
    tx.abort();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    db.put(b"a", b"3").unwrap();
}

#[test]
fn the_callers_bytes_are_committed_with_the_batch() {
    let (db, medium) = open();
    assert_eq!(db.caller(), [0; 32]);
    db.apply(Batch::new().put(b"k", b"v").with_caller([7; 32]))
        .unwrap();
    db.put(b"l", b"w").unwrap();
    drop(db);
    assert_eq!(reopen(&medium).0.caller(), [7; 32]);
}

#[test]
fn many_gets_are_as_many_gets() {
    let (db, _) = open();
    let keys: Vec<[u8; 4]> = (0..1000u32).map(|n| (n * 3 % 1000).to_be_bytes()).collect();
    for key in &keys[..700] {
        db.put(key, &key.repeat(9)).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    db.remove(&keys[5]).unwrap();
    let mut places = Vec::new();
    db.get_many(&keys, |i, value| {
        assert_eq!(value.map(<[u8]>::to_vec), db.get(&keys[i]).unwrap());
        places.push(i);
    })
    .unwrap();
    assert_eq!(places, (0..1000).collect::<Vec<_>>());
    snapshot
        .get_many(&keys, |i, value| {
            assert_eq!(value, snapshot.get(&keys[i]).unwrap())
        })
        .unwrap();
    assert!(snapshot.get(&keys[5]).unwrap().is_some());
}
