//! `kill -9` of the writing process at any time: what it had acknowledged is there, in order, and
//! nothing is half done. The process is this test, started again.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use mneme_testkit::{Process, TestDir};
use mneme_tree::{Batch, Durability, Store};

const TEST: &str = "the_writer_is_killed_again_and_again";
const CHILD: &str = "MNEME_TREE_KILLS";
/// Keys that every commit writes, all with the same value: half a commit would show.
const GROUP: u32 = 5;
const KEYS: u32 = 3000;

fn open(path: &Path, durability: Durability) -> Store {
    let builder = Store::builder().durability(durability).max_bytes(1 << 30);
    builder.open(path).unwrap()
}

/// The keys of commit `n`, some new, most not.
fn keys(n: u64) -> impl Iterator<Item = [u8; 4]> {
    (0..GROUP)
        .map(move |i| ((n as u32).wrapping_mul(7919) + i * 601) % KEYS)
        .map(u32::to_be_bytes)
}

/// Commits, and reports each commit on standard output, until it is killed.
fn live(path: &Path, durability: Durability) -> ! {
    let db = open(path, durability);
    let mut n = last(&db);
    loop {
        n += 1;
        let mut batch = Batch::new();
        for key in keys(n) {
            batch.put(&key, &[n.to_be_bytes().as_slice(), &[n as u8; 90]].concat());
        }
        batch.put(b"last", &n.to_be_bytes());
        if n.is_multiple_of(3) {
            let key = ((n as u32).wrapping_mul(31) % KEYS + KEYS).to_be_bytes();
            batch
                .remove(&key)
                .put(&((n as u32) % KEYS + KEYS).to_be_bytes(), &[1; 600]);
        }
        db.apply(&batch).unwrap();
        println!("{n}");
    }
}

fn last(db: &Store) -> u64 {
    let value = db.get(b"last").unwrap();
    value.map_or(0, |bytes| {
        u64::from_be_bytes(bytes[..8].try_into().unwrap())
    })
}

/// What must hold after any number of commits: each key has the value of the last commit that wrote
/// it.
fn verify(db: &Store, acknowledged: u64) {
    db.check().unwrap();
    let n = last(db);
    assert!(
        n == acknowledged || n == acknowledged + 1,
        "acknowledged {acknowledged}, found {n}"
    );
    for commit in n.saturating_sub(100).max(1)..=n {
        for key in keys(commit) {
            let value = db.get(&key).unwrap().unwrap();
            let wrote = u64::from_be_bytes(value[..8].try_into().unwrap());
            assert!(
                (commit..=n).contains(&wrote),
                "commit {commit} lost a key, found {wrote}"
            );
            assert!(keys(wrote).any(|other| other == key));
        }
    }
}

fn storm(durability: Durability, name: &str, kills: u64) {
    let here = match durability {
        // Flushed cache lines do not reach a disk.
        Durability::Flush => TestDir::new("tree-kills"),
        _ => TestDir::on_disk("tree-kills"),
    };
    let path = here.path().join(name);
    let mut commits = 0;
    for round in 0..kills {
        let given = format!("{name}:{}", path.display());
        let mut child = Process::start_talking(TEST, [(CHILD, given)]);
        while !child.number().is_multiple_of(20 + round * 37) {}
        let acknowledged = child.last_number().unwrap();
        let db = open(&path, durability);
        verify(&db, acknowledged);
        commits = last(&db);
    }
    assert!(commits > 100);
}

#[test]
fn the_writer_is_killed_again_and_again() {
    if let Ok(given) = std::env::var(CHILD) {
        let (name, path) = given.split_once(':').unwrap();
        let durability = match name {
            "file" => Durability::File,
            "flush" => Durability::Flush,
            _ => Durability::Process,
        };
        live(Path::new(path), durability);
    }
    storm(Durability::Process, "process", 12);
    storm(Durability::File, "file", 6);
    if !mneme_sys::WriteBack::available().is_empty() {
        storm(Durability::Flush, "flush", 6);
    }
}
