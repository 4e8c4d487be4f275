//! Overwriting values where they lie, as a store with [`UpdatePolicy::InPlace`](crate::UpdatePolicy)
//! does: nothing dies, so nothing needs compaction, however full the store is.
//!
//! A record of a value up to [`MAX_IN_PLACE`] bytes carries its *room*: how long a value may be that
//! takes its place. It is overwritten under its bucket's lock, with the bit set that makes readers
//! wait; they copy the value and believe the copy only if the bucket's version is the same before and
//! after (a sequence lock). Keys never change, so they are compared in place as ever.
//!
//! **No death leaves a torn value.** The new bytes are written to the thread's redo area first, then
//! the intent says so: a repairer overwrites again from there. Without that intent nothing was begun.
//!
//! A value that does not fit, and any value longer than the limit, is appended and published as in a
//! store that always appends. After Nibble-2 (dissertation, ch. VI).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use mneme_sync::{DeadSlot, Slot, UndoArea};

use crate::core::{Core, Wait};
use crate::counts::{self, Counts, CountsAfter};
use crate::effects::Kind;
use crate::error::{Corrupt, ReadError, WriteError};
use crate::expiry::{Expiry, Stored};
use crate::index::bucket::{Entry, Held, HomeWord};
use crate::index::root::Root;
use crate::index::{Found, Lookup, Place, SegmentRef};
use crate::intent::{HomeChange, OPERATION_LANE, TRANSACTION_LANE};
use crate::mem::Loc;
use crate::patch::Overtaken;
use crate::publish::{Change, Expect, Published};
use crate::record::{Header, MAX_IN_PLACE, Record};

/// A value that was copied out of a store that overwrites, and all else that was seen with it.
pub(crate) struct Copied {
    pub entry: Entry,
    pub home: HomeWord,
    pub expires: u64,
    header: Header,
}

