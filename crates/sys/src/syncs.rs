//! Syncs of an open file.

use std::sync::{Mutex, PoisonError};

/// The syncs of one open file, one after the other. **After one that failed none succeeds**: the
/// kernel may have marked pages clean that were never written, and it reports that once. Of two
/// syncs at once that wait for the same page, one alone would hear of its loss.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Whether one has failed.
    failed: Mutex<bool>,
}

impl Syncs {
    /// Runs one. `None`: an earlier one has failed.
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

    /// As the kernel: the second sync, which waits for the same page, gets no error.
    #[test]
    fn of_two_syncs_at_once_none_succeeds_if_the_other_fails() {
        let syncs = Syncs::default();
        let (ended, other_ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let first = syncs.run(|| {
                let other = || {
                    let synced = syncs.run(|| Ok::<(), u8>(()));
                    ended.send(synced).unwrap();
                };
                scope.spawn(other);
                // As long as the other could end beside this one.
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
