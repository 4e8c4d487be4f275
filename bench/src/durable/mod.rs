//! `durable`: what it costs to keep what is acknowledged, beside Redis' log of writes (AOF) and
//! Valkey's.
//!
//! Keys have 16 bytes and values 100. Servers have their files in directories below `--dir`, on the
//! same disk, and speak over unix sockets; the load is one thread of this program on the last CPU,
//! with 50 connections that have one request under way each (*plain*) or 32 (*pipelined*). Nobody
//! rewrites a log but where that is said.
//!
//! - *device* (see `device.rs`): what one sync costs on that disk, whoever asks for it.
//! - *throughput*: SET of records chosen evenly, by `appendfsync`: `always` answers when the change
//!   is durable, `everysec` and `no` at once; *tree* is ours kept by `--durability tree`,
//!   *volatile* without a directory. Servers have all CPUs. *Server CPU* is what an operation costs
//!   them, journal and all.
//! - *one CPU*: ours with one thread, all of it on the first CPU. *A core to spare* is the same
//!   without the CPU time of the journal's own threads, which would have that core.
//! - *tmpfs*: the CPU time of a durable SET where the disk costs nothing.
//! - *bytes* (see `volume.rs`): what a SET adds to the log, and what the kernel writes to storage
//!   for it when logs are shortened after every two turnovers of the data.
//! - *in place* (see `versions.rs`): a tree beside logs on tmpfs, by the size of values and by the
//!   number of clients.
//! - *embedded* (see `embedded.rs`): puts of our durable store in this process, by one thread and
//!   by eight that share syncs, beside the durable tree, LMDB and RocksDB; the space taken after
//!   turnovers.
//!
//! How to read it: ratios are those of the rounds, in which all systems take turns.

pub mod checkpoint;
mod device;
mod embedded;
pub mod recover;
mod servers;
mod versions;
mod volume;

use crate::error::BenchError;
use crate::figure::{Bars, Figure};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::options::{Common, Durable};
use crate::processes::keep_on_first;
use crate::progress;
use crate::report::Report;
use crate::rounds::{self, Job, Span};
use crate::scratch::Directory;
use crate::server::generator::Generator;
use crate::server::protocol::{KEY_BYTES, Kind};
use crate::server::servers::cpu_of;
use crate::server::throughput::{Asks, Measured, VALUE, fill, measure};
use crate::server::{memory_for, on_load_cpu};
use crate::systems::redis::{PEERS, introduce};
use crate::table::{Table, beside};
use serde_json::json;
use servers::{
    ALWAYS, Arm, EVERYSEC, NO, REDIS_ALWAYS, REDIS_EVERYSEC, Server, TREE_ALWAYS, VALKEY_ALWAYS,
    VALKEY_EVERYSEC, VOLATILE, present,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections of every load.
const CONNECTIONS: usize = 50;

/// The arms that are measured beside each other.
const ARMS: [Arm; 9] = [
    VOLATILE,
    ALWAYS,
    TREE_ALWAYS,
    EVERYSEC,
    NO,
    REDIS_ALWAYS,
    REDIS_EVERYSEC,
    VALKEY_ALWAYS,
    VALKEY_EVERYSEC,
];

/// Where servers run, and how they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    depth: usize,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On all CPUs, on the disk.
    Free,
    /// Ours, with one thread and one CPU, on the disk.
    OneCpu,
    /// On all CPUs, on tmpfs.
    Memory,
}

const PLAIN: Case = Case {
    name: "SET plain",
    depth: 1,
    place: Place::Free,
};
const PIPELINED: Case = Case {
    name: "SET pipelined",
    depth: 32,
    place: Place::Free,
};
const ONE_CPU: Case = Case {
    name: "SET pipelined, one CPU",
    depth: 32,
    place: Place::OneCpu,
};
const MEMORY: Case = Case {
    name: "SET plain, tmpfs",
    depth: 1,
    place: Place::Memory,
};
/// All.
const CASES: [Case; 4] = [PLAIN, PIPELINED, ONE_CPU, MEMORY];

impl Case {
    fn server(self) -> String {
        format!("{}, server CPU", self.name)
    }

    /// CPU time without that of the journal's threads.
    fn serving(self) -> String {
        format!("{}, serving CPU", self.name)
    }

    fn arms(self) -> &'static [Arm] {
        match self.place {
            Place::Free => &ARMS,
            Place::OneCpu => &[VOLATILE, EVERYSEC],
            Place::Memory => &[ALWAYS, TREE_ALWAYS, REDIS_ALWAYS, VALKEY_ALWAYS],
        }
    }
}

