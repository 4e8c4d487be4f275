//! Failing tests of a review.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mneme_collections::{Hash, HashType, Set, check_while, put};
use mneme_log::{Anchor, Cursor, Expiry, LogStore, ValueKind};

fn store(capacity: u64) -> LogStore {
    LogStore::builder()
        .capacity(capacity)
        .open_private()
        .unwrap()
}

/// An image of a hash that becomes large.
fn image(fields: usize) -> Vec<u8> {
    let mut hash = mneme_collections::HashEdit::new();
    let names: Vec<_> = (0..fields).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &[7u8; 100][..])).collect();
    hash.set_many(&pairs).unwrap();
    hash.convert(mneme_collections::Limits::default()).unwrap();
    hash.into_image()
}

fn anchors(store: &LogStore) -> Vec<(u64, Anchor)> {
    let mut found = Vec::new();
    let mut cursor = Cursor::START;
    while cursor != Cursor::END {
        cursor = store
            .scan_collections(cursor, 64, |id, anchor| found.push((id, anchor)))
            .unwrap();
    }
    found
}

#[test]
fn a_large_value_that_its_own_transaction_removes_again_is_freed() {
    let store = store(64 << 20);
    let image = image(600);
    store
        .transaction(|t| {
            put::<HashType>(t, (0, b"h"), &image, Expiry::Never).unwrap();
            t.remove(b"h")
        })
        .unwrap();
    store.sweep_collections().unwrap();
    store.sweep_collections().unwrap();
    assert_eq!(store.records(), 0);
    assert_eq!(anchors(&store).len(), 0, "a collection without a main stays");
}

#[test]
fn a_store_without_keys_takes_large_values_however_often_they_were_made_and_removed() {
    let store = store(64 << 20);
    let image = image(600);
    for round in 0..3_000 {
        let done = store.transaction(|t| {
            put::<HashType>(t, (0, b"h"), &image, Expiry::Never).map_err(|error| match error {
                mneme_collections::CollectionError::Store(error) => error,
                error => panic!("{error}"),
            })?;
            t.remove(b"h")
        });
        assert!(done.is_ok(), "round {round}, {} keys: {done:?}", store.records());
    }
}

#[test]
fn a_large_value_that_its_own_transaction_replaces_is_freed() {
    let store = store(64 << 20);
    let image = image(600);
    store
        .transaction(|t| {
            put::<HashType>(t, (0, b"h"), &image, Expiry::Never).unwrap();
            put::<HashType>(t, (0, b"h"), &image, Expiry::Never).unwrap();
            Ok::<_, mneme_log::WriteError>(())
        })
        .unwrap();
    store.sweep_collections().unwrap();
    assert_eq!(anchors(&store).len(), 1);
}

#[test]
fn a_change_that_fails_within_a_transaction_that_goes_on_leaves_the_hash_sound() {
    let store = store(64 << 20);
    store
        .transaction(|t| put::<HashType>(t, (0, b"h"), &image(600), Expiry::Never).map_err(drop).map_err(|()| mneme_log::WriteError::Reap("put".into())))
        .unwrap();
    let long = vec![b'f'; 65_530];
    // As the server does in MULTI: a command's failure does not undo the others.
    store
        .transaction(|t| {
            let fields: [&[u8]; 2] = [b"new", &long];
            let failed = mneme_collections::edit::<HashType, _, mneme_collections::CollectionError>(
                t,
                (0, b"h"),
                Some(&fields),
                |hash| {
                    hash.set(b"new", b"1")?;
                    hash.set(&long, b"1")?;
                    Ok(((), true))
                },
            );
            assert!(failed.is_err());
            t.put(b"other", b"1")
        })
        .unwrap();
    let hash = Hash::of(&store, b"h").unwrap();
    assert_eq!(hash.get(b"new").unwrap(), None, "a failed command has set a field");
    assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
}

