//! Holders of locks that made no progress for a second.
//!
//! **One waiter waits the second, the next ones fail at once**, at whichever lock of that holder,
//! until the holder makes progress: otherwise each of a thousand pipelined writes would wait its
//! own second for one stopped thread.
//!
//! A thread announces an intent before it takes the locks of an operation, and every intent has a
//! sequence number of its own. While the same intent stands with the same words, the thread has
//! neither finished the operation nor come to its next phase. Of a thread without an intent only
//! the lock itself is remembered, whose word changes when it is released.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layout::SlotLines;
use crate::opening::Inner;
use crate::participants::Participants;
use crate::robust_lock::LOCK_TIMEOUT;
use crate::{SlotId, intent};

/// Holders that are remembered at most: the latest.
const MOST: usize = 64;

/// The holders that this opening has waited for in vain.
#[derive(Debug, Default)]
pub(crate) struct StalledHolders {
    /// How many there are.
    number: AtomicUsize,
    holders: Mutex<Vec<StalledHolder>>,
}

#[derive(Debug)]
struct StalledHolder {
    slot: SlotId,
    /// What it was doing, if it had announced that.
    operation: Option<u64>,
    /// The lock that was waited for, and its word.
    lock: Option<(usize, u64)>,
    /// When that wait began.
    began: Duration,
}

impl StalledHolder {
    /// Whether its slot has this operation, and the lock, if it is this one, this word.
    fn stands(&self, operation: Option<u64>, lock: Option<(usize, u64)>) -> bool {
        match (self.lock, lock) {
            (Some((then, word)), Some((now, seen))) if then == now && word != seen => false,
            _ => self.operation == operation,
        }
    }
}

impl StalledHolders {
    fn holders(&self) -> MutexGuard<'_, Vec<StalledHolder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether none is remembered, which is so almost always.
    fn is_empty(&self) -> bool {
        // Relaxed: a waiter that does not see the latest waits for itself.
        self.number.load(Relaxed) == 0
    }

    /// When the wait for `slot` began, if one was in vain and the slot has made no progress since.
    fn began(
        &self,
        slot: SlotId,
        operation: Option<u64>,
        lock: Option<(usize, u64)>,
    ) -> Option<Duration> {
        let mut holders = self.holders();
        holders.retain(|holder| holder.slot != slot || holder.stands(operation, lock));
        self.number.store(holders.len(), Relaxed);
        let holder = holders.iter().find(|holder| holder.slot == slot)?;
        (operation.is_some() || holder.lock == lock).then_some(holder.began)
    }

    fn note(&self, holder: StalledHolder) {
        let mut holders = self.holders();
        holders.retain(|other| other.slot != holder.slot);
        if holders.len() == MOST {
            holders.remove(0);
        }
        holders.push(holder);
        self.number.store(holders.len(), Relaxed);
    }
}

impl Participants {
    /// For how long the holder of a lock has made no progress, if this opening has waited for it in
    /// vain: waiting again is of no use. It may be dead by now, which the caller asks first.
    #[must_use]
    pub fn stalled_for(&self, holder: SlotId) -> Option<Duration> {
        self.inner().stalled_for(holder, None)
    }

    /// Notes that the calling thread has waited so long for `holder`, which lives, in vain.
    pub fn note_stalled(&self, holder: SlotId, waited: Duration) {
        self.inner().note_stalled(holder, None, waited);
    }
}

impl Inner {
    /// See [`Participants::stalled_for`]. `lock`: the address of the lock and its present word,
    /// where the holder of such a lock need not have announced an intent.
    pub(crate) fn stalled_for(
        &self,
        holder: SlotId,
        lock: Option<(usize, u64)>,
    ) -> Option<Duration> {
        let stalled = self.stalled_holders();
        if stalled.is_empty() {
            return None;
        }
        let operation = operation(self.map().slot(holder)?);
        let began = stalled.began(holder, operation, lock)?;
        Some(self.now().saturating_sub(began))
    }

    /// See [`Participants::note_stalled`].
    pub(crate) fn note_stalled(
        &self,
        holder: SlotId,
        lock: Option<(usize, u64)>,
        waited: Duration,
    ) {
        let Some(lines) = self.map().slot(holder) else {
            return;
        };
        let operation = operation(lines);
        if waited >= LOCK_TIMEOUT && (operation.is_some() || lock.is_some()) {
            self.stalled_holders().note(StalledHolder {
                slot: holder,
                operation,
                lock,
                began: self.now().saturating_sub(waited),
            });
        }
    }
}

/// The operation that the thread of a slot has announced, as a number that changes when the thread
/// comes to another one, or to another phase of it. `None`: it has announced none.
fn operation(lines: &SlotLines) -> Option<u64> {
    let intents = lines.intents.iter();
    let stands = intents
        .clone()
        .any(|line| intent::standing(&line.head).is_some());
    stands.then(|| {
        let mut number = lines.owner.load(Acquire);
        for word in intents.flat_map(|line| std::iter::once(&line.head).chain(&line.words)) {
            // SYNC: pairs with nothing: no more is concluded than that a word has changed.
            number =
                (number.rotate_left(5) ^ word.load(Acquire)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: SlotId = SlotId(7);

    fn holder(slot: SlotId, operation: Option<u64>, lock: Option<(usize, u64)>) -> StalledHolder {
        StalledHolder {
            slot,
            operation,
            lock,
            began: Duration::from_secs(u64::from(slot.0)),
        }
    }

    #[test]
    fn a_holder_is_remembered_at_every_lock_until_it_makes_progress() {
        let holders = StalledHolders::default();
        assert_eq!(holders.began(SLOT, Some(1), None), None);
        holders.note(holder(SLOT, Some(1), Some((8, 1))));
        for lock in [None, Some((8, 1)), Some((16, 5))] {
            assert_eq!(
                holders.began(SLOT, Some(1), lock),
                Some(Duration::from_secs(7))
            );
        }
        assert_eq!(holders.began(SlotId(8), Some(1), None), None);
        assert_eq!(holders.began(SLOT, Some(2), None), None);
        assert_eq!(holders.began(SLOT, Some(1), None), None, "it was forgotten");
    }

    #[test]
    fn a_holder_without_an_intent_is_remembered_at_its_lock_until_that_is_released() {
        let holders = StalledHolders::default();
        holders.note(holder(SLOT, None, Some((8, 1))));
        assert_eq!(holders.began(SLOT, None, Some((16, 1))), None);
        assert!(holders.began(SLOT, None, Some((8, 1))).is_some());
        assert_eq!(holders.began(SLOT, None, Some((8, 2))), None);
        assert_eq!(holders.began(SLOT, None, Some((8, 1))), None);
    }

    #[test]
    fn the_latest_are_remembered() {
        let holders = StalledHolders::default();
        for slot in 1..=2 * MOST as u16 {
            holders.note(holder(SlotId(slot), Some(1), None));
        }
        assert_eq!(holders.holders().len(), MOST);
        assert_eq!(holders.began(SlotId(1), Some(1), None), None);
        assert!(
            holders
                .began(SlotId(2 * MOST as u16), Some(1), None)
                .is_some()
        );
    }
}