impl Core {
    /// Copies the value of `key` to `value`; `None`, with the home's word if there is a home: it is
    /// not there. The caller is pinned, and has seen `place` lead to `segment` since.
    pub(crate) fn copy_out(
        &self,
        root: Root,
        place: Place,
        mut segment: Option<SegmentRef>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Result<Copied, Option<HomeWord>>, ReadError> {
        let mut overtaken = Overtaken::default();
        let seen = loop {
            let seen = self.look_out(root, place, segment, key, value)?;
            let record = match &seen {
                Some((Some((_, _, record)), _)) if record.header().room().is_none() => record,
                _ => break seen,
            };
            // Once it is sealed it never changes. To copy one of a GiB while nobody writes to its bucket could
            // be to wait for ever.
            if self.copy_whole(record, value) {
                break seen;
            }
            overtaken.again(self)?;
            segment = self.mem.index_segment(root, place)?;
        };
        Ok(match seen {
            None => Err(None),
            Some((None, home)) => Err(Some(home)),
            Some((Some((entry, expires, record)), home)) => Ok(Copied {
                entry,
                home,
                expires,
                header: record.header(),
            }),
        })
    }

    /// The part of [`Core::copy_out`] that looks: a value with room is copied.
    #[allow(clippy::type_complexity, reason = "what was found, as one look saw it")]
    fn look_out<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<(Option<(Entry, u64, Record<'m>)>, HomeWord)>, ReadError> {
        self.look(root, place, segment, |segment, _| {
            let found = self.mem.find_in(segment, place.tag, key)?;
            let copied = found.map(|found| {
                if found.record.header().room().is_some() {
                    found.record.copy_value(value);
                }
                (found.entry, found.record.expires(), found.record)
            });
            // SYNC: pairs with the release fence in `overwrite`: whoever has read a new byte sees
            // the bit, or the unlocking.
            fence(Acquire);
            Ok(copied)
        })
    }

    /// Overwrites the value of `change.key`, if it is as expected and fits where the old one lies.
    /// `None`: it does not, or there is none; nothing was changed. The caller is pinned.
    pub(crate) fn overwrite(
        &self,
        slot: &Slot<'_>,
        change: &Change<'_>,
        value: &[u8],
        expiry: Expiry,
    ) -> Result<Option<Published>, WriteError> {
        if value.len() > MAX_IN_PLACE {
            return Ok(None);
        }
        let (root, place) = (change.root, change.place);
        let id = self.root_id(root)?;
        let mut seen = match change.segment {
            Some(segment) => Some(segment),
            None => self.mem.index_segment(root, place)?,
        };
        // Looked at first, without the lock: what will be appended is not copied for a redo.
        let found = match seen {
            Some(segment) => self.mem.find_in(segment, place.tag, change.key)?,
            None => None,
        };
        let fits = found.is_some_and(|found| holds(found.record.header(), value, expiry));
        // Where a transaction's body changes something by itself, the area may hold the notes of what it has locked ahead.
        let noted = slot.intent(TRANSACTION_LANE).read().is_some();
        if !fits || noted || !slot.undo().write(0, value) {
            return Ok(None);
        }
        let mut wait = Wait::new();
        let (held, segment) = loop {
            let segment = match seen.take() {
                Some(segment) => segment,
                None => match self.mem.index_segment(root, place)? {
                    Some(segment) => segment,
                    None => return Ok(None),
                },
            };
            if let Some(held) = self.lock_home(slot, segment, place, &mut wait)? {
                break (held, segment);
            }
        };
        let found = self.mem.find_in(segment, place.tag, change.key);
        let target = match &found {
            Ok(Some(found)) if self.is_expected(change.expect, Some(found)) => {
                let fits = holds(found.record.header(), value, expiry);
                let length = self.mem.word(found.entry.loc()).ok().filter(|_| fits);
                length.map(|length| (found.entry.loc(), &found.record, length))
            }
            _ => None,
        };
        let mut published = None;
        if let Some((loc, record, length)) = target {
            // Before the intent: whoever finds that carries it out.
            self.note_change(root, place);
            let expires = record.expires();
            published = Some(if self.has_passed(expires) {
                Published::Inserted
            } else {
                Published::Replaced
            });
            let delta = Counts::change(Some(expires != 0), Some(expiry != Expiry::Never));
            let overwrite = HomeChange::Overwrite {
                record: loc,
                len: value.len() as u64,
                expires: expiry.word(),
                counts: CountsAfter::of(slot, root.space(), id, delta),
            };
            overwrite.announce(slot);
            mneme_sys::fault!("log.overwrite.noted");
            held.begin_overwriting();
            mneme_sys::fault!("log.overwrite.begun");
            if mneme_sys::fault::ENABLED {
                // With fault points compiled in it has a middle at which it can be abandoned.
                record.overwrite(&value[..value.len() / 2]);
                mneme_sys::fault!("log.overwrite.during");
            }
            record.overwrite(value);
            set_length(length, value.len());
            mneme_sys::fault!("log.overwrite.length");
            record.set_expires(expiry.word());
            mneme_sys::fault!("log.overwrite.done");
            counts::count(slot, root.space(), id, delta);
            mneme_sys::fault!("log.overwrite.counted");
            self.tell(slot, root.space(), Kind::Stored, change.key);
        }
        if published.is_some() {
            held.unlock();
        } else {
            // Nothing happened, as those who read by the version need not doubt.
            held.unlock_unchanged();
        }
        mneme_sys::fault!("log.overwrite.unlocked");
        slot.intent(OPERATION_LANE).clear();
        found?;
        if published.is_some() {
            self.note_access(root, place);
        }
        if published.is_some() && expiry != Expiry::Never {
            self.expect_expiries();
        }
        Ok(published)
    }

    /// Sets again the expiry that a dead thread was setting, and its counts.
    pub(crate) fn redo_expiry(
        &self,
        dead: &DeadSlot<'_>,
        record: Loc,
        expires: u64,
        counts: Option<CountsAfter>,
    ) -> Result<(), Corrupt> {
        self.mem.record(record)?.set_expires(expires);
        if let Some(counts) = counts {
            counts.finish(dead);
        }
        Ok(())
    }

    /// Overwrites again what a dead thread was overwriting, in the bucket that it held.
    pub(crate) fn redo_overwrite(
        &self,
        dead: &DeadSlot<'_>,
        held: &Held<'_>,
        (loc, len): (Loc, u64),
        expires: u64,
        counts: Option<CountsAfter>,
    ) -> Result<(), WriteError> {
        let record = self.mem.record(loc)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut value = vec![0; len.min(MAX_IN_PLACE)];
        let fits = record.header().room().is_some_and(|room| len <= room);
        if !fits || !UndoArea::read(&dead.undo(), 0, &mut value) {
            return Err(Corrupt::at(
                loc.byte(),
                "an intent overwrites a record that has no room for it",
            )
            .into());
        }
        // It may have died before it made readers wait.
        held.begin_overwriting();
        record.overwrite(&value);
        mneme_sys::fault!("log.redo.value");
        set_length(self.mem.word(loc)?, len);
        Ok(self.redo_expiry(dead, loc, expires, counts)?)
    }

    /// Makes the copy at `new` of the record at `old` complete: value, length, expiry. The bucket is
    /// held, so that nobody overwrites either.
    pub(crate) fn complete_copy(&self, old: Loc, new: Loc) -> Result<(), Corrupt> {
        let record = self.mem.record(old)?;
        let copy = self.mem.record(new)?;
        if record.header().shape() != copy.header().shape() {
            // Somebody has damaged it since it was copied: what it says now may not fit into the copy.
            return Err(Corrupt::at(old.byte(), "a record that changed its shape"));
        }
        self.complete_patchable(&record, &copy);
        if record.header().room().is_some() {
            copy.overwrite(record.value());
            set_length(self.mem.word(new)?, record.header().value_len());
        }
        copy.set_expires(record.expires());
        Ok(())
    }

    /// Whether what was found at a key's home, which is held, is as a change expects.
    ///
    /// What others did in the bucket makes no difference, or a change of one key would begin anew
    /// for ever beside busy neighbours. While a caller is pinned no location is used again.
    pub(crate) fn is_expected(&self, expect: Expect<'_>, found: Option<&Found<'_>>) -> bool {
        match (expect, found) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::At(loc), Some(found)) => found.entry.loc() == loc,
            (Expect::Expiring(loc, expires), Some(found)) => self.is_live_at(found, loc, expires),
            (Expect::Value(loc, expires, value), Some(found)) => {
                self.is_live_at(found, loc, expires) && found.record.value() == value
            }
            (Expect::ExpiredAt(loc), Some(found)) => {
                found.entry.loc() == loc && self.is_expired(&found.record)
            }
            _ => false,
        }
    }

