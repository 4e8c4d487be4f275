//! What one sync costs on the disk that is measured, in two ways of writing a log:
//!
//! - *append*: behind the end of a file, and `fdatasync`, as Redis does. The file's size and its
//!   blocks are made durable too.
//! - *in place*: over bytes that were written before, and `fdatasync`, as our journal does.

use crate::error::BenchError;
use crate::ledger::{Ledger, Metric};
use crate::rounds::{Job, interleave};
use crate::scratch::Directory;
use crate::server::servers::cpu_of_this_thread;
use crate::table::{Table, median};
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const APPEND: &str = "append";
const IN_PLACE: &str = "in place";
const WAYS: [&str; 2] = [APPEND, IN_PLACE];

/// KiB of a group: of one client, of fifty, of fifty with a pipeline.
const SIZES: [usize; 3] = [4, 32, 256];
/// Bytes that are written over.
const FILE: u64 = 16 << 20;

/// Measurements of a round.
pub const JOBS: usize = WAYS.len() * SIZES.len();

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
    bar: &ProgressBar,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let directory = Directory::below(place, "device")?;
    let failed = |source| BenchError::File {
        path: directory.path().to_owned(),
        source,
    };
    let mut logs = Vec::new();
    for way in WAYS {
        let log = Log::open(way, directory.path()).map_err(failed)?;
        logs.push((way, RefCell::new(log)));
    }
    let cpu = RefCell::new(Vec::new());
    let mut jobs = Vec::new();
    for kib in SIZES {
        for (way, log) in &logs {
            let cpu = &cpu;
            jobs.push(Job::new(*way, case(kib), Metric::Latency, move |_| {
                let mut log = log.borrow_mut();
                let (begin, before) = (Instant::now(), cpu_of_this_thread()?);
                let mut writes = 0.0;
                while writes == 0.0 || begin.elapsed() < timed {
                    log.write(kib << 10).map_err(failed)?;
                    writes += 1.0;
                }
                let took = begin.elapsed();
                let used = cpu_of_this_thread()?.saturating_sub(before);
                let each = used.as_nanos() as f64 / writes;
                cpu.borrow_mut().push((*way, kib, each));
                Ok(took.as_nanos() as f64 / writes)
            }));
        }
    }
    interleave(jobs, rounds, bar, ledger)?;
    for (way, kib, each) in cpu.into_inner() {
        ledger.add(way, &cpu_case(kib), Metric::Cpu, each);
    }
    Ok(())
}

/// Prints what was measured here.
pub fn print(ledger: &Ledger) {
    println!("microseconds until a group is durable, and of CPU time, by way of writing");
    let rows = SIZES.map(|kib| (format!("{kib} KiB"), [case(kib), cpu_case(kib)]));
    let cell = |way: &str, cases: &[String; 2]| {
        cases
            .each_ref()
            .map(|case| median(ledger.values(way, case), 1e3))
            .join(", ")
    };
    println!("{}", Table::grid("group", &WAYS, rows, cell));
}
