//! How far a store has been loaded that a power cut had taken out of memory: for `INFO` and the
//! log, while commands are answered with `LOADING`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long the log says nothing of a load: nanoseconds.
const SILENCE_NS: u64 = 5_000_000_000;

/// The progress of a load. Its numbers are statistics: each stands for itself.
#[derive(Debug)]
pub(crate) struct Loading {
    /// Milliseconds since 1970.
    begun_ms: u64,
    begun_ns: u64,
    done: AtomicU64,
    total: AtomicU64,
    records: AtomicU64,
    /// When the log has last said something.
    said_ns: AtomicU64,
}

/// How far it is at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadingProgress {
    /// When it began: seconds since 1970.
    pub begun_s: u64,
    /// Bytes of files that were read, and all of them.
    pub done: u64,
    pub total: u64,
    /// Records and changes that were loaded.
    pub records: u64,
    /// From 0 to 100.
    pub percent: f64,
    /// How long it still takes, if it goes on as before.
    pub left_s: u64,
}

impl Loading {
    /// One that begins now: milliseconds since 1970, and nanoseconds of the server's clock.
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

    /// Notes how far it is: bytes that were read, all of them, and what was loaded of them.
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
    fn what_is_left_follows_from_what_was_done() {
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
