//! What local programs change in the segment beside the server: **each change is heard once, or said to be lost**.
//!
//! A thread of its own listens, as often as the store's maintainer looks round, and more often while there is much to hear.
//! Here changes are counted, for `INFO`; whoever owes clients an answer to a change learns of it in [`Heard::on_local_effect`].

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{Told, What};

use crate::shared::Shared;

/// How long nobody listens after nothing was heard.
const PAUSE: Duration = Duration::from_millis(10);
/// The same after something was: a local program that does nothing but store fills the ring in some milliseconds.
const SHORT: Duration = Duration::from_millis(1);
/// Effects that are taken in at once.
const AT_ONCE: usize = 4096;

/// What local programs have done since the server's start, or the last `CONFIG RESETSTAT`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Keys stored, or given another expiry.
    pub stored: u64,
    /// Keys removed.
    pub removed: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Keys removed to make room.
    pub evicted: u64,
    /// Databases cleared, or exchanged with another.
    pub databases: u64,
    /// How often something may not have been heard: what else is counted is too little then.
    pub lost: u64,
    /// Whether the first loss, which says that listening has begun, was heard.
    begun: bool,
}

impl Heard {
    /// Takes in one change by a local program.
    fn on_local_effect(&mut self, told: Told<'_>) {
        let effect = match told {
            Told::Effect(effect) => effect,
            Told::Lost => {
                // What was there before the server is no loss.
                self.lost += u64::from(std::mem::replace(&mut self.begun, true));
                return;
            }
        };
        match effect.what {
            What::Stored(_) | What::Retimed(_) => self.stored += 1,
            What::Removed(_) => self.removed += 1,
            What::Expired(_) => self.expired += 1,
            What::Evicted(_) => self.evicted += 1,
            What::Cleared | What::Swapped(_) => self.databases += 1,
            // No other yet.
            _ => {}
        }
    }
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what local programs have done since the last time; how many changes.
    pub fn listen_to_locals(&self) -> usize {
        let mut heard = self.heard();
        let told = |told: Told<'_>| heard.on_local_effect(told);
        // Only a forked child hears nothing, and it is no server.
        self.store.drain_effects(AT_ONCE, told).unwrap_or(0)
    }

    /// What local programs had done when this was called.
    pub fn heard_of_locals(&self) -> Heard {
        // The ring holds no more than is taken in at once.
        self.listen_to_locals();
        *self.heard()
    }

    /// Begins to count anew: what was done before this is not counted after it.
    pub fn forget_heard(&self) {
        self.listen_to_locals();
        let mut heard = self.heard();
        *heard = Heard {
            begun: heard.begun,
            ..Heard::default()
        };
    }

    /// Listens until the server stops.
    pub fn keep_listening(&self) {
        while !self.stopping() {
            match self.listen_to_locals() {
                0 => std::thread::sleep(PAUSE),
                AT_ONCE => {}
                _ => std::thread::sleep(SHORT),
            }
        }
    }
}
