//! What one sync costs on the disk that is measured, in two ways of writing a log:
//!
//! - *append*: behind the end of a file, and `fdatasync`, as Redis does. The file's size and its
//!   blocks are made durable too.
//! - *in place*: over bytes that were written before, and `fdatasync`, as our journal does.

use crate::error::{BenchError, file_failed};
use crate::ledger::{Ledger, Metric};
use crate::rounds::{self, Job, nanoseconds};
use crate::scratch::Directory;
use crate::server::servers::cpu_of_this_thread;
use crate::table::{Table, median};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const APPEND: &str = "append";
const IN_PLACE: &str = "in place";
const WAYS: [&str; 2] = [APPEND, IN_PLACE];

/// KiB of a group: of one client, of fifty, of fifty with a pipeline.
const SIZES: [usize; 3] = [4, 32, 256];
/// Bytes that are written over.
const FILE: u64 = 16 << 20;

fn case(kib: usize) -> String {
    format!("{kib} KiB durable")
}

fn cpu_case(kib: usize) -> String {
    format!("{}, CPU", case(kib))
}

/// A file and what is written to it.
struct Log {
    file: File,
    grows: bool,
    at: u64,
    bytes: Vec<u8>,
}

impl Log {
    fn open(way: &str, directory: &Path) -> std::io::Result<Self> {
        let file = File::create(directory.join(way))?;
        let bytes = vec![7; SIZES[2] << 10];
        if way != APPEND {
            for at in (0..FILE).step_by(bytes.len()) {
                file.write_all_at(&bytes, at)?;
            }
        }
        file.sync_all()?;
        Ok(Self {
            file,
            grows: way == APPEND,
            at: 0,
            bytes,
        })
    }

    fn write(&mut self, bytes: usize) -> std::io::Result<()> {
        if !self.grows && self.at + bytes as u64 > FILE {
            self.at = 0;
        }
        self.file.write_all_at(&self.bytes[..bytes], self.at)?;
        self.at += bytes as u64;
        self.file.sync_data()
    }
}

/// Measures all ways, round by round.
///
/// # Errors
/// The disk is full, or fails.
pub fn run(
    timed: Duration,
    rounds: usize,
    place: &Path,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let directory = Directory::below(place, "device")?;
    let failed = file_failed(directory.path());
    let mut logs = Vec::new();
    for way in WAYS {
        let log = Log::open(way, directory.path()).map_err(failed)?;
        logs.push((way, RefCell::new(log)));
    }
    let mut jobs = Vec::new();
    for kib in SIZES {
        for (way, log) in &logs {
            let name = format_args!("{way}, {}", case(kib)).to_string();
            jobs.push(Job::of(name, move |_, ledger| {
                let (before, mut writes) = (cpu_of_this_thread()?, 0.0);
                let each = nanoseconds(timed, 1, || {
                    writes += 1.0;
                    log.borrow_mut().write(kib << 10).map_err(failed)
                })?;
                ledger.add(way, &case(kib), Metric::Latency, each);
                let used = cpu_of_this_thread()?.saturating_sub(before);
                let each = used.as_nanos() as f64 / writes;
                ledger.add(way, &cpu_case(kib), Metric::Cpu, each);
                Ok(())
            }));
        }
    }
    rounds::run(jobs, rounds, ledger)
}

/// Prints what was measured here.
pub fn print(ledger: &Ledger) {
    let rows = SIZES.map(|kib| (format!("{kib} KiB"), [case(kib), cpu_case(kib)]));
    let cell = |way: &str, cases: &[String; 2]| {
        cases
            .each_ref()
            .map(|case| median(ledger.values(way, case), 1e3))
            .join(", ")
    };
    Table::grid("group", &WAYS, rows, cell)
        .print("microseconds until a group is durable, and of CPU time, by way of writing");
}
