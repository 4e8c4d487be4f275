//! Files: what they keep, when they are locked, and what is refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{contents, open};
use crate::{Path, file};
use mneme_sys::files::FsKind;
use mneme_tree::{Durability, MAX_KEY, MAX_VALUE, Store, StoreError};

#[test]
fn a_file_keeps_what_was_put() {
    let path = file("keeps");
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
fn a_file_and_its_backups_are_kept_from_others() {
    let mode = |path: &Path| std::fs::metadata(&path.0).unwrap().permissions().mode() & 0o777;
    let (path, copy) = (file("mode"), file("mode-backup"));
    let db = Store::builder().open(&path.0).unwrap();
    db.put(b"key", b"value").unwrap();
    db.backup(&copy.0).unwrap();
    assert_eq!((mode(&path), mode(&copy)), (0o600, 0o600));
    // It changes nothing of an existing file, and never makes one executable.
    std::fs::set_permissions(&path.0, Permissions::from_mode(0o700)).unwrap();
    db.close().unwrap();
    let db = Store::builder().mode(0o644).open(&path.0).unwrap();
    std::fs::remove_file(&copy.0).unwrap();
    db.backup(&copy.0).unwrap();
    assert_eq!((mode(&path), mode(&copy)), (0o700, 0o600));
}

#[test]
fn a_second_opening_is_refused_and_a_later_one_is_not() {
    let path = file("locked");
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
    let path = file("spawns");
    let foreign = file("spawns-foreign");
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

/// Cache lines that are written back reach memory, but not a disk.
#[test]
fn a_store_that_flushes_lines_opens_in_memory_and_is_refused_on_a_disk() {
    if mneme_sys::WriteBack::available().is_empty() {
        return;
    }
    let builder = Store::builder().durability(Durability::Flush);
    let memory = mneme_testkit::TestDir::new("tree-flush");
    let path = memory.path().join("store");
    let db = builder.open(&path).unwrap();
    for n in 0..2000u32 {
        db.put(&n.to_be_bytes(), &[n as u8; 900]).unwrap();
    }
    db.put(b"long", &[3; 100_000]).unwrap();
    db.close().unwrap();
    // With any durability, once it was closed.
    for other in [Durability::File, Durability::Process, Durability::Flush] {
        let db = Store::builder().durability(other).open(&path).unwrap();
        db.check().unwrap();
        assert_eq!(db.stats().unwrap().entries, 2001);
        db.close().unwrap();
    }
    let disk = mneme_testkit::TestDir::on_disk("tree-flush");
    let path = disk.path().join("store");
    let refused = builder.open(&path).map(drop);
    let is_memory = mneme_sys::files::fs_kind(disk.path()).unwrap() == FsKind::Memory;
    assert!(
        is_memory || matches!(refused, Err(StoreError::Unsupported { .. })),
        "{refused:?}"
    );
    // An existing store is not harmed.
    Store::builder()
        .open(&path)
        .unwrap()
        .put(b"a", b"1")
        .unwrap();
    let refused = builder.open(&path).map(drop);
    assert!(is_memory || matches!(refused, Err(StoreError::Unsupported { .. })));
    let db = Store::builder().open(&path).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_file_that_is_not_a_store_is_refused() {
    let path = file("foreign");
    std::fs::write(&path.0, vec![7; 10_000]).unwrap();
    assert!(matches!(
        Store::builder().open(&path.0),
        Err(StoreError::Foreign)
    ));
    drop(path);
    let path = file("short");
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
fn keys_and_values_that_are_too_long_are_refused() {
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

/// An unfinished file of another process with the same number must not be overwritten.
#[test]
fn an_unfinished_file_of_another_is_left_alone() {
    let path = file("making");
    let name = format!("{}.making-{}", path.0.display(), std::process::id());
    let other = PathBuf::from(name);
    std::fs::write(&other, "of another").unwrap();
    drop(Store::builder().open(&path.0).unwrap());
    assert_eq!(std::fs::read(&other).unwrap(), b"of another");
}
