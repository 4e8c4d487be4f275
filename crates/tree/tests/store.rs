//! The store on real files and between threads: locks, limits, space, damage, many writers.
#![allow(clippy::unwrap_used)]

mod common;
mod image;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{MAX, contents, copy_of, open, open_on, reopen};
use mneme_sys::medium::{Medium, MemoryMedium, RecordingMedium};
use mneme_tree::{
    Batch, Durability, HashTable, Holder, MAX_KEY, MAX_NAME, MAX_VALUE, Store, StoreError,
};

/// A path that is removed at the end.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Self {
        let name = format!("mneme-tree-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_keeps_what_was_put() {
    let path = Path::new("keeps");
    for durability in [Durability::File, Durability::Process] {
        let _ = std::fs::remove_file(&path.0);
        let builder = Store::builder().durability(durability);
        let db = builder.open(&path.0).unwrap();
        for n in 0..2000u32 {
            db.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap();
        }
        let version = db.version().unwrap();
        db.close().unwrap();
        let db = builder.open(&path.0).unwrap();
        assert_eq!(db.version().unwrap(), version);
        db.check().unwrap();
        assert_eq!(contents(&db.snapshot().unwrap()).len(), 2000);
        assert_eq!(db.get(&7u32.to_be_bytes()).unwrap(), Some(vec![7; 100]));
        assert_eq!(db.stats().unwrap().dead_versions, 0, "it was closed");
    }
}

#[test]
fn a_second_opening_is_refused_and_a_later_one_is_not() {
    let path = Path::new("locked");
    let db = Store::builder().open(&path.0).unwrap();
    let second = Store::builder().open(&path.0);
    assert!(
        matches!(second, Err(StoreError::Locked { .. })),
        "{second:?}"
    );
    let snapshot = db.snapshot().unwrap();
    drop(db);
    let third = Store::builder().open(&path.0);
    assert!(
        matches!(third, Err(StoreError::Locked { .. })),
        "a snapshot holds it"
    );
    drop(snapshot);
    Store::builder().open(&path.0).unwrap();
}

/// A child that is being started has copies of its parent's descriptors until it executes its
/// program. They must not keep a file locked that the parent has closed, or failed to open.
#[test]
fn a_closed_store_opens_again_while_other_threads_start_processes() {
    const ROUNDS: usize = 200;
    let path = Path::new("spawns");
    let foreign = Path::new("spawns-foreign");
    std::fs::write(&foreign.0, vec![7; 10_000]).unwrap();
    let builder = Store::builder().durability(Durability::Process);
    builder.open(&path.0).unwrap().close().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let status = std::process::Command::new("true").status().unwrap();
                assert!(status.success());
            }
        });
        let mut refused = Vec::new();
        for _ in 0..ROUNDS {
            let opened = [builder.open(&path.0), builder.open(&foreign.0)];
            refused.extend(opened.into_iter().filter_map(Result::err));
        }
        done.store(true, Ordering::Relaxed);
        starting.join().unwrap();
        let is_locked = |error: &&StoreError| matches!(error, StoreError::Locked { .. });
        assert_eq!(
            refused.iter().find(is_locked).map(ToString::to_string),
            None
        );
        assert_eq!(refused.len(), ROUNDS, "one of the files is no store");
    });
}

#[test]
fn what_is_no_store_is_refused() {
    let path = Path::new("foreign");
    std::fs::write(&path.0, vec![7; 10_000]).unwrap();
    assert!(matches!(
        Store::builder().open(&path.0),
        Err(StoreError::Foreign)
    ));
    let dax = Store::builder().durability(Durability::Dax).open(&path.0);
    assert!(matches!(dax, Err(StoreError::Unsupported { .. })));
    drop(path);
    let path = Path::new("short");
    drop(Store::builder().open(&path.0).unwrap());
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path.0)
        .unwrap()
        .set_len(3 << 20)
        .unwrap();
    assert!(matches!(
        Store::builder().open(&path.0),
        Err(StoreError::Truncated { .. })
    ));
}

