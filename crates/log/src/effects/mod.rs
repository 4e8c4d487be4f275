//! Effects: **who serves a store is told what others change in it, or that he was not told all.**
//! For those whom a server owes an answer to a change: clients that wait for a key, that want to be
//! notified, a replica.
//!
//! While the holder of the [server's role](crate::ServerRole) [follows](crate::Effects), every
//! other opening that changes a key, clears a database or swaps two enters the effect into a
//! [ring](ring) in the control region: after the change can be seen, and before the lock of the
//! key's bucket is given back, so that the effects of one key stand in the order of its changes.
//! While nobody follows, a change costs a load of a word that does not change.
//!
//! **What is lost is told.** A ring that is full, or a writer that the follower would have had to
//! wait for too long, is counted as a loss; the follower then looks at everything again. A death
//! between the change and its effect is one, too: a change is announced by an
//! [intent](mneme_sync::IntentLine) before it happens, and the intent goes only when the effect is
//! entered. Who repairs what a dead thread has left, and finds such an intent, counts a loss, after
//! the change has been finished or undone. That may be once too often, and is never missed.
//!
//! **No change is missed when following begins.** The follower stores its number, and then looks
//! for intents behind the heavy barrier: a change whose intent is not among them is told, or is
//! visible by then. Of those that are among them one may have happened without being told; that is
//! a loss when it is over. So the first thing that a follower is told is always that all is to be
//! looked at, and perhaps once again soon after. No writer waits for it, and it waits for none.
//!
//! A follower that dies leaves its number in the word, and what it has not taken in the ring. Who
//! reaps it takes the number out; who follows it begins anew, and drops what was entered for it.

mod area;
mod follow;
pub(crate) mod ring;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use mneme_sync::{DeadSlot, Lane, Slot};

pub(crate) use area::{Area, BYTES};
pub use follow::{Effect, Effects, KeyOf, Told, What};

use crate::core::Core;
use crate::intent::{Intent, OPERATION_LANE, TRANSACTION_LANE};
use crate::layout::DATABASES;
use crate::role::SERVER;
use crate::spaces::Space;

/// The lanes of intents that announce a change.
pub(crate) const LANES: [Lane; 2] = [OPERATION_LANE, TRANSACTION_LANE];

/// What was done. As an entry's lowest byte has it, where zero is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Stored = 1,
    Retimed,
    Removed,
    Expired,
    Evicted,
    Cleared,
    Swapped,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Stored,
        Kind::Retimed,
        Kind::Removed,
        Kind::Expired,
        Kind::Evicted,
        Kind::Cleared,
        Kind::Swapped,
    ];

    fn of_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Bytes of a key that is entered whole. Of a longer one its hash is.
pub(crate) const WHOLE: usize = 8 * (area::CONTENT - 1);

/// An effect's words: kind, database, the other database, length of the key, process; then the key
/// or its hash.
fn entry(
    kind: Kind,
    [database, other]: [u8; 2],
    pid: u32,
    key: &[u8],
    hash: impl FnOnce() -> u64,
) -> [u64; area::CONTENT] {
    let mut words = [0; area::CONTENT];
    words[0] = kind as u64
        | u64::from(database) << 8
        | u64::from(other) << 16
        // At most `WHOLE` + 1, which says that the key is longer.
        | (key.len().min(WHOLE + 1) as u64) << 24
        | u64::from(pid) << 32;
    if key.len() > WHOLE {
        words[1] = hash();
    } else {
        for (word, part) in words[1..].iter_mut().zip(key.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            *word = u64::from_le_bytes(bytes);
        }
    }
    words
}

impl Core {
    /// Tells whoever follows of a change of `key`, which can be seen by now and whose bucket is
    /// still held, under a pin. The caller has announced it, and has passed the light barrier since
    /// (by `note_change`).
    #[inline(always)]
    pub(crate) fn tell(&self, slot: &Slot<'_>, space: Space, kind: Kind, key: &[u8]) {
        // Relaxed: without a follower nothing depends on it.
        if self.effects.followed().load(Relaxed) != 0 {
            self.tell_of_key(slot, space, kind, key);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_of_key(&self, slot: &Slot<'_>, space: Space, kind: Kind, key: &[u8]) {
        if !self.is_followed() {
            return;
        }
        let database = self.database_of(space);
        let words = entry(kind, [database; 2], self.effects.pid, key, || {
            self.hash(key)
        });
        self.enter_effect(slot, &words);
    }

    /// Whether another opening follows.
    fn is_followed(&self) -> bool {
        // SYNC: pairs with the Release store in `follow`: who finds its own number knows it as
        // such.
        let number = self.effects.followed().load(Acquire);
        number != 0 && number != self.effects.own.load(Relaxed)
    }

    fn enter_effect(&self, slot: &Slot<'_>, words: &[u64]) {
        let ring = self.effects.ring();
        if !ring.enter(slot.id(), words) {
            ring.lose();
        }
        mneme_sys::fault!("log.effects.told");
    }

    /// Runs `work`, which clears `databases[0]`, or swaps both, and tells whoever follows, if it
    /// says that this has happened. It locks no bucket: there is one such intent at a time.
    pub(crate) fn announce_and_tell<E>(
        &self,
        slot: &Slot<'_>,
        kind: Kind,
        databases: [u8; 2],
        work: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        Intent::ReplaceDatabases.announce(slot);
        self.participants.pass_barrier();
        mneme_sys::fault!("log.effects.announced");
        let done = work();
        if matches!(done, Ok(true)) && self.is_followed() {
            let words = entry(kind, databases, self.effects.pid, &[], || 0);
            self.enter_effect(slot, &words);
        }
        slot.intent(OPERATION_LANE).clear();
        done
    }

    /// The database whose space it is. The caller is pinned.
    fn database_of(&self, space: Space) -> u8 {
        let is_its = |database: &u8| self.entered_space(*database) == space;
        // Most have never been swapped.
        let first = [space.number()].into_iter();
        let found = first.chain(0..DATABASES as u8).find(is_its);
        found.unwrap_or(space.number())
    }

    /// To be called by whoever repairs what `dead` has left, once its changes are finished or
    /// undone and before their intents are gone. Also more than once.
    pub(crate) fn lose_effects_of(&self, dead: &DeadSlot<'_>) {
        if LANES.into_iter().any(|lane| dead.intent(lane).is_some()) {
            let ring = self.effects.ring();
            ring.release(dead.id());
            mneme_sys::fault!("log.reap.released");
            ring.lose();
        }
    }

    /// Nobody needs to be told any more if the follower has died.
    pub(crate) fn end_dead_following(&self) {
        let followed = self.effects.followed();
        // SYNC: as in `is_followed`.
        let number = followed.load(Acquire);
        if number == 0 || number == self.effects.own.load(Relaxed) {
            return;
        }
        // Whoever follows later has another number.
        if let Ok(None) = self.participants.lease_holder(SERVER) {
            let _ = followed.compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }
}
