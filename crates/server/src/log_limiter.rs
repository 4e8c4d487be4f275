//! A limit on messages about events that may come in floods: **one in ten seconds, with the number
//! of events since the last one**.

use std::sync::{Mutex, PoisonError};

/// The minimum time between two messages, in milliseconds.
const INTERVAL_MS: u64 = 10_000;

/// One kind of event, counted over all threads.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// When the last message was logged.
    at_ms: Option<u64>,
    /// The number of events since then.
    since: u64,
}

impl LogLimiter {
    /// Counts an event. Returns the number of events to log now; `None` if the last message is too
    /// recent.
    pub fn count(&self, now_ms: u64) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.since += 1;
        let is_recent = last
            .at_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < INTERVAL_MS);
        if is_recent {
            return None;
        }
        last.at_ms = Some(now_ms);
        Some(std::mem::take(&mut last.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_one_message_with_their_number() {
        let limiter = LogLimiter::default();
        assert_eq!(limiter.count(5), Some(1));
        for now_ms in 6..106 {
            assert_eq!(limiter.count(now_ms), None);
        }
        assert_eq!(limiter.count(5 + INTERVAL_MS), Some(101));
    }
}