#[test]
fn what_is_too_long_is_refused_and_what_fits_is_not() {
    let (db, _) = open();
    let too_long = db.put(&[1; MAX_KEY + 1], b"");
    assert!(matches!(too_long, Err(StoreError::KeyTooLong { .. })));
    let too_long = db.put(b"", &vec![1; MAX_VALUE + 1]);
    assert!(matches!(too_long, Err(StoreError::ValueTooLong { .. })));
    // The longest keys and values that lie in leaves, and the longest keys.
    for (key_len, value_len, count) in [(1024, 1920, 100u8), (MAX_KEY, 1921, 12)] {
        let (db, _) = open();
        let key = |n: u8| [vec![9; key_len - 1], vec![n]].concat();
        for n in 0..count {
            db.put(&key(n), &vec![n; value_len]).unwrap();
        }
        db.check().unwrap();
        assert_eq!(db.stats().unwrap().entries, u64::from(count));
        assert_eq!(db.get(&key(11)).unwrap(), Some(vec![11; value_len]));
    }
}

/// A store of keys that share more than a leaf's fences have space for.
fn with_long_keys() -> (Store, Arc<RecordingMedium>, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (db, medium) = open();
    let key = |n: u8| [vec![251; 3000], vec![n]].concat();
    let pairs: BTreeMap<_, _> = (0..200u8).map(|n| (key(n), vec![n; 200])).collect();
    let mut batch = Batch::new();
    for (key, value) in &pairs {
        batch.put(key, value);
    }
    db.apply(&batch).unwrap();
    (db, medium, pairs)
}

#[test]
fn space_for_a_long_key_is_found_before_anything_is_stored() {
    let (db, medium, pairs) = with_long_keys();
    medium.limit(Some(medium.len()));
    let key = |n: u32| [vec![b'z'; MAX_KEY - 4], n.to_be_bytes().to_vec()].concat();
    let mut put = 0;
    let error = loop {
        match db.put(&key(put), b"") {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error:?}");
    let version = db.version().unwrap();
    db.check().unwrap();
    let (again, _) = reopen(&medium);
    again.check().unwrap();
    assert_eq!(again.version().unwrap(), version);
    assert_eq!(again.get(&key(put)).unwrap(), None);
    medium.limit(None);
    db.put(&key(put), b"1").unwrap();
    assert_eq!(db.get(&key(put)).unwrap(), Some(b"1".to_vec()));
    assert!(pairs.keys().all(|key| db.get(key).unwrap().is_some()));
}

#[test]
fn damage_of_long_keys_and_of_fences_is_named() {
    let (db, medium, pairs) = with_long_keys();
    let leaves = db.stats().unwrap().leaves;
    assert_eq!(db.stats().unwrap().extents, 200 + leaves as u64);
    drop(db);
    let bytes = medium.bytes();
    let find = |what: &[u8]| {
        let finder = bytes.windows(what.len());
        let places = finder.enumerate().filter(|(_, window)| *window == what);
        places.map(|(at, _)| at).collect::<Vec<_>>()
    };
    // The beginnings of extents with keys or fences, which share so many bytes.
    let places = find(&vec![251; 3000]);
    assert_eq!(
        places.len(),
        200 + 2 * leaves - 2,
        "an inner fence stands in two extents"
    );
    for at in places {
        let mut bytes = bytes.clone();
        bytes[at + 1000] ^= 1;
        let damaged = RecordingMedium::with_image(MAX, Arc::new(bytes)).unwrap();
        let opened = open_on(&Arc::new(damaged), Durability::File);
        let named = opened.and_then(|db| {
            for (key, value) in &pairs {
                assert!(db.get(key)?.is_none_or(|found| found == *value));
            }
            db.check()
        });
        assert!(
            matches!(named, Err(StoreError::Damaged { .. })),
            "{named:?}"
        );
    }
}

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
fn a_backup_has_the_long_keys() {
    let (db, _, pairs) = with_long_keys();
    let path = Path::new("long-keys-backup");
    db.backup(&path.0).unwrap();
    let copy = Store::builder().open(&path.0).unwrap();
    assert_eq!(contents(&copy.snapshot().unwrap()), pairs);
    copy.check().unwrap();
    db.keep("before").unwrap();
    for key in pairs.keys().step_by(2) {
        db.remove(key).unwrap();
    }
    db.rollback("before").unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), pairs);
    db.check().unwrap();
}

