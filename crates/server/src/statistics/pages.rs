//! The system's report on the pages behind the store, and its age. **No thread that serves clients
//! waits for it**: the system counts page by page, for milliseconds in a large store, so a
//! background thread makes the report and keeps it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mneme_log::{LogStore, PageReport};

/// The last report.
pub(crate) struct Pages(Mutex<Kept>);

struct Kept {
    report: PageReport,
    /// When it was made, by the server's clock.
    at_ns: u64,
    /// What it took to make it.
    took_ns: u64,
}

impl Pages {
    /// A first report, of `store` before it is served.
    pub fn of(store: &LogStore, now_ns: impl Fn() -> u64) -> Self {
        Self(Mutex::new(Kept::make(store, now_ns)))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last report, and how many nanoseconds old it is.
    pub fn last(&self, now_ns: u64) -> (PageReport, u64) {
        let kept = self.kept();
        (kept.report.clone(), now_ns.saturating_sub(kept.at_ns))
    }

    /// How long the last report took, in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.kept().took_ns
    }

    /// Makes a new one, unless the last is younger than `young_ns`. Not for a thread that serves
    /// clients.
    pub fn refresh(&self, store: &LogStore, young_ns: u64, now_ns: impl Fn() -> u64) {
        if self.last(now_ns()).1 < young_ns {
            return;
        }
        // Without the lock, for which others do not wait then.
        let made = Kept::make(store, now_ns);
        *self.kept() = made;
    }
}

impl Kept {
    fn make(store: &LogStore, now_ns: impl Fn() -> u64) -> Self {
        let begun_ns = now_ns();
        let report = store.pages();
        let at_ns = now_ns();
        Self {
            report,
            at_ns,
            took_ns: at_ns.saturating_sub(begun_ns),
        }
    }
}
