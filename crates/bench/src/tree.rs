//! `tree`: durable ordered records, one put a commit, beside LMDB (CDDS thesis, ch. 5).
//!
//! Every engine keeps its file on tmpfs, is durable in its own default way and calls sync for each
//! commit, but for the `BTreeMap`. Values are copied out by all. Keys have 25 bytes and are chosen
//! evenly among the records that exist. LMDB and redb are built with the features `lmdb` and
//! `redb`; they read 128 keys in one transaction, which favours them.
//!
//! How to read it: latencies of one operation in nanoseconds, and how many times faster ours is, by
//! rounds. `batch` is one key of a sorted batch of 10,000; `scan` is one key of a range of 100;
//! `get many` asks for 32 keys at a time where the engine can.

pub mod engines;
pub mod versioning;
pub mod wear;

use crate::error::BenchError;
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::progress;
use crate::report::Report;
use crate::rounds::{Job, interleave};
use crate::scratch::Directory;
use crate::table::{Table, median};
use engines::{Engine, KEY, OURS, key};
use serde_json::json;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const CHUNK: u32 = 128;
/// Keys of a sorted batch.
const BATCH: u32 = 10_000;
/// Keys of a scan.
const SCAN: usize = 100;

struct Scale {
    /// Records, and bytes of their values.
    cases: Vec<(u32, usize)>,
    /// Of one measurement.
    timed: Duration,
}

