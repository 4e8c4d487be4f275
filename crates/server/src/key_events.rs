//! Listens for events of keys that were not changed by a client's command, **while such events are
//! wanted**. See [`crate::report_key_events`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mneme_log::{ChangeListener, LogStore, SlotError};

/// Listens while such events are wanted.
#[derive(Debug, Default)]
pub(crate) struct KeyEventListener {
    listener: Mutex<Option<ChangeListener>>,
    /// The number of client-serving threads that wait for the lock.
    waiting: AtomicUsize,
    has_begun: Condvar,
}

impl KeyEventListener {
    pub fn lock(&self) -> MutexGuard<'_, Option<ChangeListener>> {
        // SYNC: pairs with nothing, here and below: a hint for which thread should go first.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let listener = self.locked();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        listener
    }

    /// As [`lock`](Self::lock), for the reporting thread: without this it would take the lock again
    /// and again while others wait.
    pub fn lock_after_others(&self) -> MutexGuard<'_, Option<ChangeListener>> {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, Option<ChangeListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins or ends listening to this store. Keys removed from now on are reported. A thread that
    /// changes the result of `is_wanted` must call this afterwards; the last call establishes the
    /// state that all changes together demand.
    pub fn listen(
        &self,
        store: &LogStore,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<(), SlotError> {
        let mut listener = self.lock();
        match is_wanted() {
            true if listener.is_none() => {
                let mut begun = store.listen()?;
                begun.hear_own_removals(true)?;
                // The loss that marks the beginning is not a real loss.
                begun.drain(0, |_| ())?;
                *listener = Some(begun);
                self.has_begun.notify_all();
            }
            true => {}
            false => *listener = None,
        }
        Ok(())
    }

    /// Waits until it listens, unless `is_stopping`.
    pub fn wait(&self, is_stopping: impl Fn() -> bool) {
        let listener = self.lock();
        if listener.is_none() && !is_stopping() {
            let begun = self.has_begun.wait(listener);
            drop(begun.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes the reporting thread, which then checks whether the server stops.
    pub fn wake(&self) {
        drop(self.lock());
        self.has_begun.notify_all();
    }
}
