//! Accepting connections when there are no descriptors for them: **it is neither tried nor told without pause**.
//!
//! The connections wait in the system's queue meanwhile, up to `tcp-backlog` of them, and are served once a descriptor
//! is free.

use std::io;
use std::sync::{Mutex, PoisonError};

/// How soon it is tried again.
const AGAIN_MS: u64 = 500;

/// How often it is told.
const TOLD_MS: u64 = 10_000;

/// Whether a thread may accept.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// When it may again, if it could not.
    again_ms: Option<u64>,
}

impl Accepting {
    /// It could not: not before a while.
    pub fn failed(&mut self, now_ms: u64) {
        self.again_ms = Some(now_ms + AGAIN_MS);
    }

    /// Whether it waits to try again.
    pub fn waits(&self) -> bool {
        self.again_ms.is_some()
    }

    /// Whether to try now: because connections have been `told` of, or because it is time to try again.
    pub fn is_due(&mut self, told: bool, now_ms: impl FnOnce() -> u64) -> bool {
        match self.again_ms {
            None => told,
            Some(again_ms) if now_ms() < again_ms => false,
            Some(_) => {
                self.again_ms = None;
                true
            }
        }
    }
}

/// What all threads could not accept, told once a while by whoever fails then.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// When it was last told.
    at_ms: Option<u64>,
    /// Failures since.
    since: u64,
}

impl Failures {
    /// Notes one, and tells of all since the last time, if that is long ago.
    pub fn note(&self, error: &io::Error, now_ms: u64) {
        if let Some(failures) = self.count(now_ms) {
            tracing::warn!(
                %error,
                failures,
                "connections cannot be accepted; they wait, and it is tried again"
            );
        }
    }

    /// How many to tell of now.
    fn count(&self, now_ms: u64) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.since += 1;
        let is_recent = told
            .at_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < TOLD_MS);
        if is_recent {
            return None;
        }
        told.at_ms = Some(now_ms);
        Some(std::mem::take(&mut told.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_waits_whatever_comes() {
        let mut accepting = Accepting::default();
        assert!(!accepting.is_due(false, || 0) && accepting.is_due(true, || 0));
        accepting.failed(7);
        assert!(accepting.waits() && !accepting.is_due(true, || 6 + AGAIN_MS));
        assert!(accepting.is_due(false, || 7 + AGAIN_MS) && !accepting.waits());
    }

    #[test]
    fn failures_are_told_once_a_while_with_their_number() {
        let failures = Failures::default();
        assert_eq!(failures.count(5), Some(1));
        for now_ms in 6..106 {
            assert_eq!(failures.count(now_ms), None);
        }
        assert_eq!(failures.count(5 + TOLD_MS), Some(101));
    }
}
