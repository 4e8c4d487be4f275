//! `tenant`: gets from a durable tree on disk that is four times as large as the memory that its
//! reader may use, Zipf's law over the records. A fifth of that memory is a reservation, which is
//!
//! - *lent* to copies of records ([`mneme_tree::RecordCache`]);
//! - *idle*, as a reservation is that nobody needs right now;
//! - *left to the kernel*: there is no reservation, and its page cache has all the memory.
//!
//! Each arm is a process of its own in a memory cgroup, and the figure is how many gets wait for
//! the disk (major faults), which does not depend on the disk or on what else the machine does. The
//! inner nodes and the fingerprints, which every arm needs, are outside of the memory that counts.

mod group;
pub mod reader;

use crate::options::{self, Arm};
use group::Group;
use mneme_bench::error::{BenchError, failed, file_failed};
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::processes::Helper;
use mneme_bench::progress;
use mneme_bench::report::Report;
use mneme_bench::scratch::Directory;
use mneme_bench::table::{Table, median};
use mneme_sys::medium::FileMedium;
use mneme_tree::{Batch, Durability, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

const ARMS: [Arm; 3] = [Arm::Lent, Arm::Idle, Arm::Kernel];

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Arm::Lent => "lent",
            Arm::Idle => "idle",
            Arm::Kernel => "left to the kernel",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Arm::Lent => "lent",
            Arm::Idle => "idle",
            Arm::Kernel => "kernel",
        }
    }
}

/// The memory over the part of it that is reserved.
const PART: u64 = 5;
/// The size of records that have goals.
const SMALL: usize = 128;
/// What gets may wait for the disk, lent over idle and over left to the kernel.
const GOALS: [(Arm, f64); 2] = [(Arm::Idle, 0.75), (Arm::Kernel, 0.85)];

/// How much is done.
pub struct Scale {
    /// Bytes of a record: a key of 16, the rest its value.
    sizes: Vec<usize>,
    /// Bytes of all records.
    data: u64,
    /// Bytes that the reader has for the file and the reservation.
    memory: u64,
    warm_up: u64,
    gets: u64,
    rounds: usize,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &options::Tenant) -> Self {
        let usual: &[usize] = common.pick(&[SMALL], &[64, SMALL, 256, 512, 1024, 4096]);
        let sizes = options.sizes.clone();
        Self {
            sizes: sizes.unwrap_or_else(|| usual.to_vec()),
            data: common.pick(256 << 20, 1 << 30),
            memory: common.pick(64 << 20, 256 << 20),
            warm_up: common.pick(150_000, 1_000_000),
            gets: common.pick(75_000, 250_000),
            rounds: common.pick(1, common.rounds),
        }
    }
}

fn case(size: usize) -> String {
    format!("records of {size} B")
}

/// Measures and reports.
///
/// # Errors
/// No memory cgroup can be made, a file that cannot be written, a get that answers wrongly.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    // Before anything takes time.
    drop(Group::new()?);
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    for &size in &scale.sizes {
        let directory = Directory::new("tenant")?;
        let tree = directory.path().join("tree");
        let records = scale.data / size as u64;
        fill(&tree, records, size)?;
        let file = std::fs::metadata(&tree).map_err(file_failed(&tree))?.len();
        let mut least_cached = 1.0_f64;
        for round in 0..scale.rounds {
            for arm in ARMS {
                progress::show(format_args!("{}, {}", case(size), arm.name()));
                let seed = options.seed + round as u64;
                let found = measured(scale, &tree, records, arm, seed)?;
                let misses = found.faults as f64 / scale.gets as f64;
                ledger.add(arm.name(), &case(size), Metric::Misses, misses);
                if arm == Arm::Lent && round == 0 {
                    notes.push(format!(
                        "{}: {:.3} of the gets found a copy; {} MiB lent",
                        case(size),
                        found.hits as f64 / scale.gets as f64,
                        found.lent >> 20
                    ));
                }
                least_cached = least_cached.min(found.cached as f64 / file as f64);
            }
        }
        // What another group had in memory costs the reader nothing.
        if least_cached < 0.95 {
            notes.push(format!(
                "{}: a reader had {least_cached:.2} of the file on its own account; it waited less \
                 often than it should",
                case(size)
            ));
        }
    }
    progress::clear();
    let rows = scale.sizes.iter();
    let rows = rows.map(|&size| (format!("{size} B"), case(size)));
    let rows: Vec<_> = rows.collect();
    let names = ARMS.map(Arm::name);
    let cell = |arm: &str, case: &String| median(ledger.values(arm, case), 1.0);
    Table::grid("record", &names, rows.clone(), cell)
        .print("gets that wait for the disk, of one, medians of rounds");
    let title = "A fifth of the memory lent, idle, left to the kernel";
    let bars = Bars {
        unit: "gets that wait for the disk, of one".to_owned(),
        ..Bars::of(&ledger, title, Metric::Misses, &names, rows)
    };
    let goals = GOALS.map(|(arm, target)| {
        Goal::at_most(
            format!(
                "gets of {SMALL} B that wait for the disk, lent over {}",
                arm.name()
            ),
            target,
            ledger.ratios((Arm::Lent.name(), &case(SMALL)), (arm.name(), &case(SMALL))),
        )
    });
    Ok(Report {
        figures: vec![Figure::new("tenant.svg", bars)],
        params: json!({ "data_bytes": scale.data, "memory_bytes": scale.memory }),
        goals: goals.into(),
        ledger,
        notes,
    })
}

