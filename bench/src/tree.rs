//! `tree`: durable ordered records, one put a commit, beside LMDB (CDDS thesis, ch. 5).
//!
//! Every engine keeps its file on tmpfs, is durable in its own default way and calls sync for each
//! commit, but for the `BTreeMap` and for ours in `Durability::Process` (*volatile*, as in the
//! thesis).
//! *hash* is our hash table, which the thesis names as a proof of concept: a tree whose keys begin
//! with a hash. Values are copied out by all. Keys have 25 bytes and are chosen
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
pub mod names;

use crate::error::{BenchError, failed, file_failed};
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::{self, Common, chosen};
use crate::progress;
use crate::report::Report;
use crate::rounds::{self, Job};
use crate::scratch::Directory;
use crate::table::{NONE, Table, median};
use engines::{Engine, KEY, key};
use mneme_tree::{Batch, Store};
use names::OURS;
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
pub const CHUNK: u32 = 128;
/// Keys of a sorted batch.
const BATCH: u32 = 10_000;
/// Keys of a scan.
const SCAN: usize = 100;
/// The name of what is measured of ours alone.
const OPENING: &str = "open after a kill";

/// How much is done.
pub struct Scale {
    /// Records, and bytes of their values.
    cases: Vec<(u32, usize)>,
    systems: Vec<&'static str>,
    /// Of one measurement.
    timed: Duration,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &options::Tree) -> Self {
        let numbers = match &options.records[..] {
            [] => common.pick(&[10_000, 100_000][..], &[10_000, 1_000_000]),
            given => given,
        };
        let cases = numbers
            .iter()
            .flat_map(|n| [100, 1024].map(|value| (*n, value)));
        let peers = chosen(&options.peers);
        let is_asked = |name| peers.iter().any(|peer| peer == names::argument(name));
        let is_wanted = |name: &&'static str| *name == OURS || is_asked(name);
        Self {
            cases: cases.collect(),
            systems: names::all().into_iter().filter(is_wanted).collect(),
            timed: Duration::from_millis(common.pick(60, 500)),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No space on tmpfs, an engine that fails or that this build does not have, a file that cannot be
/// written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let systems = &scale.systems;
    let mut ledger = Ledger::default();
    let head = [
        "records",
        "value",
        "what",
        "system",
        "ns",
        "ours is faster by",
    ];
    let mut table = Table::new(head);
    for &(records, value) in &scale.cases {
        let directory = Directory::in_memory("tree")?;
        let mut loaded = Vec::new();
        for system in systems {
            progress::show(format_args!("{system}: loading {records} of {value} B"));
            let mut engine = engines::open(system, directory.path(), records, value)?;
            load(&mut *engine, records, value)?;
            loaded.push((*system, RefCell::new(engine)));
        }
        let mut jobs = Vec::new();
        for what in &WORK {
            for (system, engine) in &loaded {
                if what.name == "scan" && !engine.borrow().has_order() {
                    continue;
                }
                let case = case(what.name, records, value);
                jobs.push(Job::new(*system, case, Metric::Latency, move |round| {
                    let mut run = Run {
                        engine: &mut **engine.borrow_mut(),
                        keys: Vec::new(),
                        value: vec![round as u8; value],
                    };
                    run.nanoseconds(scale.timed, what, records, mix(options.seed) ^ round as u64)
                }));
            }
        }
        rounds::run(jobs, options.rounds, &mut ledger)?;
        let opening = case(OPENING, records, value);
        for _ in 0..options.rounds {
            let took = open_after_a_kill(directory.path())?;
            ledger.add(OURS, &opening, Metric::Latency, took.as_nanos() as f64);
        }
        let mut row = |what: &str, system: &str, over: &dyn Fn(&str) -> String| {
            let case = case(what, records, value);
            let ns = median(ledger.values(system, &case), 1.0);
            let [records, value] = [records.to_string(), value.to_string()];
            let [what, system] = [what, system].map(str::to_owned);
            table.row([records, value, what, system, ns, over(&case)]);
        };
        for what in &WORK {
            for system in systems {
                row(what.name, system, &|case| {
                    median(&ledger.ratios((system, case), (OURS, case)), 1.0)
                });
            }
        }
        row(OPENING, OURS, &|_| NONE.to_owned());
    }
    println!("{table}");
    let peers = ["lmdb", "redb", "bdb", "rocksdb"];
    let built = names::all();
    let missing = peers.into_iter().filter(|peer| !built.contains(peer));
    let notes = missing.map(|peer| format!("{peer} is missing: build with --features {peer}"));
    Ok(Report {
        params: json!({ "key_bytes": KEY, "seconds": scale.timed.as_secs_f64() }),
        goals: goals(scale, &ledger),
        ledger,
        notes: notes.collect(),
        ..Report::default()
    })
}

fn case(what: &str, records: u32, value: usize) -> String {
    format!("{what}, {records} records of {value} B")
}

/// Fills an engine in batches, in an order of no meaning, and updates a quarter, so that pages are
/// as full as use makes them.
pub fn load(engine: &mut dyn Engine, records: u32, value: usize) -> Result<(), BenchError> {
    let mut random = Random::new(7);
    let mut ids: Vec<u32> = (0..records).collect();
    for i in (1..ids.len()).rev() {
        ids.swap(i, random.below(i as u64 + 1) as usize);
    }
    let value = vec![1; value];
    let again = ids[..records as usize / 4].chunks(1000);
    for chunk in ids.chunks(1000).chain(again) {
        let mut keys: Vec<_> = chunk.iter().map(|id| key(*id)).collect();
        keys.sort_unstable();
        engine.write(&keys, Some(&value))?;
    }
    Ok(())
}

/// Stores records `0..records` in batches.
pub fn put_all(store: &Store, records: u32, value: &[u8]) -> Result<(), BenchError> {
    let ids: Vec<u32> = (0..records).collect();
    for chunk in ids.chunks(1000) {
        let mut batch = Batch::new();
        for id in chunk {
            batch.put(&key(*id), value);
        }
        store.apply(&batch).map_err(failed)?;
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

/// One engine being measured.
struct Run<'e> {
    engine: &'e mut dyn Engine,
    keys: Vec<[u8; KEY]>,
    value: Vec<u8>,
}

impl Run<'_> {
    /// Nanoseconds of an operation, after some that do not count. Drawing keys does not count.
    fn nanoseconds(
        &mut self,
        timed: Duration,
        work: &Work,
        records: u32,
        seed: u64,
    ) -> Result<f64, BenchError> {
        let mut random = Random::new(seed);
        self.draw(&mut random, work, records);
        (work.work)(self)?;
        let (mut took, mut operations) = (Duration::ZERO, 0);
        loop {
            self.draw(&mut random, work, records);
            let start = Instant::now();
            operations += (work.work)(self)?;
            took += start.elapsed();
            if took >= timed {
                return Ok(took.as_nanos() as f64 / operations as f64);
            }
        }
    }

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
    for &(records, value) in &scale.cases {
        let small = records <= 10_000;
        for (what, peer, target) in [
            ("put", "lmdb", 6.0),
            ("put", "lmdb writemap", if small { 2.0 } else { 3.0 }),
            ("get", "lmdb", if small { 2.0 } else { 1.5 }),
            ("put", "redb", 10.0),
            ("put", "bdb", 4.0),
            ("put", "rocksdb", 4.0),
            ("get many", "lmdb", 3.0),
            ("delete and put", "lmdb writemap", 2.5),
            ("batch", "lmdb", 2.0),
            ("scan", "lmdb", 1.0),
        ] {
            let case = case(what, records, value);
            let ratios = ledger.ratios((peer, &case), (OURS, &case));
            if !ratios.is_empty() {
                let text = format!("{case}, against {peer}");
                goals.push(Goal::at_least(text, target, ratios));
            }
        }
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
    use crate::options::Workload;
    use crate::options::tests::parsed;
    use crate::testing::common;

    #[test]
    fn engines_and_numbers_of_records_are_chosen() {
        let scale = |words: &str| {
            let options = parsed(&format!("tree {words}")).unwrap();
            match &options.workload {
                Workload::Tree(tree) => Scale::of(&options.common, tree),
                _ => unreachable!("the subcommand is tree"),
            }
        };
        assert_eq!(scale("").systems, names::all());
        assert_eq!(scale("--peers none").systems, [OURS]);
        let chosen = scale("--peers BTreeMap --records 1000,2000");
        assert_eq!(chosen.systems, [OURS, names::MAP]);
        assert_eq!(
            chosen.cases.first().zip(chosen.cases.last()),
            Some((&(1000, 100), &(2000, 1024)))
        );
    }

    #[test]
    fn a_run_measures_every_engine_and_ends_with_goals() {
        let scale = Scale {
            cases: vec![(300, 100)],
            systems: names::all(),
            timed: Duration::ZERO,
        };
        let report = run(&scale, &common()).unwrap();
        let names = WORK.iter().map(|what| what.name).chain([OPENING]);
        let cases: Vec<_> = names.map(|what| case(what, 300, 100)).collect();
        let cases: Vec<_> = cases.iter().map(String::as_str).collect();
        crate::testing::assert_well_formed(&report, &cases);
    }
}
