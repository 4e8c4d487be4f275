//! Accepting connections when no descriptors are left: **attempts and log messages are
//! rate-limited**.
//!
//! The connections wait in the system's queue meanwhile, up to `tcp-backlog` of them, and are
//! served once a descriptor is free.

/// How soon accepting is tried again.
const AGAIN_MS: u64 = 500;

/// Whether a thread may accept.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// When it may try again, if it failed.
    again_ms: Option<u64>,
    /// Whether more connections may be waiting at the listeners.
    pub more: bool,
}

impl Accepting {
    /// Accepting failed: it is not tried again for a while.
    pub fn failed(&mut self, now_ms: u64) {
        self.again_ms = Some(now_ms + AGAIN_MS);
        self.more = false;
    }

    /// Whether it waits to try again.
    pub fn waits(&self) -> bool {
        self.again_ms.is_some()
    }

    /// Whether to accept now: because new connections have been reported, or because a retry is
    /// due.
    pub fn is_due(&mut self, is_ready: bool, now_ms: impl FnOnce() -> u64) -> bool {
        match self.again_ms {
            None => std::mem::take(&mut self.more) || is_ready,
            Some(again_ms) if now_ms() < again_ms => false,
            Some(_) => {
                self.again_ms = None;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_accept_is_not_retried_before_its_time() {
        let mut accepting = Accepting::default();
        assert!(!accepting.is_due(false, || 0) && accepting.is_due(true, || 0));
        accepting.failed(7);
        assert!(accepting.waits() && !accepting.is_due(true, || 6 + AGAIN_MS));
        assert!(accepting.is_due(false, || 7 + AGAIN_MS) && !accepting.waits());
    }
}
