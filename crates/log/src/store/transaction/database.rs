//! One database within a transaction: what its operations read and write.

use hashbrown::hash_table;

use crate::error::WriteError;
use crate::index::bucket::Entry;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::SegmentRef;
use crate::records::expiry::{Expiry, Stored};
use crate::records::in_place::CopyOut;
use crate::region::mem::Loc;
use crate::region::record::{MAX_KEY, Record};
use crate::store::components::Store;

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
    /// What is to be noted of the look, and the index segment to look in.
    Unwritten(Read, Option<SegmentRef>),
}

impl<'a> TransactionOn<'_, 'a> {
    /// The value of `key`.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, WriteError> {
        self.read(key, |stored| stored.map(|s| s.value.to_vec()))
    }

    /// Calls `visit` with what is stored under `key`, where it lies.
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
        if t.ahead.is_some() {
            let seen = store.find(root, place, segment, key)?;
            let found = seen.and_then(|(found, _)| found);
            t.before_copying(found.map_or(0, |found| found.record.value_len() as u64))?;
        }
        if store.overwrites() {
            let mut value = Vec::new();
            let copied = match store.copy_out(root, place, segment, key, &mut value)? {
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
                store.note_access(root, place);
            }
            t.reads.push(read);
            return Ok(visit(there.map(|copied| copied.still_stored(&value))));
        }
        let mut copy = Vec::new();
        let seen = store.find_whole(root, place, segment, key, &mut copy)?;
        let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
        read.seen = seen.as_ref().map(|(_, home)| *home);
        read.entry = found.map(|f| f.entry);
        read.mutable = found.is_some_and(|f| f.record.header().has_expiry());
        let there = found.filter(|f| !t.has_passed(f.record.expires()));
        if let Some(found) = there {
            read.expires = found.record.expires();
            store.note_access(root, place);
        }
        t.reads.push(read);
        Ok(visit(there.map(|f| Stored {
            value: f.record.value_or(&copy),
            expiry: Expiry::of_word(f.record.expires()),
        })))
    }

    /// When `key` expires. `None`: it is absent. Its value is not looked at.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn expiry(&mut self, key: &[u8]) -> Result<Option<Expiry>, WriteError> {
        let (mut read, segment) = match self.seek(key)? {
            Sought::Written(own) => return Ok(own.map(|own| Expiry::of_word(own.expires()))),
            Sought::Unwritten(read, segment) => (read, segment),
        };
        let t = &mut *self.transaction;
        let mut there = None;
        if let (Some(root), true) = (read.root, segment.is_some()) {
            let seen = t.store.find(root, read.place, segment, key)?;
            read.seen = seen.as_ref().map(|(_, home)| *home);
            if let Some(found) = seen.and_then(|(found, _)| found) {
                read.entry = Some(found.entry);
                read.mutable |= found.record.header().has_expiry();
                // Read once: the expiry may change where it lies.
                let expires = found.record.expires();
                there = Some(expires).filter(|expires| !t.has_passed(*expires));
            }
            if let Some(expires) = there {
                read.expires = expires;
                t.store.note_access(root, read.place);
            }
        }
        t.reads.push(read);
        Ok(there.map(Expiry::of_word))
    }

    /// What the transaction itself has written for `key`, or where that is to be looked for.
    fn seek(&mut self, key: &[u8]) -> Result<Sought<'a>, WriteError> {
        let (t, database) = (&mut *self.transaction, self.database);
        t.may_go_on()?;
        if key.len() > MAX_KEY {
            return Ok(Sought::Written(None));
        }
        t.before_copying(0)?;
        let store = t.store;
        if let Some(write) = t.written(database, key) {
            let record = match write.new {
                Some((loc, _)) => Some(store.mem.record(loc)?),
                None => None,
            };
            let there = record.filter(|record| !t.has_passed(record.expires()));
            return Ok(Sought::Written(there));
        }
        let (root, place) = (t.root(database)?, store.place(key));
        let segment = match root {
            Some(root) => store.mem.index_segment(root, place)?,
            None => None,
        };
        t.before_reading(segment.map(|segment| Home::of(segment, place).loc))?;
        let read = Read {
            space: store.entered_space(database),
            place,
            key: key.into(),
            root,
            seen: None,
            entry: None,
            mutable: store.overwrites(),
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
        let loc = match t.written(self.database, key) {
            Some(write) => write.new.map(|(loc, _)| loc),
            None => t.reads.last().and_then(|read| read.entry).map(Entry::loc),
        };
        // A record that was read stays where it is until the attempt is over, and keeps its size.
        let record = loc.map(|loc| t.store.mem.record(loc)).transpose()?;
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
        t.store.may_write()?;
        Store::check_lengths(key, value)?;
        let space = t.store.entered_space(self.database);
        let header = t.store.header_for(key, value, expiry, space);
        t.before_copying(header.size())?;
        let Some(root) = t.root_or_create(self.database)? else {
            return Err(t.no_space(header.size()));
        };
        let Some(loc) = t.store.write_record(t.slot, header, expiry, key, value)? else {
            return Err(t.no_space(header.size()));
        };
        t.set(self.database, root, key, Some((loc, header.size())), expiry)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError> {
        self.transaction.store.may_write()?;
        let there = self.expiry(key)?.is_some();
        let t = &mut *self.transaction;
        if there && let Some(root) = t.root(self.database)? {
            t.set(self.database, root, key, None, Expiry::Never)?;
        }
        Ok(there)
    }
}

impl Transaction<'_> {
    #[cold]
    fn no_space(&mut self, wanted: u64) -> WriteError {
        self.wanting = Some(wanted.max(self.wanting.unwrap_or(0)));
        self.store.out_of_memory(wanted)
    }

    /// The transaction's own write of a key so far, if there is one.
    fn written(&self, database: u8, key: &[u8]) -> Option<&Write> {
        let hash = self.store.hash(key);
        let same = |&at: &usize| self.writes[at].is_of(database, key);
        let at = self.written.find(hash, same)?;
        Some(&self.writes[*at])
    }

    fn set(
        &mut self,
        database: u8,
        root: Root,
        key: &[u8],
        new: Option<(Loc, u64)>,
        expiry: Expiry,
    ) -> Result<(), WriteError> {
        let (store, writes) = (self.store, &mut self.writes);
        let write = Write {
            database,
            root,
            place: store.place(key),
            key: key.into(),
            new,
            expiry,
        };
        let entry = self.written.entry(
            store.hash(key),
            |&at| writes[at].is_of(database, key),
            |&at| store.hash(&writes[at].key),
        );
        let at = match entry {
            hash_table::Entry::Occupied(there) => *there.get(),
            hash_table::Entry::Vacant(free) => {
                free.insert(writes.len());
                writes.push(write);
                return Ok(());
            }
        };
        let old = std::mem::replace(&mut writes[at], write);
        if let Some((loc, size)) = old.new {
            self.store.mark_dead(loc, size)?;
        }
        Ok(())
    }
}
