//! Scanning a database in the order of its keys' hashes.
//!
//! **Every record that is present from a scan's first step to its last is visited at least once**,
//! whatever is added, removed, moved, split or merged meanwhile. A cursor is a place in hash order:
//! partition and tag; a step visits whole home buckets, each an interval of tags, and ends where
//! the next interval begins. Buckets stand in hash order in every shape of the index, so a change
//! of shape between two steps moves no unvisited tag before the cursor.
//!
//! A change of shape stores its words in ascending order of tags. So a step that finds the cursor's
//! word unchanged may read the old page from the cursor on, but nothing before it: the content of
//! that part may long have changed in the new page, and its old records may be gone.

use std::ops::Range;

use crate::error::{ReadError, WriteError};
use crate::index::bucket::{Entry, SLOTS, TAG_BITS};
use crate::index::lookup::{BucketRead, Lookup};
use crate::index::root::Root;
use crate::index::walk::{HOME_ENTRIES, HashOrder, next_interval};
use crate::records::Records;
use crate::records::expiry::{Before, Expiry, Stored};
use crate::records::read::copying::{Hold, Looked, all, within};
use crate::region::kind::ValueKind;
use crate::region::mem::Memory;
use crate::region::racing::{PIECE, Racing};
use crate::region::record::Record;
use crate::region::space::{DATABASES, KeyspaceId};

/// The number of empty buckets that are passed under one pin.
const PASSED: usize = 64;

/// A place in hash order at which a scan continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cursor(u64);

impl Cursor {
    /// Before the first record.
    pub const START: Cursor = Cursor(0);
    /// After the last record.
    pub const END: Cursor = Cursor(u64::MAX);

    /// The cursor as a number, for clients; see [`Cursor::from_u64`].
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The cursor with this number. Any number is some place in hash order, so a cursor that a
    /// client invents does no harm.
    pub fn from_u64(cursor: u64) -> Cursor {
        Cursor(cursor)
    }

    pub(crate) fn new(partition: u64, tag: u64) -> Cursor {
        Cursor(partition << TAG_BITS | tag)
    }

    pub(crate) fn place(self) -> HashOrder {
        HashOrder::at(self.0 >> TAG_BITS, self.0 & ((1 << TAG_BITS) - 1))
    }
}

