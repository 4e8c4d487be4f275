//! Stores in this process: ours, which is durable by a journal, beside the durable tree, LMDB and
//! RocksDB.
//!
//! Each commit is durable when it returns: of one record, or of 32. By *8 threads* our store has
//! eight threads that put and wait, and share their syncs; the others commit one after the other,
//! whatever the number of threads. *Turnovers* are of our store alone: what its directory takes on
//! the disk, over what the records and twice the bound of the journal would.

use super::servers::disk_used;
use crate::error::{BenchError, failed};
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::progress;
use crate::rounds::{self, Job, Span, rate};
use crate::scratch::Directory;
use crate::tree::engines::{self, KEY, key};
use crate::tree::names;
use mneme_durable::{DurableOptions, DurableStore, SyncPolicy};
use mneme_log::LogStore;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ours.
const STORE: &str = "mneme DurableStore";
/// The durable tree.
const TREE: &str = "mneme tree";
/// Bytes of a value.
const VALUE: usize = 100;
/// Files of the journal that its bound is, as with the sizes that a server has.
const FILES: u64 = 16;
/// Threads that share syncs.
const THREADS: u32 = 8;

const ONE: &str = "durable put";
const BATCH: &str = "durable batch of 32, a put";
const SHARED: &str = "durable put, 8 threads";
const TAKEN: &str = "disk after turnovers";

/// How much is done.
pub struct Scale {
    /// Records.
    pub records: u32,
    /// How long each case takes in a round.
    pub timed: Duration,
    /// How often the records are overwritten, on the average, before the disk is looked at.
    pub turnovers: u64,
    /// Bytes of the journal after which a checkpoint is begun.
    pub bound: u64,
}

type Commit<'s> = dyn FnMut(&[[u8; KEY]]) -> Result<(), BenchError> + 's;

/// The systems of this build, ours first.
fn systems() -> Vec<&'static str> {
    let others = names::all().into_iter();
    let others = others.filter(|name| name.starts_with("lmdb") || *name == "rocksdb");
    [STORE, TREE].into_iter().chain(others).collect()
}

fn open(scale: &Scale, directory: &Path) -> Result<DurableStore, BenchError> {
    let record = (KEY + VALUE) as u64 + crate::server::RECORD;
    let capacity =
        (4 * u64::from(scale.records) * record).max(mneme_log::MIN_CAPACITY) + (96 << 20);
    DurableOptions::new(directory)
        .sync(SyncPolicy::Always)
        .checkpoint_after(scale.bound)
        .recycled(scale.bound)
        .file_bytes(scale.bound / FILES)
        .open_private(LogStore::builder().capacity(capacity))
        .map_err(failed)
}

/// Measures all systems, round by round, and what ours takes on the disk.
///
/// # Errors
/// One fails, or the disk is full.
pub fn run(
    scale: &Scale,
    place: &Path,
    common: &Common,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let directory = Directory::below(place, "embedded")?;
    let store = open(scale, &directory.path().join("store"))?;
    let value = [7; VALUE];
    let mut commits: Vec<(&str, RefCell<Box<Commit<'_>>>)> = Vec::new();
    for system in systems() {
        let commit: Box<Commit<'_>> = match system {
            STORE => Box::new(|keys| {
                for key in keys {
                    store.put(key, &value).map_err(failed)?;
                }
                store.sync().map_err(failed)
            }),
            _ => {
                let name = if system == TREE { names::OURS } else { system };
                let mut engine = engines::open(name, directory.path(), scale.records, VALUE)?;
                Box::new(move |keys| engine.write(keys, Some(&value)))
            }
        };
        commits.push((system, RefCell::new(commit)));
    }
    let mut jobs = Vec::new();
    for (case, many) in [(ONE, 1), (BATCH, 32)] {
        for (system, commit) in &commits {
            jobs.push(Job::new(*system, case, Metric::Throughput, move |round| {
                let seed = mix(common.seed) ^ round as u64;
                alone(scale, many, seed, &mut **commit.borrow_mut())
            }));
        }
    }
    jobs.push(Job::new(STORE, SHARED, Metric::Throughput, |round| {
        Ok(shared(scale, &store, common.seed ^ round as u64))
    }));
    rounds::run(jobs, common.rounds, ledger)?;
    drop(commits);
    store.close().map_err(failed)?;
    progress::show(format_args!("{STORE}: turnovers"));
    let taken = turnovers(scale, place, common.seed)?;
    ledger.add(STORE, TAKEN, Metric::Overhead, taken);
    progress::clear();
    Ok(())
}

/// Millions of puts a second of one thread, `many` a commit.
fn alone(
    scale: &Scale,
    many: usize,
    seed: u64,
    commit: &mut Commit<'_>,
) -> Result<f64, BenchError> {
    let mut random = Random::new(seed);
    let begin = Instant::now();
    let mut puts = 0;
    while puts == 0 || begin.elapsed() < scale.timed {
        let ids = (0..many).map(|_| random.below(u64::from(scale.records)) as u32);
        let mut keys: Vec<_> = ids.map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        commit(&keys)?;
        puts += keys.len();
    }
    Ok(puts as f64 / begin.elapsed().as_secs_f64() / 1e6)
}

/// Millions of puts a second of eight threads, each of which waits for its own.
fn shared(scale: &Scale, store: &DurableStore, seed: u64) -> f64 {
    let span = Span::new(Duration::ZERO, scale.timed);
    let puts = |thread: u32, until: Instant| {
        let mut random = Random::new(mix(seed ^ u64::from(thread) << 32));
        let mut puts = 0;
        // A store that fails does no more, which the next measurement reports.
        loop {
            let key = key(random.below(u64::from(scale.records)) as u32);
            if store.put(&key, &[7; VALUE]).is_err() || store.sync().is_err() {
                break;
            }
            puts += 1;
            if Instant::now() >= until {
                break;
            }
        }
        puts
    };
    rate(THREADS, span, puts) / 1e6
}

/// What a directory takes after so many turnovers, over what it may.
fn turnovers(scale: &Scale, place: &Path, seed: u64) -> Result<f64, BenchError> {
    let directory = Directory::below(place, "turnovers")?;
    let store = open(scale, directory.path())?;
    store.durability().set_policy(SyncPolicy::No);
    let mut random = Random::new(mix(seed));
    let records = u64::from(scale.records);
    for id in 0..scale.records {
        store.put(&key(id), &[7; VALUE]).map_err(failed)?;
    }
    for _ in 0..scale.turnovers * records {
        let key = key(random.below(records) as u32);
        store.put(&key, &[7; VALUE]).map_err(failed)?;
    }
    store.sync().map_err(failed)?;
    let taken = disk_used(directory.path())?;
    let live = records * (KEY + VALUE) as u64;
    store.close().map_err(failed)?;
    Ok(taken as f64 / (live + 2 * scale.bound.max(2 * live)) as f64)
}

/// The goals of what was measured here.
pub fn goals(ledger: &Ledger) -> Vec<Goal> {
    let taken = ledger.values(STORE, TAKEN).to_vec();
    let text = "disk after 24 turnovers over live bytes and twice the journal's bound";
    vec![Goal::at_most(text, 1.0, taken)]
}

/// Prints what was measured here.
pub fn print(ledger: &Ledger) {
    let cases = [ONE, BATCH, SHARED].map(str::to_owned);
    ledger
        .compared("case", &systems(), cases, 1e-3)
        .print("thousand puts a second, durable each; in brackets ours over theirs");
}
