//! Parts of values: read and changed without the rest of the value, so that the cost depends on the
//! part, not on the value.
//!
//! A short value is read and stored whole, as by [`update`](crate::LogStore::update). The first
//! change of a part of a long one stores it as a patchable record; later changes are patches,
//! unless the record was sealed meanwhile (see [`crate::records::patch`]).

use std::borrow::Cow;
use std::ops::Range;

use mneme_sync::{Pin, Slot};

use crate::buffer::{NoMemory, copied, reserve, zeros};
use crate::error::{ReadError, WriteError};
use crate::index::lookup::{FoundEntry, Lookup};
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::reclaim::free_space::SpaceSearch;
use crate::records::change_set::Changed;
use crate::records::patch::{Overtaken, Target, Write};
use crate::records::publish::{Expect, KeyChange, Published};
use crate::records::read::copying::{Looked, SHORT, SHORT_TRIES, within};
use crate::region::kind::ValueKind;
use crate::region::patch_word::PatchWord;
use crate::region::record::{Header, MAX_VALUE, Record, write_patchable};
use crate::session::back_off;
use crate::store::components::Store;
use crate::store::ops::{Decision, Takes, Tried, Updated};

/// Values longer than this are patched. Shorter ones are stored again just as quickly.
pub(crate) const LONG: usize = 4096;
/// A value of at most this length gets slack of its own length. A longer one gets an eighth of its
/// length, or this much.
const MOST_DOUBLED: usize = 1 << 20;

/// The slack of a value of `len` bytes that has become longer, because it is likely to grow
/// further.
pub(crate) fn slack(len: usize) -> usize {
    len.min(MOST_DOUBLED).max(len / 8)
}

/// A part of what is stored under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'v> {
    /// The requested bytes, as far as the value has them.
    pub bytes: &'v [u8],
    /// The length of the whole value, in bytes.
    pub len: usize,
}

impl<'v> Part<'v> {
    /// The part of `value` in the range that `range` returns for its length.
    #[must_use]
    pub fn of(value: &'v [u8], range: impl Fn(usize) -> Range<usize>) -> Part<'v> {
        Part {
            bytes: &value[within(&range, value.len())],
            len: value.len(),
        }
    }
}

/// What a change of a part does, see [`LogStore::update_part`](crate::LogStore::update_part).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Patch<'b> {
    /// Leave the value as it is.
    Keep,
    /// Write these bytes. If the value ends before the last of them it becomes longer, with zeros
    /// in between. It also becomes longer, up to `at`, if there are no bytes.
    Write {
        /// The place of the first byte, from the value's beginning.
        at: usize,
        /// The bytes to write.
        bytes: Cow<'b, [u8]>,
    },
}

impl Patch<'_> {
    /// The new value after a change of `value`; `None`: it is unchanged.
    ///
    /// # Errors
    /// [`WriteError::ValueTooLong`]: longer than the store accepts.
    pub fn apply(&self, value: &[u8]) -> Result<Option<Vec<u8>>, WriteError> {
        let Some(write) = self.written() else {
            return Ok(None);
        };
        match write.len_after(value.len()) {
            len if len > MAX_VALUE => Err(WriteError::ValueTooLong(len)),
            _ => Ok(Some(patched(value, write)?)),
        }
    }

    /// What to write, and where.
    pub(crate) fn written(&self) -> Option<Write<'_>> {
        match self {
            Patch::Keep => None,
            Patch::Write { at, bytes } => Some(Write { at: *at, bytes }),
        }
    }
}

/// `value` with `bytes` written at `at`. Memory for a long tail of zeros is allocated only when it
/// is read.
fn patched(value: &[u8], Write { at, bytes }: Write<'_>) -> Result<Vec<u8>, NoMemory> {
    let end = at + bytes.len();
    let mut new = if end > value.len() {
        let mut longer = zeros(end)?;
        longer[..value.len()].copy_from_slice(value);
        longer
    } else {
        copied(value)?
    };
    new[at..end].copy_from_slice(bytes);
    Ok(new)
}