/// How much is done, and where.
pub struct Scale {
    records: u32,
    span: Span,
    volume: volume::Scale,
    versions: versions::Scale,
    embedded: embedded::Scale,
    dir: PathBuf,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common, durable: &Durable) -> Self {
        let timed = Duration::from_millis(options.pick(100, 1000));
        Self {
            records: options.pick(100_000, 1_000_000),
            span: options.pick(Span::of(200, 2), Span::of(2000, 4)),
            volume: volume::Scale {
                records: options.pick(300_000, 10_000_000),
                turnovers: 8,
            },
            versions: versions::Scale {
                records: options.pick(20_000, 200_000),
                timed,
            },
            embedded: embedded::Scale {
                records: options.pick(100_000, 1_000_000),
                timed,
                turnovers: 24,
                bound: options.pick(64 << 20, 512 << 20),
            },
            dir: durable.dir.clone(),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// A server that does not start, refuses, or mixes up records; a disk without space.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let place = Directory::below(&scale.dir, "durable")?;
    let notes = notes(&scale.dir);
    let mut ledger = Ledger::default();
    let (rounds, seed) = (options.rounds, options.seed);
    device::run(scale.embedded.timed, rounds, place.path(), &mut ledger)?;
    throughput(scale, place.path(), options, &mut ledger)?;
    volume::run(&scale.volume, place.path(), seed, &mut ledger)?;
    versions::run(&scale.versions, rounds, seed, &mut ledger)?;
    embedded::run(&scale.embedded, place.path(), options, &mut ledger)?;
    print_tables(&ledger);
    Ok(Report {
        figures: std::iter::once(bars(&ledger))
            .chain(versions::figures(&ledger))
            .collect(),
        params: json!({
            "directory": scale.dir,
            "key_bytes": KEY_BYTES,
            "value_bytes": VALUE,
            "connections": CONNECTIONS,
            "records": scale.records,
        }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

/// What a reader must know of a directory for data.
fn notes(directory: &Path) -> Vec<String> {
    let mut notes = vec![format!("the data is kept below {}", directory.display())];
    notes.extend(introduce(&PEERS));
    if !cfg!(feature = "lmdb") {
        notes.push("lmdb is left out: build with --features lmdb".to_owned());
    }
    if !cfg!(feature = "rocksdb") {
        notes.push("RocksDB is left out: build with --features rocksdb".to_owned());
    }
    notes
}

/// A loaded server, and the load on it.
struct Subject {
    case: Case,
    // Before the server: connections end first.
    load: Generator,
    server: Server,
}

impl Subject {
    fn new(arm: Arm, case: Case, records: u32, place: &Path) -> Result<Self, BenchError> {
        let memory = 2 * memory_for(u64::from(records), VALUE as u64) + (64 << 20);
        let in_memory = Path::new(mneme_sys::files::SHARED_MEMORY);
        let (place, threads) = match case.place {
            Place::Free => (place, cpus()),
            Place::OneCpu => (place, 1),
            Place::Memory => (in_memory, cpus()),
        };
        let server = Server::start(arm, place, threads, memory)?;
        let mut load = server.connect(VALUE, CONNECTIONS)?;
        if case.place == Place::OneCpu {
            keep_on_first(1, server.id())?;
        }
        fill(&mut load, 0..records)?;
        Ok(Self { case, load, server })
    }

    /// Measures with the CPU time of the threads whose names count.
    fn measure(
        &mut self,
        scale: &Scale,
        seed: u64,
        counts: fn(&str) -> bool,
    ) -> Result<Measured, BenchError> {
        let asks = Asks {
            kind: Kind::Set,
            depth: self.case.depth,
            records: scale.records,
        };
        let (load, id) = (&mut self.load, self.server.id());
        on_load_cpu(|| measure(load, asks, scale.span, seed, || cpu_of(id, counts)))
    }
}

fn throughput(
    scale: &Scale,
    place: &Path,
    options: &Common,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    for case in CASES {
        let mut jobs = Vec::new();
        for arm in present(case.arms()) {
            progress::show(format_args!("loading {}", arm.name));
            let mut subject = Subject::new(arm, case, scale.records, place)?;
            let name = arm.name;
            jobs.push(Job::of(
                format_args!("{name} {}", case.name),
                move |round, ledger| {
                    let seed = options.seed ^ (round as u64) << 32;
                    let measured = subject.measure(scale, seed, |_| true)?;
                    ledger.add(name, case.name, Metric::Throughput, measured.rate());
                    ledger.add(name, &case.server(), Metric::Cpu, measured.server_each());
                    if case.place == Place::OneCpu {
                        let measured =
                            subject.measure(scale, seed, |thread| !is_of_journal(thread))?;
                        ledger.add(name, &case.serving(), Metric::Cpu, measured.server_each());
                    }
                    Ok(())
                },
            ));
        }
        rounds::run(jobs, options.rounds, ledger)?;
    }
    Ok(())
}

/// Whether a thread of ours would be on the core to spare.
fn is_of_journal(thread: &str) -> bool {
    // The kernel keeps 15 letters.
    ["mneme-journal", "mneme-checkpoin"].contains(&thread)
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let ratios =
        |over: Arm, under: Arm, case: &str| ledger.ratios((over.name, case), (under.name, case));
    let mut goals = vec![
        Goal::at_least(
            "pipelined SET, everysec / volatile, by CPU time, a core to spare",
            0.95,
            ratios(VOLATILE, EVERYSEC, &ONE_CPU.serving()),
        ),
        Goal::at_least(
            "pipelined SET, everysec / volatile, one CPU",
            0.75,
            ratios(EVERYSEC, VOLATILE, ONE_CPU.name),
        ),
        Goal::at_least(
            "50 clients, always / redis always",
            1.5,
            ratios(ALWAYS, REDIS_ALWAYS, PLAIN.name),
        ),
        Goal::at_least(
            "50 clients, always / valkey always",
            1.5,
            ratios(ALWAYS, VALKEY_ALWAYS, PLAIN.name),
        ),
        Goal::at_least(
            "50 clients, always, pipelined by 32 / redis always",
            2.0,
            ratios(ALWAYS, REDIS_ALWAYS, PIPELINED.name),
        ),
        Goal::at_most(
            "server CPU a durable SET on tmpfs / redis always",
            0.6,
            ratios(ALWAYS, REDIS_ALWAYS, &MEMORY.server()),
        ),
    ];
    goals.extend(volume::goals(ledger));
    goals.extend(embedded::goals(ledger));
    goals
}

/// A cell: the median over `unit`, and in brackets that of the system over the first one.
fn cell(ledger: &Ledger, first: &str, system: &str, case: &str, unit: f64) -> String {
    let ratios = ledger.ratios((system, case), (first, case));
    beside(ledger.values(system, case), unit, &ratios)
}

fn print_tables(ledger: &Ledger) {
    device::print(ledger);
    let reference = REDIS_ALWAYS.name;
    let names = ARMS.map(|arm| arm.name);
    let print = |what: &str, unit: f64, cases: [String; CASES.len()]| {
        let cell = |system: &str, case: &str| cell(ledger, reference, system, case, unit);
        Table::by_case("case", &names, cases, cell)
            .print(format_args!("{what}; in brackets over {reference}"));
    };
    let rates = CASES.map(|case| case.name.to_owned());
    print("thousand operations a second", 1e-3, rates);
    print("server CPU, ns an operation", 1.0, CASES.map(Case::server));
    volume::print(ledger);
    versions::print(ledger);
    embedded::print(ledger);
}

fn bars(ledger: &Ledger) -> Figure {
    let systems = ARMS.map(|arm| arm.name);
    let cases = [PLAIN, PIPELINED].map(|case| [case.name; 2].map(str::to_owned).into());
    let title = "SET by 50 clients, by what is durable when";
    let bars = Bars::of(ledger, title, Metric::Throughput, &systems, cases);
    Figure::new("durable.svg", bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_measures_everything_and_leaves_no_file() {
        let place = Directory::new("durable-test").unwrap();
        let scale = Scale {
            records: 500,
            span: Span::of(2, 2),
            volume: volume::Scale {
                records: 500,
                turnovers: 2,
            },
            versions: versions::Scale {
                records: 100,
                timed: Duration::from_millis(2),
            },
            embedded: embedded::Scale {
                records: 200,
                timed: Duration::from_millis(1),
                turnovers: 3,
                bound: 1 << 20,
            },
            dir: place.path().to_owned(),
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &CASES.map(|case| case.name));
        let ledger = &report.ledger;
        for case in CASES {
            for arm in present(case.arms()) {
                let rates = ledger.values(arm.name, case.name);
                assert!(
                    rates.len() == 1 && rates[0] > 0.0,
                    "{} {}",
                    arm.name,
                    case.name
                );
            }
        }
        for (arm, case) in versions::all() {
            let rates = ledger.values(arm.name, &case);
            assert!(rates.len() == 1 && rates[0] > 0.0, "{} {case}", arm.name);
        }
        if PEERS.into_iter().all(|peer| peer.is_there()) {
            let unmeasured = report.goals.iter().filter(|goal| goal.met().is_none());
            let unmeasured: Vec<_> = unmeasured.map(|goal| &goal.text).collect();
            assert!(unmeasured.is_empty(), "{unmeasured:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