/// The key of a record: its number.
fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user0000........";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The bytes that the value of a record begins with.
fn begins(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Makes the tree.
fn fill(path: &Path, records: u64, size: usize) -> Result<(), BenchError> {
    const BATCH: u64 = 20_000;
    let tree = Store::builder()
        .durability(Durability::Process)
        .open(path)
        .map_err(failed)?;
    let mut value = vec![7; size - key(0).len()];
    for first in (0..records).step_by(BATCH as usize) {
        let mut batch = Batch::new();
        for number in first..(first + BATCH).min(records) {
            value[..8].copy_from_slice(&begins(number));
            batch.put(&key(number), &value);
        }
        tree.apply(&batch).map_err(failed)?;
    }
    tree.close().map_err(failed)
}

/// Lets the kernel forget the file's pages: those that a group leaves behind count for no other.
fn drop_cached(path: &Path) -> Result<(), BenchError> {
    let file = std::fs::File::open(path).and_then(|file| file.sync_all().map(|()| file));
    let file = file.map_err(file_failed(path))?;
    FileMedium::drop_cached_pages(&file).map_err(failed)
}

/// What a reader says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Found {
    /// Gets that waited for the disk.
    faults: u64,
    /// Gets that found a copy.
    hits: u64,
    /// Bytes that were lent.
    lent: u64,
    /// Bytes of files that were in memory on the group's account once all was read.
    cached: u64,
}

fn measured(
    scale: &Scale,
    tree: &Path,
    records: u64,
    arm: Arm,
    seed: u64,
) -> Result<Found, BenchError> {
    drop_cached(tree)?;
    let group = Group::new()?;
    let memory = scale.memory;
    let numbers = [records, memory, memory / PART, scale.warm_up, scale.gets];
    let [records, memory, part, warm_up, gets] = numbers.map(|number| number.to_string());
    let (arm, group, seed) = (arm.word(), group.path(), seed.to_string());
    let words: &[&dyn AsRef<_>] = &[
        &"reader", &arm, &tree, &group, &records, &memory, &part, &warm_up, &gets, &"--seed", &seed,
    ];
    Helper::start(words)?.answer()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;

    /// Where no group can be made, the run says so and measures nothing.
    #[test]
    fn a_tiny_run_measures_every_arm_or_says_what_it_lacks() {
        let scale = Scale {
            sizes: vec![SMALL],
            data: 2 << 20,
            memory: 64 << 20,
            warm_up: 200,
            gets: 100,
            rounds: 1,
        };
        match run(&scale, &common()) {
            // All of it fits, so that no get waits for the disk, and ratios may have no number.
            Ok(report) => {
                for arm in ARMS {
                    let misses = report.ledger.values(arm.name(), &case(SMALL));
                    assert!(matches!(misses, [share] if (0.0..=1.0).contains(share)));
                }
            }
            Err(error) => assert!(error.to_string().contains(group::TOOL), "{error}"),
        }
    }
}
