//! How many records a database has, and how many of them have an expiry: exact, and never counted
//! twice.
//!
//! Each thread counts in its own slot, for the index that it changes, so that counting costs a
//! store; the total is the sum over all slots. An intent announces a change together with the
//! thread's counts after the change. A repairer sets the counts to these, which is idempotent.
//!
//! The mean time of expiry is not counted but sampled by the sweep of [`crate::records::expiry`],
//! which sees every record. It is kept in the index' root as an absolute time, so it needs no
//! updates as time passes.

use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::{DeadSlot, Slot};

use crate::error::{Corrupt, ReadError};
use crate::index::Index;
use crate::index::root::Root;
use crate::region::space::DATABASES;
use crate::region::space::KeyspaceId;

/// The maximum number of samples over which the mean time of expiry is taken.
const SAMPLES: u64 = 4096;

/// Counts of records, or a change of such counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecordCounts {
    /// Records.
    pub records: i64,
    /// Of these, those with an expiry.
    pub expiring: i64,
}

impl RecordCounts {
    /// The change when one record replaces another, by whether each has an expiry.
    #[inline]
    pub fn change(old: Option<bool>, new: Option<bool>) -> RecordCounts {
        let expiring = |record: Option<bool>| i64::from(record == Some(true));
        RecordCounts {
            records: i64::from(new.is_some()) - i64::from(old.is_some()),
            expiring: expiring(new) - expiring(old),
        }
    }

    #[inline]
    pub fn is_zero(self) -> bool {
        (self.records | self.expiring) == 0
    }

    #[inline]
    pub fn plus(self, by: RecordCounts) -> RecordCounts {
        RecordCounts {
            records: self.records.wrapping_add(by.records),
            expiring: self.expiring.wrapping_add(by.expiring),
        }
    }

    /// The low halves of both, for an intent.
    #[inline]
    pub fn word(self) -> u64 {
        u64::from(self.records as u32) | u64::from(self.expiring as u32) << 32
    }

    /// The counts from which `word` was made, provided that one operation has made the difference.
    pub fn brought_to(self, word: u64) -> RecordCounts {
        let near =
            |now: i64, low: u32| now.wrapping_add(i64::from(low.wrapping_sub(now as u32) as i32));
        RecordCounts {
            records: near(self.records, word as u32),
            expiring: near(self.expiring, (word >> 32) as u32),
        }
    }
}

/// A thread's counts for an index after an operation. The intent has them, so that a repairer can
/// set them any number of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CountsAfter {
    pub space: KeyspaceId,
    /// The index' root id, which is never zero.
    pub root: u64,
    /// See [`RecordCounts::word`].
    pub word: u64,
}

impl CountsAfter {
    /// The calling thread's counts for the index `root` of `space` after a change by `delta`;
    /// `None`: they do not change.
    #[inline(always)]
    pub fn of(
        slot: &Slot<'_>,
        space: KeyspaceId,
        root: u64,
        delta: RecordCounts,
    ) -> Option<CountsAfter> {
        if delta.is_zero() {
            return None;
        }
        let word = counted(slot, space, root).plus(delta).word();
        Some(CountsAfter { space, root, word })
    }

    /// Sets the counts of a thread that died in the operation.
    pub fn finish(self, dead: &DeadSlot<'_>) {
        let [records, expiring] = counters(self.space);
        let now = RecordCounts {
            records: dead.counted(records, self.root),
            expiring: dead.counted(expiring, self.root),
        };
        set_of_the_dead(dead, self.space, self.root, now.brought_to(self.word));
    }
}

/// A thread's counters for a space: of its records, and of those with an expiry.
fn counters(space: KeyspaceId) -> [usize; 2] {
    [space.index(), DATABASES + space.index()]
}

/// What the thread has counted for the index `id` of `space`.
#[inline]
pub(crate) fn counted(slot: &Slot<'_>, space: KeyspaceId, id: u64) -> RecordCounts {
    let [records, expiring] = counters(space);
    RecordCounts {
        records: slot.counted(records, id),
        expiring: slot.counted(expiring, id),
    }
}

