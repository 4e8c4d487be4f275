//! Index pages that have grown for entries that transactions are about to add. They are nearly
//! empty until then, and are not shrunk meanwhile.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::shape::SegmentRef;

/// The index pages that have grown for unfinished transactions of this process.
#[derive(Default)]
pub(crate) struct GrownAhead {
    /// How many there are: usually none, which a single load shows.
    number: AtomicUsize,
    segments: Mutex<HashMap<u64, Kept>>,
}

#[derive(Default)]
struct Kept {
    transactions: usize,
    /// Whether a thread would have shrunk it.
    missed: bool,
}

impl GrownAhead {
    fn segments(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_segments(&self) -> Option<MutexGuard<'_, HashMap<u64, Kept>>> {
        match self.segments.try_lock() {
            Ok(segments) => Some(segments),
            Err(TryLockError::Poisoned(segments)) => Some(segments.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether this page must keep its size.
    pub fn keeps(&self, segment: SegmentRef) -> bool {
        // Relaxed here and below: a thread that misses the number shrinks a page that then grows
        // once more.
        if self.number.load(Relaxed) == 0 {
            return false;
        }
        // Threads of other processes may wait for the caller, so it does not wait for a stopped
        // thread of its own process.
        let Some(mut segments) = self.try_segments() else {
            return true;
        };
        let kept = segments.get_mut(&segment.word());
        kept.map(|kept| kept.missed = true).is_some()
    }

    /// Keeps this page for a transaction. Returns false if it cannot be noted now; the note is
    /// optional. The caller is pinned, and so, as in [`keeps`](Self::keeps), does not wait.
    pub fn keep(&self, segment: SegmentRef) -> bool {
        let Some(mut segments) = self.try_segments() else {
            return false;
        };
        segments.entry(segment.word()).or_default().transactions += 1;
        self.number.fetch_add(1, Relaxed);
        true
    }

    /// Undoes [`keep`](Self::keep). Returns whether a thread would have shrunk the page meanwhile,
    /// if it was kept.
    pub fn give_back(&self, segment: SegmentRef) -> Option<bool> {
        let mut segments = self.segments();
        self.number.fetch_sub(1, Relaxed);
        let kept = segments.get_mut(&segment.word())?;
        let missed = kept.missed;
        kept.transactions -= 1;
        if kept.transactions == 0 {
            segments.remove(&segment.word());
        }
        Some(missed)
    }
}
