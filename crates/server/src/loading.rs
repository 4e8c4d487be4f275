//! The progress of loading a store that a power loss had removed from memory: for `INFO` and the
//! log, while commands get the error `LOADING`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The minimum time between two log messages about a load, in nanoseconds.
const SILENCE_NS: u64 = 5_000_000_000;

/// The progress of a load. Its numbers are independent statistics.
#[derive(Debug)]
pub(crate) struct Loading {
    /// Milliseconds since 1970.
    begun_ms: u64,
    begun_ns: u64,
    done: AtomicU64,
    total: AtomicU64,
    records: AtomicU64,
    /// When the last message was logged.
    said_ns: AtomicU64,
}

/// The progress at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadingProgress {
    /// When it began: seconds since 1970.
    pub begun_s: u64,
    /// The number of bytes of files that were read, and the total.
    pub done: u64,
    pub total: u64,
    /// The number of records and changes that were loaded.
    pub records: u64,
    /// From 0 to 100.
    pub percent: f64,
    /// The estimated remaining time in seconds.
    pub left_s: u64,
}

impl Loading {
    /// A load that begins now, in milliseconds since 1970 and nanoseconds of the server's clock.
    pub fn new(now_ms: u64, now_ns: u64) -> Self {
        Self {
            begun_ms: now_ms,
            begun_ns: now_ns,
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            records: AtomicU64::new(0),
            said_ns: AtomicU64::new(now_ns),
        }
    }

    /// Records the progress: the number of bytes read, their total, and what was loaded from them.
    pub fn note(&self, done: u64, total: u64, records: u64, now_ns: u64) {
        self.done.store(done, Relaxed);
        self.total.store(total.max(done), Relaxed);
        self.records.store(records, Relaxed);
        if now_ns.saturating_sub(self.said_ns.load(Relaxed)) >= SILENCE_NS {
            self.said_ns.store(now_ns, Relaxed);
            let now = self.progress(now_ns);
            tracing::info!(
                records,
                "loading: {:.0} % of {} MiB, about {} s left",
                now.percent,
                now.total >> 20,
                now.left_s
            );
        }
    }

    /// How far it is at `now_ns`.
    pub fn progress(&self, now_ns: u64) -> LoadingProgress {
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        let total = total.max(done);
        let took_s = now_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let part = done as f64 / total.max(1) as f64;
        let left_s = match done {
            0 => 1.0,
            _ => took_s * (1.0 - part) / part,
        };
        LoadingProgress {
            begun_s: self.begun_ms / 1000,
            done,
            total,
            records: self.records.load(Relaxed),
            percent: part * 100.0,
            left_s: left_s.round() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_from_the_progress() {
        let second = 1_000_000_000;
        let loading = Loading::new(7000, second);
        assert_eq!(loading.progress(second).percent, 0.0);
        loading.note(25, 100, 3, 2 * second);
        let now = loading.progress(2 * second);
        assert_eq!((now.begun_s, now.percent, now.left_s), (7, 25.0, 3));
        // Files may have grown meanwhile.
        loading.note(110, 100, 3, 2 * second);
        assert_eq!(loading.progress(3 * second).percent, 100.0);
    }
}
