//! Remembers holders of locks that made no progress for a second.
//!
//! **Only one waiter waits for a second; later ones fail at once**, until the holder makes
//! progress. Otherwise each of a thousand pipelined writes would wait a second for one stopped
//! thread.
//!
//! A thread announces an intent before it takes the locks of an operation, and every intent has its
//! own sequence number. An operation that holds many locks also counts its progress in a word of
//! the intent. If the intents and their words are equal at the beginning and at the end of a wait,
//! the thread has made no progress.
//!
//! A [`RobustLock`](crate::RobustLock) may be taken and released many times under one intent. So
//! its waiters rely only on what was recorded for that lock: its word changes with each owner.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layout::SlotLines;
use crate::opening::Inner;
use crate::participants::Participants;
use crate::robust_lock::LOCK_TIMEOUT;
use crate::{RobustLock, SlotId, intent, lock_word};

/// The maximum number of holders that are remembered: the latest ones.
const MOST: usize = 64;

/// The holders that this opening has waited for without success.
#[derive(Debug, Default)]
pub(crate) struct StalledHolders {
    /// The number of holders remembered.
    number: AtomicUsize,
    holders: Mutex<Vec<StalledHolder>>,
}

#[derive(Debug)]
struct StalledHolder {
    slot: SlotId,
    /// What the holder was doing, if it had announced that.
    operation: Option<u64>,
    /// The lock that was waited for, and its word.
    lock: Option<(usize, u64)>,
    /// When that wait began.
    began: Duration,
}

impl StalledHolder {
    /// Whether the slot is still at this operation or, if it was this lock that was waited for, the
    /// lock still has this word.
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

    /// Whether none is remembered, which is almost always the case.
    fn is_empty(&self) -> bool {
        // Relaxed: a waiter that does not see the latest entry waits itself.
        self.number.load(Relaxed) == 0
    }

    /// When the unsuccessful wait for `slot` began, if there was one and the slot has made no
    /// progress since.
    fn began(
        &self,
        slot: SlotId,
        operation: Option<u64>,
        lock: Option<(usize, u64)>,
    ) -> Option<Duration> {
        let mut holders = self.holders();
        holders.retain(|holder| holder.slot != slot || holder.stands(operation, lock));
        self.number.store(holders.len(), Relaxed);
        let applies = |holder: &&StalledHolder| {
            let at_any = lock.is_none() && operation.is_some();
            holder.slot == slot && (at_any || holder.lock == lock)
        };
        holders.iter().find(applies).map(|holder| holder.began)
    }

    fn note(&self, holder: StalledHolder) {
        let mut holders = self.holders();
        let lock = |holder: &StalledHolder| holder.lock.map(|(lock, _)| lock);
        holders.retain(|other| other.slot != holder.slot || lock(other) != lock(&holder));
        if holders.len() == MOST {
            holders.remove(0);
        }
        holders.push(holder);
        self.number.store(holders.len(), Relaxed);
    }
}

impl Participants {
    /// For how long a lock's holder has made no progress, if this opening has waited for it without
    /// success: waiting again is useless. The holder may be dead by now, which the caller should
    /// check first.
    #[must_use]
    pub fn stalled_for(&self, holder: SlotId) -> Option<Duration> {
        self.inner().stalled_for(holder, None)
    }

    /// What `holder` is doing now.
    #[must_use]
    pub fn progress_of(&self, holder: SlotId) -> Progress {
        self.inner().progress_of(holder)
    }

    /// The holder of `lock`, if it is held, and what the holder is doing now. Its progress also
    /// changes when the lock is taken again, whatever the holder has announced.
    #[must_use]
    pub fn holder_of(&self, lock: &RobustLock) -> Option<(SlotId, Progress)> {
        let seen = lock_word::look(lock.word());
        let slot = seen.owner()?.slot;
        let Progress(operation) = self.progress_of(slot);
        let number = add_to(operation.unwrap_or_default(), seen.0);
        Some((slot, Progress(Some(number))))
    }

    /// Records that the calling thread has waited this long for `holder` without success. `then` is
    /// what the holder was doing when the wait began. If it has made progress since, nothing is
    /// recorded.
    pub fn note_stalled(&self, holder: SlotId, then: Progress, waited: Duration) {
        self.inner().note_stalled(holder, None, then, waited);
    }
}

/// What a thread has announced, as a number that changes when the thread makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(Option<u64>);

impl Inner {
    /// See [`Participants::stalled_for`]. `lock` is the address of the lock and its current word,
    /// for locks whose holders need not have announced an intent.
    pub(crate) fn stalled_for(
        &self,
        holder: SlotId,
        lock: Option<(usize, u64)>,
    ) -> Option<Duration> {
        let stalled = self.stalled_holders();
        if stalled.is_empty() {
            return None;
        }
        let operation = operation(self.control().slot(holder)?);
        let began = stalled.began(holder, operation, lock)?;
        Some(self.now().saturating_sub(began))
    }

    /// See [`Participants::progress_of`].
    pub(crate) fn progress_of(&self, holder: SlotId) -> Progress {
        Progress(self.control().slot(holder).and_then(operation))
    }

    /// See [`Participants::note_stalled`].
    pub(crate) fn note_stalled(
        &self,
        holder: SlotId,
        lock: Option<(usize, u64)>,
        then: Progress,
        waited: Duration,
    ) {
        let Progress(operation) = then;
        let went_on = self.progress_of(holder) != then;
        if waited >= LOCK_TIMEOUT && !went_on && (operation.is_some() || lock.is_some()) {
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
/// begins another one, or another phase of it. `None` if it has announced none.
fn operation(lines: &SlotLines) -> Option<u64> {
    let intents = lines.intents.iter();
    let stands = intents
        .clone()
        .any(|line| intent::standing(&line.head).is_some());
    stands.then(|| {
        let mut number = lines.owner.load(Acquire);
        for word in intents.flat_map(|line| std::iter::once(&line.head).chain(&line.words)) {
            // SYNC: pairs with nothing: only whether a word has changed matters.
            number = add_to(number, word.load(Acquire));
        }
        number
    })
}

/// Extends the hash `number` by `word`.
const fn add_to(number: u64, word: u64) -> u64 {
    (number.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
    fn a_holder_is_remembered_until_it_makes_progress() {
        let holders = StalledHolders::default();
        assert_eq!(holders.began(SLOT, Some(1), None), None);
        for lock in [None, Some((24, 1)), Some((8, 1))] {
            holders.note(holder(SLOT, Some(1), lock));
        }
        for lock in [None, Some((8, 1)), Some((24, 1))] {
            assert_eq!(
                holders.began(SLOT, Some(1), lock),
                Some(Duration::from_secs(7))
            );
        }
        // Another lock may have been taken and released meanwhile.
        assert_eq!(holders.began(SLOT, Some(1), Some((16, 5))), None);
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
    fn the_latest_holders_are_remembered() {
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
