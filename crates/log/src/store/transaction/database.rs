//! One database within a transaction: what its operations read and write.

use std::ops::Range;

use crate::buffer::copied;
use crate::error::WriteError;
use crate::index::bucket::Entry;
use crate::index::lookup::Lookup;
use crate::index::shape::{Place, SegmentRef};
use crate::records::expiry::{Expiry, Stored};
use crate::records::in_place::CopyOut;
use crate::region::kind::{ValueKind, WrongKind};
use crate::region::record::{Header, MAX_KEY, MAX_VALUE, Record};
use crate::store::components::Store;
use crate::store::ops::Updated;
use crate::store::part::{Part, Patch};

use super::few::FEW;
use super::home_buckets::Home;
use super::{Read, Transaction, Write};

/// One database within a transaction.
pub struct TransactionOn<'t, 'a> {
    pub(super) transaction: &'t mut Transaction<'a>,
    pub(super) database: u8,
}

/// A key that is to be read.
enum Sought<'a> {
    /// The transaction has written it: its own record, unless that is a removal or has expired.
    Written(Option<Record<'a>>),
    /// What to note about the look, and the index page to look in.
    Unwritten(Read, Option<SegmentRef>),
}

impl<'a> TransactionOn<'_, 'a> {
    /// The value of `key`, a string.
    ///
    /// # Errors
    /// As for [`Transaction::get`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, WriteError> {
        let copy = self.read(key, |stored| {
            let value = stored.map(Stored::string).transpose()?;
            Ok::<_, WrongKind>(value.map(copied))
        })?;
        Ok(copy?.transpose()?)
    }

    /// Calls `visit` with what is stored under `key`, of whatever kind, in place.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn read<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> Result<R, WriteError> {
        let (mut read, segment) = match self.seek(key)? {
            Sought::Written(own) => return Ok(visit(own.as_ref().map(Stored::of))),
            Sought::Unwritten(read, segment) => (read, segment),
        };
        let t = &mut *self.transaction;
        let (store, place) = (t.store, read.place);
        let (Some(root), true) = (read.root, segment.is_some()) else {
            t.reads.push(read);
            return Ok(visit(None));
        };
        let (mut copy, mut seen) = (Vec::new(), None);
        let is_ahead = t.ahead.is_some();
        if is_ahead {
            seen = store.index().find(root, place, segment, key)?;
            let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
            t.before_copying(found.map_or(0, |found| found.record.value_len() as u64))?;
        }
        seen = match store.records().overwrites() {
            true => None,
            // What was seen under locks that are no longer held is checked again.
            false if !is_ahead || t.ahead.is_none() => {
                (store.records()).find_whole(root, place, segment, key, &mut copy)?
            }
            false => (store.records()).make_whole(root, place, seen, key, &mut copy)?,
        };
        let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
        if store.records().overwrites()
            || found.is_some_and(|f| f.record.header().capacity().is_some())
        {
            read.mutable = true;
            let mut value = Vec::new();
            let copied =
                match (store.records()).copy_out(root, place, segment, key, &mut value, None)? {
                    CopyOut::Found(copied) => {
                        (read.seen, read.entry) = (Some(copied.home), Some(copied.entry));
                        Some(copied)
                    }
                    CopyOut::Absent(home) => {
                        read.seen = home;
                        None
                    }
                };
            let there = copied.filter(|copied| !t.has_passed(copied.expires));
            if let Some(copied) = &there {
                read.expires = copied.expires;
                store.records().note_access(root, place);
            }
            t.reads.push(read);
            return Ok(visit(there.map(|copied| copied.still_stored(&value))));
        }
        read.seen = seen.as_ref().map(|(_, home)| *home);
        read.entry = found.map(|f| f.entry);
        read.mutable = found.is_some_and(|f| f.record.header().has_expiry());
        let there = found.filter(|f| !t.has_passed(f.record.expires()));
        if let Some(found) = there {
            read.expires = found.record.expires();
            store.records().note_access(root, place);
        }
        t.reads.push(read);
        Ok(visit(there.map(|f| Stored {
            value: f.record.value_or(&copy),
            expiry: Expiry::of_word(f.record.expires()),
            kind: f.record.header().kind(),
        })))
    }

    /// When `key` expires. `None`: it is absent. Its value is not read.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn expiry(&mut self, key: &[u8]) -> Result<Option<Expiry>, WriteError> {
        let there = self.outline(key)?;
        Ok(there.map(|(expires, _)| Expiry::of_word(expires)))
    }

    /// The kind of the value of `key`. `None`: it is absent. The value is not read.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<ValueKind>, WriteError> {
        Ok(self.outline(key)?.map(|(_, header)| header.kind()))
    }

    /// The word of the expiry of `key`, and the header of its record. `None`: it is absent.
    fn outline(&mut self, key: &[u8]) -> Result<Option<(u64, Header)>, WriteError> {
        let (mut read, segment) = match self.seek(key)? {
            Sought::Written(own) => return Ok(own.map(|own| (own.expires(), own.header()))),
            Sought::Unwritten(read, segment) => (read, segment),
        };
        let t = &mut *self.transaction;
        let mut there = None;
        if let (Some(root), true) = (read.root, segment.is_some()) {
            let seen = t.store.index().find(root, read.place, segment, key)?;
            read.seen = seen.as_ref().map(|(_, home)| *home);
            if let Some(found) = seen.and_then(|(found, _)| found) {
                read.entry = Some(found.entry);
                read.mutable |= found.record.header().has_expiry();
                // Read once: the expiry may change in place.
                let expires = found.record.expires();
                there = (!t.has_passed(expires)).then(|| (expires, found.record.header()));
            }
            if let Some((expires, _)) = there {
                read.expires = expires;
                t.store.records().note_access(root, read.place);
            }
        }
        t.reads.push(read);
        Ok(there)
    }

    /// What the transaction itself has written for `key`, or where to look for it.
    fn seek(&mut self, key: &[u8]) -> Result<Sought<'a>, WriteError> {
        let (t, database) = (&mut *self.transaction, self.database);
        t.may_go_on()?;
        if key.len() > MAX_KEY {
            return Ok(Sought::Written(None));
        }
        t.before_copying(0)?;
        let store = t.store;
        let place = store.index().place(key);
        if let Some(write) = t.written(database, place, key) {
            let record = match write.new {
                Some((loc, _)) => Some(store.session().mem.record(loc)?),
                None => None,
            };
            let there = record.filter(|record| !t.has_passed(record.expires()));
            return Ok(Sought::Written(there));
        }
        let root = t.root(database)?;
        let segment = match root {
            Some(root) => store.session().mem.index_segment(root, place)?,
            None => None,
        };
        t.before_reading(segment.map(|segment| Home::of(segment, place).loc))?;
        let read = Read {
            space: t.space_of(database),
            place,
            key: key.into(),
            root,
            seen: None,
            entry: None,
            mutable: store.records().overwrites(),
            expires: 0,
        };
        Ok(Sought::Unwritten(read, segment))
    }

    /// Bytes that the record of `key` occupies, or will once the transaction is committed.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn record_bytes(&mut self, key: &[u8]) -> Result<Option<u64>, WriteError> {
        if self.expiry(key)?.is_none() {
            return Ok(None);
        }
        let t = &*self.transaction;
        let loc = match t.written(self.database, t.store.index().place(key), key) {
            Some(write) => write.new.map(|(loc, _)| loc),
            None => t.reads.last().and_then(|read| read.entry).map(Entry::loc),
        };
        // A record that was read stays where it is until the attempt is over, and keeps its size.
        let record = loc
            .map(|loc| t.store.session().mem.record(loc))
            .transpose()?;
        Ok(record.map(|record| record.header().size()))
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.put_until(key, value, Expiry::Never)
    }

    /// Stores `value` under `key` until its expiry.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn put_until(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), WriteError> {
        let t = &mut *self.transaction;
        t.may_go_on()?;
        t.store.session().may_write()?;
        Store::check_lengths(key, value)?;
        t.store_own(
            self.database,
            key,
            value,
            (ValueKind::STRING, expiry),
            false,
        )
    }

    /// As [`put_until`](Self::put_until), for a value of this kind. A value of a large kind is the
    /// id of a collection, whose main is then stored only under this key.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn put_kind(
        &mut self,
        key: &[u8],
        value: &[u8],
        kind: ValueKind,
        expiry: Expiry,
    ) -> Result<(), WriteError> {
        let t = &mut *self.transaction;
        t.may_go_on()?;
        t.store.session().may_write()?;
        Store::check_lengths(key, value)?;
        if kind.is_large() {
            t.own_collection(self.database, key, (kind, value))?;
        }
        t.store_own(self.database, key, value, (kind, expiry), false)
    }

    /// Changes a part of the value of `key` depending on a part of it, as
    /// [`LogStore::update_part`](crate::LogStore::update_part) does; `decide` is called once. Only
    /// the first change within the transaction copies a value.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn update_part<'b>(
        &mut self,
        key: &[u8],
        range: impl Fn(usize) -> Range<usize>,
        decide: impl FnOnce(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, WriteError> {
        let (t, database) = (&mut *self.transaction, self.database);
        t.may_go_on()?;
        t.store.session().may_write()?;
        if let Err(too_long) = Store::check_lengths(key, &[]) {
            // Such a key is absent, which only a decision to store something would change.
            return match decide(None) {
                Patch::Keep => Ok(Updated::Absent),
                _ => Err(too_long),
            };
        }
        if let Some((at, record)) = t.own_record(database, key)? {
            record.header().kind().expect(ValueKind::STRING)?;
            let value = record.value();
            let patch = decide(Some(Part::of(value, range)));
            let Some(part) = patch.written() else {
                return Ok(Updated::Kept);
            };
            let after = part.len_after(value.len());
            if after > MAX_VALUE {
                return Err(WriteError::ValueTooLong(after));
            }
            t.patch_own(at, part)?;
            return Ok(Updated::Replaced);
        }
        let (patched, old) = self.read(key, |stored| {
            let value = stored.map(Stored::string).transpose()?;
            let (value, old) = (value.unwrap_or_default(), stored);
            let patch = decide(old.map(|old| Part::of(old.value, range)));
            let old = old.map(|old| (old.value.len(), old.expiry));
            patch.apply(value).map(|patched| (patched, old))
        })??;
        let Some(patched) = patched else {
            return Ok(old.map_or(Updated::Absent, |_| Updated::Kept));
        };
        let (len, expiry) = old.unwrap_or_default();
        let grows = patched.len() > len;
        let kind = ValueKind::STRING;
        (self.transaction).store_own(database, key, &patched, (kind, expiry), grows)?;
        Ok(old.map_or(Updated::Inserted, |_| Updated::Replaced))
    }

    /// Sets when `key` expires, depending on what is stored; `None` leaves it unchanged. Only the
    /// first change within the transaction copies a value.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn update_expiry(
        &mut self,
        key: &[u8],
        decide: impl FnOnce(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, WriteError> {
        let (t, database) = (&mut *self.transaction, self.database);
        t.may_go_on()?;
        t.store.session().may_write()?;
        if key.len() > MAX_KEY {
            return Ok(Updated::Absent);
        }
        let changed = |stored: Stored<'_>| decide(stored).filter(|to| *to != stored.expiry);
        if let Some((at, record)) = t.own_record(database, key)? {
            let Some(expiry) = changed(Stored::of(&record)) else {
                return Ok(Updated::Kept);
            };
            t.retime_own(at, expiry)?;
            return Ok(Updated::Replaced);
        }
        let copy = self.read(key, |stored| {
            let copy = |old: Stored<'_>, expiry| (copied(old.value), (old.kind, expiry));
            stored.map(|old| changed(old).map(|expiry| copy(old, expiry)))
        })?;
        match copy {
            None => Ok(Updated::Absent),
            Some(None) => Ok(Updated::Kept),
            Some(Some((value, kind))) => {
                let value = value?;
                (self.transaction).store_own(database, key, &value, kind, false)?;
                Ok(Updated::Replaced)
            }
        }
    }

    /// Removes `key`. Returns whether it was present.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError> {
        self.transaction.store.session().may_write()?;
        let there = self.expiry(key)?.is_some();
        let t = &mut *self.transaction;
        if there && let Some(root) = t.root(self.database)? {
            let place = t.store.index().place(key);
            let written = t.number_of_write(self.database, place, key);
            t.note_own_main(written)?;
            let write = Write {
                database: self.database,
                root,
                place,
                key: key.into(),
                new: None,
                expiry: Expiry::Never,
                has_slack: false,
            };
            t.set(written, write);
        }
        Ok(there)
    }
}