#[test]
fn a_set_that_has_shrunk_has_few_leaves() {
    let store = store(256 << 20);
    let set = Set::of(&store, b"s").unwrap();
    let member = |i: usize| format!("{i:01000}").into_bytes();
    let n = 20_000;
    for i in 0..n {
        set.add(&member(i)).unwrap();
    }
    let full = anchors(&store)[0].1;
    for i in 2..n {
        set.remove(&member(i)).unwrap();
    }
    let (_, anchor) = anchors(&store)[0];
    let began = Instant::now();
    let mut drawn = std::collections::BTreeMap::new();
    for _ in 0..20 {
        let member = set.random().unwrap();
        *drawn.entry(member.unwrap()[999]).or_insert(0) += 1;
    }
    eprintln!("full: {full:?}\nafter: {anchor:?}\n20 draws: {:?}, {drawn:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(set.members().unwrap().len(), 2);
    eprintln!("members: {:?}", began.elapsed());
    assert!(drawn.len() == 2, "20 draws of 2 members: {drawn:?}");
    assert!(anchor.leaves < 100, "{anchor:?}");
}

#[test]
fn a_large_hash_is_read_beside_a_writer() {
    let n: usize = std::env::var("N").map_or(400_000, |n| n.parse().unwrap());
    let store = store(512 << 20);
    store
        .transaction(|t| put::<HashType>(t, (0, b"h"), &image_of(n), Expiry::Never).map_err(|e| mneme_log::WriteError::Reap(e.to_string())))
        .unwrap();
    let hash = Hash::of(&store, b"h").unwrap();
    let began = Instant::now();
    assert_eq!(hash.pairs().unwrap().len(), n);
    eprintln!("alone: {:?}", began.elapsed());
    let (stop, is_read) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0u64;
            while !stop.load(Relaxed) {
                Hash::of(&store, b"h").unwrap().set(b"counter", i.to_string().as_bytes()).unwrap();
                i += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        scope.spawn(|| {
            hash.pairs().unwrap();
            is_read.store(true, Relaxed);
        });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) && !is_read.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (read, after) = (is_read.load(Relaxed), began.elapsed());
        stop.store(true, Relaxed);
        eprintln!("beside a writer of 100 changes a second: read {read} after {after:?}");
        assert!(read, "not read within 30 s");
    });
}

fn image_of(fields: usize) -> Vec<u8> {
    let mut hash = mneme_collections::HashEdit::new();
    let names: Vec<_> = (0..fields).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &b"0123456789"[..])).collect();
    hash.set_many(&pairs).unwrap();
    hash.convert(mneme_collections::Limits::default()).unwrap();
    hash.into_image()
}

/// A collection whose anchor is that of no collection.
#[test]
fn a_damaged_anchor_keeps_no_other_collection_from_being_freed() {
    let store = LogStore::builder()
        .capacity(64 << 20)
        .maintainer(false)
        .open_private()
        .unwrap();
    let image = image(600);
    for i in 0..200 {
        let key = format!("h{i}");
        store
            .transaction(|t| {
                put::<HashType>(t, (0, key.as_bytes()), &image, Expiry::Never).unwrap();
                let id = mneme_log::collection_of(&t.read(key.as_bytes(), |s| s.unwrap().value.to_vec())?).unwrap();
                if i == 100 {
                    let mut anchor = t.anchor(id)?.unwrap();
                    anchor.kind = ValueKind::STRING;
                    t.set_anchor(id, &anchor)?;
                }
                Ok::<_, mneme_log::WriteError>(())
            })
            .unwrap();
    }
    // As another process, or a sweep of a whole database, would: by the index alone.
    store.database(0).unwrap().clear().unwrap();
    let mut freed = 0;
    for _ in 0..20 {
        if let Ok(true) = store.sweep_collections() {
            freed += 1;
        }
    }
    let report = store.check().unwrap();
    eprintln!("sweeps that freed: {freed}; left {} collections", report.collections);
    assert!(report.collections <= 1, "{} dead collections stay", report.collections);
}

#[test]
fn damage_of_an_anchors_number_of_leaves_is_an_error() {
    let store = store(64 << 20);
    store
        .transaction(|t| {
            put::<HashType>(t, (0, b"h"), &image(600), Expiry::Never).unwrap();
            let id = mneme_log::collection_of(&t.read(b"h", |s| s.unwrap().value.to_vec())?).unwrap();
            let mut anchor = t.anchor(id)?.unwrap();
            anchor.leaves = 1 << 40;
            t.set_anchor(id, &anchor)
        })
        .unwrap();
    let done = AtomicBool::new(false);
    let store: &'static LogStore = Box::leak(Box::new(store));
    let done: &'static AtomicBool = Box::leak(Box::new(done));
    std::thread::spawn(move || {
        let _ = Hash::of(store, b"h").unwrap().pairs();
        done.store(true, Relaxed);
    });
    let rss = || std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024;
    let before = rss();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) && !done.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("MiB: {before} -> {}", rss());
    let over = done.load(Relaxed);
    if !over { eprintln!("endless"); std::process::exit(7); }
}

