//! What a durable put costs: `cargo run --release -p mneme-journal --example group_commit -- DIR`
//!
//! Appends entries of 16 + 100 bytes in groups, one sync a group, and prints groups and puts per
//! second and the bytes written for each put.
#![allow(clippy::unwrap_used)] // an errand of the developer's

use std::sync::Arc;
use std::time::Instant;

use mneme_journal::{Identity, Journal, Options, Position};
use mneme_sys::medium::FileDirectory;

/// Key, value and an entry's own 24 bytes.
const ENTRY: usize = 16 + 100 + 24;

fn main() {
    let directory = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "/dev/shm/mneme-group".to_owned());
    let seconds = 1.0;
    println!("{directory}: entries of {ENTRY} bytes, one sync a group, {seconds} s each");
    for group in [1, 8, 50, 200, 1000] {
        let path = std::path::Path::new(&directory).join(format!("group-{group}"));
        let opened = Arc::new(FileDirectory::open(&path).unwrap());
        let store = Identity {
            uuid: [1; 16],
            incarnation: 1,
        };
        let mut journal = Journal::open(opened, Options::new(store), Position::new(0)).unwrap();
        while !journal.prepare(u64::MAX).unwrap() {}
        let bytes = vec![7; ENTRY * group];
        let before = journal.stats();
        let (begun, mut groups) = (Instant::now(), 0);
        while begun.elapsed().as_secs_f64() < seconds {
            journal.append(journal.position(), &bytes).unwrap();
            let durable = journal.sync().unwrap();
            journal.remove_before(durable).unwrap();
            groups += 1;
        }
        let (took, after) = (begun.elapsed().as_secs_f64(), journal.stats());
        let puts = f64::from(groups) * group as f64;
        println!(
            "group of {group:>4}: {:>8.0} groups/s {:>9.0} puts/s {:>6.0} bytes/put",
            f64::from(groups) / took,
            puts / took,
            (after.written - before.written) as f64 / puts
        );
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }
}