impl Transaction<'_> {
    #[cold]
    pub(super) fn no_space(&mut self, wanted: u64) -> WriteError {
        self.wanting = Some(wanted.max(self.wanting.unwrap_or(0)));
        self.store.reclaim().out_of_memory(wanted)
    }

    /// The transaction's own latest write of a key, if there is one.
    fn written(&self, database: u8, place: Place, key: &[u8]) -> Option<&Write> {
        Some(&self.writes[self.number_of_write(database, place, key)?])
    }

    /// Its number in `writes`.
    pub(super) fn number_of_write(&self, database: u8, place: Place, key: &[u8]) -> Option<usize> {
        let same = |at: &usize| self.writes[*at].is_of(database, place, key);
        match self.written.is_empty() {
            true => (0..self.writes.len()).find(same),
            false => self.written.find(hash_of(place), same).copied(),
        }
    }

    /// Notes the new record of a key, which has the number `at` in `writes` if it is there already.
    /// If it had another new record before, that one is spare.
    pub(super) fn set(&mut self, at: Option<usize>, write: Write) {
        if let Some(at) = at {
            let old = std::mem::replace(&mut self.writes[at], write);
            if old.new != self.writes[at].new {
                self.spare.extend(old.new);
            }
            return;
        }
        self.writes.push(write);
        let many = self.writes.len();
        let begin = match self.written.is_empty() {
            true if many <= FEW => return,
            true => 0,
            false => many - 1,
        };
        let (writes, written) = (&self.writes, &mut self.written);
        let hash = |at: &usize| hash_of(writes[*at].place);
        for at in begin..many {
            written.insert_unique(hash(&at), at, hash);
        }
    }
}

/// A hash of the place, for a table.
fn hash_of(place: Place) -> u64 {
    let word = u64::from(place.partition) << 32 | u64::from(place.tag);
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