impl Records {
    /// Visits at least `count` records from `cursor` on, and at least one, unless the end comes
    /// first.
    pub(crate) fn scan(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cursor, ReadError> {
        if !self.lends {
            return self.scan_copied(database, cursor, count, visit);
        }
        let mut copy = Vec::new();
        self.scan_records(database, cursor, count, |record| {
            if record.header().kind() != ValueKind::STRING {
                return Ok(false);
            }
            if record.seals(self.session().read_only) {
                visit(record.key(), record.value());
                return Ok(true);
            }
            match self.get_into(database, record.key(), &mut copy) {
                Ok(true) => visit(record.key(), &copy),
                // It is absent by now, or a value of another kind.
                Ok(false) | Err(ReadError::WrongKind(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
            Ok(true)
        })
    }

    /// Visits the keys of records of every kind, with the kind: no value is copied or sealed.
    pub(crate) fn scan_kinds(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&[u8], ValueKind),
    ) -> Result<Cursor, ReadError> {
        if !self.lends {
            return self.scan_copies(
                database,
                cursor,
                count,
                |_| 0..0,
                |key, kind, _| {
                    visit(key, kind);
                    true
                },
            );
        }
        self.scan_records(database, cursor, count, |record| {
            visit(record.key(), record.header().kind());
            Ok(true)
        })
    }

    /// As [`Records::scan`], with records in place. `visit` returns whether the record counts.
    fn scan_records(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&Record<'_>) -> Result<bool, ReadError>,
    ) -> Result<Cursor, ReadError> {
        let index = self.index();
        let slot = self.session().participants.slot()?;
        // A caller that asks for no records must still reach the end.
        let count = count.max(1);
        let mut at = cursor.place();
        let (mut visited, mut from) = (0, None);
        // Empty partitions count a little, so that a step over a sparse table is bounded too.
        let mut budget = count.saturating_mul(16).saturating_add(1024);
        let mut entries = Vec::with_capacity(SLOTS);
        while !at.is_over(index.partitions()) {
            if visited >= count || budget == 0 {
                return Ok(Cursor::new(at.partition, at.tag));
            }
            budget -= 1;
            let (_pin, space) = index.enter(&slot, database)?;
            if visited > 0 && from != Some(space) {
                // The database was swapped since: one step visits the database of one instant.
                return Ok(Cursor::new(at.partition, at.tag));
            }
            from = Some(space);
            let Some(root) = index.root(space)? else {
                return Ok(Cursor::END);
            };
            entries.clear();
            for passed in 0..PASSED {
                if passed > 0 {
                    if budget == 0 || at.is_over(index.partitions()) {
                        break;
                    }
                    budget -= 1;
                }
                index.entries_here(root, &mut at, |entry| entries.push(entry))?;
                if !entries.is_empty() {
                    break;
                }
            }
            for entry in &entries {
                let mut record = self.session().mem.record(entry.loc())?;
                if self.is_expired(&record) {
                    // The expiry of the key may have changed since the entry was seen.
                    let (place, key) = (index.place(record.key()), record.key());
                    let segment = self.session().mem.index_segment(root, place)?;
                    match self.find_live(root, place, segment, key, &mut Vec::new())? {
                        Some(live) => record = live,
                        None => continue,
                    }
                }
                visited += usize::from(visit(&record)?);
            }
        }
        Ok(Cursor::END)
    }
}

/// Copies of records: the bytes of all, and a description of each.
#[derive(Default)]
struct Copies {
    bytes: Vec<u8>,
    records: Vec<CopiedRecord>,
}

#[derive(Clone, Copy)]
struct CopiedRecord {
    /// The offsets, in the bytes of all, of its key, of its value, and of its value's end.
    at: [usize; 3],
    kind: ValueKind,
    /// The word of its expiry.
    expires: u64,
}

impl Copies {
    fn key_and_value(&self, record: CopiedRecord) -> (&[u8], &[u8]) {
        let [key, value, end] = record.at;
        (&self.bytes[key..value], &self.bytes[value..end])
    }
}

impl Records {
    /// As [`Records::scan`], with copies.
    pub(crate) fn scan_copied(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cursor, ReadError> {
        self.scan_copies(database, cursor, count, all, |key, kind, value| {
            let is_string = kind == ValueKind::STRING;
            if is_string {
                visit(key, value);
            }
            is_string
        })
    }

    /// Visits copies of records of every kind, with the part of each value that `range` selects for
    /// its length. `visit` returns whether the record counts.
    fn scan_copies(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        range: impl Fn(usize) -> Range<usize>,
        mut visit: impl FnMut(&[u8], ValueKind, &[u8]) -> bool,
    ) -> Result<Cursor, ReadError> {
        let count = count.max(1);
        let mut at = cursor.place();
        let (mut visited, mut from) = (0, None);
        let mut budget = count.saturating_mul(16).saturating_add(1024);
        let mut copies = Copies::default();
        while !at.is_over(self.index().partitions()) {
            if visited >= count || budget == 0 {
                return Ok(Cursor::new(at.partition, at.tag));
            }
            budget -= 1;
            let (space, next) = self.look_copying(database, |hold, space| {
                let home = self.copy_home(hold, space, at, &range, &mut copies)?;
                Ok(home.map(|next| (space, next)))
            })?;
            if visited > 0 && from != Some(space) {
                // The database was swapped since: one step visits the database of one instant.
                return Ok(Cursor::new(at.partition, at.tag));
            }
            from = Some(space);
            for record in &copies.records {
                let (key, value) = copies.key_and_value(*record);
                visited += usize::from(visit(key, record.kind, value));
            }
            match next {
                Some(next) => at = next,
                None => return Ok(Cursor::END),
            }
        }
        Ok(Cursor::END)
    }

    /// Visits copies of about `count` records of the index with this id from `cursor` on, expired
    /// or not, whichever database has it. `None`: no database has it any more.
    pub(crate) fn scan_root(
        &self,
        id: u64,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&[u8], Stored<'_>),
    ) -> Result<Option<Cursor>, ReadError> {
        let (mut at, mut visited) = (cursor.place(), 0);
        let mut budget = count.saturating_mul(16).saturating_add(1024);
        let mut copies = Copies::default();
        while !at.is_over(self.index().partitions()) {
            if visited >= count.max(1) || budget == 0 {
                return Ok(Some(Cursor::new(at.partition, at.tag)));
            }
            budget -= 1;
            let Some(database) = self.root_ids()?.iter().position(|root| *root == id) else {
                return Ok(None);
            };
            let next = self.look_copying_after(Before::ever(), database as u8, |hold, space| {
                match self.index().root(space)? {
                    Some(root) if self.index().root_id(root)? == id => {
                        self.copy_home(hold, space, at, &all, &mut copies)
                    }
                    // It was swapped since: the next round finds it again.
                    _ => {
                        copies.records.clear();
                        Ok(Looked::Seen(Some(at)))
                    }
                }
            })?;
            for record in &copies.records {
                let (key, value) = copies.key_and_value(*record);
                let stored = Stored {
                    value,
                    expiry: Expiry::of_word(record.expires),
                    kind: record.kind,
                };
                visit(key, stored);
            }
            visited += copies.records.len();
            at = next.unwrap_or(at);
        }
        Ok(Some(Cursor::END))
    }

    /// The id of each database's index at one instant; 0: it has none.
    pub(crate) fn root_ids(&self) -> Result<[u64; DATABASES], ReadError> {
        let slot = self.session().participants.slot()?;
        let _pin = self
            .index()
            .enter_all(&slot)
            .map_err(WriteError::while_reading)?;
        self.root_ids_as_pinned()
    }

    /// As [`root_ids`](Self::root_ids), without waiting. `None`: databases are being swapped.
    pub(crate) fn root_ids_now(&self) -> Result<Option<[u64; DATABASES]>, ReadError> {
        let slot = self.session().participants.slot()?;
        let _pin = slot.pin();
        match self.index().is_swapping() {
            true => Ok(None),
            false => self.root_ids_as_pinned().map(Some),
        }
    }

    fn root_ids_as_pinned(&self) -> Result<[u64; DATABASES], ReadError> {
        let mut ids = [0; DATABASES];
        for (database, id) in ids.iter_mut().enumerate() {
            if let Some(root) = (self.index()).root(self.index().entered_space(database as u8))? {
                *id = self.index().root_id(root)?;
            }
        }
        Ok(ids)
    }

    /// Copies the records from `at` on whose home is its bucket, and returns where to continue.
    /// `None`: the space is empty. In the order of their tags, so that a step can end between two
    /// of them once it has copied enough for one pin.
    fn copy_home(
        &self,
        hold: &Hold<'_>,
        space: KeyspaceId,
        mut at: HashOrder,
        range: &impl Fn(usize) -> Range<usize>,
        copies: &mut Copies,
    ) -> Result<Looked<Option<HashOrder>>, ReadError> {
        copies.bytes.clear();
        copies.records.clear();
        let Some(root) = self.index().root(space)? else {
            return Ok(Looked::Seen(None));
        };
        let place = at.place();
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            at.go_to(1 << TAG_BITS);
            return Ok(Looked::Seen(Some(at)));
        };
        let mut entries = [Entry(0); HOME_ENTRIES];
        let seen = (self.session().mem).read_bucket(root, place, segment, hold.own, |word| {
            self.index()
                .home_entries(segment, place.tag, word, &mut entries)
        })?;
        let entries = match seen {
            BucketRead::Valid(count, _) => &mut entries[..count],
            BucketRead::Retry(word) => return Ok(Looked::Unsettled(word)),
        };
        entries.sort_unstable_by_key(|entry| entry.tag());
        let mut next = next_interval(place.tag, segment);
        for (i, entry) in entries.iter().enumerate() {
            let may_end = i > 0 && entries[i - 1].tag() != entry.tag();
            if may_end && copies.bytes.len() > PIECE {
                next = u64::from(entry.tag());
                break;
            }
            match self.copy_entry(hold, root, *entry, range, copies)? {
                Looked::Seen(()) => {}
                Looked::Unsettled(_) if may_end => {
                    next = u64::from(entry.tag());
                    break;
                }
                Looked::Unsettled(word) => return Ok(Looked::Unsettled(word)),
                Looked::Lost => return Ok(Looked::Lost),
                Looked::Overtaken => return Ok(Looked::Overtaken),
            }
        }
        at.go_to(next);
        Ok(Looked::Seen(Some(at)))
    }

    /// Copies the record that `entry` names, unless it has expired.
    fn copy_entry(
        &self,
        hold: &Hold<'_>,
        root: Root,
        entry: Entry,
        range: &impl Fn(usize) -> Range<usize>,
        copies: &mut Copies,
    ) -> Result<Looked<()>, ReadError> {
        let racing = Racing(&self.session().mem);
        let record = racing.record(entry.loc())?;
        // The expiry of the key may have changed since the entry was seen: if it has expired, a
        // look by its key decides.
        let expires = record.expires();
        let expired = self.has_passed(expires) && !hold.sees_expired(self, expires);
        let Copies { bytes, records } = copies;
        let begin = bytes.len();
        record.append_key(bytes)?;
        let value = bytes.len();
        let header = record.header();
        let changes = header.is_patchable() || header.capacity().is_some();
        let there = if expired || self.overwrites() || changes {
            let key = bytes[begin..].to_vec();
            let place = self.index().place(&key);
            let segment = self.session().mem.index_segment(root, place)?;
            self.copy_key(hold, root, place, segment, (&key, None), range, bytes)?
                .map(|there| there.map(|(_, kind)| kind))
        } else if record.append_range(within(range, record.header().value_len()), bytes, || {
            hold.is_valid()
        })? {
            Looked::Seen(Some(record.header().kind()))
        } else {
            Looked::Lost
        };
        Ok(match there {
            Looked::Seen(Some(kind)) => {
                records.push(CopiedRecord {
                    at: [begin, value, bytes.len()],
                    kind,
                    expires,
                });
                Looked::Seen(())
            }
            Looked::Seen(None) => {
                bytes.truncate(begin);
                Looked::Seen(())
            }
            Looked::Unsettled(word) => {
                bytes.truncate(begin);
                Looked::Unsettled(word)
            }
            Looked::Lost => Looked::Lost,
            Looked::Overtaken => Looked::Overtaken,
        })
    }
}
