//! `recover`: from a power loss to the first correct reply, by the data there is.
//!
//! - *mneme, journal* and *base file*: our server killed, its segment removed and its files out of
//!   the page cache; started on a journal that holds everything, and on a base file.
//! - *mneme, tree*: the same, kept as a tree (`--durability tree`).
//! - *mneme, kill -9*: killed and started again on its segment, which is alive.
//! - *redis, RDB* and *AOF*: Redis started on a snapshot, and on a log, of the same records, which
//!   are read from the same disk.
//!
//! Time runs from before the process is made until a client has got the value of a record chosen at
//! random, which is refused while the server loads.
//!
//! How to read it: seconds, and MiB of values a second. *Disk* is what one sequential reader of the
//! base file gets from the disk in the same round, past the page cache.

use super::servers::{Checkpoint, EVERYSEC, Server, TREE_EVERYSEC, drop_cached};
use crate::client::socket::Socket;
use crate::curves::{Axis, Curves};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::generate::random::Random;
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::machine::available_bytes;
use crate::machine::cpus;
use crate::options::{Common, Durable};
use crate::progress;
use crate::report::Report;
use crate::restart::redis::{From, Peer};
use crate::restart::{SIZE, load, until_found};
use crate::scratch::Directory;
use crate::server::memory_for;
use crate::systems::redis::Peer::Redis;
use crate::table::{Table, beside};
use serde_json::json;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

const JOURNAL: &str = "mneme, journal";
const TREE: &str = "mneme, tree";
const BASE: &str = "mneme, base file";
const KILLED: &str = "mneme, kill -9";
const RDB: &str = "redis, RDB";
const AOF: &str = "redis, AOF";
const DISK: &str = "disk";
const SYSTEMS: [&str; 7] = [KILLED, BASE, JOURNAL, TREE, RDB, AOF, DISK];

/// How much is done, and where.
pub struct Scale {
    /// MiB of values.
    sizes: &'static [u64],
    /// The largest that Redis is measured with.
    beside: u64,
    dir: PathBuf,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &Durable) -> Self {
        Self {
            sizes: common.pick(&[32, 128], &[256, 1024, 10 << 10]),
            beside: 2048,
            dir: options.dir.clone(),
        }
    }
}

fn case(mib: u64) -> String {
    format!("{mib} MiB")
}

