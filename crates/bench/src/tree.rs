//! `tree`: durable ordered records, one put a commit, beside LMDB (CDDS thesis, ch. 5).
//!
//! Every engine keeps its file on tmpfs, is durable in its own default way and calls sync for each
//! commit, but for the `BTreeMap`. Values are copied out by all. Keys have 25 bytes and are chosen
//! evenly among the records that exist. The peers are built with the features `lmdb`, `redb`, `bdb`
//! and `rocksdb`, the last two against the system's libraries. LMDB and redb read 128 keys in one
//! transaction, which favours them.
//!
//! How to read it: latencies of one operation in nanoseconds, and how many times faster ours is, by
//! rounds. `batch` is one key of a sorted batch of 10,000; `scan` is one key of a range of 100;
//! `get many` asks for 32 keys at a time where the engine can. Keys are drawn and sorted before the
//! clock runs: only the engine's time counts. `open after a kill` opens a copy of our file that was
//! taken while it was open: what a killed process leaves. As after a power loss it has no control
//! region, and the index is made from the tables of leaves.

pub mod engines;
pub mod versioning;
pub mod wear;

use crate::error::{BenchError, failed, file_failed};
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::{self, Common};
use crate::progress;
use crate::report::Report;
use crate::rounds::{Job, interleave};
use crate::scratch::Directory;
use crate::table::{Table, median};
use engines::{Engine, KEY, OURS, key};
use mneme_tree::Store;
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const CHUNK: u32 = 128;
/// Keys of a sorted batch.
const BATCH: u32 = 10_000;
/// Keys of a scan.
const SCAN: usize = 100;
/// The name of what is measured of ours alone.
const OPENING: &str = "open after a kill";

struct Scale {
    /// Records, and bytes of their values.
    cases: Vec<(u32, usize)>,
    systems: Vec<&'static str>,
    /// Of one measurement.
    timed: Duration,
}

impl Scale {
    fn of(options: &options::Tree) -> Result<Self, BenchError> {
        options.validate()?;
        let common = &options.common;
        let numbers = match &options.records[..] {
            [] => common.pick(&[10_000, 100_000][..], &[10_000, 1_000_000]),
            given => given,
        };
        let cases = numbers
            .iter()
            .flat_map(|n| [100, 1024].map(|value| (*n, value)));
        let built = engines::peers();
        let known: Vec<_> = built.iter().map(String::as_str).collect();
        let asked = options.peers.as_ref().unwrap_or(&built);
        let peers = options::chosen(asked, &known, "peer of this build")?;
        let is_wanted = |name: &&str| *name == OURS || peers.contains(&engines::argument(name));
        Ok(Self {
            cases: cases.collect(),
            systems: engines::names().into_iter().filter(is_wanted).collect(),
            timed: Duration::from_millis(common.pick(60, 500)),
        })
    }
}

/// Measures and reports.
///
/// # Errors
/// No space on tmpfs, an engine that fails or that this build does not have, a file that cannot be
/// written.
pub fn run(options: &options::Tree) -> Result<Report, BenchError> {
    run_at(&Scale::of(options)?, &options.common)
}

fn run_at(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let systems = &scale.systems;
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
        for system in systems {
            bar.set_message(format!("{system}: loading {records} of {value} B"));
            let mut engine = engines::open(system, directory.path(), records, value)?;
            load(&mut *engine, records, value)?;
            loaded.push((*system, RefCell::new(engine)));
            bar.inc(1);
        }
        let mut jobs = Vec::new();
        for what in &WORK {
            for (system, engine) in &loaded {
                jobs.push(Job::new(
                    *system,
                    case(what.name, records, value),
                    Metric::Latency,
                    move |round| {
                        let mut random = Random::new(mix(options.seed) ^ round as u64);
                        let mut run = Run {
                            engine: &mut **engine.borrow_mut(),
                            keys: Vec::new(),
                            value: vec![round as u8; value],
                        };
                        run.draw(&mut random, what, records);
                        (what.work)(&mut run)?;
                        timed(scale.timed, &mut run, what.work, |run| {
                            run.draw(&mut random, what, records);
                        })
                    },
                ));
            }
        }
        interleave(jobs, options.rounds, &bar, &mut ledger)?;
        let opening = case(OPENING, records, value);
        for _ in 0..options.rounds {
            let took = open_after_a_kill(directory.path())?;
            ledger.add(OURS, &opening, Metric::Latency, took.as_nanos() as f64);
        }
        for what in &WORK {
            for system in systems {
                let case = case(what.name, records, value);
                table.row([
                    records.to_string(),
                    value.to_string(),
                    what.name.to_owned(),
                    (*system).to_owned(),
                    median(ledger.values(system, &case), 1.0),
                    median(&ledger.ratios((system, &case), (OURS, &case)), 1.0),
                ]);
            }
        }
        table.row([
            records.to_string(),
            value.to_string(),
            OPENING.to_owned(),
            OURS.to_owned(),
            median(ledger.values(OURS, &opening), 1.0),
            "-".to_owned(),
        ]);
    }
    bar.finish_and_clear();
    println!("{table}");
    let peers = ["lmdb", "redb", "bdb", "rocksdb"];
    let built = engines::names();
    let missing = peers.into_iter().filter(|peer| !built.contains(peer));
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
        engine.write(&keys, Some(&value))?;
    }
    Ok(())
}