#[test]
fn without_space_a_commit_fails_cleanly_and_works_again_later() {
    let (db, medium) = open();
    medium.limit(Some(medium.len()));
    let mut model = BTreeMap::new();
    let mut refused = None;
    for n in 0..40_000u32 {
        let (key, value) = (n.to_be_bytes(), [n as u8; 100]);
        match db.put(&key, &value) {
            Ok(_) => drop(model.insert(key.to_vec(), value.to_vec())),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(
        matches!(refused, Some(StoreError::NoSpace { .. })),
        "{refused:?}"
    );
    db.check().unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), model);
    // A change that needs no fresh leaf still works, and space given makes the rest work.
    medium.limit(None);
    db.put(b"more", b"space").unwrap();
    model.insert(b"more".to_vec(), b"space".to_vec());
    drop(db);
    let (db, _) = reopen(&medium);
    db.check().unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), model);
}

#[test]
fn churn_takes_bounded_space() {
    let (db, _) = open();
    let mut live = 0;
    for turn in 0..24u32 {
        let mut batch = Batch::new();
        for n in 0..3000u32 {
            let n = n.wrapping_mul(2_654_435_761) % 3000;
            batch.put(format!("key{n:022}").as_bytes(), &[turn as u8; 100]);
            if batch.len() == 10 {
                db.apply(&std::mem::take(&mut batch)).unwrap();
            }
        }
        live = db.stats().unwrap().live_bytes;
    }
    let stats = db.stats().unwrap();
    assert!(stats.leaves as u64 * 16384 < live * 5 / 2, "{stats:?}");
    assert!(stats.file_bytes < live * 5 / 2 + (8 << 20), "{stats:?}");
    assert!(stats.retained_leaves < 200, "{stats:?}");
}

#[test]
fn leaves_that_are_emptied_are_joined_and_counted() {
    let medium = MemoryMedium::new(MAX).unwrap();
    let db = Store::builder().open_on(Box::new(medium)).unwrap();
    for n in 0..1500u32 {
        db.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap();
    }
    let leaves = db.stats().unwrap().leaves;
    // One by one, so that a removal may be appended, or its leaf be joined.
    for n in 0..1500u32 {
        db.remove(&n.wrapping_mul(7919).rem_euclid(1500).to_be_bytes())
            .unwrap();
        if n % 10 == 0 {
            db.check().unwrap();
        }
    }
    let stats = db.stats().unwrap();
    assert_eq!((stats.entries, stats.live_bytes), (0, 0));
    assert!(stats.leaves < leaves / 4, "{} of {leaves}", stats.leaves);
}