impl Store {
    /// Calls `visit` once, with the part of the value of `key` that lies in `range`.
    pub(crate) fn read_part<R>(
        &self,
        database: u8,
        key: &[u8],
        range: impl Fn(usize) -> Range<usize>,
        visit: impl FnOnce(Option<Part<'_>>) -> R,
    ) -> Result<R, ReadError> {
        let index = self.index();
        let records = self.records();
        if records.lends {
            let (pin, space) = index.enter_to_read(database)?;
            if let Some(value) = records.try_fast_lend(&pin, database, key) {
                return Ok(visit(Some(Part::of(value, range))));
            }
            let Some(root) = index.root(space)? else {
                return Ok(visit(None));
            };
            let place = index.place(key);
            let segment = self.session().mem.index_segment(root, place)?;
            let seen = index.find(root, place, segment, key)?;
            let Some(found) = seen.and_then(|(found, _)| found) else {
                return Ok(visit(None));
            };
            // If it has expired, or can change, the look below decides.
            if !records.is_expired(&found.record) {
                found.record.header().kind().expect(ValueKind::STRING)?;
                records.note_access(root, place);
                if !found.record.changes() {
                    return Ok(visit(Some(Part::of(found.record.value(), range))));
                }
            }
        }
        let mut bytes = Vec::new();
        let seen = records.look_copying(database, |hold, space| {
            bytes.clear();
            let Some(root) = index.root(space)? else {
                return Ok(Looked::Seen(None));
            };
            let place = index.place(key);
            let segment = self.session().mem.index_segment(root, place)?;
            let sought = (key, Some(ValueKind::STRING));
            records.copy_key(hold, root, place, segment, sought, &range, &mut bytes)
        })?;
        Ok(visit(seen.map(|(len, _)| Part { bytes: &bytes, len })))
    }

    /// Changes `key` depending on a part of its present value, atomically. `decide` may be called
    /// more than once.
    pub(crate) fn update_part<'b>(
        &self,
        database: u8,
        key: &[u8],
        range: impl Fn(usize) -> Range<usize>,
        mut decide: impl FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, WriteError> {
        let slot = self.session().writer()?;
        if let Err(too_long) = Self::check_lengths(key, &[]) {
            // As for `update`.
            return match decide(None) {
                Patch::Keep => Ok(Updated::Absent),
                _ => Err(too_long),
            };
        }
        let mut long = Long {
            store: self,
            slot: &slot,
            place: self.index().place(key),
            key,
            range: &range,
            grows: true,
            overtaken: Overtaken::default(),
            tries: 0,
            starves: false,
        };
        let (mut search, mut conflicts) = (SpaceSearch::new(0), 0);
        loop {
            let tried = {
                let (pin, space) = self.index().enter(&slot, database)?;
                match self.index().root(space)? {
                    Some(root) => long.try_update(&pin, root, &mut decide, &mut search)?,
                    None => None,
                }
            };
            match tried {
                Some(Tried::Done(updated)) => return Ok(updated),
                Some(Tried::Conflict) => back_off(&mut conflicts),
                Some(Tried::NoSpace) => match self.reclaim().make_space(&slot, &mut search) {
                    // There may be space for the value without slack.
                    Err(WriteError::OutOfMemory { .. }) if long.grows => {
                        (long.grows, search) = (false, SpaceSearch::new(0));
                    }
                    made => made?,
                },
                None => break,
            }
        }
        self.update_short(database, key, &range, &mut decide)
    }

    /// As [`Store::update_part`], for a value that is short, or absent.
    fn update_short<'b>(
        &self,
        database: u8,
        key: &[u8],
        range: &impl Fn(usize) -> Range<usize>,
        decide: &mut impl FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, WriteError> {
        let mut applied = Ok(());
        let updated = self.update(
            database,
            key,
            Takes::Only(ValueKind::STRING),
            None,
            |stored| {
                let value = stored.map_or(&[][..], |stored| stored.value);
                let patch = decide(stored.map(|stored| Part::of(stored.value, range)));
                let (patched, error) = match patch.apply(value) {
                    Ok(patched) => (patched, Ok(())),
                    Err(error) => (None, Err(error)),
                };
                applied = error;
                patched.map_or(Decision::Keep, Decision::Replace)
            },
        )?;
        applied.map(|()| updated)
    }
}

/// A change of a part of a value that may be long.
struct Long<'a, R> {
    store: &'a Store,
    slot: &'a Slot<'a>,
    place: Place,
    key: &'a [u8],
    range: &'a R,
    /// Whether the value gets slack to grow.
    grows: bool,
    overtaken: Overtaken,
    /// How often the part was patched while it was copied.
    tries: u32,
    starves: bool,
}

