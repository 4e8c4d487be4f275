//! Damage is reported, and damaged bytes are never returned.

use std::sync::Arc;

use crate::common::{MAX, contents, copy_of, open, open_on, reopen};
use crate::file;
use crate::image;
use crate::with_long_keys;
use mneme_sys::medium::{Medium, RecordingMedium};
use mneme_tree::{Batch, Durability, Scrub, StoreError};

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
    // The beginnings of extents with keys or fences, which share this number of bytes.
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
            named.as_ref().is_err_and(StoreError::is_damage),
            "{named:?}"
        );
    }
}

/// Every flipped byte of a store's used part is found by opening or by `check`, or it changes
/// nothing that is read.
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
            // An old record, or a free leaf.
            Ok(db) => assert_eq!(contents(&db.snapshot().unwrap()), expected, "byte {at}"),
        }
    }
    assert!(found > 10, "only {found}");
}

#[test]
fn a_damaged_image_shows_nothing_that_was_not_put() {
    use image::{Change, Damage, Image};
    let mut random = crate::common::crashes::random(5);
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

/// Values of any length, replaced by others: their space is reused, and every flipped byte of one
/// is reported.
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
    let named = db.check();
    assert!(
        matches!(&named, Err(StoreError::DamagedValue { key, .. }) if key == b"long"),
        "{named:?}"
    );
}

/// Bytes that are copied into a new entry get a new checksum: damage is found before that.
#[test]
fn damage_is_not_signed_by_a_rollback_or_a_backup() {
    for value in [vec![0x5a; 200], vec![0x5a; 9000]] {
        let (db, medium) = open();
        db.put(b"k", &value).unwrap();
        db.keep("before").unwrap();
        let at = medium.bytes().windows(100).position(|w| w == [0x5a; 100]);
        medium.store(at.unwrap() as u64 + 50, b"damage");
        let path = file(&format!("damaged-{}", value.len()));
        let copied = db.backup(&path.0);
        assert!(
            copied.as_ref().is_err_and(StoreError::is_damage),
            "{copied:?}"
        );
        assert!(!path.0.exists());
        db.put(b"k", b"new").unwrap();
        let rolled = db.rollback("before");
        assert!(
            rolled.as_ref().is_err_and(StoreError::is_damage),
            "{rolled:?}"
        );
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"new"[..]));
    }
}

/// A dropped tree with a damaged leaf keeps its leaves until the next opening. Damage of another
/// tree, found by a commit that would have freed some of them, does not.
#[test]
fn damage_elsewhere_keeps_no_dropped_tree() {
    let (db, medium) = open();
    db.put(b"main", &[0x5a; 200]).unwrap();
    let tree = db.tree("gone").unwrap();
    let mut batch = Batch::new();
    for n in 0..1000u32 {
        batch.put_in(&tree, &n.to_be_bytes(), &[1 + (n / 999) as u8; 300]);
    }
    db.apply(&batch).unwrap();
    drop((tree, db));
    let place = |value: &[u8]| {
        let bytes = medium.bytes();
        let at = bytes
            .windows(value.len())
            .position(|window| window == value);
        at.unwrap() as u64 + 50
    };
    // The last leaves die first: this one is among them.
    let last = place(&[2; 300]);
    let (db, medium) = reopen(&medium);
    medium.store(last, &[0]);
    db.drop_tree("gone").unwrap();
    let before = db.stats().unwrap().free_leaves;
    drop(db);
    medium.store(last, &[2]);
    let (db, medium) = reopen(&medium);
    let main = place(&[0x5a; 200]);
    medium.store(main, &[0]);
    let refused = db.put(b"main", b"new");
    assert!(
        matches!(refused, Err(StoreError::Damaged { .. })),
        "{refused:?}"
    );
    medium.store(main, &[0x5a]);
    db.put(b"main", b"new").unwrap();
    db.gc().unwrap();
    db.check().unwrap();
    let after = db.stats().unwrap().free_leaves;
    assert!(after > before + 20, "{after} after {before}");
}

