//! What all parts of an open store share: the region, the tables, the participants, and waiting.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mneme_arena::{Arena, ClaimError, Class, Extent, InvalidClaim, ReleaseError};
use mneme_sync::{Epoch, Holding, Participants, Slot, SlotId, Stalled};
use mneme_sys::{Clock, NodeId, RegionError, Topology};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::compact::Candidates;
use crate::error::{Corrupt, WriteError};
use crate::evict::ExpiringWalk;
use crate::fresh::Claimed;
use crate::index::bucket::LockWord;
use crate::layout::Tables;
use crate::mem::{Loc, Mem};
use crate::notify::Area;
use crate::stalled::StalledLocks;
use crate::transaction::GrownAhead;

/// How long an operation waits for a holder that is alive but makes no progress.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a copying reader may block others. It is half of what an operation waits, so that no
/// operation fails because of such a reader.
const PIN_TIMEOUT: Duration = Duration::from_millis(500);

/// An open store, without its maintainer thread.
pub(crate) struct Core {
    pub mem: Mem,
    pub tables: Tables,
    pub arena: Arena,
    pub participants: Participants,
    pub topology: Arc<dyn Topology>,
    pub clock: Arc<dyn Clock>,
    /// Whether this opening may only read. It then stores nothing to the data region, which may be
    /// mapped read-only.
    pub read_only: bool,
    /// Whether reads lend values where they lie. They copy if values are overwritten in place, or
    /// if this opening was asked for copies.
    pub lends: bool,
    pub secrets: RapidSecrets,
    /// Compaction victims that this process has selected, by node.
    pub candidates: Vec<Mutex<Candidates>>,
    /// The change notifications' area.
    pub notifications: Area,
    /// How far the frames have been claimed.
    pub claimed: Claimed,
    /// The copying reader whose pin blocks something, and when its pin was first seen to do so.
    pub still: Mutex<Option<(SlotId, Epoch, u64)>>,
    /// Locks that this process has waited for in vain.
    pub stalled: StalledLocks,
    /// Where the search for records with an expiry to evict stands.
    pub expiring_walk: Mutex<ExpiringWalk>,
    /// The parts of the index that grew for transactions of this process and are not shrunk
    /// meanwhile.
    pub grown_ahead: GrownAhead,
}

impl Core {
    /// The keyed hash of a key. Its values are part of the region's format.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }

