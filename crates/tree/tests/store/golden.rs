//! A store that an earlier build wrote opens, is intact, and has its content.
//!
//! An image is the length of the file, and then its words that are not zero: `offset word`, in
//! hexadecimal, and how often in a row, if more than once. It was written by `write_image`
//! (`--ignored`) when its format was new, and never again. If an image can no longer be read, the
//! format needs a new number.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::common::{MAX, Model, contents, open, open_on};
use mneme_sys::medium::RecordingMedium;
use mneme_tree::{Batch, Durability, Store};

const FORMAT_8: &str = include_str!("golden/store-8.txt");
const FORMAT_9: &str = include_str!("golden/store-9.txt");

fn bytes_of(image: &str) -> Vec<u8> {
    let mut lines = image.lines();
    let mut bytes = vec![0; lines.next().unwrap().parse().unwrap()];
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| u64::from_str_radix(words[n], 16).unwrap();
        let many = words.get(2).map_or(1, |many| many.parse().unwrap());
        let at = number(0) as usize;
        for word in bytes[at..at + many * 8].chunks_mut(8) {
            word.copy_from_slice(&number(1).to_le_bytes());
        }
    }
    bytes
}

/// Every kind of record: leaves that were split and joined, removals, overwrites, long keys and
/// values, a named tree, one that was dropped, a named version, a caller's bytes.
fn life(db: &Store) {
    let mut batch = Batch::new();
    for n in 0..60_u8 {
        batch.put(&[n], &vec![n; 300]);
    }
    db.apply(&batch).unwrap();
    for n in 0..60_u8 {
        match n % 7 {
            0 => drop(db.put(&[n], b"short").unwrap()),
            1 | 2 => drop(db.remove(&[n]).unwrap()),
            _ => {}
        }
    }
    db.keep("before").unwrap();
    db.put(b"long value", &[8; 5000]).unwrap();
    db.put(&[b'k'; 3000], b"long key").unwrap();
    let tree = db.tree("tree").unwrap();
    tree.put(b"a", b"in a tree").unwrap();
    tree.put(b"b", &[7; 2500]).unwrap();
    let dropped = db.tree("dropped").unwrap();
    dropped.put(b"a", b"gone").unwrap();
    db.drop_tree("dropped").unwrap();
    let mut batch = Batch::new();
    batch.put(b"last", b"commit").with_caller([9; 32]);
    db.apply(&batch).unwrap();
}

/// The content of a store: itself, its named trees and its named versions.
fn shown(db: &Store) -> BTreeMap<String, Model> {
    let snapshot = db.snapshot().unwrap();
    let mut all = BTreeMap::from([(String::new(), contents(&snapshot))]);
    for name in db.trees().unwrap() {
        let tree = db.open_tree(&name).unwrap();
        let keys: [&[u8]; 2] = [b"a", b"b"];
        let pairs = keys.map(|key| (key.to_vec(), tree.get(key).unwrap().unwrap()));
        all.insert(format!("tree {name}"), pairs.into());
    }
    for (name, _) in db.versions() {
        let version = contents(&db.version_named(&name).unwrap());
        all.insert(format!("version {name}"), version);
    }
    all
}

#[test]
#[ignore = "writes the image of the present format"]
fn write_image() {
    let (db, medium) = open();
    life(&db);
    let bytes = medium.bytes();
    let mut image = format!("{}\n", bytes.len());
    let words: Vec<_> = bytes.chunks_exact(8).collect();
    let mut at = 0;
    for run in words.chunk_by(|a, b| a == b) {
        let word = u64::from_le_bytes(run[0].try_into().unwrap());
        let many = match run.len() {
            1 => String::new(),
            many => format!(" {many}"),
        };
        if word != 0 {
            writeln!(image, "{at:x} {word:x}{many}").unwrap();
        }
        at += run.len() * 8;
    }
    std::fs::write("tests/store/golden/store-9.txt", image).unwrap();
}

/// The format in a file's header.
fn format_of(medium: &RecordingMedium) -> u8 {
    medium.bytes()[8]
}

#[test]
fn a_store_of_an_earlier_build_opens() {
    opens(FORMAT_9);
}

/// It was not closed, so that recovery works on a file of that format.
#[test]
fn a_store_of_the_format_before_opens_and_becomes_one_of_this() {
    let medium = opens(FORMAT_8);
    assert_eq!(format_of(&medium), 9);
    let medium = Arc::new(RecordingMedium::with_image(MAX, medium.bytes().into()).unwrap());
    let db = open_on(&medium, Durability::File).unwrap();
    db.check().unwrap();
    assert_eq!(db.get(b"last").unwrap().unwrap(), b"of another build");
}

fn opens(image: &str) -> Arc<RecordingMedium> {
    let bytes = Arc::new(bytes_of(image));
    let medium = Arc::new(RecordingMedium::with_image(MAX, bytes).unwrap());
    let db = open_on(&medium, Durability::File).unwrap();
    db.check().unwrap();
    let (present, _) = open();
    life(&present);
    assert_eq!(shown(&db), shown(&present));
    assert_eq!(shown(&db).len(), 3);
    assert_eq!(db.caller(), [9; 32]);
    // It continues from there.
    db.put(b"last", b"of another build").unwrap();
    db.drop_version("before").unwrap();
    db.check().unwrap();
    medium
}