/// The sweep of a dropped database goes on, however many large values are removed meanwhile.
#[test]
fn what_a_clearing_leaves_is_freed_beside_other_removals() {
    let store = LogStore::builder()
        .capacity(256 << 20)
        .open_private()
        .unwrap();
    let image = image(600);
    let make = |database: usize, key: &[u8]| {
        store
            .transaction(|t| {
                put::<HashType>(t, (database, key), &image, Expiry::Never).unwrap();
                Ok::<_, mneme_log::WriteError>(())
            })
            .unwrap()
    };
    for i in 0..100u32 {
        make(1, &i.to_le_bytes());
    }
    store.database(1).unwrap().clear().unwrap();
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < Duration::from_secs(5) {
        make(0, b"h");
        store.remove(b"h").unwrap();
        rounds += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let beside = anchors(&store).len();
    std::thread::sleep(Duration::from_secs(2));
    let after = anchors(&store).len();
    eprintln!("{rounds} removals; {beside} collections beside them, {after} two seconds after them");
    assert!(beside < 50, "{beside} dead collections beside removals, {after} after them");
}

/// Runs `writer` again and again beside `reader`, which says what went wrong.
fn beside(mut writer: impl FnMut() + Send, mut reader: impl FnMut() -> Option<String>) {
    let stop = AtomicBool::new(false);
    let (mut wrong, mut reads) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                writer();
            }
        });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            reads += 1;
            wrong.extend(reader());
        }
        stop.store(true, Relaxed);
    });
    wrong.sort();
    let all = wrong.len();
    wrong.dedup();
    assert!(wrong.is_empty(), "{all} of {reads}: {wrong:?}");
}

#[test]
fn a_large_hash_that_becomes_empty_is_read_without_an_error() {
    let store = store(64 << 20);
    let names: Vec<_> = (0..40).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &[7u8; 100][..])).collect();
    let fields: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let hash = Hash::of(&store, b"h").unwrap();
    beside(
        || {
            hash.set_many(&pairs).unwrap();
            hash.remove_many(&fields).unwrap();
        },
        || hash.get(b"field:1").err().map(|error| error.to_string()),
    );
}

#[test]
fn a_large_hash_that_is_removed_and_swept_is_read_without_an_error() {
    let store = store(64 << 20);
    let names: Vec<_> = (0..40).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &[7u8; 100][..])).collect();
    let hash = Hash::of(&store, b"h").unwrap();
    beside(
        || {
            hash.set_many(&pairs).unwrap();
            store.remove(b"h").unwrap();
            store.sweep_collections().unwrap();
        },
        || hash.get(b"field:1").err().map(|error| error.to_string()),
    );
}

#[test]
fn a_check_beside_a_writer_finds_nothing() {
    let store = store(64 << 20);
    let names: Vec<_> = (0..2000).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &[7u8; 100][..])).collect();
    let hash = Hash::of(&store, b"h").unwrap();
    hash.set_many(&pairs).unwrap();
    let mut i = 0;
    beside(
        || {
            i += 1;
            hash.set(format!("more:{}", i % 3000).as_bytes(), &[1; 100][..i % 100]).unwrap();
            if i % 3 == 0 {
                hash.remove(format!("more:{}", (i * 7) % 3000).as_bytes()).unwrap();
            }
        },
        || check_while(&store, &|| true).unwrap().pop(),
    );
}

#[test]
fn a_scan_of_collections_beside_a_writer_has_no_error() {
    let store = store(64 << 20);
    let names: Vec<_> = (0..40).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|n| (n.as_bytes(), &[7u8; 100][..])).collect();
    let fields: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let hash = Hash::of(&store, b"h").unwrap();
    beside(
        || {
            hash.set_many(&pairs).unwrap();
            hash.remove_many(&fields).unwrap();
        },
        || {
            let (id, _) = anchors(&store).pop()?;
            let scanned = mneme_collections::scan_collection(&store, id, 0, 64, |_, _, _| {});
            scanned.err().map(|error| error.to_string())
        },
    );
}
