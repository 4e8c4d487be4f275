//! Changes that local programs make in the segment beside the server: **each is received once, or
//! reported as lost**.
//!
//! A separate thread listens to the store's change feed. A change wakes it at once; while there are
//! more, it looks again after a pause, so that local programs seldom have to wake it. Changes are
//! counted for `INFO` here, and wake clients that wait for keys.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{ChangeKind, Notification};

use crate::backing::ServedStore;

/// The sleep after a read that found changes: a local program that only stores values would
/// overwrite its entries after some milliseconds.
const PAUSE: Duration = Duration::from_micros(500);
/// The longest sleep without a change.
const LONG: Duration = Duration::from_secs(60);
/// The sleep if it is unknown whether there are changes.
const RETRY: Duration = Duration::from_millis(10);
/// The maximum number of changes processed at once.
const AT_ONCE: usize = 4096;

/// The changes by local programs since the server's start, or since the last `CONFIG RESETSTAT`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalChanges {
    /// Keys stored, or given another expiry.
    pub stored: u64,
    /// Keys removed.
    pub removed: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// Keys removed to free memory.
    pub evicted: u64,
    /// Databases cleared, or exchanged with another.
    pub databases: u64,
    /// How often changes may have been missed: then the other counts are too low.
    pub lost: u64,
    /// Whether the first loss, which marks the beginning, was received.
    begun: bool,
}

/// What reacts to changes by local programs.
pub(crate) trait OnLocalChange {
    /// A key has another value, or is new.
    fn stored(&self, database: usize, key: &[u8]);
    /// Two databases were exchanged.
    fn swapped(&self, databases: [usize; 2]);
    /// Any key may have changed.
    fn anything(&self);
}

impl LocalChanges {
    /// Counts one change by a local program.
    fn on_local_change(&mut self, notification: Notification<'_>) {
        let change = match notification {
            Notification::Change(change) => change,
            Notification::Lost => {
                // The first loss only marks the beginning.
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
            // No other kinds exist yet.
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

    /// Processes the changes that local programs have made since the last call, and returns their
    /// number. `None`: the kernel refuses a barrier now; changes missed meanwhile will be reported
    /// as lost.
    pub fn drain(&self, store: &ServedStore, on_change: &dyn OnLocalChange) -> Option<usize> {
        let mut stats = self.lock();
        let receive = |notification: Notification<'_>| {
            stats.on_local_change(notification);
            match notification {
                Notification::Change(change) => match change.kind {
                    ChangeKind::Stored(key) => on_change.stored(change.database, key),
                    ChangeKind::Swapped(other) => on_change.swapped([change.database, other]),
                    _ => {}
                },
                Notification::Lost => on_change.anything(),
            }
        };
        store.drain_changes(AT_ONCE, receive).ok()
    }

    /// The changes that local programs had made when this was called.
    pub fn stats(&self, store: &ServedStore, on_change: &dyn OnLocalChange) -> LocalChanges {
        while self.drain(store, on_change) >= Some(AT_ONCE) {}
        *self.lock()
    }

    /// Resets the counts: earlier changes are no longer counted.
    pub fn reset(&self, store: &ServedStore, on_change: &dyn OnLocalChange) {
        while self.drain(store, on_change) >= Some(AT_ONCE) {}
        let mut stats = self.lock();
        *stats = LocalChanges {
            begun: stats.begun,
            ..LocalChanges::default()
        };
    }

    /// Listens until the server stops and [wakes](mneme_log::LogStore::wake_listeners) it.
    pub fn read(
        &self,
        store: &ServedStore,
        on_change: &dyn OnLocalChange,
        is_stopping: impl Fn() -> bool,
    ) {
        // Whether it was woken and has found no change since. While another process listens too,
        // each change by this server wakes it.
        let mut was_woken = false;
        while !is_stopping() {
            let drained = self.drain(store, on_change);
            if drained == Some(0) && was_woken {
                std::thread::sleep(PAUSE);
            }
            was_woken = drained == Some(0);
            match drained {
                None => std::thread::sleep(RETRY),
                Some(AT_ONCE..) => {}
                Some(1..) => std::thread::sleep(PAUSE),
                Some(0) => {
                    // The bell is armed: a server that stops now rings it.
                    if let Some(sleep) = store.sleep_for_changes()
                        && !is_stopping()
                    {
                        sleep.at_most(LONG);
                    }
                }
            }
        }
    }
}
