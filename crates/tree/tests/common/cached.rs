//! Histories of gets through a record cache: each returns what the file has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mneme_sys::medium::RecordingMedium;
use mneme_testkit::{Random, TestDir};
use mneme_tree::{Batch, RecordCache, Store};

use super::beside::builder;
use super::{Kept, MAX, Model, copy_of};

/// The smallest budget.
pub fn small() -> RecordCache {
    RecordCache::with_budget(8 << 20).unwrap()
}

/// Opens what a medium holds, with a cache.
pub fn open_with(medium: &Arc<RecordingMedium>, cache: &RecordCache) -> Store {
    let builder = Store::builder().record_cache(cache);
    builder.open_on(Box::new(Kept(medium.clone()))).unwrap()
}

fn new(cache: &RecordCache) -> (Store, Arc<RecordingMedium>) {
    let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
    (open_with(&medium, cache), medium)
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn get(db: &Store, key: &[u8]) -> Option<Vec<u8>> {
    db.get(key).unwrap()
}

/// Leaves are appended to, rewritten, split and joined between gets of the same keys; versions are
/// kept and rolled back to.
pub fn commits_are_seen() {
    let cache = small();
    let (db, _medium) = new(&cache);
    let tree = db.tree("other").unwrap();
    let (mut model, mut kept) = (Model::new(), Model::new());
    let mut random = Random::new(5);
    for step in 0..600_u64 {
        let mut batch = Batch::new();
        for _ in 0..1 + random.below(6) {
            let key = key(random.below(300));
            if random.below(4) == 0 {
                batch.remove(&key).remove_in(&tree, &key);
                model.remove(&key);
            } else {
                let len = [8, 60, 512, 513][random.below(4) as usize];
                let value = [vec![step as u8; len], step.to_le_bytes().to_vec()].concat();
                batch.put(&key, &value).put_in(&tree, &key, &value);
                model.insert(key, value);
            }
        }
        db.apply(&batch).unwrap();
        match step % 150 {
            70 => {
                db.keep("then").unwrap();
                kept = model.clone();
            }
            140 => {
                db.rollback("then").unwrap();
                db.drop_version("then").unwrap();
                model = kept.clone();
            }
            _ => {}
        }
        let keys: Vec<_> = (0..20).map(|_| key(random.below(300))).collect();
        for key in &keys {
            assert_eq!(get(&db, key), model.get(key).cloned());
            assert_eq!(tree.get(key).unwrap(), model.get(key).cloned());
        }
        let mut found = Vec::new();
        db.get_many(&keys, |_, value| found.push(value.map(<[u8]>::to_vec)))
            .unwrap();
        let expected = keys.iter().map(|key| model.get(key).cloned());
        assert!(found.into_iter().eq(expected));
    }
    db.check().unwrap();
    let used = db.stats().unwrap().cache.unwrap();
    assert!(used.hits > 5_000, "{used:?}");
}

/// A reader stays in its version although others have copied the content of a later one, and vice
/// versa.
pub fn readers_stay_in_their_version() {
    let cache = small();
    let (db, _medium) = new(&cache);
    for copied_first in [true, false] {
        db.put(b"first", b"").unwrap();
        db.put(b"key", b"old").unwrap();
        assert_eq!(get(&db, b"key").as_deref(), Some(&b"old"[..]));
        db.get_many(&["first", "key"], |place, value| {
            if place == 0 {
                db.put(b"key", b"new").unwrap();
                if copied_first {
                    assert_eq!(get(&db, b"key").as_deref(), Some(&b"new"[..]));
                }
            } else {
                assert_eq!(value, Some(&b"old"[..]));
            }
        })
        .unwrap();
        assert_eq!(get(&db, b"key").as_deref(), Some(&b"new"[..]));
    }
}

/// An older state of a file comes back under the same identity, and other commits get the numbers
/// and places of the lost ones.
pub fn a_restored_file_is_another() {
    let cache = small();
    let (db, medium) = new(&cache);
    db.put(b"other", b"").unwrap();
    drop(db);
    let backup = copy_of(&medium);
    for (medium, value) in [(medium, b"one"), (backup, b"two")] {
        let db = open_with(&medium, &cache);
        db.put(b"key", value).unwrap();
        for _ in 0..2 {
            assert_eq!(get(&db, b"key").as_deref(), Some(&value[..]));
        }
        assert_eq!(db.stats().unwrap().cache.unwrap().hits, 1);
    }
}

/// A writer and readers with openings of their own, in one cache: a get that begins after a commit
/// has returned sees that commit or a later one.
pub fn no_get_is_older_than_an_earlier_commit() {
    const KEYS: u64 = 24;
    let here = TestDir::new("tree-cached");
    let path = here.path().join("db");
    let cache = small();
    let writer = builder().record_cache(&cache).open(&path).unwrap();
    let value = |n: u64, key: u64| [n.to_le_bytes(), key.to_le_bytes()].concat();
    for n in 0..KEYS {
        writer.put(&key(n), &value(0, n)).unwrap();
    }
    let read = builder().read_only(true).record_cache(&cache);
    let reader = read.open(&path).unwrap();
    let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (seed, db) in [(1, &writer), (2, &reader)] {
            let (committed, is_done) = (&committed, &is_done);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut gets = 0;
                // SYNC: pairs with the Release store at the writer's end.
                while gets < 500 || is_done.load(Ordering::Acquire) == 0 {
                    let n = random.below(KEYS);
                    // SYNC: pairs with the Release store behind the commit.
                    let at_least = committed[n as usize].load(Ordering::Acquire);
                    let found = get(db, &key(n)).unwrap();
                    let (number, of) = found.split_first_chunk().unwrap();
                    assert_eq!(of, n.to_le_bytes());
                    assert!(u64::from_le_bytes(*number) >= at_least);
                    gets += 1;
                }
            });
        }
        let mut random = Random::new(3);
        for number in 1..=3000 {
            let n = random.below(KEYS);
            writer.put(&key(n), &value(number, n)).unwrap();
            // SYNC: pairs with the Acquire load of the readers.
            committed[n as usize].store(number, Ordering::Release);
        }
        // SYNC: pairs with the Acquire load of the readers.
        is_done.store(1, Ordering::Release);
    });
    for db in [&writer, &reader] {
        for n in 0..KEYS {
            let value = get(db, &key(n));
            assert_eq!(get(db, &key(n)), value);
        }
        assert!(db.stats().unwrap().cache.unwrap().hits >= KEYS);
    }
}
