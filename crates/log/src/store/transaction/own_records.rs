//! The records that a transaction has written. **A repeated write replaces the record in place**,
//! so that it needs memory for its result, not for every step.
//!
//! A transaction's record belongs only to it until the transaction commits. A later write of the
//! same key changes it in place, if it fits there, and the change of a part writes only that part.
//! A record that is outgrown is written again, with slack of its own length. A record that is no
//! longer needed is *spare*: the next record that fits is written there, whatever its key. Spare
//! bytes count as dead when the attempt is over.
//!
//! A record keeps its size whatever is written to it, because its log segment is walked from header
//! to header. So one with unused bytes is patchable. Before the commit, those that are short, or
//! that have much more slack than a patchable value outside a transaction, are written again if
//! there is space ([`Transaction::settle`]).

use std::sync::atomic::Ordering::Relaxed;

use crate::error::{Corrupt, WriteError};
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::inner::collection_of;
use crate::records::expiry::Expiry;
use crate::records::patch::Write as PartWrite;
use crate::region::kind::ValueKind;
use crate::region::mem::Loc;
use crate::region::patch_word::PatchWord;
use crate::region::record::{Header, MAX_VALUE, Record, write_patchable};
use crate::store::part::{LONG, slack};

use super::{Transaction, Write};

/// The number of spare records that are tried for one that fits, the newest first.
const LOOKS: usize = 32;

/// Where a record lies, and how many bytes it occupies.
pub(super) type Own = (Loc, u64);

/// The header of a record of `size` bytes with the content of one with the header `fresh`, a value
/// of `len` bytes. `None`: it does not fit, or would waste more than it uses.
fn header_within(fresh: Header, len: usize, size: u64) -> Option<Header> {
    if fresh.size() == size {
        return Some(fresh);
    }
    let patchable = |capacity| {
        Header::patchable(fresh.key_len(), capacity, fresh.space()).with_kind(fresh.kind())
    };
    let empty = patchable(0);
    let capacity = usize::try_from(size.checked_sub(empty.size())?).ok()?;
    let fits = len <= capacity && capacity <= MAX_VALUE && size / 2 <= fresh.size();
    fits.then(|| patchable(capacity))
}