#[test]
fn a_snapshot_keeps_what_it_shows_and_gives_it_back() {
    let (db, _) = open();
    for n in 0..2000u32 {
        db.put(&n.to_be_bytes(), &[0; 100]).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    for turn in 1..20u8 {
        for n in 0..2000u32 {
            db.put(&n.to_be_bytes(), &[turn; 100]).unwrap();
        }
    }
    let held = db.stats().unwrap();
    assert_eq!(
        (held.snapshots, held.oldest_held.as_ref().map(|held| held.0)),
        (1, Some(snapshot.version()))
    );
    for pair in snapshot.range(..) {
        assert_eq!(pair.unwrap().1, [0; 100]);
    }
    assert!(
        held.file_bytes < 8 << 20,
        "only what changed is kept twice: {held:?}"
    );
    drop(snapshot);
    for turn in 0..4u8 {
        for n in 0..2000u32 {
            db.put(&n.to_be_bytes(), &[turn; 100]).unwrap();
        }
    }
    let after = db.stats().unwrap();
    assert_eq!((after.snapshots, after.oldest_held), (0, None));
    assert_eq!(after.file_bytes, held.file_bytes);
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

/// Every flipped byte of a store's used part is found by opening or by `check`, or it changes
/// nothing that anybody reads.
#[test]
fn damage_is_named_and_never_served() {
    let (db, medium) = open();
    for n in 0..300u32 {
        db.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap();
    }
    let expected = contents(&db.snapshot().unwrap());
    db.close().unwrap();
    let bytes = medium.bytes();
    let mut found = 0;
    let used: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at] != 0)
        .step_by(211)
        .collect();
    let damaged = Arc::new(RecordingMedium::with_image(MAX, Arc::new(bytes.clone())).unwrap());
    for at in used {
        let copy = copy_of(&damaged);
        copy.store(at as u64, &[bytes[at] ^ 0x10]);
        match open_on(&copy, Durability::File) {
            Err(_) => found += 1,
            Ok(db) if db.check().is_err() => found += 1,
            // An old record, or a leaf that is free.
            Ok(db) => assert_eq!(contents(&db.snapshot().unwrap()), expected, "byte {at}"),
        }
    }
    assert!(found > 10, "only {found}");
}

