//! The processes that are attached to a store, and what each is doing: enough to find out which one
//! blocks the others, and how.
//!
//! It is read from the control region without a lock and without storing anything there, so that it
//! works on a store that makes no progress, and in openings that may only read.

use mneme_sync::{Attached, AttachedThread, Lane, Life, SlotId};
use mneme_sys::ProcessState;

use crate::index::intent::{INDEX_LANE, IndexIntent, OPERATION_LANE, TRANSACTION_LANE};
use crate::region::layout::Tables;
use crate::session::{MAINTAINER_LEASE, SERVER_LEASE, Session};

/// A process that is attached to a store, see [`LogStore::processes`](crate::LogStore::processes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id, in its own namespace.
    pub pid: u32,
    /// When it attached: wall-clock milliseconds since 1970.
    pub attached_ms: u64,
    /// Whether it is alive, and if not, whether what it left is being repaired.
    pub life: Life,
    /// Its state, as the kernel reports it. `None`: it is not visible from here, or is dead.
    pub state: Option<ProcessState>,
    /// Whether it is the opening that made this list.
    pub is_asker: bool,
    /// The number of its threads that take part.
    pub threads: usize,
    /// The oldest of its threads' pins. Memory that was removed since it began is not freed.
    pub oldest_pin: Option<ProcessPin>,
    /// What its threads are doing and holding.
    pub work: Vec<Work>,
    /// Whether it [maintains](crate::LogStore::maintains) the store.
    pub maintains: bool,
    /// Whether it [serves](crate::ServerRole) the store.
    pub serves: bool,
}

/// A pin of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessPin {
    /// How many grace periods have begun since then. Above 1 the pin delays the freeing of removed
    /// memory.
    pub periods: u64,
    /// Whether it stays until its thread releases it. A pin that may be revoked blocks others for a
    /// second at most.
    pub firm: bool,
}

/// Something that a thread has announced or holds. Its text completes "the process ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// It takes memory from the arena or gives it back.
    ClaimsMemory,
    /// It changes a key, or is about to.
    WritesKey,
    /// It clears a database or exchanges two, or is about to.
    ReplacesDatabase,
    /// It changes the shape of the index, or is about to.
    ReshapesIndex,
    /// It commits a transaction.
    Commits,
    /// It holds the head with this number, at which records are appended.
    HoldsHead(u64),
    /// It holds the compaction worker with this number.
    HoldsCompactor(u64),
    /// It holds the index shard with this number.
    HoldsShard(u64),
    /// It sweeps a database that was cleared.
    Sweeps,
    /// It exchanges two databases.
    Swaps,
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::ClaimsMemory => f.write_str("takes memory or gives it back"),
            Work::WritesKey => f.write_str("changes a key"),
            Work::ReplacesDatabase => f.write_str("clears a database, or exchanges two"),
            Work::ReshapesIndex => f.write_str("changes the shape of the index"),
            Work::Commits => f.write_str("commits a transaction"),
            Work::HoldsHead(i) => write!(f, "holds head {i} of the log"),
            Work::HoldsCompactor(i) => write!(f, "holds compaction worker {i}"),
            Work::HoldsShard(i) => write!(f, "holds shard {i} of the index"),
            Work::Sweeps => f.write_str("sweeps a cleared database"),
            Work::Swaps => f.write_str("exchanges two databases"),
        }
    }
}

impl Process {
    /// Whether the process is stopped: it does nothing until it is continued, or killed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.life == Life::Alive && self.state == Some(ProcessState::Stopped)
    }

    /// Whether it holds something that others may have to wait for: a firm pin, or anything under
    /// way. If it is stopped, they wait until it is continued or ends.
    #[must_use]
    pub fn may_hold_up(&self) -> bool {
        !self.work.is_empty() || self.oldest_pin.is_some_and(|pin| pin.firm)
    }
}

/// The processes that are attached to the store of `session`. Empty in a forked child.
pub(crate) fn attached(session: &Session) -> Vec<Process> {
    let participants = &session.participants;
    if participants.is_forked() {
        return Vec::new();
    }
    let held = held_locks(&session.tables);
    let epoch = participants.epoch().to_u64();
    let processes = participants.attached().into_iter();
    processes
        .map(|process| seen(process, &held, epoch))
        .collect()
}

/// The robust locks of the log's tables that are held.
fn held_locks(tables: &Tables) -> Vec<(SlotId, Work)> {
    let geometry = &tables.geometry;
    let heads = (0..geometry.heads).map(|i| (tables.head(i).lock.owner(), Work::HoldsHead(i)));
    let compactors = (0..geometry.survivors).map(|i| {
        let lock = &tables.head(geometry.heads + i).lock;
        (lock.owner(), Work::HoldsCompactor(i / geometry.ages()))
    });
    let bulk = (geometry.heads + geometry.survivors..geometry.all_heads())
        .map(|i| (tables.head(i).lock.owner(), Work::HoldsHead(i)));
    let shards = (0..geometry.shards).map(|i| (tables.shard(i).lock.owner(), Work::HoldsShard(i)));
    let header = tables.header();
    let rest = [
        (header.sweep.owner(), Work::Sweeps),
        (header.swap.owner(), Work::Swaps),
    ];
    let all = heads
        .chain(compactors)
        .chain(bulk)
        .chain(shards)
        .chain(rest);
    all.filter_map(|(owner, work)| Some((owner?, work)))
        .collect()
}

fn seen(process: Attached, held: &[(SlotId, Work)], epoch: u64) -> Process {
    let pins = process.threads.iter().filter_map(|thread| thread.pin);
    let pins = pins.map(|pin| ProcessPin {
        periods: pin.epoch.map_or(0, |at| epoch.saturating_sub(at.to_u64())),
        firm: pin.firm,
    });
    let mut work: Vec<Work> = process.threads.iter().flat_map(announced).collect();
    let is_ours = |slot: SlotId| process.threads.iter().any(|thread| thread.slot == slot);
    work.extend(
        held.iter()
            .filter(|(slot, _)| is_ours(*slot))
            .map(|(_, work)| *work),
    );
    work.sort_unstable();
    work.dedup();
    Process {
        pid: process.pid,
        attached_ms: process.attached_ms,
        life: process.life,
        state: match process.life {
            Life::Alive => mneme_sys::process_state(process.pid),
            Life::Dead | Life::Reaping => None,
        },
        is_asker: process.is_asker,
        threads: process.threads.len(),
        oldest_pin: pins.max_by_key(|pin| (pin.periods, pin.firm)),
        work,
        maintains: process.leases[MAINTAINER_LEASE],
        serves: process.leases[SERVER_LEASE],
    }
}

fn announced(thread: &AttachedThread) -> impl Iterator<Item = Work> {
    let arena = thread.intents[Lane::Arena as usize].map(|_| Work::ClaimsMemory);
    let log = [OPERATION_LANE, INDEX_LANE, TRANSACTION_LANE].map(|lane| {
        // Damage is ignored here: the check reports it, and so does the repair after the thread.
        let intent = IndexIntent::of_thread(thread, lane).ok().flatten()?;
        Some(match intent {
            IndexIntent::Home { .. } => Work::WritesKey,
            IndexIntent::ReplaceDatabases => Work::ReplacesDatabase,
            IndexIntent::Reshape { .. } => Work::ReshapesIndex,
            IndexIntent::Transaction { .. } => Work::Commits,
        })
    });
    arena.into_iter().chain(log.into_iter().flatten())
}
