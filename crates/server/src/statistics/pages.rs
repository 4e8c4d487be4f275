//! The system's report on the pages behind the store, and its age. The system counts page by page,
//! which takes milliseconds for a large store, so a background thread requests the report and keeps
//! it: **no thread that serves clients waits for it**.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mneme_log::{LogStore, PageReport};

/// The last report.
pub(crate) struct Pages(Mutex<Kept>);

struct Kept {
    report: PageReport,
    /// When it was made, in nanoseconds of the server's clock.
    at_ns: u64,
    /// How long it took to make, in nanoseconds.
    took_ns: u64,
}

impl Pages {
    /// Makes a first report on `store`, before it is served.
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

    /// Makes a new report, unless the last one is younger than `young_ns`. Not for a thread that
    /// serves clients.
    pub fn refresh(&self, store: &LogStore, young_ns: u64, now_ns: impl Fn() -> u64) {
        if self.last(now_ns()).1 < young_ns {
            return;
        }
        // Made without the lock, so that readers do not wait for it.
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