#[test]
fn a_damaged_image_shows_nothing_that_was_not_put() {
    use image::{Change, Damage, Image};
    let mut random = common::crashes::random(5);
    let image = Image::get();
    for _ in 0..60 {
        let damages: Vec<_> = (0..1 + random() % 6)
            .map(|_| Damage {
                area: random() as u8,
                pick: random() as u32,
                change: match random() % 5 {
                    0 => Change::Set(random()),
                    1 => Change::Set(random() % 100),
                    2 => Change::Flip(random() as u8),
                    3 => Change::Add(random() as i8),
                    _ => Change::Copy(random() as u32),
                },
            })
            .collect();
        let len = random().is_multiple_of(8).then(|| random() as u32);
        image.survives(image.damaged(&damages, len));
    }
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

#[test]
fn a_backup_is_one_version_and_a_store() {
    let (from, to) = (Path::new("backed-up"), Path::new("backup"));
    let db = Store::builder().open(&from.0).unwrap();
    let stop = AtomicBool::new(false);
    for n in 0..6000u32 {
        db.put(&n.to_be_bytes(), &0u64.to_be_bytes()).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Every key has the same value in every version.
            for turn in 1..u64::MAX {
                let mut batch = Batch::new();
                for n in 0..6000u32 {
                    batch.put(&n.to_be_bytes(), &turn.to_be_bytes());
                }
                db.apply(batch.with_caller([turn as u8; 32])).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        db.backup(&to.0).unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    let copy = Store::builder().open(&to.0).unwrap();
    copy.check().unwrap();
    let found = contents(&copy.snapshot().unwrap());
    assert_eq!(found.len(), 6000);
    let first = found.values().next().unwrap();
    assert!(found.values().all(|value| value == first), "one version");
    let again = db.backup(&to.0);
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
}

/// A backup is the same store by its UUID, another file by its instance, and holds one version.
#[test]
fn a_backup_keeps_the_uuid_and_no_names() {
    let (from, to) = (Path::new("uuid"), Path::new("uuid-backup"));
    let db = Store::builder().open(&from.0).unwrap();
    db.put(b"a", b"1").unwrap();
    db.keep("first").unwrap();
    db.backup(&to.0).unwrap();
    let header = |path: &Path| std::fs::read(&path.0).unwrap()[24..56].to_vec();
    let (own, copy) = (header(&from), header(&to));
    assert_eq!(own[..16], copy[..16]);
    assert_ne!(own[16..], copy[16..]);
    assert_eq!(Store::builder().open(&to.0).unwrap().versions(), []);
}

/// What another process of the same number was making is not this one's to overwrite.
#[test]
fn an_unfinished_file_of_another_is_left_alone() {
    let path = Path::new("making");
    let name = format!("{}.making-{}", path.0.display(), std::process::id());
    let other = Path(PathBuf::from(name));
    std::fs::write(&other.0, "of another").unwrap();
    drop(Store::builder().open(&path.0).unwrap());
    assert_eq!(std::fs::read(&other.0).unwrap(), b"of another");
}

/// Values of any length, replaced by others: what they took is used again, and every flipped byte
/// of one is named.
#[test]
fn long_values_take_bounded_space_and_damage_of_them_is_named() {
    let (db, medium) = open();
    let value = |n: usize| vec![n as u8; n];
    for len in [
        1921, 4096, 4097, 100_000, 2_080_768, 2_080_769, 6_000_000, 10,
    ] {
        db.put(b"k", &value(len)).unwrap();
        assert_eq!(db.get(b"k").unwrap(), Some(value(len)));
    }
    let mut sizes = Vec::new();
    for turn in 0..40 {
        for n in 0..8usize {
            db.put(&[n as u8], &value(1_850 + n * n * 40_000 + turn))
                .unwrap();
        }
        sizes.push(db.stats().unwrap().file_bytes);
    }
    assert_eq!(sizes[39], sizes[4], "{sizes:?}");
    db.check().unwrap();
    let stats = db.stats().unwrap();
    assert_eq!((stats.extents, stats.leaves), (7, 1));
    drop(db);
    let (db, medium) = reopen(&medium);
    assert_eq!(db.get(&[7]).unwrap(), Some(value(1_889 + 49 * 40_000)));
    let limit = medium.len();
    medium.limit(Some(limit));
    let refused = db.put(b"long", &vec![1; 40_000_000]);
    assert!(
        matches!(refused, Err(StoreError::NoSpace { .. })),
        "{refused:?}"
    );
    db.put(b"short", b"1").unwrap();
    medium.limit(None);
    let long: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    db.put(b"long", &long).unwrap();
    db.check().unwrap();
    let bytes = medium.bytes();
    let at = bytes
        .windows(4096)
        .position(|window| window == &long[..4096])
        .unwrap();
    medium.store(at as u64 + 12_345, &[255]);
    assert!(matches!(db.check(), Err(StoreError::Damaged { .. })));
}

/// A version that is kept takes what changes once, however much is written after it, and over
/// openings; `stats` names what holds it.
#[test]
fn a_kept_version_takes_bounded_space_and_gives_it_back() {
    let (db, medium) = open();
    let fill = |db: &Store, turn: u8| {
        let mut batch = Batch::new();
        for n in 0..400u32 {
            batch.put(&n.to_be_bytes(), &[turn; 300]);
        }
        batch.put(b"long", &vec![turn; 300_000]);
        db.apply(&batch).unwrap();
    };
    fill(&db, 0);
    let version = db.keep("first").unwrap();
    let again = db.keep("first");
    assert!(
        matches!(again, Err(StoreError::VersionExists { .. })),
        "{again:?}"
    );
    let mut sizes = Vec::new();
    for turn in 1..60 {
        fill(&db, turn);
        sizes.push(db.stats().unwrap().file_bytes);
    }
    drop(db);
    let (db, _) = reopen(&medium);
    for turn in 60..120 {
        fill(&db, turn);
        sizes.push(db.stats().unwrap().file_bytes);
    }
    assert!(sizes[118] <= sizes[5], "{sizes:?}");
    let stats = db.stats().unwrap();
    let holder = Holder::Name("first".to_owned());
    assert_eq!(stats.oldest_held, Some((version, holder)));
    assert_eq!(
        (stats.names, db.versions()),
        (1, vec![("first".to_owned(), version)])
    );
    let first = contents(&db.version_named("first").unwrap());
    assert!(
        first
            .values()
            .all(|value| value.iter().all(|byte| *byte == 0))
    );

    let snapshot = db.snapshot().unwrap();
    db.keep("last").unwrap();
    db.rollback("first").unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), first);
    assert_eq!(
        snapshot.get(b"long").unwrap(),
        Some(&vec![119; 300_000][..])
    );
    // A rollback can be undone.
    db.rollback("last").unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), contents(&snapshot));
    db.check().unwrap();
    drop(snapshot);
    let retained = db.stats().unwrap().retained_leaves;
    db.drop_version("first").unwrap();
    db.drop_version("last").unwrap();
    assert!(matches!(
        db.rollback("first"),
        Err(StoreError::NoSuchVersion { .. })
    ));
    for turn in 0..70 {
        fill(&db, turn);
    }
    let after = db.stats().unwrap();
    assert!(after.retained_leaves < retained.max(64 * 20), "{after:?}");
    assert_eq!((after.names, after.oldest_held), (0, None));
    let too_long = db.keep(&"x".repeat(MAX_NAME + 1));
    assert!(matches!(too_long, Err(StoreError::KeyTooLong { .. })));
    for n in 0..512 {
        db.keep(&n.to_string()).unwrap();
    }
    let too_many = db.keep("another");
    assert!(
        matches!(too_many, Err(StoreError::TooManyVersions { .. })),
        "{too_many:?}"
    );
}