impl Transaction<'_> {
    /// The number, in `writes`, of the transaction's own record of a key, and the record. `None`:
    /// there is none, or it has expired.
    pub(super) fn own_record(
        &self,
        database: u8,
        key: &[u8],
    ) -> Result<Option<(usize, Record<'_>)>, WriteError> {
        let place = self.store.index().place(key);
        let Some(at) = self.number_of_write(database, place, key) else {
            return Ok(None);
        };
        let Some((loc, _)) = self.writes[at].new else {
            return Ok(None);
        };
        let record = self.store.session().mem.record(loc)?;
        Ok((!self.has_passed(record.expires())).then_some((at, record)))
    }

    /// Before the transaction's own record with number `at` in `writes` is replaced or removed:
    /// notes the collection that it leads to, if it is a main. No other thread sees it being
    /// removed.
    pub(super) fn note_own_main(&mut self, at: Option<usize>) -> Result<(), WriteError> {
        if let Some((loc, _)) = at.and_then(|at| self.writes[at].new) {
            let record = self.store.session().mem.record(loc)?;
            if record.header().kind().is_large() {
                self.unowned.extend(collection_of(record.value()));
            }
        }
        Ok(())
    }

    /// Space for a record with the header `fresh`, or with a similar one, for a value of `len`
    /// bytes: that of `old`, a spare one, or fresh space. Returns its place and header. `None`:
    /// there is no free space.
    fn space_for(
        &mut self,
        fresh: Header,
        len: usize,
        old: Option<Own>,
    ) -> Result<Option<(Loc, Header)>, WriteError> {
        if let Some((loc, size)) = old
            && let Some(header) = header_within(fresh, len, size)
        {
            return Ok(Some((loc, header)));
        }
        let newest = self.spare.len().saturating_sub(LOOKS);
        let fitting = self.spare[newest..].iter().enumerate().rev();
        let fitting = fitting.filter_map(|(i, (loc, size))| {
            header_within(fresh, len, *size).map(|header| (newest + i, *loc, header))
        });
        if let Some((i, loc, header)) = fitting.min_by_key(|(.., header)| header.size()) {
            self.spare.swap_remove(i);
            return Ok(Some((loc, header)));
        }
        let reserved = self
            .store
            .reserve_one(self.slot, fresh, fresh.size())?
            .map(|loc| (loc, fresh));
        Ok(reserved)
    }

    /// Writes a record to where there is space for it. No other thread accesses it.
    fn write_at(
        &self,
        loc: Loc,
        header: Header,
        expiry: Expiry,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Corrupt> {
        let (mem, size) = (&self.store.session().mem, header.size());
        // Relaxed: it says the size that it said before, and is published with the record.
        mem.word(loc)?.store(header.0, Relaxed);
        if !header.is_patchable() {
            return self.store.copy_body(loc, header, size, expiry, key, value);
        }
        let address = mem.address(loc, size)?;
        // SAFETY: the bytes are this transaction's, and no reader finds the record before it is
        // published, except copying readers that have lost their pins.
        unsafe { write_patchable(address, header, expiry.word(), key, value.len()) };
        Record::new(header, address).write_part(0, value);
        Ok(())
    }

    /// Stores `value` under `key`, replacing what the transaction has written there. With `grows` a
    /// long value gets slack.
    pub(super) fn store_own(
        &mut self,
        database: u8,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
        grows: bool,
    ) -> Result<(), WriteError> {
        let (store, len) = (self.store, value.len());
        let space = self.space_of(database);
        let exact = store.header_for(key, value, (kind, expiry), space);
        self.before_copying(exact.size())?;
        let Some(root) = self.root_or_create(database)? else {
            return Err(self.no_space(exact.size()));
        };
        let place = store.index().place(key);
        let written = self.number_of_write(database, place, key);
        self.note_own_main(written)?;
        let old = written.and_then(|at| self.writes[at].new);
        // A record that was outgrown is likely to be outgrown again.
        let capacity = match old {
            Some((_, size)) if size < exact.size() => 2 * len,
            _ if grows && len > LONG => len + slack(len),
            _ => len,
        };
        let mut found = None;
        if capacity > len {
            let roomy = Header::patchable(key.len(), capacity.min(MAX_VALUE), space);
            found = self.space_for(roomy.with_kind(kind), len, old)?;
        }
        if found.is_none() {
            found = self.space_for(exact, len, old)?;
        }
        // Removing elements stores the rest of a leaf.
        if found.is_none() && matches!(kind, ValueKind::ANCHOR | ValueKind::INNER) {
            self.frees_space = self.frees(exact.size(), (root, place, key), written)?;
            if self.frees_space {
                let reserved = store.reclaim().reserve_for_removal(self.slot, exact)?;
                found = reserved.map(|loc| (loc, exact));
            }
        }
        let Some((loc, header)) = found else {
            return Err(self.no_space(exact.size()));
        };
        self.write_at(loc, header, expiry, key, value)?;
        let write = Write {
            database,
            root,
            place,
            key: key.into(),
            new: Some((loc, header.size())),
            expiry,
            has_slack: header.is_patchable(),
        };
        self.set(written, write);
        Ok(())
    }

    /// Whether the transaction frees at least as much as it writes, counting a record of `size`
    /// bytes under a key, which has the number `written` in `writes` if it is there already. It
    /// frees the records that it replaces and removes.
    fn frees(
        &mut self,
        size: u64,
        of: (Root, Place, &[u8]),
        written: Option<usize>,
    ) -> Result<bool, WriteError> {
        // A key keeps its number.
        for write in &self.writes[self.freed.0..] {
            self.freed.1 += self.bytes_of((write.root, write.place, &write.key))?;
        }
        self.freed.0 = self.writes.len();
        let freed = match written {
            Some(_) => self.freed.1,
            None => self.freed.1 + self.bytes_of(of)?,
        };
        let mut bytes = size;
        for (at, write) in self.writes.iter().enumerate() {
            if let Some((loc, size)) = write.new.filter(|_| Some(at) != written) {
                // Slack is removed before the commit, if there is space.
                let slack = match write.has_slack {
                    true => {
                        let record = self.store.session().mem.record(loc)?;
                        let capacity = record.header().patch_capacity();
                        capacity.saturating_sub(record.value_len())
                    }
                    false => 0,
                };
                bytes += size.saturating_sub(slack as u64);
            }
        }
        Ok(bytes <= freed)
    }

    /// Bytes of the record that the index names for a key.
    fn bytes_of(&self, (root, place, key): (Root, Place, &[u8])) -> Result<u64, WriteError> {
        let segment = self.store.session().mem.index_segment(root, place)?;
        let seen = self.store.index().find(root, place, segment, key)?;
        let found = seen.and_then(|(found, _)| found);
        Ok(found.map_or(0, |found| found.record.header().size()))
    }

    /// Changes a part of its own record, number `at` in `writes`.
    pub(super) fn patch_own(&mut self, at: usize, part: PartWrite<'_>) -> Result<(), WriteError> {
        let store = self.store;
        let Some((loc, size)) = self.writes[at].new else {
            return Ok(());
        };
        let record = store.session().mem.record(loc)?;
        let (header, len) = (record.header(), record.value_len());
        let after = part.len_after(len);
        let capacity = match header.is_patchable() {
            true => header.patch_capacity(),
            false => header.capacity().unwrap_or(len),
        };
        if after <= capacity {
            self.before_copying(part.bytes.len() as u64)?;
            record.write_over(len, part);
            // Relaxed: published with the record.
            match record.patch() {
                Some((word, _)) => word.store(PatchWord::new(after).0, Relaxed),
                None if after > len => {
                    let longer = header.with_length(after);
                    store.session().mem.word(loc)?.store(longer.0, Relaxed);
                }
                None => {}
            }
            return Ok(());
        }
        self.before_copying(after as u64)?;
        let (key_len, space) = (header.key_len(), header.space());
        let mut found = None;
        for capacity in [2 * after, after] {
            if found.is_none() {
                let roomy = Header::patchable(key_len, capacity.min(MAX_VALUE), space);
                found = self.space_for(roomy, after, None)?;
            }
        }
        let Some((to, header)) = found else {
            return Err(self.no_space(size + (after - len) as u64));
        };
        let expiry = self.writes[at].expiry;
        // The present value, to be patched at its new place.
        self.write_at(to, header, expiry, record.key(), record.value())?;
        let new = store.session().mem.record(to)?;
        new.write_over(len, part);
        if let Some((word, _)) = new.patch() {
            word.store(PatchWord::new(after).0, Relaxed);
        }
        self.replace_own(at, to, header);
        Ok(())
    }

    /// Sets the expiry of its own record, number `at` in `writes`.
    pub(super) fn retime_own(&mut self, at: usize, expiry: Expiry) -> Result<(), WriteError> {
        let store = self.store;
        let Some((loc, _)) = self.writes[at].new else {
            return Ok(());
        };
        let record = store.session().mem.record(loc)?;
        if !record.set_expires(expiry.word()) {
            let (value, old) = (record.value(), record.header());
            let kind = (old.kind(), expiry);
            let exact = store.header_for(record.key(), value, kind, old.space());
            self.before_copying(exact.size())?;
            // Not in place: the value would move over itself.
            let Some((to, header)) = self.space_for(exact, value.len(), None)? else {
                return Err(self.no_space(exact.size()));
            };
            self.write_at(to, header, expiry, record.key(), value)?;
            self.replace_own(at, to, header);
        }
        self.writes[at].expiry = expiry;
        Ok(())
    }

    /// Replaces its own record, number `at` in `writes`, by another one.
    fn replace_own(&mut self, at: usize, loc: Loc, header: Header) {
        let write = &mut self.writes[at];
        let old = write.new.replace((loc, header.size()));
        write.has_slack = header.is_patchable();
        self.spare.extend(old);
    }

    /// Writes those of its records again whose present form would cost readers time or waste
    /// memory. If there is no free space for one, it stays as it is.
    pub(super) fn settle(&mut self) -> Result<(), WriteError> {
        let store = self.store;
        for at in 0..self.writes.len() {
            let write = &self.writes[at];
            let Some((loc, _)) = write.new.filter(|_| write.has_slack) else {
                continue;
            };
            let record = store.session().mem.record(loc)?;
            let (value, expiry) = (record.value(), write.expiry);
            let unused = match record.header().is_patchable() {
                true => record.header().patch_capacity() - value.len(),
                false => 0,
            };
            if value.len() > LONG && unused <= slack(value.len()).next_multiple_of(8) {
                continue;
            }
            let old = record.header();
            let kind = (old.kind(), expiry);
            let exact = store.header_for(record.key(), value, kind, old.space());
            self.before_copying(exact.size())?;
            let size = exact.size();
            if let Some(to) = store.reserve_one(self.slot, exact, size)? {
                self.write_at(to, exact, expiry, record.key(), value)?;
                self.replace_own(at, to, exact);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::space::KeyspaceId;

    #[test]
    fn a_header_within_a_record_says_the_size_of_that_record() {
        let space = KeyspaceId::new(3);
        for (key, len) in [(0, 0), (1, 7), (16, 100), (300, 5000)] {
            let fresh = Header::record(key, len, space);
            for size in (8..3 * fresh.size()).step_by(8) {
                let Some(header) = header_within(fresh, len, size) else {
                    let tight = fresh.size() + 24;
                    assert!(size != fresh.size() && !(tight..=2 * fresh.size()).contains(&size));
                    continue;
                };
                assert_eq!((header.size(), header.key_len()), (size, key));
                assert!(header.is_record());
                let capacity = match header.is_patchable() {
                    true => header.patch_capacity(),
                    false => header.value_len(),
                };
                assert!(capacity >= len && size <= 2 * fresh.size() + 8);
            }
        }
    }
}