/// Counts a change of the index `id` of `space`.
#[inline]
pub(crate) fn count(slot: &Slot<'_>, space: KeyspaceId, id: u64, change: RecordCounts) {
    let [records, expiring] = counters(space);
    if change.records != 0 {
        slot.count(records, id, change.records);
    }
    if change.expiring != 0 {
        slot.count(expiring, id, change.expiring);
    }
}

/// Sets the counts of a dead thread.
pub(crate) fn set_of_the_dead(
    dead: &DeadSlot<'_>,
    space: KeyspaceId,
    id: u64,
    counts: RecordCounts,
) {
    let [records, expiring] = counters(space);
    dead.set_count(records, id, counts.records);
    dead.set_count(expiring, id, counts.expiring);
}

/// Times at which records expire, in wall-clock milliseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expiries {
    sum: u128,
    count: u64,
}

impl Expiries {
    pub fn add(&mut self, ms: u64) {
        self.sum += u128::from(ms);
        self.count += 1;
    }
}

impl Index {
    /// Records in all databases; those of a database whose root is damaged are not counted.
    pub(crate) fn count_records(&self) -> u64 {
        KeyspaceId::all()
            .filter_map(|space| Some(self.records_of(space).ok()?.0))
            .sum()
    }

    /// Records of `space`, and those of them that have an expiry.
    pub(crate) fn records_of(&self, space: KeyspaceId) -> Result<(u64, u64), ReadError> {
        // The root is in a block that a sweep frees when no thread is pinned.
        let _pin = self.session().participants.pin()?;
        self.counted_in(space)
    }

    /// As [`records_of`](Self::records_of), under the caller's pin.
    pub(crate) fn counted_in(&self, space: KeyspaceId) -> Result<(u64, u64), ReadError> {
        match self.root(space)? {
            Some(root) => Ok(self.counted_under(root)?),
            None => Ok((0, 0)),
        }
    }

    pub(crate) fn counted_under(&self, root: Root) -> Result<(u64, u64), Corrupt> {
        let id = self.root_id(root)?;
        let [records, expiring] = counters(root.space())
            .map(|i| self.session().participants.counters(i, id).max(0) as u64);
        Ok((records, expiring))
    }

    /// Adds the expiries that a sweep has seen to the mean. The caller is pinned.
    ///
    /// Two concurrent sweeps may lose what one of them has seen.
    pub(crate) fn note_expiries(&self, root: Root, seen: Expiries) -> Result<(), Corrupt> {
        if seen.count == 0 {
            return Ok(());
        }
        let [at, samples] = self.session().mem.words::<2>(root.expiries())?;
        // At most the number of expiring records: the samples of one round of the sweep are
        // replaced by those of the next.
        let most = self
            .counted_under(root)?
            .1
            .clamp(1, SAMPLES)
            .max(seen.count);
        let now = samples.load(Relaxed).min(most - seen.count) + seen.count;
        let (old, of) = (i128::from(at.load(Relaxed)), i128::from(seen.count));
        let mean = old + (seen.sum as i128 - old * of) / i128::from(now);
        // Relaxed: an estimate. A mean that is read with a later number of samples is as good.
        at.store(u64::try_from(mean).unwrap_or(u64::MAX), Relaxed);
        samples.store(now, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RecordCounts;

    #[test]
    fn counts_are_brought_to_what_an_intent_says_from_before_and_after() {
        for records in [
            0,
            1,
            -1,
            1 << 31,
            (1 << 32) - 1,
            -(1 << 32),
            i64::MAX,
            i64::MIN,
        ] {
            for expiring in [0, -1, 1 << 32, i64::MAX] {
                let before = RecordCounts { records, expiring };
                for old in [None, Some(false), Some(true)] {
                    for new in [None, Some(false), Some(true)] {
                        let after = before.plus(RecordCounts::change(old, new));
                        for now in [before, after] {
                            assert_eq!(now.brought_to(after.word()), after);
                        }
                    }
                }
            }
        }
    }
}
