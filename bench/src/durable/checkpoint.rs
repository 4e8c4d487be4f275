//! `checkpoint`: what clients notice while a checkpoint is written, and what memory it takes.
//!
//! The load is open: half GET, half SET of records that are there (16 B and 100 B), at half of what
//! the slower server does at most, the same for all, on 50 connections; `everysec` on both. *Idle*
//! no checkpoint is written; else one follows the other for as long as the case takes: ours, which
//! is one kind for both commands, Redis' BGSAVE and its BGREWRITEAOF. A tree writes what has
//! changed every second, checkpoint or not: its BGSAVE is the next commit. It gets half of what it
//! does itself if that is less.
//!
//! *Memory* is measured apart, under a closed load of SET: the most that the server and its
//! children had resident (Pss, so that shared pages count once), over what the server had before.
//!
//! How to read it: ratios are of the rounds. A longest latency of no more than *load away* is the
//! load's own.

use super::servers::{
    Arm, Checkpoint, EVERYSEC, REDIS_EVERYSEC, Server, TREE_EVERYSEC, begin, is_running, present,
};
use super::{CONNECTIONS, cell};
use crate::error::BenchError;
use crate::figure::{Bars, Figure};
use crate::generate::random::Random;
use crate::goals::Goal;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::options::{Common, Durable};
use crate::progress;
use crate::report::Report;
use crate::rounds::{self, Job, Span, joined};
use crate::scratch::Directory;
use crate::server::generator::{Generator, away_case};
use crate::server::protocol::{Kind, Request};
use crate::server::servers::cpu_of;
use crate::server::throughput::{Asks, Measured, VALUE, fill, measure};
use crate::server::{memory_for, on_load_cpu};
use crate::systems::redis::Peer::Redis;
use crate::table::{Table, beside, figure};
use serde_json::json;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often memory is looked at, and whether a checkpoint has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The percentiles that are shown.
const SHOWN: [&str; 4] = ["p50", "p99", "p99.9", "max"];

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    checkpoint: Option<Checkpoint>,
}

const IDLE: Case = Case {
    name: "idle",
    checkpoint: None,
};
const SAVE: Case = Case {
    name: "BGSAVE",
    checkpoint: Some(Checkpoint::Save),
};
const REWRITE: Case = Case {
    name: "BGREWRITEAOF",
    checkpoint: Some(Checkpoint::Rewrite),
};
const CASES: [Case; 3] = [IDLE, SAVE, REWRITE];
const ARMS: [Arm; 3] = [EVERYSEC, TREE_EVERYSEC, REDIS_EVERYSEC];

impl Case {
    /// Whether there is such a case of this server.
    fn is_of(self, arm: Arm) -> bool {
        self.checkpoint.is_none_or(|checkpoint| arm.has(checkpoint))
    }

    fn memory(self) -> String {
        format!("{}, memory", self.name)
    }

    fn written(self) -> String {
        format!("{}, checkpoints", self.name)
    }
}

