//! Space: found before anything is stored, bounded, and given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{MAX, contents, open, open_on, reopen};
use crate::with_long_keys;
use mneme_sys::medium::{Medium, MemoryMedium, RecordingMedium};
use mneme_testkit::Random;
use mneme_tree::{Batch, Durability, Holder, MAX_KEY, MAX_NAME, Store, StoreError};

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
    // A change that needs no fresh leaf still works, and more space makes the rest work.
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

/// Every leaf of a tree with several has at least a third of its 16 KiB in live entries, less the
/// longest of these. `docs/design/tree.md` has the argument.
fn assert_bounded(db: &Store, longest: u64, case: &str) {
    let stats = db.stats().unwrap();
    let least = (16 << 10) / 3 - longest;
    let most = stats.live_bytes / least + 1;
    let leaves = stats.leaves as u64;
    assert!(leaves <= most, "{case}: above {most}, {stats:?}");
}

/// Whatever leaves most of each leaf unused: all keys are removed except a few, which are far
/// apart, in one commit, in many, or by values that become short.
#[test]
fn few_live_entries_take_few_leaves() {
    for (value, together) in [(100, 10_000), (100, 7), (100, 1), (1900, 10_000), (1900, 1)] {
        for kept in [2, 10, 200] {
            for shortened in [false, true] {
                let medium = MemoryMedium::new(MAX).unwrap();
                let builder = Store::builder().durability(Durability::Process);
                let db = builder.open_on(Box::new(medium)).unwrap();
                let count = 200_000 / value;
                let keys: Vec<_> = (0..count).map(|n: u32| n.to_be_bytes()).collect();
                let mut batch = Batch::new();
                for key in &keys {
                    batch.put(key, &vec![1; value as usize]);
                }
                db.apply(&batch).unwrap();
                let case = format!("{value} B, one of {kept} stays, {together}, {shortened}");
                let gone = keys.iter().enumerate().filter(|(n, _)| n % kept != 0);
                let gone: Vec<_> = gone.map(|(_, key)| key).collect();
                for keys in gone.chunks(together) {
                    let mut batch = Batch::new();
                    for key in keys {
                        match shortened {
                            true => batch.put(*key, b""),
                            false => batch.remove(*key),
                        };
                    }
                    db.apply(&batch).unwrap();
                }
                db.check().unwrap();
                assert_bounded(&db, 32 + u64::from(value), &case);
                let left = if shortened {
                    keys.len()
                } else {
                    keys.len().div_ceil(kept)
                };
                assert_eq!(db.snapshot().unwrap().range(..).count(), left, "{case}");
                // Empty leaves leave nothing behind.
                let mut batch = Batch::new();
                for key in &keys {
                    batch.remove(key);
                }
                db.apply(&batch).unwrap();
                assert_eq!(db.stats().unwrap().leaves, 1, "{case}");
            }
        }
    }
}

/// Changes that come together on neighbouring leaves, which leave little of some and much of
/// others.
#[test]
fn the_bound_holds_whatever_a_commit_changes() {
    let medium = MemoryMedium::new(MAX).unwrap();
    let builder = Store::builder().durability(Durability::Process);
    let db = builder.open_on(Box::new(medium)).unwrap();
    let mut random = Random::new(5);
    let mut model = BTreeMap::new();
    for commit in 0..600 {
        let mut batch = Batch::new();
        let from = random.next() % 3000;
        // One kind of change over wide ranges: neighbouring leaves become empty, or full.
        let (count, puts) = (1 + random.next() % 900, random.next() % 5);
        for n in 0..count {
            let key = (from + n).to_be_bytes().to_vec();
            if random.next() % 5 < puts {
                let value = vec![commit as u8; (random.next() % 500) as usize];
                batch.put(&key, &value);
                model.insert(key, value);
            } else {
                batch.remove(&key);
                model.remove(&key);
            }
        }
        db.apply(&batch).unwrap();
        assert_bounded(&db, 540, &format!("commit {commit}"));
        if commit % 50 == 0 {
            db.check().unwrap();
            assert_eq!(contents(&db.snapshot().unwrap()), model);
        }
    }
}

/// A leaf that takes entries from its neighbour needs two fresh leaves. Without space for them the
/// removal happens in the leaf itself.
#[test]
fn a_removal_needs_no_space() {
    let (db, medium) = open();
    let tree = db.tree("filler").unwrap();
    let mut model = BTreeMap::new();
    let mut batch = Batch::new();
    for n in 0..1000u32 {
        batch.put(&n.to_be_bytes(), &[n as u8; 100]);
        model.insert(n.to_be_bytes().to_vec(), vec![n as u8; 100]);
    }
    db.apply(&batch).unwrap();
    medium.limit(Some(medium.len()));
    // A snapshot keeps replaced entries from being reused.
    let snapshot = db.snapshot().unwrap();
    let full = (0..u32::MAX).find_map(|n| tree.put(&n.to_be_bytes(), &[7; 1900]).err());
    assert!(matches!(full, Some(StoreError::NoSpace { .. })), "{full:?}");
    for n in (0..1000u32).filter(|n| n % 9 < 5) {
        db.remove(&n.to_be_bytes()).unwrap();
        model.remove(&n.to_be_bytes()[..]);
    }
    db.check().unwrap();
    assert_eq!(contents(&db.snapshot().unwrap()), model);
    assert_eq!(snapshot.range(..).count(), 1000);
    let (again, _) = reopen(&medium);
    again.check().unwrap();
    assert_eq!(contents(&again.snapshot().unwrap()), model);
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

/// The space of a snapshot, a name and a dropped tree is free at once, not after as many commits.
#[test]
fn garbage_is_collected_when_one_asks() {
    let (db, _) = open();
    let tree = db.tree("tree").unwrap();
    let fill = |turn: u8| {
        for n in 0..300_u32 {
            db.put(&n.to_be_bytes(), &[turn; 100]).unwrap();
            tree.put(&n.to_be_bytes(), &[turn; 3000]).unwrap();
        }
    };
    fill(0);
    db.keep("kept").unwrap();
    let snapshot = db.snapshot().unwrap();
    (1..5).for_each(fill);
    db.gc().unwrap();
    let held = db.stats().unwrap();
    assert!(held.retained_leaves > 0, "{held:?}");
    assert_eq!(snapshot.range(..).count(), 300);
    drop(snapshot);
    db.gc().unwrap();
    let kept = db.stats().unwrap();
    assert_eq!(kept.retained_leaves, held.retained_leaves, "{kept:?}");
    db.drop_version("kept").unwrap();
    db.drop_tree("tree").unwrap();
    db.gc().unwrap();
    let free = db.stats().unwrap();
    assert_eq!((free.retained_leaves, free.extents), (0, 0), "{free:?}");
    db.check().unwrap();
}

/// A kept version takes the space of what changes only once, however much is written after it, and
/// across openings; `stats` names its holders.
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
    // Shorter values use the space that one of them leaves.
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
