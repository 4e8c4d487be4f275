//! Measures a durable put: `cargo run --release -p mneme-journal --example group_commit -- DIR`
//!
//! Appends entries of 16 + 100 bytes in groups, with one sync for each group, and prints groups and
//! puts per second and the bytes written for each put. Then reads 512 MiB back from the medium.
//! With a second argument, it only appends that many groups of 50, for counting instructions.
#![allow(clippy::unwrap_used)] // an errand of the developer's

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mneme_journal::{Identity, Journal, Options, Position, Reader};
use mneme_sys::medium::{Directory, FileDirectory};
use mneme_sys::{TimeOf, cpu_time};

const SECOND: Duration = Duration::from_secs(1);

/// The size of an entry: key, value and 24 bytes of its own.
const ENTRY: usize = 16 + 100 + 24;

fn open(path: &Path) -> (Arc<dyn Directory>, Journal) {
    let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(path).unwrap());
    let store = Identity { uuid: [1; 16] };
    let options = Options::new(store);
    let mut journal = Journal::open(directory.clone(), options, Position::new(0)).unwrap();
    while !journal.prepare(u64::MAX).unwrap() {}
    (directory, journal)
}

/// Appends groups of that many entries while `goes_on`; returns the number of groups.
fn append(journal: &mut Journal, group: usize, goes_on: impl Fn(u32) -> bool) -> u32 {
    let bytes = vec![7; ENTRY * group];
    let mut groups = 0;
    while goes_on(groups) {
        journal.append(journal.position(), &bytes).unwrap();
        let durable = journal.sync().unwrap();
        journal.remove_before(durable).unwrap();
        groups += 1;
    }
    groups
}

fn write(path: &Path) {
    for group in [1, 8, 50, 200, 1000] {
        let (_, mut journal) = open(path);
        let before = journal.stats();
        let begun = Instant::now();
        let groups = append(&mut journal, group, |_| begun.elapsed() < SECOND);
        let (took, after) = (begun.elapsed().as_secs_f64(), journal.stats());
        let puts = f64::from(groups) * group as f64;
        println!(
            "group of {group:>4}: {:>8.0} groups/s {:>9.0} puts/s {:>6.0} bytes/put",
            f64::from(groups) / took,
            puts / took,
            (after.written - before.written) as f64 / puts
        );
        std::fs::remove_dir_all(path).unwrap();
    }
}

fn read(path: &Path) {
    for group in [5_000, 500_000] {
        let (directory, mut journal) = open(path);
        let bytes = vec![7; group];
        while journal.position().get() < 512 << 20 {
            journal.append(journal.position(), &bytes).unwrap();
        }
        journal.close().unwrap();
        let (begun, before) = (Instant::now(), cpu_time(TimeOf::Thread));
        let mut reader = Reader::open(&*directory, Position::new(0)).unwrap();
        let mut read = 0;
        while let Some(chunk) = reader.next().unwrap() {
            read += chunk.bytes.len();
        }
        let (took, after) = (begun.elapsed(), cpu_time(TimeOf::Thread));
        let used = after.user + after.system - before.user - before.system;
        let rate = |time: Duration| read as f64 / time.as_secs_f64() / 1e9;
        println!(
            "read in frames of {group:>6} bytes: {:.2} GB/s, {:.2} GB per second of the CPU",
            rate(took),
            rate(used)
        );
        std::fs::remove_dir_all(path).unwrap();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let path = PathBuf::from(path.unwrap_or_else(|| "/dev/shm/mneme-group".to_owned()));
    if let Some(groups) = arguments.next() {
        let groups = groups.parse().unwrap();
        append(&mut open(&path).1, 50, |done| done < groups);
        std::fs::remove_dir_all(path).unwrap();
        return;
    }
    println!(
        "{}: entries of {ENTRY} bytes, one sync a group, a second each",
        path.display()
    );
    write(&path);
    read(&path);
}
