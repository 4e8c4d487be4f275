//! Changes that local programs make in the segment beside the server: **each is received once, or
//! reported as lost**.
//!
//! A thread of its own reads change notifications, as often as the store's maintainer runs, and
//! more often while there is much to read. Changes are counted for `INFO` here; anything that must
//! react to a change does so in [`LocalChanges::on_local_change`].

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{ChangeKind, Notification};

use crate::backing::ServedStore;

/// Sleep after a read that found nothing.
const PAUSE: Duration = Duration::from_millis(10);
/// Sleep after a read that found changes: a local program that does nothing but store fills the
/// ring in some milliseconds.
const SHORT: Duration = Duration::from_millis(1);
/// Changes that are taken in at once.
const AT_ONCE: usize = 4096;

/// What local programs have done since the server's start, or the last `CONFIG RESETSTAT`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalChanges {
    /// Keys stored, or given another expiry.
    pub stored: u64,
    /// Keys removed.
    pub removed: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Keys removed to free memory.
    pub evicted: u64,
    /// Databases cleared, or exchanged with another.
    pub databases: u64,
    /// How often changes may have been missed: the other counts are too low then.
    pub lost: u64,
    /// Whether the first loss, which marks the beginning, was received.
    begun: bool,
}

impl LocalChanges {
    /// Takes in one change by a local program.
    fn on_local_change(&mut self, notification: Notification<'_>) {
        let change = match notification {
            Notification::Change(change) => change,
            Notification::Lost => {
                // What was there before the server is no loss.
                self.lost += u64::from(std::mem::replace(&mut self.begun, true));
                return;
            }
        };
        match change.kind {
            ChangeKind::Stored(_) | ChangeKind::Retimed(_) => self.stored += 1,
            ChangeKind::Removed(_) => self.removed += 1,
            ChangeKind::Expired(_) => self.expired += 1,
            ChangeKind::Evicted(_) => self.evicted += 1,
            ChangeKind::Cleared | ChangeKind::Swapped(_) => self.databases += 1,
            // No other yet.
            _ => {}
        }
    }
}

/// Listens to what local programs change in the store, and counts it.
#[derive(Debug, Default)]
pub(crate) struct LocalListener(Mutex<LocalChanges>);

impl LocalListener {
    fn lock(&self) -> MutexGuard<'_, LocalChanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what local programs have done since the last time; how many changes.
    pub fn drain(&self, store: &ServedStore) -> usize {
        let mut stats = self.lock();
        let receive = |notification: Notification<'_>| stats.on_local_change(notification);
        // Only a forked child receives nothing, and it is no server.
        store.drain_changes(AT_ONCE, receive).unwrap_or(0)
    }

    /// What local programs had done when this was called.
    pub fn stats(&self, store: &ServedStore) -> LocalChanges {
        // The ring holds no more than is taken in at once.
        self.drain(store);
        *self.lock()
    }

    /// Begins to count anew: what was done before this is not counted after it.
    pub fn reset(&self, store: &ServedStore) {
        self.drain(store);
        let mut stats = self.lock();
        *stats = LocalChanges {
            begun: stats.begun,
            ..LocalChanges::default()
        };
    }

    /// Listens until the server stops.
    pub fn read(&self, store: &ServedStore, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            match self.drain(store) {
                0 => std::thread::sleep(PAUSE),
                AT_ONCE => {}
                _ => std::thread::sleep(SHORT),
            }
        }
    }
}