/// Measures and reports.
///
/// # Errors
/// A server that does not come back, a disk without space.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let place = Directory::below(&scale.dir, "recover")?;
    let mut ledger = Ledger::default();
    let mut notes = vec![format!(
        "values of {SIZE} B; the files are below {}, the segment is in memory",
        scale.dir.display()
    )];
    let there = Redis.is_there();
    notes.extend(Redis.missing());
    for &mib in scale.sizes {
        let records = mib * MIB / SIZE as u64;
        let memory = memory_for(records, SIZE as u64) + (96 << 20);
        if available_bytes() < memory + memory / 2 {
            notes.push(format!("{mib} MiB: left out, for want of memory"));
            continue;
        }
        progress::show(format_args!("loading {mib} MiB"));
        let mut subject = Subject::new(records as u32, memory, place.path(), options.seed)?;
        let peer = there && mib <= scale.beside;
        let peer = peer.then(|| Peer::new(Directory::below(place.path(), "redis")?, mib * MIB));
        let peer = peer.transpose()?;
        for round in 0..options.rounds {
            progress::show(format_args!("round {}, {mib} MiB", round + 1));
            subject.round(round, &case(mib), peer.as_ref(), &mut ledger)?;
        }
    }
    progress::clear();
    print_tables(scale, &ledger);
    Ok(Report {
        figures: vec![curves(scale, &ledger)],
        params: json!({ "directory": scale.dir, "value_bytes": SIZE }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

/// Servers of ours with the same records, one of which has written a base file.
struct Subject {
    journal: Server,
    tree: Server,
    base: Server,
    records: u64,
    random: Random,
}

impl Subject {
    fn new(records: u32, memory: u64, place: &Path, seed: u64) -> Result<Self, BenchError> {
        let loaded = |arm| {
            let server = Server::start(arm, place, cpus(), memory)?;
            load(&mut Socket::connect(&server.socket(), SIZE)?, records)?;
            Ok::<_, BenchError>(server)
        };
        // One after the other, and not alive together: only one has its memory.
        let lost = |arm| {
            let mut server = loaded(arm)?;
            server.terminate()?;
            server.lose_memory()?;
            Ok::<_, BenchError>(server)
        };
        let (journal, tree) = (lost(EVERYSEC)?, lost(TREE_EVERYSEC)?);
        let base = loaded(EVERYSEC)?;
        base.checkpoint(Checkpoint::Save)?;
        Ok(Self {
            journal,
            tree,
            base,
            records: u64::from(records),
            random: Random::new(seed),
        })
    }

    /// Everything once, every second time backwards.
    fn round(
        &mut self,
        round: usize,
        case: &str,
        peer: Option<&Peer>,
        ledger: &mut Ledger,
    ) -> Result<(), BenchError> {
        let mut systems = SYSTEMS;
        if round % 2 == 1 {
            systems.reverse();
        }
        for system in systems {
            let id = self.random.below(self.records) as u32;
            let took = match (system, peer) {
                (KILLED, _) => {
                    self.base.kill();
                    started(&mut self.base, id)?
                }
                (BASE, _) => {
                    self.base.kill();
                    self.base.lose_memory()?;
                    started(&mut self.base, id)?
                }
                (JOURNAL | TREE, _) => {
                    // The other's memory may not be there for both.
                    self.base.kill();
                    self.base.lose_memory()?;
                    let server = match system {
                        TREE => &mut self.tree,
                        _ => &mut self.journal,
                    };
                    drop_cached(server.data())?;
                    let took = started(server, id)?;
                    server.terminate()?;
                    server.lose_memory()?;
                    self.base.start_again()?;
                    until_found(&self.base.socket(), id)?;
                    took
                }
                (RDB | AOF, Some(peer)) => {
                    let from = if system == RDB {
                        From::Snapshot
                    } else {
                        From::Log
                    };
                    drop_cached(peer.data())?;
                    peer.start(from, id)?
                }
                (DISK, _) => {
                    drop_cached(self.base.data())?;
                    self.read_base()?
                }
                _ => continue,
            };
            ledger.add(system, case, Metric::Duration, took.as_secs_f64());
        }
        Ok(())
    }

    /// Reads the largest file of the base's directory that is no file of the journal.
    fn read_base(&self) -> Result<Duration, BenchError> {
        let files = fs::read_dir(self.base.data()).map_err(failed)?.flatten();
        let bases = files.filter(|file| file.file_name().to_string_lossy().ends_with(".base"));
        let length = |file: &fs::DirEntry| file.metadata().map_or(0, |data| data.len());
        let largest = bases
            .max_by_key(length)
            .ok_or_else(|| failed("no base file"))?;
        let begin = Instant::now();
        let mut file = File::open(largest.path()).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        while file.read(&mut buffer).map_err(failed)? > 0 {}
        Ok(begin.elapsed())
    }
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::server("mneme", what)
}

fn started(server: &mut Server, id: u32) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    server.start_again()?;
    until_found(&server.socket(), id)?;
    Ok(begin.elapsed())
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let measured = |mib: &&u64| !ledger.values(KILLED, &case(**mib)).is_empty();
    let largest = scale.sizes.iter().filter(measured).max().copied();
    let largest = largest.unwrap_or_default();
    let name = case(largest);
    let killed = ledger.values(KILLED, &name).iter().map(|s| s * 1e3);
    // Which of the two is the larger decides, in each round.
    let allowed = |disk: &f64| disk.max(15.0 * largest as f64 / f64::from(10 << 10));
    let rounds = ledger.values(BASE, &name).iter();
    let rounds = rounds.zip(ledger.values(DISK, &name));
    let rounds = rounds.map(|(took, disk)| took / allowed(disk));
    vec![
        Goal::at_most(
            format!("{name}: kill -9 to a reply, ms"),
            200.0,
            killed.collect(),
        ),
        Goal::at_most(
            format!("{name}: power loss to a reply over 15 s for 10 GiB, or the disk's read"),
            1.0,
            rounds.collect(),
        ),
    ]
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let cell = |system: &str, mib: &u64| {
        let took = ledger.values(system, &case(*mib));
        let rates: Vec<_> = took.iter().map(|took| *mib as f64 / took).collect();
        beside(took, 1.0, &rates)
    };
    let rows = scale.sizes.iter().map(|&mib| (case(mib), mib));
    Table::grid("values", &SYSTEMS, rows, cell)
        .print("seconds to the first reply (MiB of values a second); medians of the rounds");
}

fn curves(scale: &Scale, ledger: &Ledger) -> Figure {
    let sizes = scale.sizes.iter();
    let sizes: Vec<_> = sizes.map(|&mib| (mib as f64, case(mib))).collect();
    let axes = (Axis::log("MiB of values"), Axis::log("seconds"));
    let title = "From a power loss to the first reply";
    let curves = Curves::of(ledger, title, axes, &SYSTEMS, &sizes);
    Figure::new("recover.svg", curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_recovers_from_everything_and_leaves_no_file() {
        let place = Directory::new("recover-test").unwrap();
        let scale = Scale {
            sizes: &[1],
            beside: 1,
            dir: place.path().to_owned(),
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &[&case(1)]);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
        for system in SYSTEMS {
            let is_there = ![RDB, AOF].contains(&system) || Redis.is_there();
            let rounds = report.ledger.values(system, &case(1));
            assert_eq!(rounds.len(), usize::from(is_there), "{system}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
