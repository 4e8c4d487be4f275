//! Change notifications: **the process that serves a store is notified of every change that other
//! openings make, or that it missed some.** A server needs that for what it must do upon a change:
//! wake clients that wait for a key, and notify clients of keyspace events. The ring may lose
//! notifications, so it is no log of changes to recover from.
//!
//! While the holder of the [server's role](crate::ServerRole) [listens](crate::ChangeListener),
//! every other opening that changes a key, clears a database or swaps two enters a notification
//! into a [ring](ring) in the control region. It does so after the change is visible and before the
//! key's bucket is unlocked, so that notifications of one key stand in the order of its changes.
//! While no opening listens, a change costs a load of a word that does not change.
//!
//! **Every loss is reported.** A full ring is counted as a loss, and so is a writer that the
//! listener would have to wait for too long. The listener then looks at everything again. A death
//! between a change and its notification is a loss too: a change is announced by an
//! [intent](mneme_sync::IntentLine) before it happens, and the intent is cleared only when the
//! notification is entered. A repairer that finds such an intent of a dead thread counts a loss,
//! after the change has been finished or undone. A loss may be counted once too often, and is never
//! missed.
//!
//! **No change is missed when listening begins.** The listener stores its number, passes the heavy
//! barrier, and then looks for intents. A change without an intent among them is entered into the
//! ring, or is visible by then. A change with an intent among them may take place without being
//! entered: a loss is reported when that intent is gone. So the first thing that a listener
//! receives is always a loss, and perhaps another soon after. No writer waits for the listener, and
//! the listener waits for no writer.
//!
//! A listener that dies leaves its number in the word, and unread notifications in the ring. Its
//! reaper clears the number. The next listener starts afresh, and drops what was entered for the
//! dead one.

pub(crate) mod area;
pub(crate) mod ring;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use mneme_sync::{DeadSlot, Lane, Slot};

pub(crate) use area::{Area, BYTES};

use crate::index::intent::{IndexIntent, OPERATION_LANE, TRANSACTION_LANE};
use crate::records::Records;
use crate::region::space::KeyspaceId;
use crate::session::SERVER_LEASE;

/// The lanes of intents that announce a change.
pub(crate) const LANES: [Lane; 2] = [OPERATION_LANE, TRANSACTION_LANE];

/// What was done. As an entry's lowest byte has it, where zero is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum NotifyKind {
    Stored = 1,
    Retimed,
    Removed,
    Expired,
    Evicted,
    Cleared,
    Swapped,
}

impl NotifyKind {
    const ALL: [NotifyKind; 7] = [
        NotifyKind::Stored,
        NotifyKind::Retimed,
        NotifyKind::Removed,
        NotifyKind::Expired,
        NotifyKind::Evicted,
        NotifyKind::Cleared,
        NotifyKind::Swapped,
    ];

    pub(crate) fn of_byte(byte: u8) -> Option<NotifyKind> {
        NotifyKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Bytes of a key that is entered whole. Of a longer one the hash is entered.
pub(crate) const WHOLE: usize = 8 * (area::CONTENT - 1);

/// A notification's words: kind, database, the other database, length of the key, process; then the
/// key or its hash.
fn entry(
    kind: NotifyKind,
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

impl Records {
    /// Notifies the listener, if there is one, of a change of `key`. The change is visible by now,
    /// and the key's bucket is still held, under a pin. The caller has announced the change, and
    /// has passed the light barrier since (by `note_change`).
    #[inline(always)]
    pub(crate) fn notify(&self, slot: &Slot<'_>, space: KeyspaceId, kind: NotifyKind, key: &[u8]) {
        // Relaxed: without a listener nothing depends on it.
        if self.notifications.listener().load(Relaxed) != 0 {
            self.notify_of_key(slot, space, kind, key);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_of_key(&self, slot: &Slot<'_>, space: KeyspaceId, kind: NotifyKind, key: &[u8]) {
        if !self.has_listener() {
            return;
        }
        let database = self.database_of(space);
        let words = entry(kind, [database; 2], self.notifications.pid, key, || {
            self.hash(key)
        });
        self.enter_notification(slot, &words);
    }

    /// Whether another opening listens.
    fn has_listener(&self) -> bool {
        // SYNC: pairs with the Release store in `begin`: an opening that loads its own number
        // recognises it.
        let number = self.notifications.listener().load(Acquire);
        number != 0 && number != self.notifications.own.load(Relaxed)
    }

    fn enter_notification(&self, slot: &Slot<'_>, words: &[u64]) {
        let ring = self.notifications.ring();
        if !ring.enter(slot.id(), words) {
            ring.lose();
        }
        mneme_sys::fault!("log.notify.notified");
    }

    /// Runs `work`, which clears `databases[0]` or swaps both. If `work` returns that this has
    /// happened, the listener is notified. `work` locks no bucket: a thread has one such intent at
    /// a time. It may reap.
    pub(crate) fn announce_and_notify<E>(
        &self,
        slot: &Slot<'_>,
        kind: NotifyKind,
        databases: [u8; 2],
        work: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        IndexIntent::ReplaceDatabases.announce(slot);
        self.participants.light_barrier();
        mneme_sys::fault!("log.notify.announced");
        let done = work();
        if matches!(done, Ok(true)) && self.has_listener() {
            let words = entry(kind, databases, self.notifications.pid, &[], || 0);
            self.enter_notification(slot, &words);
        }
        slot.intent(OPERATION_LANE).clear();
        done
    }

    /// Counts a loss for each change that `dead` may not have notified of. A repairer calls this
    /// once the changes are finished or undone, and before their intents are cleared. It may be
    /// called more than once.
    pub(crate) fn lose_notifications_of(&self, dead: &DeadSlot<'_>) {
        if LANES.into_iter().any(|lane| dead.intent(lane).is_some()) {
            let ring = self.notifications.ring();
            ring.release(dead.id());
            mneme_sys::fault!("log.reap.released");
            ring.lose();
        }
    }

    /// Ends the listening if the listener has died.
    pub(crate) fn end_dead_listening(&self) {
        let listener = self.notifications.listener();
        // SYNC: as in `has_listener`.
        let number = listener.load(Acquire);
        if number == 0 || number == self.notifications.own.load(Relaxed) {
            return;
        }
        // A later listener has another number.
        if let Ok(None) = self.participants.lease_holder(SERVER_LEASE) {
            let _ = listener.compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }
}