/// How much is done, and where.
pub struct Scale {
    records: u32,
    span: Duration,
    dir: PathBuf,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &Durable) -> Self {
        Self {
            records: common.pick(500_000, 5_000_000),
            span: Duration::from_millis(common.pick(1000, 10_000)),
            dir: options.dir.clone(),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// A server that does not start, refuses, or mixes up records; a disk without space.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let place = Directory::below(&scale.dir, "checkpoint")?;
    let mut ledger = Ledger::default();
    let mut subjects = Vec::new();
    for arm in present(&ARMS) {
        progress::show(format_args!("loading {}", arm.name));
        subjects.push(Subject::new(arm, scale.records, place.path())?);
    }
    let rate = half_load(&mut subjects, scale, options.seed)?;
    let is_slower = |subject: &&Subject| subject.rate < rate;
    let mut notes: Vec<_> = subjects
        .iter()
        .filter(is_slower)
        .map(|slow| {
            let (name, own) = (slow.server.name(), figure(slow.rate / 1e3));
            format!("{name}: at {own} thousand requests a second, half of what it does itself")
        })
        .collect();
    let subjects: Vec<_> = subjects
        .into_iter()
        .map(|subject| (subject.arm, RefCell::new(subject)))
        .collect();
    let (mut latencies, mut memory) = (Vec::new(), Vec::new());
    for case in CASES {
        for (arm, subject) in subjects.iter().filter(|(arm, _)| case.is_of(*arm)) {
            let name = format!("{}, {}", arm.name, case.name);
            latencies.push(Job::of(&name, move |round, ledger| {
                let seed = options.seed ^ (round as u64) << 32;
                let mut subject = subject.borrow_mut();
                subject.latencies(case, rate, scale, seed, ledger)
            }));
            memory.push(Job::of(name + ": memory", move |_, ledger| {
                let mut subject = subject.borrow_mut();
                subject.memory(case, scale, options.seed, ledger)
            }));
        }
    }
    rounds::run(latencies, options.rounds, &mut ledger)?;
    rounds::run(memory, 1, &mut ledger)?;
    drop(subjects);
    print_tables(rate, &ledger);
    notes.push(format!("the data is kept below {}", scale.dir.display()));
    notes.extend(Redis.missing());
    Ok(Report {
        figures: vec![bars(&ledger)],
        params: json!({
            "directory": scale.dir,
            "records": scale.records,
            "value_bytes": VALUE,
            "connections": CONNECTIONS,
            "half_load": rate,
        }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

struct Subject {
    // Before the server: connections end first.
    load: Generator,
    server: Server,
    arm: Arm,
    /// Half of what it does at most, in requests a second.
    rate: f64,
}

impl Subject {
    fn new(arm: Arm, records: u32, place: &Path) -> Result<Self, BenchError> {
        let memory = 2 * memory_for(u64::from(records), VALUE as u64) + (64 << 20);
        let server = Server::start(arm, place, cpus(), memory)?;
        let mut load = server.connect(VALUE, CONNECTIONS)?;
        fill(&mut load, 0..records)?;
        let rate = f64::INFINITY;
        Ok(Self {
            load,
            server,
            arm,
            rate,
        })
    }

    fn latencies(
        &mut self,
        case: Case,
        rate: f64,
        scale: &Scale,
        seed: u64,
        ledger: &mut Ledger,
    ) -> Result<(), BenchError> {
        let rate = rate.min(self.rate);
        let Self { load, server, .. } = self;
        let mut random = Random::new(seed);
        let request = || Request {
            id: random.below(u64::from(scale.records)) as u32,
            kind: match random.next_u64().is_multiple_of(2) {
                true => Kind::Get,
                false => Kind::Set,
            },
        };
        let (offered, written) = during(
            server,
            case,
            |_| Ok(()),
            || on_load_cpu(|| load.open(rate, scale.span, request)),
        )?;
        offered.report(ledger, server.name(), case.name);
        ledger.add(server.name(), &case.written(), Metric::Times, written);
        Ok(())
    }

    fn memory(
        &mut self,
        case: Case,
        scale: &Scale,
        seed: u64,
        ledger: &mut Ledger,
    ) -> Result<(), BenchError> {
        let Self { load, server, .. } = self;
        let span = Span::new(Duration::ZERO, scale.span);
        let id = server.id();
        // What the load itself needs is there before.
        sets(load, id, scale, span, seed)?;
        let before = proportional(id)?;
        let mut most = before;
        let look = |id| {
            most = most.max(with_children(id)?);
            Ok(())
        };
        during(server, case, look, || sets(load, id, scale, span, seed))?;
        let more = (most - before) as f64 / f64::from(1 << 20);
        ledger.add(server.name(), &case.memory(), Metric::Memory, more);
        Ok(())
    }
}

/// Runs a closed loop that stores records, one at a time on each connection.
fn sets(
    load: &mut Generator,
    server: u32,
    scale: &Scale,
    span: Span,
    seed: u64,
) -> Result<Measured, BenchError> {
    let asks = Asks {
        kind: Kind::Set,
        depth: 1,
        records: scale.records,
    };
    on_load_cpu(|| measure(load, asks, span, seed, || cpu_of(server, |_| true)))
}

/// Does `work` while one checkpoint follows the other, and has `look` look at the process. How many
/// checkpoints were written besides.
fn during<T>(
    server: &Server,
    case: Case,
    mut look: impl FnMut(u32) -> Result<(), BenchError> + Send,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, f64), BenchError> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut commands = server.commands()?;
            let mut written = 0;
            while !over.load(Ordering::Relaxed) {
                look(server.id())?;
                if let Some(kind) = case.checkpoint
                    && !is_running(&mut commands, kind)?
                {
                    begin(&mut commands, kind)?;
                    written += 1;
                }
                std::thread::sleep(LOOK);
            }
            // The next case begins when the last has ended.
            while let Some(kind) = case.checkpoint
                && is_running(&mut commands, kind)?
            {
                std::thread::sleep(LOOK);
            }
            Ok::<_, BenchError>(f64::from(written))
        });
        let worked = work();
        over.store(true, Ordering::Relaxed);
        let written = joined(writing);
        Ok((worked?, written?))
    })
}