/// The first read of a value that lies outside its leaf compares its checksum, by each way to read
/// it. A copy compares it each time. The error names the key; the others are read, and the key can
/// be removed and set again as usual.
#[test]
fn damage_of_a_long_value_is_named_by_its_key_and_never_served() {
    let long_key = [b"long key ".to_vec(), vec![b'x'; 1500]].concat();
    let keys: [&[u8]; 5] = [b"a", b"c", b"e", b"f", &long_key];
    let value_of = |n: usize| -> Vec<u8> {
        let len = [2_000, 16_000, 5_000_000, 1_921, 3_000][n];
        (0..len).map(|i| (i % 241 + 3 * n) as u8).collect()
    };
    let (db, medium) = open();
    for (n, key) in keys.iter().enumerate() {
        db.put(key, &value_of(n)).unwrap();
    }
    db.put(b"d", b"short").unwrap();
    db.close().unwrap();
    let whole = Arc::new(RecordingMedium::with_image(MAX, Arc::new(medium.bytes())).unwrap());
    let bytes = whole.bytes();
    let find = |what: &[u8]| {
        bytes
            .windows(what.len())
            .position(|found| found == what)
            .unwrap()
    };
    for (n, key) in keys.into_iter().enumerate() {
        let value = value_of(n);
        let begin = find(&value[..value.len().min(1000)]);
        let mut places = vec![begin, begin + value.len() / 2, begin + value.len() - 1];
        if key.len() > 1000 {
            places.push(find(key) + 1000);
        }
        for place in places {
            let what = format!("{} at {place}", key.escape_ascii());
            let flip = |at: &RecordingMedium| at.store(place as u64, &[bytes[place] ^ 8]);
            let is_named = |error: &StoreError| {
                let begin = &key[..key.len().min(64)];
                matches!(error, StoreError::DamagedValue { key, .. } if key.starts_with(begin))
            };
            let damaged = copy_of(&whole);
            flip(&damaged);
            let db = open_on(&damaged, Durability::File).unwrap();
            let snapshot = db.snapshot().unwrap();
            let path = file("named");
            let refused = [
                db.get(key).map(drop),
                snapshot.get(key).map(drop),
                db.get_many(&[&b"d"[..], key], |_, _| ()),
                snapshot.range(..).try_for_each(|pair| pair.map(drop)),
                snapshot.range(..).rev().try_for_each(|pair| pair.map(drop)),
                db.check(),
                db.backup(&path.0).map(drop),
                db.write().get(key).map(drop),
                db.scrub(&mut Scrub::default(), u64::MAX).map(drop),
            ];
            for (way, refused) in refused.into_iter().enumerate() {
                let is_named = refused.as_ref().is_err_and(is_named);
                assert!(is_named, "{what}, way {way}: {refused:?}");
            }
            // A walk that continues comes to the end, and has found it once.
            let (mut walk, mut met) = (Scrub::default(), 0);
            while walk.rounds() == 0 {
                met += usize::from(db.scrub(&mut walk, 30_000).is_err());
            }
            assert_eq!(met, 1, "{what}");
            for (other, key_of) in keys.into_iter().enumerate().filter(|(m, _)| *m != n) {
                assert_eq!(db.get(key_of).unwrap(), Some(value_of(other)));
            }
            let short = keys.iter().filter(|key| key.len() < 100).count() + 1;
            let keys_alone = snapshot.keys(..&b"g"[..]).map(|key| key.unwrap().len());
            assert_eq!(keys_alone.count(), short);
            drop(snapshot);
            db.remove(key).unwrap();
            assert_eq!(db.get(key).unwrap(), None, "{what}");
            db.check().unwrap();
            db.put(key, b"again").unwrap();
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"again"[..]));
            db.check().unwrap();
            drop(db);
            // A value that becomes damaged after the first read is not copied.
            let damaged = copy_of(&whole);
            let db = open_on(&damaged, Durability::File).unwrap();
            let tree = db.tree("other").unwrap();
            tree.put(b"k", b"v").unwrap();
            assert_eq!(db.get(key).unwrap(), Some(value_of(n)));
            flip(&damaged);
            let snapshot = db.snapshot().unwrap();
            let copied = snapshot
                .range(..)
                .verified()
                .try_for_each(|pair| pair.map(drop));
            assert!(copied.as_ref().is_err_and(is_named), "{what}: {copied:?}");
            let met = db.scrub(&mut Scrub::default(), u64::MAX);
            assert!(met.as_ref().is_err_and(is_named), "{what}: {met:?}");
        }
    }
}
