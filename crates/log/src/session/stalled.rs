//! Bucket locks whose holders made no progress for as long as an operation waits.
//!
//! **One waiter waits the whole timeout, the next ones fail at once**, until the lock's word
//! changes: otherwise each of a thousand pipelined writes of one bucket would wait its own second.
//! The word counts how often the lock was released, so that a holder that made progress is never
//! mistaken for one that did not.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks that are remembered at most: the latest.
const MOST: usize = 64;

/// The locks at which this process has waited in vain.
#[derive(Debug, Default)]
pub(crate) struct StalledLocks(Mutex<Vec<Stalled>>);

#[derive(Debug)]
struct Stalled {
    /// The byte in the region where the lock lies.
    at: u64,
    /// The lock's word while it was waited for.
    word: u64,
    /// Since when it was waited for, in nanoseconds.
    since: u64,
}

impl StalledLocks {
    fn locks(&self) -> MutexGuard<'_, Vec<Stalled>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when the lock at `at`, which is held as `word` says, has been waited for in vain.
    pub fn since(&self, at: u64, word: u64) -> Option<u64> {
        let mut locks = self.locks();
        // A lock whose word has changed was released since.
        locks.retain(|lock| lock.at != at || lock.word == word);
        let lock = locks.iter().find(|lock| lock.at == at)?;
        Some(lock.since)
    }

    /// Notes a lock at which a waiter has timed out.
    pub fn note(&self, at: u64, word: u64, since: u64) {
        let mut locks = self.locks();
        locks.retain(|lock| lock.at != at);
        if locks.len() == MOST {
            locks.remove(0);
        }
        locks.push(Stalled { at, word, since });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_remembered_as_long_as_its_word_stays() {
        let (locks, at) = (StalledLocks::default(), 4096);
        let (word, later) = (7 << 48 | 1, 7 << 48 | 33);
        assert_eq!(locks.since(at, word), None);
        locks.note(at, word, 10);
        assert_eq!(locks.since(at, word), Some(10));
        assert_eq!(locks.since(8192, word), None);
        assert_eq!(locks.since(at, later), None);
        assert_eq!(locks.since(at, word), None);
        for i in 0..2 * MOST as u64 {
            locks.note(i * 128, word, i);
        }
        assert_eq!(locks.locks().len(), MOST);
        assert_eq!(locks.since(0, word), None);
    }
}