/// A commit that needs more leaves and more extents than there are: neither takes the other's.
#[test]
fn leaves_and_extents_are_found_for_one_commit() {
    for long in [4_096, 3_000_000] {
        let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
        let db = open_on(&medium, Durability::Process).unwrap();
        let mut batch = Batch::new();
        for n in 0..10_000u32 {
            batch.put(format!("key{n:013}").as_bytes(), &[n as u8; 100]);
        }
        batch.put(b"long", &vec![1; long]);
        db.apply(&batch).unwrap();
        db.put(b"more", b"1").unwrap();
        db.check().unwrap();
        assert_eq!(contents(&db.snapshot().unwrap()).len(), 10_002);
    }
}

/// What is copied into a new entry gets a new checksum: damage is found before that.
#[test]
fn damage_is_not_signed_by_a_rollback_or_a_backup() {
    for value in [vec![0x5a; 200], vec![0x5a; 9000]] {
        let (db, medium) = open();
        db.put(b"k", &value).unwrap();
        db.keep("before").unwrap();
        let at = medium.bytes().windows(100).position(|w| w == [0x5a; 100]);
        medium.store(at.unwrap() as u64 + 50, b"damage");
        let path = Path::new(&format!("damaged-{}", value.len()));
        let copied = db.backup(&path.0);
        assert!(
            matches!(copied, Err(StoreError::Damaged { .. })),
            "{copied:?}"
        );
        assert!(!path.0.exists());
        db.put(b"k", b"new").unwrap();
        let rolled = db.rollback("before");
        assert!(
            matches!(rolled, Err(StoreError::Damaged { .. })),
            "{rolled:?}"
        );
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"new"[..]));
    }
}

/// Values that just do not fit into one frame share rows of frames.
#[test]
fn values_above_a_frame_take_little_more_than_their_length() {
    const LEN: usize = 2_100_000;
    let medium = MemoryMedium::new(256 << 20).unwrap();
    let builder = Store::builder().durability(Durability::Process);
    let db = builder.open_on(Box::new(medium)).unwrap();
    for n in 0..40u8 {
        db.put(&[n], &vec![n; LEN]).unwrap();
    }
    let stats = db.stats().unwrap();
    let live = 40 * LEN as u64;
    assert!(stats.extent_bytes < live * 11 / 10, "{stats:?}");
    // The last run has space for more of them.
    assert!(stats.file_bytes < live * 5 / 3, "{stats:?}");
    // What one of them leaves is used by what is shorter.
    db.remove(&[3]).unwrap();
    for n in 0..4u8 {
        db.put(&[100, n], &vec![n; 500_000]).unwrap();
    }
    assert_eq!(db.stats().unwrap().file_bytes, stats.file_bytes);
    db.check().unwrap();
    for n in (4..40u8).chain(0..3) {
        assert_eq!(db.get(&[n]).unwrap(), Some(vec![n; LEN]));
    }
}
