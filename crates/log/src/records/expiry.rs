//! Expiry: from its time on a record is absent for all readers, whether or not it has been removed.
//!
//! Readers only compare its time with the clock. Expired records are removed by writers of their
//! key, by compaction, and by the maintainer's sweep. The sweep walks all spaces in the order of
//! their hashes: slowly while it finds little, faster while much of what it sees has expired. A
//! store that never held an expiring record is never swept.
//!
//! A record has a word for its expiry if it was stored with one, or if its value is long: setting
//! the expiry of such a record is one store under its bucket's lock. Any other record is copied.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use mneme_sync::Word;

use crate::records::Records;
pub use crate::region::expiry::Expiry;
use crate::region::kind::{ValueKind, WrongKind};
use crate::region::record::Record;

/// What is stored under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored<'v> {
    /// The value.
    pub value: &'v [u8],
    /// When it expires.
    pub expiry: Expiry,
    /// The value's kind.
    pub kind: ValueKind,
}

impl<'v> Stored<'v> {
    /// The value, if it is a string.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn string(self) -> Result<&'v [u8], WrongKind> {
        self.kind.expect(ValueKind::STRING).map(|()| self.value)
    }

    pub(crate) fn of(record: &Record<'v>) -> Stored<'v> {
        Stored {
            value: record.value(),
            expiry: Expiry::of_word(record.expires()),
            kind: record.header().kind(),
        }
    }
}

/// What a look has found out about a key with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordLife {
    Live,
    Expired,
    /// It has expired by now. When the record was seen it may have been live, and its expiry may
    /// have changed since then: look again.
    Unsure,
}

/// A time that had come before the present look began. The first look of a read has none.
#[derive(Default, Debug)]
pub(crate) struct Before(Cell<u64>);

/// The initial time, at which nothing has expired.
const NEVER: u64 = u64::MAX;

impl Before {
    /// For a look that sees all records, expired or not.
    pub fn ever() -> Self {
        Self(Cell::new(NEVER))
    }
}

impl Records {
    /// What a look that found a record with this expiry knows about its key.
    ///
    /// Only a record that had expired *before* the look was absent when it was seen. So the first
    /// look that finds an expired record notes the time for the next one. Live records cost only
    /// one look at the clock.
    #[inline]
    pub(crate) fn life(&self, expires: u64, before: &Before) -> RecordLife {
        if expires == 0 || before.0.get() == NEVER {
            return RecordLife::Live;
        }
        if expires <= before.0.get() {
            return RecordLife::Expired;
        }
        let now = self.session().clock.wall_ms();
        if expires > now {
            return RecordLife::Live;
        }
        before.0.set(now);
        // SYNC: pairs with the fence in `is_live_at`: the next look sees the bit of a change that
        // has found the record live, or that change finds it expired.
        fence(SeqCst);
        RecordLife::Unsure
    }

    /// Whether the record's time has come.
    #[inline]
    pub(crate) fn is_expired(&self, record: &Record<'_>) -> bool {
        self.has_passed(record.expires())
    }

    /// Whether a record with this expiry word has expired.
    #[inline]
    pub(crate) fn has_passed(&self, expires: u64) -> bool {
        expires != 0 && expires <= self.session().clock.wall_ms()
    }

    /// Notes that the store holds expiring records. Called *after* one was published. A sweep
    /// clears this note first: so either it sees the record, or it finds the note set again.
    pub(crate) fn expect_expiries(&self) {
        expect(&self.session().tables.header().expiring, || {
            self.session().participants.light_barrier();
        });
    }

    /// Clears that note when a sweep begins. The sweep sets it again if it finds such records.
    pub(crate) fn begin_expecting(&self) {
        let expiring = &self.session().tables.header().expiring;
        if clear(expiring, || self.session().participants.heavy_barrier()).is_err() {
            // A record that was published meanwhile may be missed: another sweep is needed.
            self.expect_expiries();
        }
    }
}

/// Sets the note that there are expiring records. The caller has published one.
#[inline]
pub(crate) fn expect<W: Word>(expiring: &W, light: impl FnOnce()) {
    // SYNC: pairs with the heavy barrier in `clear`: the sweep sees the record, or this load sees
    // the cleared note.
    light();
    if expiring.load(Relaxed) == 0 {
        expiring.store(1, Relaxed);
    }
}

/// Clears the note. The caller then looks at all records.
pub(crate) fn clear<W: Word, E>(
    expiring: &W,
    heavy: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    expiring.store(0, Relaxed);
    // SYNC: pairs with the light barrier in `expect`.
    heavy()
}