/// How long it takes to open what a process that is killed now would leave.
fn open_after_a_kill(directory: &Path) -> Result<Duration, BenchError> {
    let copy = directory.join("copy");
    std::fs::copy(directory.join(engines::FILE), &copy).map_err(file_failed(&copy))?;
    let start = Instant::now();
    let opened = Store::builder().open(&copy).map_err(failed)?;
    let took = start.elapsed();
    drop(opened);
    std::fs::remove_file(&copy).map_err(file_failed(&copy))?;
    Ok(took)
}

/// Nanoseconds of an operation; `work` does some and says how many, and `prepare` is not counted.
fn timed(
    span: Duration,
    run: &mut Run<'_>,
    work: fn(&mut Run<'_>) -> Result<u64, BenchError>,
    mut prepare: impl FnMut(&mut Run<'_>),
) -> Result<f64, BenchError> {
    let (mut took, mut operations) = (Duration::ZERO, 0);
    loop {
        prepare(run);
        let start = Instant::now();
        operations += work(run)?;
        took += start.elapsed();
        if took >= span {
            return Ok(took.as_nanos() as f64 / operations as f64);
        }
    }
}

/// One engine being measured.
struct Run<'e> {
    engine: &'e mut dyn Engine,
    keys: Vec<[u8; KEY]>,
    value: Vec<u8>,
}

impl Run<'_> {
    /// Draws the keys of the next piece of work.
    fn draw(&mut self, random: &mut Random, work: &Work, records: u32) {
        self.keys.clear();
        let drawn = (0..work.keys).map(|_| key(random.below(u64::from(records)) as u32));
        self.keys.extend(drawn);
        if work.keys == BATCH {
            self.keys.sort_unstable();
        }
    }

    /// Makes sure that all keys were found.
    fn all(&self, what: &str, found: u64) -> Result<u64, BenchError> {
        if found == self.keys.len() as u64 {
            return Ok(found);
        }
        Err(engines::wrong(what, "keys are missing"))
    }
}

/// What is measured.
struct Work {
    name: &'static str,
    /// Keys that it is done with between two looks at the clock. Those of a batch are sorted.
    keys: u32,
    /// Does it, and says how many operations that were.
    work: fn(&mut Run<'_>) -> Result<u64, BenchError>,
}

const WORK: [Work; 6] = [
    Work {
        name: "put",
        keys: CHUNK,
        work: |run| {
            for key in &run.keys {
                run.engine.put(key, &run.value)?;
            }
            Ok(run.keys.len() as u64)
        },
    },
    Work {
        name: "get",
        keys: CHUNK,
        work: |run| {
            let found = run.engine.gets(&run.keys, &mut run.value)?;
            run.all("get", found)
        },
    },
    Work {
        name: "get many",
        keys: CHUNK,
        work: |run| {
            let found = run.engine.get_many(&run.keys, &mut run.value)?;
            run.all("get many", found)
        },
    },
    Work {
        name: "scan",
        keys: 4,
        work: |run| run.engine.scans(&run.keys, SCAN, &mut run.value),
    },
    Work {
        name: "batch",
        keys: BATCH,
        work: |run| {
            run.engine.write(&run.keys, Some(&run.value))?;
            Ok(run.keys.len() as u64)
        },
    },
    // Two commits: the key is there for the next one to delete.
    Work {
        name: "delete and put",
        keys: CHUNK,
        work: |run| {
            for key in &run.keys {
                run.engine.remove(key)?;
                run.engine.put(key, &run.value)?;
            }
            Ok(run.keys.len() as u64)
        },
    },
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
        goal("put", (records, value), "bdb", 4.0);
        goal("put", (records, value), "rocksdb", 4.0);
        goal("get many", (records, value), "lmdb", 3.0);
        goal("delete and put", (records, value), "lmdb writemap", 2.5);
        goal("batch", (records, value), "lmdb", 2.0);
        goal("scan", (records, value), "lmdb", 1.0);
    }
    for &(records, value) in &scale.cases {
        let took = ledger.values(OURS, &case(OPENING, records, value));
        goals.push(Goal::at_most(
            format!("ms to open after a kill, {records} records of {value} B"),
            100.0,
            took.iter().map(|ns| ns / 1e6).collect(),
        ));
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
    fn engines_and_numbers_of_records_are_chosen_or_refused() {
        let scale = |words: &str| Scale::of(&crate::options::tests::tree(words));
        assert_eq!(scale("").unwrap().systems, engines::names());
        assert_eq!(scale("--peers none").unwrap().systems, [OURS]);
        let chosen = scale("--peers BTreeMap --records 1000,2000").unwrap();
        assert_eq!(chosen.systems, [OURS, engines::MAP]);
        assert_eq!(
            chosen.cases.first().zip(chosen.cases.last()),
            Some((&(1000, 100), &(2000, 1024)))
        );
        for words in ["--peers nobody", "--records 10"] {
            assert!(scale(words).is_err(), "{words}");
        }
    }

    #[test]
    fn a_run_measures_every_engine_and_ends_with_goals() {
        let options = Common {
            rounds: 1,
            ..crate::options::tests::common()
        };
        let scale = Scale {
            cases: vec![(300, 100)],
            systems: engines::names(),
            timed: Duration::ZERO,
        };
        let report = run_at(&scale, &options).unwrap();
        let names = WORK.iter().map(|what| what.name).chain([OPENING]);
        let cases: Vec<_> = names.map(|what| case(what, 300, 100)).collect();
        let cases: Vec<_> = cases.iter().map(String::as_str).collect();
        crate::report::tests::assert_well_formed(&report, &cases);
    }
}
