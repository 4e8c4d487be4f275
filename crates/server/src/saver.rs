//! A background thread for the checkpoints and backups that clients request, and for the log
//! messages about a store on disk. **No client waits for it.**

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_durable::{CheckpointReport, CheckpointStats, Durability, DurabilityStats, GateState};

use crate::background::TaskState;
use crate::settings::{Key, save_points};
use crate::shared::Shared;

/// How often the thread checks the store.
const LOOK: Duration = Duration::from_secs(1);

/// How long it waits after a failed checkpoint, as Redis does.
const AFTER_FAILURE_S: u64 = 5;

/// The thread's work queue.
#[derive(Debug, Default)]
pub(crate) struct Saver {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether another checkpoint is to follow the current one.
    is_scheduled: bool,
    backup: BackupStatus,
    /// The numbers of published and of failed checkpoints at the thread's last check.
    seen: (u64, u64),
    /// The state of the store at the last check.
    store: Option<GateState>,
    /// The number of damaged places of a tree known at the last check.
    damaged: u64,
    /// When the thread last began a checkpoint, in seconds since the start.
    tried_s: u64,
    ends: bool,
}

/// The last backup, or the one that is being written.
#[derive(Debug, Default, Clone)]
pub(crate) struct BackupStatus {
    /// The backup's number, counted from 1; 0 if there was none.
    pub number: u64,
    pub name: String,
    pub state: TaskState<CheckpointReport>,
}

impl Saver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a checkpoint after the current one.
    pub fn schedule(&self) {
        self.state().is_scheduled = true;
        self.changed.notify_all();
    }

    /// Whether a checkpoint is scheduled after the current one.
    pub fn is_scheduled(&self) -> bool {
        self.state().is_scheduled
    }

    /// Requests a backup with that name, and returns its number. `None` if one is being written
    /// already.
    pub fn back_up(&self, name: &str) -> Option<u64> {
        let mut state = self.state();
        if state.backup.state.is_running() {
            return None;
        }
        state.backup = BackupStatus {
            number: state.backup.number + 1,
            name: name.to_owned(),
            state: TaskState::Running,
        };
        self.changed.notify_all();
        Some(state.backup.number)
    }

    /// The last backup.
    pub fn last_backup(&self) -> BackupStatus {
        self.state().backup.clone()
    }

    /// Makes the thread end.
    pub fn end(&self) {
        self.state().ends = true;
        self.changed.notify_all();
    }

    /// Works until [`end`](Self::end).
    pub fn serve(&self, server: &Shared, durability: &Durability) {
        let mut state = self.state();
        while !state.ends {
            let stats = durability.stats();
            state.note(&stats);
            if state.backup.state.is_running() {
                let name = state.backup.name.clone();
                drop(state);
                let written = durability.backup(&name);
                state = self.state();
                state.backup.state = match written {
                    Ok(report) => TaskState::Done(report),
                    Err(error) => TaskState::Failed(error.to_string()),
                };
                continue;
            }
            let is_due = state.is_due(server, &stats.checkpoints);
            if (state.is_scheduled || is_due) && stats.checkpoints.running.is_none() {
                state.tried_s = server.uptime_s();
                // If another thread has begun a checkpoint meanwhile, that one serves this request
                // too.
                let _ = durability.checkpoint();
                state.is_scheduled = false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How many keys commands have changed since the last checkpoint began, or since the server started
/// if there was none.
pub(crate) fn changes_since(server: &Shared, checkpoints: &CheckpointStats) -> u64 {
    let changes = server.all_time().changes;
    changes.saturating_sub(checkpoints.last_mark)
}

impl State {
    /// Whether one of the `save` points is reached.
    fn is_due(&self, server: &Shared, checkpoints: &CheckpointStats) -> bool {
        let now_s = server.uptime_s();
        if !checkpoints.why.is_empty() && now_s < self.tried_s + AFTER_FAILURE_S {
            return false;
        }
        let points = server.settings.show(Key::Save);
        let changes = changes_since(server, checkpoints);
        let since_s = match checkpoints.last_wall_ms {
            0 => now_s,
            // The same clock.
            last_ms => (server.store.wall_ms() / 1000).saturating_sub(last_ms / 1000),
        };
        save_points(&points).is_some_and(|mut points| {
            points.any(|(seconds, least)| since_s >= seconds && changes >= least.max(1))
        })
    }

    /// Logs what has happened to checkpoints and to the store since the last check.
    fn note(&mut self, stats: &DurabilityStats) {
        let checkpoints = &stats.checkpoints;
        let now = (checkpoints.published, checkpoints.failed);
        let before = std::mem::replace(&mut self.seen, now);
        if now.0 > before.0 {
            let last = checkpoints.last.unwrap_or_default();
            tracing::info!(
                records = last.records,
                bytes = last.bytes,
                milliseconds = checkpoints.last_ns / 1_000_000,
                "a checkpoint was written"
            );
        }
        if now.1 > before.1 {
            tracing::warn!(
                reason = checkpoints.why,
                "a checkpoint could not be written"
            );
        }
        let damaged = stats.scrub.damaged;
        if std::mem::replace(&mut self.damaged, damaged) < damaged {
            tracing::error!(
                reason = stats.scrub.why,
                "the tree on disk is damaged: a SET of the key writes it anew, from memory that is not"
            );
        }
        let was = self.store.replace(stats.state);
        if was == Some(stats.state) {
            return;
        }
        match stats.state {
            GateState::Open if was.is_none() => {}
            GateState::Open => tracing::info!("writes are taken again"),
            GateState::RefusesWrites(_) => {
                tracing::error!(reason = stats.why, "writes are refused; reads go on");
            }
            GateState::Failed => tracing::error!(
                reason = stats.why,
                "nothing becomes durable any more: writes are refused, and what is read may be gone after a restart"
            ),
        }
    }
}
