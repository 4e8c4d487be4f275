//! `restart`: from a server's start to its first correct reply, by the data there is.
//!
//! - *mneme, after SIGTERM*: our server on a segment that an orderly server has left.
//! - *mneme, after kill -9*: on one whose server was killed while a client wrote. What the dead
//!   left half done is put in order first.
//! - *redis, RDB* and *AOF*: Redis on a snapshot, and on a log, of the same records. Both files are
//!   in memory, so that no disk is read; a real one would be slower.
//!
//! Time runs from before the process is made until a client has got the value of a record chosen at
//! random: loading of the program, opening of sockets and all. Beside it: what a process takes that
//! attaches the store (the attaching alone, and all from the making of the process to its first
//! GET), what a client of the killed server waits until it can store again, where another is
//! started at once, and what a process sees that has the store attached when the server, which
//! maintained it, is killed: until it maintains the store itself, and the longest that a write of
//! it took meanwhile.
//!
//! How to read it: milliseconds; what grows with the size reads data, the rest does not.

mod ours;
pub mod redis;

use crate::client::Asks;
use crate::client::attached::{Attached, SEGMENT};
use crate::client::socket::Socket;
use crate::curves::{Axis, Curves};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::generate::random::Random;
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::{self, Common};
use crate::processes::until;
use crate::progress;
use crate::report::Report;
use crate::rounds::{self, Job};
use crate::scratch::Directory;
use crate::systems;
use crate::systems::redis::Peer::Redis;
use crate::table::{Table, range};
use ours::Ours;
use redis::{From, Peer};
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a value.
pub const SIZE: usize = 1024;

const MIB: u64 = 1 << 20;

const SIGTERM: &str = "mneme, after SIGTERM";
const KILLED: &str = "mneme, after kill -9";
const RDB: &str = "redis, RDB";
const AOF: &str = "redis, AOF";
const SERVERS: [&str; 4] = [SIGTERM, KILLED, RDB, AOF];
const REDIS: &str = "redis";

const ATTACH: &str = "attach";
const PROCESS: &str = "process, attach, GET";
const WRITE: &str = "kill -9 to a SET";
const MAINTAINED: &str = "kill -9 to maintained";
const LONGEST: &str = "longest put meanwhile";
const OTHERS: [&str; 5] = [ATTACH, PROCESS, WRITE, MAINTAINED, LONGEST];

/// How much is done.
pub struct Scale {
    /// MiB of values, beside Redis.
    beside: &'static [u64],
    /// Without it.
    alone: &'static [u64],
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            beside: options.pick(&[32, 128], &[256, 1024, 2048]),
            alone: options.pick(&[512], &[10 << 10]),
        }
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.beside.iter().chain(self.alone).copied()
    }
}

fn case(mib: u64) -> String {
    format!("{mib} MiB")
}

/// Measures and reports.
///
/// # Errors
/// No memory, a server that does not come back, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut notes = vec![format!(
        "values of {SIZE} B; the segment and the files of Redis are in memory"
    )];
    let there = Redis.is_there();
    notes.extend(Redis.missing());
    // One after the other, so that only one has its memory.
    for mib in scale.sizes() {
        let needed = ours::capacity(mib * MIB);
        if crate::machine::available_bytes() < needed + needed / 4 {
            notes.push(format!("{mib} MiB: left out, for want of memory"));
            continue;
        }
        progress::show(format_args!("loading {}", case(mib)));
        let peer = there && scale.beside.contains(&mib);
        let peer = peer.then(|| Peer::new(Directory::in_memory("restart-redis")?, mib * MIB));
        let peer = peer.transpose()?;
        let ours = RefCell::new(Ours::new(mib * MIB, options.seed)?);
        let mut jobs = jobs(mib, &ours);
        if let Some(peer) = &peer {
            let mut random = Random::new(options.seed);
            jobs.push(job(REDIS, mib, move |add| {
                for (system, from) in [(RDB, From::Snapshot), (AOF, From::Log)] {
                    let id = random.below(mib * MIB / SIZE as u64) as u32;
                    add(system, peer.start(from, id)?);
                }
                Ok(())
            }));
        }
        rounds::run(jobs, options.rounds, &mut ledger)?;
    }
    print_tables(scale, &ledger);
    Ok(Report {
        figures: vec![curves(scale, &ledger)],
        params: json!({ "value_bytes": SIZE }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

/// Something that is done once a round, and adds what it took.
fn job<'a>(
    name: &str,
    mib: u64,
    mut measure: impl FnMut(&mut dyn FnMut(&str, Duration)) -> Result<(), BenchError> + 'a,
) -> Job<'a> {
    let case = case(mib);
    Job::of(format!("{name}, {case}"), move |_, ledger| {
        measure(&mut |system, took| {
            ledger.add(system, &case, Metric::Duration, took.as_secs_f64());
        })
    })
}

fn jobs(mib: u64, ours: &RefCell<Ours>) -> Vec<Job<'_>> {
    let killed = move |add: &mut dyn FnMut(&str, Duration)| {
        let mut ours = ours.borrow_mut();
        // Fewer than three starts in a row that end by a kill: after the third the store would be
        // checked.
        add(SIGTERM, ours.after_sigterm()?);
        let (found, written) = ours.after_kill()?;
        add(KILLED, found);
        add(WRITE, written);
        let bereft = ours.bereft()?;
        add(MAINTAINED, bereft.maintained);
        add(LONGEST, bereft.longest);
        Ok(())
    };
    let attached = move |add: &mut dyn FnMut(&str, Duration)| {
        let attached = ours.borrow_mut().attach()?;
        add(ATTACH, attached.attach);
        add(PROCESS, attached.whole);
        Ok(())
    };
    vec![job(KILLED, mib, killed), job(ATTACH, mib, attached)]
}

