//! Waiting for a lock's holder, for a pin, or just for a while.
//!
//! No wait is endless: it is for one holder, and fails after [`TIMEOUT`]; what a dead holder left
//! is repaired.

use std::time::Duration;

use mneme_sync::{Holding, Progress, Slot, SlotId, Stalled};

use super::{FEED_LEASE, Session};
use crate::error::WriteError;

/// How long an operation waits for a holder that is alive but makes no progress.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a sync of the change feed's journal or tree may take, during which nothing becomes
/// durable.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum number of sleeps before a wait fails. After a pause of the whole process or machine
/// the holder has had no more time than the waiter, whatever the clock says.
const SLEEPS: u32 = 32;

/// The minimum if the caller works between two rounds, which takes time too.
const PIN_SLEEPS: u32 = 8;

/// How long a copying reader may block others. It is half of the time that an operation waits, so
/// that no operation fails because of such a reader.
const PIN_TIMEOUT: Duration = Duration::from_millis(500);

impl Session {
    /// One round of waiting for `holder`, which holds the lock whose word is `word`. If the holder
    /// is dead, this repairs what it left. If it is alive, the wait fails after a second. An
    /// opening that may only read also times out on a dead holder, if no other opening repairs what
    /// that left.
    ///
    /// If one waiter has timed out, the next waiters at any lock of that holder fail at once, until
    /// it makes progress.
    #[cold]
    pub fn wait_for_lock(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        word: u64,
        holder: SlotId,
    ) -> Result<(), WriteError> {
        wait.look_at(Some(word), holder);
        self.wait_on(slot, wait, holder, Holding::Lock)
    }

    /// One round of waiting for whatever `holder` holds. The timeout counts from when the *current*
    /// holder took the lock: a waiter that loses to a series of different holders never times out.
    #[cold]
    pub fn wait_on(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        holder: SlotId,
        what: Holding,
    ) -> Result<(), WriteError> {
        wait.rounds += 1;
        if what == Holding::Pin {
            self.revoke_stalled_pins();
        }
        // Time counts from the first round on: the caller's work between two rounds may itself take
        // long.
        let now = self.clock.now_ns();
        let began = wait.since(holder, what);
        if what == Holding::Lock
            && began.is_none()
            && let Some(since) = self.participants.stalled_for(holder)
        {
            // What a dead holder left is being repaired, which is progress.
            match self.participants.is_dead(holder) {
                false => return Err(self.stalled(holder, since, what)),
                true if self.read_only => return Err(self.left_by_the_dead(holder)),
                true => {}
            }
        }
        let waited = *began.get_or_insert(Waited::since(now));
        let since = Duration::from_nanos(now.saturating_sub(waited.began));
        let is_over = since > TIMEOUT && waited.sleeps >= least_sleeps(what);
        if what == Holding::Lock && wait.progress.is_none() {
            wait.progress = Some(self.participants.progress_of(holder));
        }
        if wait.rounds < 128 && since <= TIMEOUT {
            if wait.rounds < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            return Ok(());
        }
        let dead = holder.is_some() && self.participants.is_dead(holder);
        if dead && !self.read_only {
            match self.reap(slot) {
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(error) if is_over => return Err(error),
                // This lock may nevertheless be free: the caller looks again.
                Err(_) => {}
            }
        }
        if is_over {
            if let (Holding::Lock, Some(then)) = (what, wait.progress) {
                self.participants.note_stalled(holder, then, since);
            }
            if dead {
                return Err(self.left_by_the_dead(holder));
            }
            return Err(self.stalled(holder, since, what));
        }
        let sleeps = waited.sleeps + 1;
        *wait.since(holder, what) = Some(Waited { sleeps, ..waited });
        std::thread::sleep(Duration::from_micros(u64::from(sleeps.min(20)) * 50));
        Ok(())
    }

    /// The error for a dead holder that no thread repairs.
    fn left_by_the_dead(&self, holder: SlotId) -> WriteError {
        let pid = self.participants.pid_of(holder);
        let why = if self.read_only {
            "nobody who may write has repaired what it left, and this opening may only read"
        } else {
            "whoever repairs what it left does not go on"
        };
        WriteError::Reap(format!(
            "thread slot {holder} (process {pid}) is dead, and {why}"
        ))
    }

    fn stalled(&self, holder: SlotId, since: Duration, what: Holding) -> WriteError {
        Stalled {
            pid: self.participants.pid_of(holder),
            slot: holder,
            since,
            what,
        }
        .into()
    }

    /// Called while something waits for pins to be released. Revokes the pin of a copying reader
    /// that has made no progress for half a second. That reader will read again (see
    /// [`crate::records::read::copying`]).
    #[cold]
    pub fn revoke_stalled_pins(&self) {
        // Another thread of this process is checking.
        let Ok(mut still) = self.still.try_lock() else {
            return;
        };
        let oldest = self.participants.stats().oldest_pin;
        let Some(pin) = oldest.filter(|pin| !pin.firm) else {
            *still = None;
            return;
        };
        let now = self.clock.now_ns();
        match *still {
            Some((slot, epoch, since)) if (slot, epoch) == (pin.slot, pin.epoch) => {
                if now.saturating_sub(since) > PIN_TIMEOUT.as_nanos() as u64 {
                    self.participants.revoke(epoch);
                    *still = None;
                }
            }
            _ => *still = Some((pin.slot, pin.epoch, now)),
        }
    }

    /// The thread with the oldest pin, which blocks reclamation most, if there is one.
    #[cold]
    pub fn oldest_pin(&self) -> SlotId {
        let oldest = self.participants.stats().oldest_pin;
        oldest.map_or(SlotId::NONE, |pin| pin.slot)
    }

