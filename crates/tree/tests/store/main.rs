//! The store on real files and between threads: locks, limits, space, damage, many writers.
#![allow(clippy::unwrap_used)]

mod backups;
mod cache;
#[path = "../common/mod.rs"]
mod common;
mod contents;
mod damage;
mod files;
mod golden;
#[path = "../image/mod.rs"]
mod image;
mod space;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use common::{kept, open};
use mneme_sys::medium::RecordingMedium;
use mneme_testkit::TestDir;
use mneme_tree::{Batch, Store};

/// A path, and the directory that contains it, which is removed with it.
type Path = (PathBuf, TestDir);

fn file(name: &str) -> Path {
    let directory = TestDir::on_disk("tree-store");
    (directory.join(name), directory)
}

/// A store of keys whose common beginning is longer than a leaf's fences can be.
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
