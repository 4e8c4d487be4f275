//! `file-overhead`: what it costs to make bytes durable through a file (CDDS thesis, fig. 3.2-3.4).
//!
//! The same bytes, at a page that changes from one to the next: stored into a mapping, or written
//! by a system call, each alone and with `fdatasync`; on tmpfs, and in the system's directory for
//! temporary files, which may lie on a disk. Each directory's file system is named.

use mneme_bench::error::{BenchError, failed, file_failed};
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, nanoseconds};
use mneme_bench::scratch::Directory;
use mneme_bench::table::{Table, median};
use mneme_sys::Access;
use mneme_sys::medium::{FileMedium, Medium, MediumError};
use std::time::Duration;

/// Bytes that are made durable at once.
const SIZES: [usize; 3] = [64, 1024, 4096];
/// Bytes of the file.
const FILE: u64 = 16 << 20;

/// The ways.
const WAYS: [(&str, Way); 4] = [
    ("store", |file, at, bytes| {
        file.store(at, bytes);
        Ok(())
    }),
    ("write", |file, at, bytes| file.write(at, bytes)),
    ("store, sync", |file, at, bytes| {
        file.store(at, bytes);
        file.sync()
    }),
    ("write, sync", |file, at, bytes| {
        file.write(at, bytes)?;
        file.sync()
    }),
];

type Way = fn(&FileMedium, u64, &[u8]) -> Result<(), MediumError>;

fn case(directory: &str, size: usize) -> String {
    format!("{size} B, {directory}")
}

/// How long a measurement is.
pub fn scale(options: &Common) -> Duration {
    Duration::from_millis(options.pick(100, 1000))
}

/// Measures and reports.
///
/// # Errors
/// A file that cannot be made or written.
pub fn run(timed: &Duration, options: &Common) -> Result<Report, BenchError> {
    let places = [
        ("tmpfs", Directory::in_memory("files")?),
        ("temporary", Directory::new("files")?),
    ];
    let mut files = Vec::new();
    for (name, directory) in &places {
        let path = directory.path().join("file");
        let file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(file_failed(&path))?;
        let file = FileMedium::open(file, Access::ReadWrite, FILE).map_err(failed)?;
        file.grow(FILE).map_err(failed)?;
        file.sync().map_err(failed)?;
        files.push((*name, file));
    }
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for (name, file) in &files {
        for size in SIZES {
            for (way, work) in WAYS {
                jobs.push(Job::new(
                    way,
                    case(name, size),
                    Metric::Latency,
                    move |round| {
                        let (bytes, mut at) = (vec![round as u8; size], 0);
                        nanoseconds(*timed, 1, || {
                            at = (at + 4096) % FILE;
                            work(file, at, &bytes).map_err(failed)
                        })
                    },
                ));
            }
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    let mut table = Table::new(["bytes", "directory", "how", "ns"]);
    for (name, _) in &files {
        for size in SIZES {
            for (way, _) in WAYS {
                table.row([
                    size.to_string(),
                    (*name).to_owned(),
                    way.to_owned(),
                    median(ledger.values(way, &case(name, size)), 1.0),
                ]);
            }
        }
    }
    println!("{table}");
    let notes = places.iter().map(|(name, directory)| {
        let kind = match mneme_sys::files::fs_kind(directory.path()) {
            Ok(mneme_sys::files::FsKind::Memory) => "in memory".to_owned(),
            Ok(_) => "a file system of its own kind".to_owned(),
            Err(error) => error.to_string(),
        };
        format!("{name}: {}, {kind}", directory.path().display())
    });
    Ok(Report {
        ledger,
        notes: notes.collect(),
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_in_both_directories() {
        let report = run(&Duration::ZERO, &crate::options::tests::common()).unwrap();
        for directory in ["tmpfs", "temporary"] {
            for size in SIZES {
                for (way, _) in WAYS {
                    let values = report.ledger.values(way, &case(directory, size));
                    assert_eq!(values.len(), 1, "{directory}, {size}, {way}");
                }
            }
        }
    }
}