impl Scale {
    fn of(options: &Common) -> Self {
        let numbers: &[u32] = if options.quick {
            &[10_000, 100_000]
        } else {
            &[10_000, 1_000_000]
        };
        let cases = numbers
            .iter()
            .flat_map(|n| [100, 1024].map(|value| (*n, value)));
        Self {
            cases: cases.collect(),
            timed: Duration::from_millis(if options.quick { 60 } else { 500 }),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No space on tmpfs, an engine that fails, a file that cannot be written.
pub fn run(options: &Common) -> Result<Report, BenchError> {
    run_at(&Scale::of(options), options)
}

fn run_at(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let systems = engines::names();
    let jobs_of_case = WORK.len() * systems.len();
    let bar = progress::bar(scale.cases.len() * (systems.len() + jobs_of_case * options.rounds));
    let mut ledger = Ledger::default();
    let mut table = Table::new([
        "records",
        "value",
        "what",
        "system",
        "ns",
        "ours is faster by",
    ]);
    for &(records, value) in &scale.cases {
        let directory = Directory::in_memory("tree")?;
        let mut loaded = Vec::new();
        for system in &systems {
            bar.set_message(format!("{system}: loading {records} of {value} B"));
            let mut engine = engines::open(system, directory.path(), records, value)?;
            load(&mut *engine, records, value)?;
            loaded.push((*system, RefCell::new(engine)));
            bar.inc(1);
        }
        let mut jobs = Vec::new();
        for what in WORK {
            for (system, engine) in &loaded {
                jobs.push(Job::new(
                    *system,
                    case(what.0, records, value),
                    Metric::Latency,
                    move |round| {
                        let mut run = Run {
                            engine: &mut **engine.borrow_mut(),
                            random: Random::new(mix(options.seed) ^ round as u64),
                            records,
                            value: vec![round as u8; value],
                        };
                        what.1(&mut run)?;
                        timed(scale.timed, || what.1(&mut run))
                    },
                ));
            }
        }
        interleave(jobs, options.rounds, &bar, &mut ledger)?;
        for (what, _) in WORK {
            for system in &systems {
                let case = case(what, records, value);
                table.row([
                    records.to_string(),
                    value.to_string(),
                    what.to_owned(),
                    (*system).to_owned(),
                    median(ledger.values(system, &case), 1.0),
                    median(&ledger.ratios((system, &case), (OURS, &case)), 1.0),
                ]);
            }
        }
    }
    bar.finish_and_clear();
    println!("{table}");
    let peers = ["lmdb", "redb"];
    let missing = peers.into_iter().filter(|peer| !systems.contains(peer));
    let notes = missing.map(|peer| format!("{peer} is missing: build with --features {peer}"));
    Ok(Report {
        figures: Vec::new(),
        params: json!({ "key_bytes": KEY, "seconds": scale.timed.as_secs_f64() }),
        goals: goals(scale, &ledger),
        ledger,
        notes: notes.collect(),
    })
}

fn case(what: &str, records: u32, value: usize) -> String {
    format!("{what}, {records} records of {value} B")
}

/// Fills an engine in batches, in an order of no meaning, and updates a quarter, so that pages are
/// as full as use makes them.
fn load(engine: &mut dyn Engine, records: u32, value: usize) -> Result<(), BenchError> {
    let mut random = Random::new(7);
    let mut ids: Vec<u32> = (0..records).collect();
    for i in (1..ids.len()).rev() {
        ids.swap(i, random.below(i as u64 + 1) as usize);
    }
    let value = vec![1; value];
    for chunk in ids
        .chunks(1000)
        .chain(ids[..records as usize / 4].chunks(1000))
    {
        let mut keys: Vec<_> = chunk.iter().map(|id| key(*id)).collect();
        keys.sort_unstable();
        engine.batch(&keys, &value)?;
    }
    Ok(())
}

/// Nanoseconds of an operation; `work` does some and says how many.
fn timed(
    span: Duration,
    mut work: impl FnMut() -> Result<u64, BenchError>,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut operations = 0;
    loop {
        operations += work()?;
        let took = start.elapsed();
        if took >= span {
            return Ok(took.as_nanos() as f64 / operations as f64);
        }
    }
}

/// One engine being measured.
struct Run<'e> {
    engine: &'e mut dyn Engine,
    random: Random,
    records: u32,
    value: Vec<u8>,
}

impl Run<'_> {
    fn key(&mut self) -> [u8; KEY] {
        key(self.random.below(u64::from(self.records)) as u32)
    }
}

/// What is measured: does some and says how many that were.
type Work = fn(&mut Run<'_>) -> Result<u64, BenchError>;

const WORK: [(&str, Work); 6] = [
    ("put", |run| {
        for _ in 0..CHUNK {
            let key = run.key();
            run.engine.put(&key, &run.value)?;
        }
        Ok(u64::from(CHUNK))
    }),
    ("get", |run| {
        let keys: Vec<_> = (0..CHUNK).map(|_| run.key()).collect();
        let found = run.engine.gets(&keys, &mut run.value)?;
        if found != u64::from(CHUNK) {
            return Err(engines::wrong("get", "keys are missing"));
        }
        Ok(found)
    }),
    ("get many", |run| {
        let keys: Vec<_> = (0..CHUNK).map(|_| run.key()).collect();
        let found = run.engine.get_many(&keys, &mut run.value)?;
        if found != u64::from(CHUNK) {
            return Err(engines::wrong("get many", "keys are missing"));
        }
        Ok(found)
    }),
    ("scan", |run| {
        let keys: Vec<_> = (0..4).map(|_| run.key()).collect();
        run.engine.scans(&keys, SCAN, &mut run.value)
    }),
    ("batch", |run| {
        let mut keys: Vec<_> = (0..BATCH).map(|_| run.key()).collect();
        keys.sort_unstable();
        run.engine.batch(&keys, &run.value)?;
        Ok(u64::from(BATCH))
    }),
    // Two commits: the key is there for the next one to delete.
    ("delete and put", |run| {
        for _ in 0..CHUNK {
            let key = run.key();
            run.engine.remove(&key)?;
            run.engine.put(&key, &run.value)?;
        }
        Ok(u64::from(CHUNK))
    }),
];

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: &str, (records, value): (u32, usize), peer: &str, target: f64| {
        let case = case(what, records, value);
        let ratios = ledger.ratios((peer, &case), (OURS, &case));
        if !ratios.is_empty() {
            goals.push(Goal::at_least(
                format!("{case}, against {peer}"),
                target,
                ratios,
            ));
        }
    };
    for &(records, value) in &scale.cases {
        let small = records <= 10_000;
        goal("put", (records, value), "lmdb", 6.0);
        goal(
            "put",
            (records, value),
            "lmdb writemap",
            if small { 2.0 } else { 3.0 },
        );
        goal(
            "get",
            (records, value),
            "lmdb",
            if small { 2.0 } else { 1.5 },
        );
        goal("put", (records, value), "redb", 10.0);
        goal("get many", (records, value), "lmdb", 3.0);
        goal("delete and put", (records, value), "lmdb writemap", 2.5);
        goal("batch", (records, value), "lmdb", 2.0);
        goal("scan", (records, value), "lmdb", 1.0);
    }
    for &(records, value) in &scale.cases {
        let (single, batch) = (case("put", records, value), case("batch", records, value));
        goals.push(Goal::at_least(
            format!("a sorted batch against single puts, {records} records of {value} B"),
            5.0,
            ledger.ratios((OURS, &single), (OURS, &batch)),
        ));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_measures_every_engine_and_ends_with_goals() {
        let options = Common {
            rounds: 1,
            ..crate::options::tests::common()
        };
        let scale = Scale {
            cases: vec![(300, 100)],
            timed: Duration::ZERO,
        };
        let report = run_at(&scale, &options).unwrap();
        let cases: Vec<_> = WORK.iter().map(|(what, _)| case(what, 300, 100)).collect();
        let cases: Vec<_> = cases.iter().map(String::as_str).collect();
        crate::report::tests::assert_well_formed(&report, &cases);
    }
}