    /// Repairs what dead threads left and frees their slots. Returns the number of slots.
    pub fn reap(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        self.callbacks().map_or(Ok(0), |store| store.reap(slot))
    }

    /// Waits until the change feed has space for another attempt. Fails once nothing has become
    /// durable for a second, or for the time of a slow sync if a process drains the feed. The
    /// caller holds no lock, and is not pinned by the operation that it repeats.
    #[cold]
    pub fn await_feed(&self) -> Result<(), WriteError> {
        let feed = &self.feed;
        let mut durable = feed.durable();
        let mut waited = Waited::since(self.clock.now_ns());
        while !feed.has_ample_space() {
            let now = self.clock.now_ns();
            if feed.durable() != durable {
                (durable, waited) = (feed.durable(), Waited::since(now));
            }
            let since = Duration::from_nanos(now.saturating_sub(waited.began));
            let is_over = since > TIMEOUT && waited.sleeps >= SLEEPS;
            if is_over && (since > SYNC_TIMEOUT || !self.is_drained()) {
                return Err(WriteError::FeedFull);
            }
            waited.sleeps = waited.sleeps.saturating_add(1);
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Whether a live process has the right to drain the change feed.
    fn is_drained(&self) -> bool {
        matches!(self.participants.lease_holder(FEED_LEASE), Ok(Some(_)))
    }

    /// Runs an operation until it finds space in the change feed.
    #[inline]
    pub fn with_feed<T>(
        &self,
        mut work: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        loop {
            match work() {
                Ok(done) => return Ok(done),
                Err(WriteError::FeedFull) => self.await_feed()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The error for a wait in which a thread would wait for itself. It is returned at once.
    pub fn stalled_by_own_pin(&self, slot: &Slot<'_>) -> WriteError {
        self.stalled_by_itself(slot, Holding::OwnPin)
    }

    /// The error for a thread that blocks itself by `what`.
    pub fn stalled_by_itself(&self, slot: &Slot<'_>, what: Holding) -> WriteError {
        self.stalled(slot.id(), Duration::ZERO, what)
    }
}

/// Waits a little after a conflict; longer after many.
#[cold]
pub(crate) fn back_off(rounds: &mut u32) {
    *rounds += 1;
    if *rounds < 16 {
        std::thread::yield_now();
    } else {
        let micros = u64::from((*rounds).min(100)) * 10;
        std::thread::sleep(Duration::from_micros(micros));
    }
}

/// The minimum number of sleeps before a wait for `what` may fail.
fn least_sleeps(what: Holding) -> u32 {
    match what {
        Holding::Lock => SLEEPS,
        _ => PIN_SLEEPS,
    }
}

/// When a wait began, and how often the waiter has slept since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waited {
    began: u64,
    sleeps: u32,
}

impl Waited {
    fn since(began: u64) -> Waited {
        Waited { began, sleeps: 0 }
    }
}

/// How long an operation has waited.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    rounds: u32,
    /// The wait for the current holder of a lock.
    began: Option<Waited>,
    /// What that holder was doing then.
    progress: Option<Progress>,
    /// The holder waited for, and the lock's word if the word counts how often the lock was
    /// released.
    held: Option<(SlotId, Option<u64>)>,
    /// The wait for pins. It continues when the pinning thread changes, because that happens all
    /// the time.
    pinned: Option<Waited>,
    retired: u64,
}

impl Wait {
    pub fn new() -> Wait {
        Wait::default()
    }

    /// Restarts the timeout if another thread holds the lock, or if the holder has released and
    /// retaken it.
    fn look_at(&mut self, word: Option<u64>, holder: SlotId) {
        let now = Some((holder, word));
        if self.held != now {
            (self.held, self.began, self.progress) = (now, None, None);
        }
    }

    /// The wait for `holder`, if it has begun.
    fn since(&mut self, holder: SlotId, what: Holding) -> &mut Option<Waited> {
        if what != Holding::Lock {
            return &mut self.pinned;
        }
        if self.held.is_none_or(|(before, _)| before != holder) {
            self.look_at(None, holder);
        }
        &mut self.began
    }

    /// Notes that the index page of this word was found retired; returns false if the previous one
    /// was the same.
    pub fn found_retired(&mut self, segment: u64) -> bool {
        std::mem::replace(&mut self.retired, segment) != segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder, and its lock's word.
    fn word(holder: u16, version: u64) -> (SlotId, u64) {
        (SlotId(holder), u64::from(holder) << 48 | version << 5 | 1)
    }

    /// On a busy bucket, a waiter that loses again and again to different holders has not waited
    /// for one of them for long.
    #[test]
    fn a_wait_counts_for_one_holding_alone() {
        let mut wait = Wait::new();
        let mut look = |(holder, word): (SlotId, u64), now: u64| {
            wait.look_at(Some(word), holder);
            let began = Waited::since(now);
            wait.since(holder, Holding::Lock).get_or_insert(began).began
        };
        assert_eq!(look(word(1, 1), 10), 10);
        assert_eq!(look(word(1, 1), 20), 10);
        // The first holder again, which has released the lock meanwhile.
        assert_eq!(look(word(1, 2), 30), 30);
        assert_eq!(look(word(2, 2), 40), 40);
        assert_eq!(look(word(2, 2), 50), 40);
        let mut on = |holder, what, now| {
            let began = Waited::since(now);
            wait.since(SlotId(holder), what).get_or_insert(began).began
        };
        assert_eq!(on(3, Holding::Lock, 60), 60);
        // Pins come and go: the wait is for the moment at which no pin blocks.
        assert_eq!(on(4, Holding::Pin, 70), 70);
        assert_eq!(on(5, Holding::Pin, 80), 70);
        assert_eq!(on(3, Holding::Lock, 90), 60);
    }
}
