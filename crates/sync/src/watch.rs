//! Watch registrations: **a writer announces a change and then asks whether it is watched. Either
//! the answer is yes, or a watcher that registers sees the announcement.**
//!
//! So writers need not count their changes while no process watches, and no change is missed. A
//! writer announces (it takes the lock of what it changes), asks, counts the change if it is
//! watched, changes, and unlocks. A watcher registers, reads the count, and *then* waits for the
//! writers that have announced a change of what it watches: those changes are then done, and any
//! later change is counted. (A watcher that waited first could read a count whose change has not
//! been made yet.)
//!
//! For each [`Interest`] a word of the control region has a bit for each process entry with a
//! registration. The watcher passes the heavy barrier after its store to the word, the writer the
//! light one before its load, as with pins. A reaper clears a dead process's bit, and so does a
//! process that takes over its entry. Entries beyond the word's bits share the last one, which is
//! cleared when a process attaches that is alone.

use crate::SlotError;
use crate::atomics::{Barrier, Word};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::process;
use mneme_sys::barrier::BarrierRefused;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// What a process watches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Whether some keys have changed.
    Keys = 0,
    /// Every change, with its key.
    Changes = 1,
}

/// While one exists, [`Participants::is_watched`] returns true in every process.
///
/// `Send` and `Sync`, and many may exist at once. It keeps its opening alive. In a forked child it
/// has no effect.
#[must_use = "dropping it ends the registration"]
pub struct WatchRegistration {
    participants: Participants,
    interest: Interest,
}

impl Participants {
    /// Registers this process as a watcher. Costs a barrier between processes, 2 to 10 us, if this
    /// opening has no registration yet.
    ///
    /// To find a writer that announced a change before, and found that it is not watched, look for
    /// announcements after this call.
    ///
    /// # Errors
    /// [`SlotError::Forked`]; [`SlotError::Barrier`], in which case nothing is registered.
    pub fn register_watch(&self, interest: Interest) -> Result<WatchRegistration, SlotError> {
        let inner = self.inner();
        if inner.is_forked() {
            return Err(SlotError::Forked);
        }
        let mut kept = inner.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut kept[interest as usize];
        if *kept == 0 {
            let bit = inner.watch_bit(inner.me().process).0;
            let begun = begin(inner.watched(interest), bit, &inner.barrier());
            if let Err(refused) = begun {
                inner.end_watch(inner.me().process, interest);
                return Err(refused.into());
            }
        }
        *kept += 1;
        Ok(WatchRegistration {
            participants: self.clone(),
            interest,
        })
    }

    /// Whether any process has a registration; false in a forked child. Loads a line that seldom
    /// changes.
    ///
    /// Ask after the change was announced by an exchange or a store, and before it is made.
    #[inline(always)]
    #[must_use]
    pub fn is_watched(&self, interest: Interest) -> bool {
        let inner = self.inner();
        !inner.is_forked() && is_watched(inner.watched(interest), &inner.barrier())
    }

    /// As [`is_watched`](Self::is_watched), by another opening than this one.
    #[inline(always)]
    #[must_use]
    pub fn is_watched_by_others(&self, interest: Interest) -> bool {
        self.is_watched(interest) && self.inner().has_other_bits(interest)
    }

    /// The number of this opening among those that are attached now: 1 and up.
    #[must_use]
    pub fn process_number(&self) -> u16 {
        self.inner().me().process
    }
}

impl Inner {
    #[inline(always)]
    fn watched(&self, interest: Interest) -> &AtomicU64 {
        &self.control().header().watched[interest as usize]
    }

    fn has_other_bits(&self, interest: Interest) -> bool {
        let own = match self.watch_bit(self.me().process) {
            (bit, true) => bit,
            // Another entry may have the bit too.
            _ => 0,
        };
        // Relaxed: the barrier in `is_watched` is passed.
        self.watched(interest).load(Relaxed) & !own != 0
    }

    /// The bit of a process entry, and whether it belongs to that entry alone.
    fn watch_bit(&self, process: u16) -> (u64, bool) {
        const LAST: u32 = u64::BITS - 1;
        let at = u32::from(process.saturating_sub(1)).min(LAST);
        let all_have_one = || self.control().geometry().max_processes <= u64::BITS;
        (1 << at, at < LAST || all_have_one())
    }

    /// Records that the entry's process has no registration any more. Called by that process, or
    /// with its liveness lock held.
    pub(crate) fn end_watches(&self, process: u16) {
        self.end_watch(process, Interest::Keys);
        self.end_watch(process, Interest::Changes);
    }

    fn end_watch(&self, process: u16, interest: Interest) {
        if let (bit, true) = self.watch_bit(process) {
            end(self.watched(interest), bit);
        }
    }
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        let inner = self.participants.inner();
        if inner.is_forked() {
            return;
        }
        let mut kept = inner.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut kept[self.interest as usize];
        *kept -= 1;
        let me = inner.me();
        let entry = inner.control().process(me.process);
        // If this process was declared dead, by a script, another process may have the entry.
        let mine = entry.is_some_and(|e| process::read(&e.state).incarnation == me.incarnation);
        if *kept == 0 && mine {
            inner.end_watch(me.process, self.interest);
        }
    }
}

impl std::fmt::Debug for WatchRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WatchRegistration")
            .field(&self.interest)
            .finish()
    }
}

fn change<W: Word>(word: &W, to: impl Fn(u64) -> u64) {
    let mut now = word.load(Relaxed);
    while let Err(found) = word.compare_exchange(now, to(now), AcqRel, Relaxed) {
        now = found;
    }
}

/// Called by a watcher before it looks for announcements.
pub(crate) fn begin<W: Word>(
    watched: &W,
    bit: u64,
    barrier: &impl Barrier,
) -> Result<(), BarrierRefused> {
    // SYNC: the barrier pairs with that in `is_watched`: if a writer does not find the bit, the
    // caller's loads from here on see its announcement.
    change(watched, |word| word | bit);
    mneme_sys::fault!("sync.watch.registered");
    barrier.heavy()
}

pub(crate) fn end<W: Word>(watched: &W, bit: u64) {
    if watched.load(Relaxed) & bit != 0 {
        change(watched, |word| word & !bit);
    }
}

/// Called by a writer that has announced a change.
#[inline(always)]
pub(crate) fn is_watched<W: Word>(watched: &W, barrier: &impl Barrier) -> bool {
    // SYNC: pairs with the heavy barrier in `begin`.
    barrier.light();
    watched.load(Relaxed) != 0
}