/// Half of what the slower server does at most, in requests a second, trees apart.
fn half_load(subjects: &mut [Subject], scale: &Scale, seed: u64) -> Result<f64, BenchError> {
    let span = Span::new(scale.span / 10, scale.span / 2);
    let mut slowest = f64::INFINITY;
    for subject in subjects {
        let id = subject.server.id();
        let measured = sets(&mut subject.load, id, scale, span, seed)?;
        subject.rate = measured.rate() * 1e6 / 2.0;
        if subject.arm != TREE_EVERYSEC {
            slowest = slowest.min(subject.rate);
        }
    }
    Ok(slowest)
}

/// Bytes that a process has resident, its part of what it shares with others.
fn proportional(id: u32) -> Result<u64, BenchError> {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup"));
    let text = text.map_err(|error| BenchError::Process(format!("its memory: {error}")))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) << 10)
}

/// The peak memory of a process and of its children.
fn with_children(id: u32) -> Result<u64, BenchError> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    // One that has just ended has none any more.
    let theirs: u64 = children.map(|id| proportional(id).unwrap_or(0)).sum();
    Ok(proportional(id)? + theirs)
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let ours = EVERYSEC.name;
    let tail = |case: Case| percentile_case(case.name, "p99.9");
    let stall = ledger
        .values(ours, &percentile_case(SAVE.name, "max"))
        .iter();
    vec![
        Goal::at_most(
            "p99.9 at half load during a checkpoint / idle",
            1.5,
            ledger.ratios((ours, &tail(SAVE)), (ours, &tail(IDLE))),
        ),
        Goal::at_most(
            "the longest during a checkpoint, ms",
            5.0,
            stall.map(|nanoseconds| nanoseconds / 1e6).collect(),
        ),
        Goal::at_most(
            "memory during a checkpoint beyond that before, MiB",
            64.0,
            ledger.values(ours, &SAVE.memory()).to_vec(),
        ),
    ]
}

fn print_tables(rate: f64, ledger: &Ledger) {
    let head = SHOWN
        .into_iter()
        .chain(["load away", "checkpoints", "memory, MiB more"]);
    let mut table = Table::new(["system", "while"].into_iter().chain(head));
    for arm in ARMS {
        for case in CASES.into_iter().filter(|case| case.is_of(arm)) {
            let cells = SHOWN.map(|name| {
                let [this, idle] = [case, IDLE].map(|case| percentile_case(case.name, name));
                let ratios = ledger.ratios((arm.name, &this), (arm.name, &idle));
                beside(ledger.values(arm.name, &this), 1e3, &ratios)
            });
            let others = [
                (away_case(case.name), 1e3),
                (case.written(), 1.0),
                (case.memory(), 1.0),
            ];
            let others = others.map(|(case, unit)| cell(ledger, "", arm.name, &case, unit));
            let names = [arm.name, case.name].map(str::to_owned);
            table.row(names.into_iter().chain(cells).chain(others));
        }
    }
    table.print(format_args!(
        "microseconds at {} thousand requests a second; in brackets over the same server's idle",
        figure(rate / 1e3)
    ));
}

fn bars(ledger: &Ledger) -> Figure {
    let cases = CASES.map(|case| (case.name.to_owned(), percentile_case(case.name, "p99.9")));
    let title = "p99.9 at half load, while a checkpoint is written";
    let systems = ARMS.map(|arm| arm.name);
    let bars = Bars::of(ledger, title, Metric::Latency, &systems, cases);
    Figure::new("checkpoint.svg", bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_measures_latencies_and_memory_of_all() {
        let place = Directory::new("checkpoint-test").unwrap();
        let scale = Scale {
            records: 1000,
            span: Duration::from_millis(20),
            dir: place.path().to_owned(),
        };
        let report = run(&scale, &common()).unwrap();
        let tails = CASES.map(|case| percentile_case(case.name, "p99.9"));
        assert_well_formed(&report, &tails.each_ref().map(String::as_str));
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
        for arm in present(&ARMS) {
            for case in [SAVE, REWRITE].into_iter().filter(|case| case.is_of(arm)) {
                let written = report.ledger.values(arm.name, &case.written());
                assert!(written[0] >= 1.0, "{}, {}", arm.name, case.name);
            }
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
