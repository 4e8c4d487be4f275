//! What may happen in floods, and is to be said: **once in ten seconds, with how often it has happened**.

use std::sync::{Mutex, PoisonError};

/// How often it is told.
const TOLD_MS: u64 = 10_000;

/// One kind of event, of all threads.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// When it was last told.
    at_ms: Option<u64>,
    /// Events since.
    since: u64,
}

impl Told {
    /// Counts one. Returns how many to tell of now; `None`: it has been told a moment ago.
    pub fn count(&self, now_ms: u64) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.since += 1;
        let is_recent = last
            .at_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < TOLD_MS);
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
    fn events_are_told_once_a_while_with_their_number() {
        let told = Told::default();
        assert_eq!(told.count(5), Some(1));
        for now_ms in 6..106 {
            assert_eq!(told.count(now_ms), None);
        }
        assert_eq!(told.count(5 + TOLD_MS), Some(101));
    }
}