/// Stores every record.
///
/// # Errors
/// One is refused.
pub fn load(asks: &mut impl Asks, records: u32) -> Result<(), BenchError> {
    let ids: Vec<u32> = (0..records).collect();
    for ids in ids.chunks(systems::BATCH) {
        asks.batch(&[], ids)?;
    }
    Ok(())
}

/// Asks for a record until the server has it; one that is still loading refuses.
///
/// # Errors
/// It is not there, or the server does not answer for long.
pub fn until_found(socket: &Path, id: u32) -> Result<(), BenchError> {
    const TIMEOUT: Duration = Duration::from_secs(120);
    match until(TIMEOUT, || Socket::connect(socket, SIZE)?.get(id))? {
        true => Ok(()),
        false => Err(BenchError::Process("the value is another's".to_owned())),
    }
}

/// Attaches a store in this process, and finds a record; what the former took.
///
/// # Errors
/// It cannot be attached, or the record is not there.
pub fn attach_here(options: &options::Attach) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let mut attached = Attached::new(&options.registry, SEGMENT, false, SIZE)?;
    let took = begin.elapsed();
    match attached.get(options.record)? {
        true => Ok(took),
        false => Err(BenchError::Store("the record is not there".to_owned())),
    }
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let largest = scale.sizes().max().unwrap_or_default();
    let case = case(largest);
    let goal = |text: &str, target: f64, system: &str| {
        let rounds = ledger.values(system, &case).iter();
        let milliseconds = rounds.map(|seconds| seconds * 1e3).collect();
        Goal::at_most(format!("{case}: {text}, ms"), target, milliseconds)
    };
    vec![
        goal("a server's start to its first reply", 200.0, SIGTERM),
        goal("the same after kill -9", 1000.0, KILLED),
        goal("kill -9 of the server to a SET of a client", 1000.0, WRITE),
        goal(
            "kill -9 of the maintainer to full service",
            1000.0,
            MAINTAINED,
        ),
        goal("attach", 50.0, ATTACH),
    ]
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let cell = |system: &str, case: &str| range(ledger.values(system, case), 1e-3);
    for (what, systems) in [
        (
            "milliseconds to the first reply of a server that is started",
            &SERVERS[..],
        ),
        ("milliseconds, ours", &OTHERS),
    ] {
        Table::by_case("values", systems, scale.sizes().map(case), cell).print(format_args!(
            "{what}, by data; median (min-max) of the rounds"
        ));
    }
}

fn curves(scale: &Scale, ledger: &Ledger) -> Figure {
    let systems: Vec<_> = SERVERS.into_iter().chain([ATTACH, MAINTAINED]).collect();
    let sizes: Vec<_> = scale.sizes().map(|mib| (mib as f64, case(mib))).collect();
    let axes = (
        Axis::log("MiB of values"),
        Axis::log("milliseconds").of(1e-3),
    );
    let title = "From a start to the first reply";
    let curves = Curves::of(ledger, title, axes, &systems, &sizes);
    Figure::new("restart.svg", curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_restarts_everything_and_leaves_nothing_behind() {
        let scale = Scale {
            beside: &[2],
            alone: &[4],
        };
        let options = Common {
            rounds: 2,
            ..common()
        };
        let report = run(&scale, &options).unwrap();
        assert_well_formed(&report, &[&case(2), &case(4)]);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
        for system in SERVERS.into_iter().chain(OTHERS) {
            if [RDB, AOF].contains(&system) && !Redis.is_there() {
                continue;
            }
            let rounds = report.ledger.values(system, &case(2));
            assert_eq!(rounds.len(), 2, "{system}");
        }
        let id = std::process::id().to_string();
        let left = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let left = left.map(|entry| entry.file_name().into_string().unwrap());
        let mut ours = left.filter(|name| name.ends_with(&id));
        assert!(ours.all(|name| !name.starts_with("mneme-bench-restart")));
    }
}