    /// The calling thread's slot, to change something with.
    #[inline]
    pub fn writer(&self) -> Result<Slot<'_>, WriteError> {
        self.may_write()?;
        Ok(self.participants.slot()?)
    }

    /// Fails with `ReadOnly` if this opening may only read.
    #[inline]
    pub fn may_write(&self) -> Result<(), WriteError> {
        if self.read_only {
            Err(WriteError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Claims frames; `None` if the arena has none to give.
    pub fn claim(
        &self,
        slot: &Slot<'_>,
        frames: u32,
        node: NodeId,
        class: Class,
        tag: u16,
    ) -> Result<Option<Extent>, WriteError> {
        let align = if frames <= self.tables.geometry.segment_frames as u32 {
            frames.next_power_of_two()
        } else {
            1
        };
        match self.arena.claim(slot, frames, align, node, class, tag) {
            Ok(extent) => {
                let node = self.arena.node_of(extent.start);
                self.claimed.note(node, extent);
                Ok(Some(extent))
            }
            Err(
                ClaimError::OutOfMemory { .. }
                | ClaimError::NoContiguousRun { .. }
                | ClaimError::Invalid(InvalidClaim::TooMany { .. })
                // The file system can be full before the store is.
                | ClaimError::Backing(RegionError::NoSpace { .. } | RegionError::NoMemory { .. }),
            ) => Ok(None),
            Err(ClaimError::Stalled(stalled)) => Err(stalled.into()),
            Err(other) => Err(Corrupt::at(0, format!("the arena refused a claim: {other}")).into()),
        }
    }

    /// Adopts a claimed extent for the log.
    pub fn adopt(&self, extent: Extent) -> Result<(), Corrupt> {
        self.arena.adopt(extent).map_err(|e| {
            Corrupt::at(
                extent.offset(),
                format!("the arena refused to hand over an extent: {e}"),
            )
        })
    }

    /// Gives an extent back.
    pub fn release(&self, slot: &Slot<'_>, extent: Extent) -> Result<(), WriteError> {
        self.arena.release(slot, extent).map_err(|e| match e {
            ReleaseError::Stalled(stalled) => stalled.into(),
            other => Corrupt::at(
                extent.offset(),
                format!("the arena refused to take an extent back: {other}"),
            )
            .into(),
        })
    }

    /// Where in the region a word of the tables lies.
    pub fn loc_of(&self, word: &AtomicU64) -> Loc {
        let base = self.mem.region().base() as usize;
        Loc::of_byte((std::ptr::from_ref(word) as usize - base) as u64)
    }

    /// One round of waiting for the holder of the bucket whose word is `word`. If the holder is
    /// dead, this repairs what it left. If it is alive, the wait fails after a second. An opening
    /// that may only read also times out on a dead holder, if no other opening repairs what that
    /// left.
    #[cold]
    pub fn wait_for(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        word: LockWord,
    ) -> Result<(), WriteError> {
        wait.look_at(Some(word), word.holder());
        self.wait_on(slot, wait, word.holder(), Holding::Lock)
    }

    /// As [`Core::wait_for`], of the bucket at `at`. The timeout that one waiter has waited out
    /// counts for the next ones until the word changes: they fail at once.
    #[cold]
    pub fn wait_for_bucket(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        at: Loc,
        word: LockWord,
    ) -> Result<(), WriteError> {
        wait.look_at(Some(word), word.holder());
        if wait.began.is_none() {
            wait.began = self.stalled.since(at.byte(), word.0);
        }
        let waited = self.wait_on(slot, wait, word.holder(), Holding::Lock);
        if let (Err(WriteError::Stalled(_)), Some(began)) = (&waited, wait.began) {
            self.stalled.note(at.byte(), word.0, began);
        }
        waited
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
        // Time counts from the first round on: what the caller does between two rounds may itself
        // take long.
        let now = self.clock.now_ns();
        let began = *wait.since(holder, what).get_or_insert(now);
        let since = Duration::from_nanos(now.saturating_sub(began));
        if wait.rounds < 128 && since <= TIMEOUT {
            if wait.rounds < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            return Ok(());
        }
        let dead = holder.is_some() && self.participants.is_dead(holder);
        if dead && !self.read_only && self.reap(slot)? > 0 {
            return Ok(());
        }
        if since > TIMEOUT {
            let pid = self.participants.pid_of(holder);
            if dead {
                let why = if self.read_only {
                    "nobody who may write has repaired what it left, and this opening may only read"
                } else {
                    "whoever repairs what it left does not go on"
                };
                return Err(WriteError::Reap(format!(
                    "thread slot {holder} (process {pid}) is dead, and {why}"
                )));
            }
            return Err(Stalled {
                pid,
                slot: holder,
                since,
                what,
            }
            .into());
        }
        std::thread::sleep(Duration::from_micros(
            u64::from((wait.rounds - 127).min(20)) * 50,
        ));
        Ok(())
    }

    /// To be called while something waits for pins to be released. Revokes the pin of a copying
    /// reader that has made no progress for half a second. That reader will read again (see
    /// [`crate::read::copying`]).
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
}

/// How long an operation has waited.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    rounds: u32,
    /// When the wait for the current holder of a lock began.
    began: Option<u64>,
    /// That holder, and the lock's word if the word counts how often the lock was released.
    held: Option<(SlotId, Option<LockWord>)>,
    /// When the first wait for a pin began. It is kept over a change of the pinning thread, for
    /// that changes all the time.
    pinned: Option<u64>,
    retired: u64,
}

impl Wait {
    pub fn new() -> Wait {
        Wait::default()
    }

    /// Restarts the timeout if another thread holds the lock, or if the holder has released and
    /// retaken it.
    fn look_at(&mut self, word: Option<LockWord>, holder: SlotId) {
        let now = Some((holder, word));
        if self.held != now {
            (self.held, self.began) = (now, None);
        }
    }

    /// When the wait for `holder` began, if it has.
    fn since(&mut self, holder: SlotId, what: Holding) -> &mut Option<u64> {
        if what != Holding::Lock {
            return &mut self.pinned;
        }
        if self.held.is_none_or(|(before, _)| before != holder) {
            self.look_at(None, holder);
        }
        &mut self.began
    }

    /// Notes that the index segment of this word was found retired; false: it was the one before
    /// too.
    pub fn found_retired(&mut self, segment: u64) -> bool {
        std::mem::replace(&mut self.retired, segment) != segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(holder: u64, version: u64) -> LockWord {
        LockWord(holder << 48 | version << 5 | 1)
    }

    /// A waiter that is overtaken again and again on a busy bucket has not waited for one holder
    /// for long.
    #[test]
    fn a_wait_counts_for_one_holding_alone() {
        let mut wait = Wait::new();
        let mut look = |word: LockWord, now: u64| {
            wait.look_at(Some(word), word.holder());
            *wait.since(word.holder(), Holding::Lock).get_or_insert(now)
        };
        assert_eq!(look(word(1, 1), 10), 10);
        assert_eq!(look(word(1, 1), 20), 10);
        // One holder again, which released the lock meanwhile.
        assert_eq!(look(word(1, 2), 30), 30);
        assert_eq!(look(word(2, 2), 40), 40);
        assert_eq!(look(word(2, 2), 50), 40);
        let mut on = |holder, what, now| *wait.since(SlotId(holder), what).get_or_insert(now);
        assert_eq!(on(3, Holding::Lock, 60), 60);
        // Pins come and go: the wait is for the moment at which no pin is in the way.
        assert_eq!(on(4, Holding::Pin, 70), 70);
        assert_eq!(on(5, Holding::Pin, 80), 70);
        assert_eq!(on(3, Holding::Lock, 90), 60);
    }
}