    /// Whether the record at `loc` expires as it did when a change of it was decided on, and has
    /// not expired since. Where it has, others have been told that the key is absent, and the
    /// change is decided on anew.
    fn is_live_at(&self, found: &Found<'_>, loc: Loc, expires: u64) -> bool {
        found.entry.loc() == loc && found.record.expires() == expires && !self.has_passed(expires)
    }
}

/// Whether a record with this header has room for the value and a word for the expiry.
fn holds(header: Header, value: &[u8], expiry: Expiry) -> bool {
    let room = header.room().is_some_and(|room| value.len() <= room);
    room && (expiry == Expiry::Never || header.has_expiry())
}

/// The value of the record with this header word has `len` bytes from now on. Its bucket is held.
fn set_length(header: &AtomicU64, len: usize) {
    // Relaxed: readers validate by the bucket.
    let now = Header(header.load(Relaxed)).with_length(len);
    header.store(now.0, Relaxed);
}

impl Copied {
    /// What a change expects that was decided on when the record was so, with this value;
    /// `is_live`: it had not expired.
    pub fn expect<'v>(&self, value: &'v [u8], is_live: bool) -> Expect<'v> {
        let loc = self.entry.loc();
        if !is_live {
            Expect::ExpiredAt(loc)
        } else if self.header.room().is_some() {
            Expect::Value(loc, self.expires, value)
        } else if self.header.has_expiry() {
            Expect::Expiring(loc, self.expires)
        } else {
            Expect::At(loc)
        }
    }

    /// What is stored, if it has not expired.
    pub fn stored<'v>(&self, core: &Core, value: &'v [u8]) -> Option<Stored<'v>> {
        (!core.has_passed(self.expires)).then(|| self.still_stored(value))
    }

    /// What is stored, expired or not.
    pub fn still_stored<'v>(&self, value: &'v [u8]) -> Stored<'v> {
        Stored {
            value,
            expiry: Expiry::of_word(self.expires),
        }
    }
}

impl Record<'_> {
    /// Copies the value, which somebody may be overwriting.
    pub fn copy_value(&self, to: &mut Vec<u8>) {
        to.resize(self.value_len(), 0);
        // SAFETY: the record is mapped; whoever writes to it meanwhile does so by `overwrite`.
        unsafe { mneme_sys::racy::load(self.value_address(), to) };
    }

    /// Writes a value of at most the record's room over the old one. The bucket is held.
    fn overwrite(&self, value: &[u8]) {
        debug_assert!(self.header().room().is_some_and(|room| value.len() <= room));
        // SAFETY: the room behind the key belongs to the record, which is mapped for writing; all
        // who read it meanwhile do so by `copy_value`, and no other thread writes to it.
        unsafe { mneme_sys::racy::store(value, self.value_address().cast_mut()) };
    }
}

impl Held<'_> {
    /// Makes readers wait, before the first byte of a value is overwritten.
    pub(crate) fn begin_overwriting(&self) {
        self.set_transaction();
        // SYNC: pairs with the acquire fence in `copy_out`.
        fence(Release);
    }
}
