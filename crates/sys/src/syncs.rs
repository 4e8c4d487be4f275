//! Syncs of an open file.

use std::sync::{Mutex, PoisonError};

/// The syncs of one open file, one after the other. **After a failed one none succeeds**: the
/// kernel may have marked pages clean that were never written, and it reports that only once. If
/// two syncs waited for the same page at once, only one would learn of its loss.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Whether one has failed.
    failed: Mutex<bool>,
}

impl Syncs {
    /// Runs a sync. `None`: an earlier one has failed.
    pub(crate) fn run<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), Option<E>> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(None);
        }
        sync().map_err(|error| {
            *failed = true;
            Some(error)
        })
    }
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Like the kernel: the second sync, which waits for the same page, gets no error.
    #[test]
    fn a_sync_fails_if_a_concurrent_one_fails() {
        let syncs = Syncs::default();
        let (ended, other_ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let first = syncs.run(|| {
                let other = || {
                    let synced = syncs.run(|| Ok::<(), u8>(()));
                    ended.send(synced).unwrap();
                };
                scope.spawn(other);
                // Long enough for the other to end while this one runs.
                let ended = other_ended.recv_timeout(Duration::from_millis(200));
                assert!(ended.is_err(), "the other sync has ended before");
                Err(7)
            });
            assert_eq!(first, Err(Some(7)));
        });
        assert_eq!(other_ended.recv().unwrap(), Err(None));
        assert_eq!(syncs.run(|| Ok::<(), u8>(())), Err(None));
    }
}