impl<R: Fn(usize) -> Range<usize>> Long<'_, R> {
    /// One attempt. `None`: the value is not long.
    fn try_update<'b>(
        &mut self,
        pin: &Pin<'_>,
        root: Root,
        decide: &mut impl FnMut(Option<Part<'_>>) -> Patch<'b>,
        search: &mut SpaceSearch,
    ) -> Result<Option<Tried>, WriteError> {
        let store = self.store;
        let segment = store.session().mem.index_segment(root, self.place)?;
        let seen = store.index().find(root, self.place, segment, self.key)?;
        let found = seen.and_then(|(found, _)| found);
        let Some(FoundEntry { entry, record, .. }) = found else {
            return Ok(None);
        };
        if self.starves {
            let _ = record.seals(false);
        }
        let (expires, patch) = (record.expires(), record.patch());
        let len = match patch {
            Some((_, word)) => word.len().min(record.header().patch_capacity()),
            None => record.header().value_len(),
        };
        if store.records().has_passed(expires)
            || record.header().capacity().is_some()
            || len <= LONG
        {
            return Ok(None);
        }
        record.header().kind().expect(ValueKind::STRING)?;
        let asked = within(self.range, len);
        let mut copy = Vec::new();
        let bytes = match patch {
            Some((_, word)) => {
                reserve(&mut copy, asked.len())?;
                copy.resize(asked.len(), 0);
                if word.is_odd() {
                    self.overtaken.again(store.records())?;
                    return Ok(Some(Tried::Conflict));
                }
                self.overtaken = Overtaken::default();
                if !record.copy_part(word, asked.start, &mut copy) {
                    self.tries += 1;
                    // An attempt that copies much might fail again and again.
                    self.starves = asked.len() > SHORT || self.tries > SHORT_TRIES;
                    return Ok(Some(Tried::Conflict));
                }
                &copy[..]
            }
            None => &record.value()[asked],
        };
        let patched = decide(Some(Part { bytes, len }));
        store.session().may_go_on(self.slot)?;
        let Some(write) = patched.written() else {
            return Ok(Some(Tried::Done(Updated::Kept)));
        };
        if write.len_after(len) > MAX_VALUE {
            return Err(WriteError::ValueTooLong(write.len_after(len)));
        }
        let seen = Target {
            loc: entry.loc(),
            record,
            expires,
            word: patch.map_or(PatchWord::new(len), |(_, word)| word),
        };
        if patch.is_some() && seen.takes(&write) {
            match (store.records()).patch(self.slot, (root, self.place), self.key, &seen, write)? {
                Changed::Done => {
                    // The record stays at its place in the log, so the access is noted; otherwise
                    // the record would count as old.
                    store.records().note_access(root, self.place);
                    return Ok(Some(Tried::Done(Updated::Replaced)));
                }
                Changed::Overtaken => return Ok(Some(Tried::Conflict)),
                Changed::Unable => {}
            }
        }
        if !record.seals(false) {
            self.overtaken.again(store.records())?;
            return Ok(Some(Tried::Conflict));
        }
        if (record.patch()).is_some_and(|(_, now)| !now.same_value(seen.word)) {
            return Ok(Some(Tried::Conflict));
        }
        self.store_patchable(pin, root, &record, &seen, write, search)
            .map(Some)
    }

    /// Stores the value again, as a patchable one, with the change applied.
    fn store_patchable(
        &self,
        pin: &Pin<'_>,
        root: Root,
        old: &Record<'_>,
        seen: &Target<'_>,
        write: Write<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Tried, WriteError> {
        let store = self.store;
        let value = old.value();
        let after = write.len_after(value.len());
        let growth = match self.grows && after > value.len() {
            true => slack(after),
            false => 0,
        };
        let capacity = (after + growth).min(MAX_VALUE);
        let header = Header::patchable(self.key.len(), capacity, root.space());
        search.want(header.size());
        let Some(loc) = store.reserve_one(self.slot, header, header.size())? else {
            return Ok(Tried::NoSpace);
        };
        let size = header.size();
        let address = store.session().mem.address(loc, size)?;
        // SAFETY: `reserve` gave these bytes to this thread alone, and no reader finds the record
        // before it is published, except copying readers that have lost their pins.
        unsafe { write_patchable(address, header, seen.expires, self.key, after) };
        mneme_sys::fault!("log.body.during");
        let new = Record::new(header, address);
        new.write_part(0, &value[..value.len().min(write.at)]);
        new.write_behind(value.len(), write.at, write.bytes);
        let rest = value.get(write.at + write.bytes.len()..);
        new.write_part(
            after - rest.map_or(0, <[u8]>::len),
            rest.unwrap_or_default(),
        );
        mneme_sys::fault!("log.body.after");
        let change = KeyChange {
            new: Some((loc, size)),
            expiring: seen.expires != 0,
            expect: Expect::Expiring(seen.loc, seen.expires),
            ..KeyChange::removal(root, self.place, self.key)
        };
        let published = store.records().publish(self.slot, pin, &change)?;
        if published == Published::NoSpace {
            store.log().mark_dead(loc, size)?;
        }
        Ok(Tried::of(published))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_to_the_value() {
        assert_eq!(within(&|_| 2..5, 10), 2..5);
        assert_eq!(within(&|_| 2..5, 4), 2..4);
        assert_eq!(within(&|_| 2..5, 1), 1..1);
        assert_eq!(within(&|len| len - 3..len, 10), 7..10);
        #[allow(clippy::reversed_empty_ranges, reason = "callers may ask for one")]
        let reversed = 5..2;
        assert_eq!(within(&|_| reversed.clone(), 10), 2..2);
    }

    #[test]
    fn bytes_are_written_within_at_the_end_and_beyond() {
        let patched = |value, at, bytes| patched(value, Write { at, bytes }).unwrap();
        assert_eq!(patched(b"abcdef", 2, b"xy"), b"abxyef");
        assert_eq!(patched(b"abcdef", 5, b"xyz"), b"abcdexyz");
        assert_eq!(patched(b"ab", 4, b"x"), b"ab\0\0x");
        assert_eq!(patched(b"", 0, b"x"), b"x");
        assert_eq!(patched(b"ab", 3, b""), b"ab\0");
        assert_eq!(patched(b"ab", 1, b""), b"ab");
    }
}
