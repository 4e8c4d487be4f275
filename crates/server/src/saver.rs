//! Checkpoints that had to wait, as clients ask for them, and what the log says of a store on disk:
//! **one thread looks after them, and no client waits for it**.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_durable::{Durability, DurabilityStats, GateState};

/// How often it looks at the store.
const LOOK: Duration = Duration::from_secs(1);

/// What the thread has to do.
#[derive(Debug, Default)]
pub(crate) struct Saver {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a checkpoint is to follow the one that is being written.
    is_scheduled: bool,
    /// What was published and what failed, when it last looked.
    seen: (u64, u64),
    /// How the store was then.
    store: Option<GateState>,
    ends: bool,
}

impl Saver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a checkpoint written when the present one is done.
    pub fn schedule(&self) {
        self.state().is_scheduled = true;
        self.changed.notify_all();
    }

    /// Whether one is to follow the present one.
    pub fn is_scheduled(&self) -> bool {
        self.state().is_scheduled
    }

    /// Has the thread end.
    pub fn end(&self) {
        self.state().ends = true;
        self.changed.notify_all();
    }

    /// Works until the end.
    pub fn serve(&self, durability: &Durability) {
        let mut state = self.state();
        while !state.ends {
            let stats = durability.stats();
            state.note(&stats);
            if state.is_scheduled && stats.checkpoints.running.is_none() {
                // One that has begun meanwhile began after it was asked for.
                let _ = durability.checkpoint();
                state.is_scheduled = false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Tells the log what has become of checkpoints and of the store.
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
