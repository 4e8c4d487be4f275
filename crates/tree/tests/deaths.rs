//! Processes that die at named points, beside others that continue. Such a process is this test,
//! started again.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::beside::builder;
use common::contents;
use mneme_sys::fault::{Action, arm};
use mneme_testkit::{TestDir, is_killed};
use mneme_tree::{Batch, Snapshot, Store, StoreError};

const CHILD: &str = "MNEME_TREE_DEATHS";
const KEYS: u32 = 300;

/// Every key has the number of the commit.
fn commit(db: &Store, number: u8) {
    let mut batch = Batch::new();
    for key in 0..KEYS {
        let len = if key.is_multiple_of(50) { 5000 } else { 200 };
        batch.put(&key.to_be_bytes(), &vec![number; len]);
    }
    db.apply(&batch).unwrap();
}

/// The one number that all keys have.
fn number(snapshot: &Snapshot) -> u8 {
    let found = contents(snapshot);
    assert_eq!(found.len(), KEYS as usize);
    let number = found[&0_u32.to_be_bytes()[..]][0];
    let whole = found
        .values()
        .all(|value| value.iter().all(|byte| *byte == number));
    assert!(whole, "half a commit");
    number
}

/// Does what its parent orders, and dies at the point that its parent names.
fn child(orders: &str) {
    let [role, point, path] = orders.split(':').collect::<Vec<_>>()[..] else {
        panic!("{orders}");
    };
    match role {
        "write" => {
            let db = builder().open(path).unwrap();
            commit(&db, 2);
            arm(point, Action::Kill, 1);
            commit(&db, 3);
        }
        "drop" => {
            let db = builder().open(path).unwrap();
            arm(point, Action::Kill, 1);
            db.drop_tree("t").unwrap();
        }
        "open" => {
            arm(point, Action::Kill, 1);
            commit(&builder().open(path).unwrap(), 3);
        }
        _ => {
            let db = builder().read_only(true).open(path).unwrap();
            let held = db.snapshot().unwrap();
            arm(point, Action::Kill, 1);
            number(&db.snapshot().unwrap());
            drop(held);
        }
    }
}

fn dies(role: &str, point: &str, path: &Path) {
    let orders = format!("{role}:{point}:{}", path.display());
    let died = is_killed("whoever_dies_the_others_go_on", [(CHILD, orders)]);
    assert!(died, "{role} does not reach {point}");
}

/// A reader keeps a tree whose drop was announced to it and did not happen.
#[test]
fn a_drop_that_did_not_happen_ends_no_tree() {
    let here = TestDir::new("tree-deaths-drop");
    let path = here.path().join("db");
    let db = builder().open(&path).unwrap();
    db.tree("t").unwrap().put(b"key", b"1").unwrap();
    drop(db);
    let reader = builder().read_only(true).open(&path).unwrap();
    let tree = reader.tree("t").unwrap();
    assert_eq!(tree.get(b"key").unwrap(), Some(b"1".to_vec()));
    dies("drop", "tree.commit.announced", &path);
    let db = builder().open(&path).unwrap();
    db.put(b"other", b"2").unwrap();
    assert_eq!(reader.get(b"other").unwrap(), Some(b"2".to_vec()));
    assert_eq!(tree.get(b"key").unwrap(), Some(b"1".to_vec()));
    db.drop_tree("t").unwrap();
    let dropped = tree.get(b"key");
    assert!(
        matches!(dropped, Err(StoreError::TreeDropped { .. })),
        "{dropped:?}"
    );
}

#[test]
fn whoever_dies_the_others_go_on() {
    if let Ok(orders) = std::env::var(CHILD) {
        return child(&orders);
    }
    let deaths = [
        ("write", "tree.commit.stored", 2..=2),
        ("write", "tree.commit.announced", 2..=2),
        ("write", "tree.commit.recorded", 2..=3),
        ("write", "tree.commit.published", 3..=3),
        ("write", "tree.publish.here", 2..=3),
        ("open", "tree.open.found", 1..=1),
        ("open", "tree.open.recorded", 1..=1),
        ("read", "sync.hold.claimed", 1..=1),
        ("read", "sync.hold.held", 1..=1),
        ("read", "tree.follow.pinned", 1..=1),
    ];
    for (role, point, seen) in deaths {
        let here = TestDir::new("tree-deaths");
        let path = here.path().join("db");
        let db = builder().open(&path).unwrap();
        commit(&db, 0);
        commit(&db, 1);
        let reader = builder().read_only(true).open(&path).unwrap();
        let old = reader.snapshot().unwrap();
        let writer = if role == "read" {
            Some(db)
        } else {
            db.close().unwrap();
            None
        };
        dies(role, point, &path);
        // There is no writer, and no version is lost or half there.
        let now = number(&reader.snapshot().unwrap());
        assert!(seen.contains(&now), "{point}: {now}");
        assert_eq!(number(&old), 1, "{point}");
        let db = writer.unwrap_or_else(|| builder().open(&path).unwrap());
        let recovered = number(&db.snapshot().unwrap());
        assert!(recovered >= now && seen.contains(&recovered), "{point}");
        assert_eq!(number(&reader.snapshot().unwrap()), recovered);
        for next in 4..30 {
            commit(&db, next);
            assert_eq!(number(&reader.snapshot().unwrap()), next, "{point}");
        }
        assert_eq!(number(&old), 1, "{point}");
        db.check().unwrap();
        reader.check().unwrap();
        let holders = db.holders().unwrap();
        assert_eq!(
            holders.len(),
            1,
            "{point}: the dead hold nothing: {holders:?}"
        );
        // The space of dead processes is reused.
        let size = db.stats().unwrap().file_bytes;
        for next in 30..60 {
            commit(&db, next);
        }
        assert_eq!(db.stats().unwrap().file_bytes, size, "{point}");
    }
}

/// An opening finds that others have the file open, and they close it before it joins them. It may
/// be off its CPU for longer than it would wait for others.
#[test]
fn an_opening_goes_on_though_those_that_it_found_have_closed_the_file() {
    for reads in [true, false] {
        let here = TestDir::new("tree-deaths-closing");
        let path = here.path().join("db");
        builder().open(&path).unwrap().close().unwrap();
        let found = Mutex::new(Some(builder().read_only(true).open(&path).unwrap()));
        let close = Action::Call(Arc::new(move || {
            drop(found.lock().unwrap().take());
            std::thread::sleep(Duration::from_millis(1_100));
        }));
        arm("tree.share.found", close, 1);
        let opened = builder().read_only(reads).open(&path);
        assert_eq!(opened.unwrap().get(b"a").unwrap(), None);
    }
}
