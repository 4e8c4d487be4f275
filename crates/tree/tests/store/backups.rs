//! Backups.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::contents;
use crate::with_long_keys;
use crate::{Path, file};
use mneme_tree::{Batch, Store, StoreError};

#[test]
fn a_backup_has_the_long_keys() {
    let (db, _, pairs) = with_long_keys();
    let path = file("long-keys-backup");
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

/// Both report after each leaf how far they are, and end with the total.
#[test]
fn backups_and_checks_say_how_far_they_are() {
    let (db, _, pairs) = with_long_keys();
    let (leaves, keys) = (db.stats().unwrap().leaves, pairs.len());
    let path = file("how-far");
    let (mut checked, mut copied) = (Vec::new(), Vec::new());
    db.check_with(|done, total| checked.push((done, total)))
        .unwrap();
    db.backup_with(&path.0, |done, total| copied.push((done, total)))
        .unwrap();
    assert_eq!((checked.len(), copied.len()), (leaves, leaves + 1));
    for steps in [checked, copied] {
        let total = steps[0].1;
        // Each key lies in an extent of its own, of 4 KiB.
        assert!(
            total > (leaves * (16 << 10) + keys * 4096) as u64,
            "{total}"
        );
        assert!(steps.is_sorted() && steps[0].0 < total / 2, "{steps:?}");
        assert_eq!(steps.last(), Some(&(total, total)));
    }
}

#[test]
fn a_backup_is_one_version_and_a_store() {
    let (from, to) = (file("backed-up"), file("backup"));
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
    let (from, to) = (file("uuid"), file("uuid-backup"));
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
