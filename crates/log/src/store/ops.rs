//! Writes of one key: put, remove, update, each atomic and under one pin. Reads are in
//! [`crate::records::read`].
//!
//! A write reserves space, copies, and publishes (see [`crate::records::publish`]). A write that
//! finds no free space releases its pin, frees space, and starts again.

use std::cell::{Cell, RefCell};

use mneme_arena::Class;
use mneme_sync::{Holding, Pin, Slot};

use crate::error::{Corrupt, WriteError};
use crate::index::intent::IndexIntent;
use crate::index::lookup::{FoundEntry, Lookup};
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::reclaim::free_space::SpaceSearch;
use crate::records::elements::Elements;
use crate::records::expiry::{Before, Expiry, RecordLife, Stored};
use crate::records::in_place::CopyOut;
use crate::records::in_place::ValueEdit;
use crate::records::publish::{Expect, KeyChange, Published};
use crate::region::kind::{ValueKind, WrongKind};
use crate::region::mem::Loc;
use crate::region::record::{Header, MAX_IN_PLACE, MAX_KEY, MAX_VALUE, write_body};
use crate::region::space::KeyspaceId;
use crate::session::{Wait, back_off};
use crate::store::components::Store;

/// What an update does with a key, see [`LogStore::update`](crate::LogStore::update).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Leave it as it is.
    Keep,
    /// Store this value, with the expiry that the old one had.
    Replace(Vec<u8>),
    /// Store this value with this expiry.
    ReplaceUntil(Vec<u8>, Expiry),
    /// Remove it.
    Remove,
}

/// The kinds of values that an update accepts, and the kind that it stores.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    /// Only values of this kind.
    Only(ValueKind),
    /// Any. A value that is replaced keeps its kind; a new one is a string.
    Any,
    /// Any. The stored value has this kind.
    AnyFor(ValueKind),
}

impl Takes {
    /// The kind, if it accepts only values with elements.
    fn packed(self) -> Option<ValueKind> {
        match self {
            Takes::Only(kind) if kind.is_packed() => Some(kind),
            _ => None,
        }
    }

    /// The kind of the stored value, given the kind of the value that was there before.
    fn kind_after(self, there: Option<ValueKind>) -> Result<ValueKind, WrongKind> {
        match (self, there) {
            (Takes::Only(kind), Some(found)) => found.expect(kind).map(|()| kind),
            (Takes::Only(kind), None) | (Takes::AnyFor(kind), _) => Ok(kind),
            (Takes::Any, there) => Ok(there.unwrap_or_default()),
        }
    }
}

thread_local! {
    /// Memory for the copy of the value that an update reads.
    static COPY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The maximum number of bytes that a thread keeps for copies.
const MOST_KEPT: usize = 8 << 10;

/// In a store that appends, a growing value with elements gets one byte of slack for this number of
/// bytes.
const PACKED_SLACK: usize = 8;

/// What an update looks for, what it accepts, when it began, and where it notes its changes.
type Sought<'a> = (
    Place,
    &'a [u8],
    Takes,
    &'a Before,
    Option<&'a RefCell<Elements>>,
);

/// What an update did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Updated {
    /// The key is present, as before.
    Kept,
    /// The key is new.
    Inserted,
    /// The key has another value.
    Replaced,
    /// The key is gone.
    Removed,
    /// The key was absent, and still is.
    Absent,
}

/// A record that is to be stored.
#[derive(Clone, Copy)]
struct Put<'a> {
    database: u8,
    place: Place,
    key: &'a [u8],
    value: &'a [u8],
    kind: ValueKind,
    expiry: Expiry,
}

/// What an update expects of the entry that it has read, `there` with its expiry. It is `present`
/// unless it has expired.
fn expect_of(there: Option<(&FoundEntry<'_>, u64)>, present: bool) -> Expect<'static> {
    match there {
        None => Expect::Absent,
        Some((found, _)) if !present => Expect::ExpiredAt(found.entry.loc()),
        Some((found, expires)) if found.record.header().has_expiry() => {
            Expect::Expiring(found.entry.loc(), expires)
        }
        Some((found, _)) => Expect::At(found.entry.loc()),
    }
}

impl Store {
    pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        if key.len() > MAX_KEY {
            return Err(WriteError::KeyTooLong(key.len()));
        }
        if value.len() > MAX_VALUE {
            return Err(WriteError::ValueTooLong(value.len()));
        }
        Ok(())
    }

    /// Stores `value` under `key`.
    ///
    /// The work of nearly every call is in one function: each call of a part of it would move its
    /// arguments and its result through memory.
    #[inline(never)]
    pub(crate) fn put(
        &self,
        database: u8,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), WriteError> {
        self.put_inlined(database, key, value, (ValueKind::STRING, expiry))
    }

    /// As [`put`](Store::put), for a value of this kind.
    #[inline(never)]
    pub(crate) fn put_kind(
        &self,
        database: u8,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
    ) -> Result<(), WriteError> {
        self.put_inlined(database, key, value, (kind, expiry))
    }

    #[inline(always)]
    fn put_inlined(
        &self,
        database: u8,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
    ) -> Result<(), WriteError> {
        let slot = self.session().writer()?;
        Self::check_lengths(key, value)?;
        let put = Put {
            database,
            place: self.index().place(key),
            key,
            value,
            kind,
            expiry,
        };
        if self.records().overwrites() && self.put_in_place(&slot, put)? {
            return Ok(());
        }
        match self.try_put(&slot, put)? {
            true => Ok(()),
            false => self.put_in_space(&slot, put),
        }
    }

    /// The rest of a [`put`](Store::put) that found no free space.
    #[cold]
    #[inline(never)]
    fn put_in_space(&self, slot: &Slot<'_>, put: Put<'_>) -> Result<(), WriteError> {
        let kind_and_expiry = (put.kind, put.expiry);
        let header = self.header_for(put.key, put.value, kind_and_expiry, KeyspaceId::new(0));
        let mut search = SpaceSearch::new(header.size());
        loop {
            self.reclaim().make_space(slot, &mut search)?;
            if self.try_put(slot, put)? {
                return Ok(());
            }
        }
    }

    /// Writes `value` over the old one in place. Returns false if it does not fit there, or there
    /// is no old value.
    #[inline(never)]
    fn put_in_place(&self, slot: &Slot<'_>, put: Put<'_>) -> Result<bool, WriteError> {
        let (_pin, space) = self.index().enter(slot, put.database)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(false);
        };
        let change = KeyChange::removal(root, put.place, put.key);
        let kind = (put.kind, put.expiry);
        let overwritten = (self.records()).overwrite(slot, &change, put.value, kind, None)?;
        Ok(overwritten.is_some())
    }

    /// Appends a record and publishes it, under one pin. Returns false if there is no free space.
    #[inline(always)]
    fn try_put(&self, slot: &Slot<'_>, put: Put<'_>) -> Result<bool, WriteError> {
        let Put {
            database,
            place,
            key,
            value,
            kind,
            expiry,
        } = put;
        let (pin, space) = self.index().enter(slot, database)?;
        let Some(root) = self.index().root_or_create(slot, space)? else {
            return Ok(false);
        };
        let home = self.index().prefetch_bucket(root, place)?;
        let header = self.header_for(key, value, (kind, expiry), space);
        let size = header.size();
        let Some(loc) = self.reserve_one(slot, header, size)? else {
            return Ok(false);
        };
        // The old record's key is prefetched, for comparison, while the new record is copied.
        if let Some((_, bucket)) = home
            && let Some(old) = bucket.probable(place.tag)
        {
            self.session().mem.prefetch_key(old, key.len());
        }
        self.copy_body(loc, header, size, expiry, key, value)?;
        let change = KeyChange {
            root,
            place,
            segment: home.map(|(segment, _)| segment),
            key,
            new: Some((loc, size)),
            expiring: expiry != Expiry::Never,
            evicting: false,
            expect: Expect::Anything,
            says: None,
        };
        match self.records().publish_inlined(slot, &pin, &change)? {
            Published::NoSpace => {
                self.log().mark_dead(loc, size)?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Removes `key`. Returns whether it was present.
    pub(crate) fn remove(&self, database: u8, key: &[u8]) -> Result<bool, WriteError> {
        let slot = self.session().writer()?;
        if key.len() > MAX_KEY {
            return Ok(false);
        }
        let (pin, space) = self.index().enter(&slot, database)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(false);
        };
        let place = self.index().place(key);
        let change = KeyChange::removal(root, place, key);
        Ok(self.records().publish(&slot, &pin, &change)? == Published::Removed)
    }

    /// Empties a database.
    pub(crate) fn clear(&self, database: u8) -> Result<(), WriteError> {
        let slot = self.session().writer()?;
        let mut wait = Wait::new();
        loop {
            {
                let (_pin, space) = self.index().enter(&slot, database)?;
                if IndexIntent::replace_databases(&slot, || self.index().drop_root(&slot, space))? {
                    return Ok(());
                }
            }
            self.index().sweep(&slot)?;
            self.session()
                .wait_on(&slot, &mut wait, self.session().oldest_pin(), Holding::Pin)?;
        }
    }

    /// Changes `key` depending on its present value, atomically. `decide` may be called more than
    /// once, and is not called for a value of a kind that the update does not accept. It may note
    /// in `elements` the elements that a `Decision::Replace` changes.
    pub(crate) fn update(
        &self,
        database: u8,
        key: &[u8],
        takes: Takes,
        elements: Option<&RefCell<Elements>>,
        decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<Updated, WriteError> {
        let mut copy = COPY.take();
        let updated = self.update_copied(database, key, (takes, elements), decide, &mut copy);
        if copy.capacity() <= MOST_KEPT {
            COPY.set(copy);
        }
        updated
    }

    fn update_copied(
        &self,
        database: u8,
        key: &[u8],
        (takes, elements): (Takes, Option<&RefCell<Elements>>),
        mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
        copy: &mut Vec<u8>,
    ) -> Result<Updated, WriteError> {
        let slot = self.session().writer()?;
        if let Err(too_long) = Self::check_lengths(key, &[]) {
            // Such a key is absent, which only a decision to store something would change.
            return match decide(None) {
                Decision::Keep | Decision::Remove => Ok(Updated::Absent),
                _ => Err(too_long),
            };
        }
        let place = self.index().place(key);
        let mut search = SpaceSearch::new(0);
        let (mut conflicts, before) = (0, Before::default());
        loop {
            let tried = {
                let (pin, space) = self.index().enter(&slot, database)?;
                let root = match self.index().root(space)? {
                    Some(root) => Some(root),
                    // A decision to store nothing needs no index. For any other decision the index
                    // is created and `decide` is called again.
                    None => {
                        let decision = decide(None);
                        self.session().may_go_on(&slot)?;
                        match decision {
                            Decision::Keep | Decision::Remove => return Ok(Updated::Absent),
                            _ => self.index().root_or_create(&slot, space)?,
                        }
                    }
                };
                match root {
                    Some(root) => {
                        let key = (place, key, takes, &before, elements);
                        self.try_update(&slot, &pin, root, key, &mut decide, (&mut search, copy))?
                    }
                    None => Tried::NoSpace,
                }
            };
            match tried {
                Tried::Done(updated) => return Ok(updated),
                Tried::Conflict => back_off(&mut conflicts),
                Tried::NoSpace => self.reclaim().make_space(&slot, &mut search)?,
            }
        }
    }

    /// See [`Records::edit_in_place`]. `None`: it cannot be changed in place, and nothing was
    /// changed.
    pub(crate) fn edit_value(
        &self,
        database: u8,
        (key, kind): (&[u8], ValueKind),
        edit: &mut ValueEdit,
        mut decide: impl FnMut(&[u8], &mut ValueEdit) -> Option<bool>,
    ) -> Result<Option<Updated>, WriteError> {
        let slot = self.session().writer()?;
        if key.len() > MAX_KEY {
            return Ok(None);
        }
        let (_pin, space) = self.index().enter(&slot, database)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(None);
        };
        let at = (root, self.index().place(key));
        let edited = (self.records()).edit_in_place(&slot, at, (key, kind), edit, &mut decide)?;
        Ok(edited.map(|is_changed| match is_changed {
            true => Updated::Replaced,
            false => Updated::Kept,
        }))
    }

    fn try_update(
        &self,
        slot: &Slot<'_>,
        pin: &Pin<'_>,
        root: Root,
        (place, key, takes, before, elements): Sought<'_>,
        decide: &mut impl FnMut(Option<Stored<'_>>) -> Decision,
        (search, copy): (&mut SpaceSearch, &mut Vec<u8>),
    ) -> Result<Tried, WriteError> {
        let records = self.records();
        let segment = self.session().mem.index_segment(root, place)?;
        copy.clear();
        let (decision, present, kept, kind, expect);
        let mut grows_from = None;
        // Values that are usually overwritten are copied at once.
        let copies = records.overwrites() || takes.packed().is_some();
        let seen = match copies {
            true => None,
            false => records.find_whole(root, place, segment, key, copy)?,
        };
        let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
        let mut copied = None;
        if copies || found.is_some_and(|f| f.record.header().capacity().is_some()) {
            copied = match records.copy_out(root, place, segment, key, copy, takes.packed())? {
                CopyOut::Found(copied) => Some(copied),
                CopyOut::Absent(_) => None,
            };
            let life = copied.as_ref().map(|c| records.life(c.expires, before));
            if life == Some(RecordLife::Unsure) {
                return Ok(Tried::Conflict);
            }
            let live = copied.as_ref().filter(|_| life == Some(RecordLife::Live));
            let stored = live.map(|c| c.still_stored(copy));
            (present, kept) = (stored.is_some(), stored.map_or(Expiry::Never, |s| s.expiry));
            kind = takes.kind_after(stored.map(|stored| stored.kind))?;
            decision = decide(stored);
            grows_from = stored.map(|stored| stored.value.len());
            expect = (copied.as_ref()).map_or(Expect::Absent, |c| c.expect(copy, present));
        } else {
            // Read once: the expiry may change in place.
            let there = found.map(|f| (f, f.record.expires()));
            let life = there.map(|(_, expires)| records.life(expires, before));
            if life == Some(RecordLife::Unsure) {
                return Ok(Tried::Conflict);
            }
            let live = there.filter(|_| life == Some(RecordLife::Live));
            let stored = live.map(|(f, expires)| Stored {
                value: f.record.value(),
                expiry: Expiry::of_word(expires),
                kind: f.record.header().kind(),
            });
            (present, kept) = (stored.is_some(), stored.map_or(Expiry::Never, |s| s.expiry));
            kind = takes.kind_after(stored.map(|stored| stored.kind))?;
            decision = decide(stored);
            expect = expect_of(there, present);
        }
        self.session().may_go_on(slot)?;
        let (value, expiry) = match &decision {
            Decision::Keep if present => {
                records.note_access(root, place);
                return Ok(Tried::Done(Updated::Kept));
            }
            Decision::Keep => return Ok(Tried::Done(Updated::Absent)),
            Decision::Remove if !present => return Ok(Tried::Done(Updated::Absent)),
            Decision::Remove => (None, Expiry::Never),
            Decision::Replace(value) => (Some(value), kept),
            Decision::ReplaceUntil(value, expiry) => (Some(value), *expiry),
        };
        // For a present value that keeps its expiry. `decide` does not run any more.
        let said = match &decision {
            Decision::Replace(_) if present => elements.map(RefCell::borrow),
            _ => None,
        };
        let mut change = KeyChange {
            root,
            place,
            segment,
            key,
            new: None,
            expiring: expiry != Expiry::Never,
            evicting: false,
            expect,
            says: said.as_deref().filter(|said| {
                self.records()
                    .are_entered(said, key, value.map_or(&[][..], Vec::as_slice))
            }),
        };
        if (records.overwrites() || kind.is_packed())
            && let Some(value) = value
            && let Some(published) = {
                let copied = copied
                    .as_ref()
                    .filter(|_| matches!(expect, Expect::Value(..)));
                records.overwrite(slot, &change, value, (kind, expiry), copied)?
            }
        {
            return Ok(Tried::of(published));
        }
        let new = match value {
            None => None,
            Some(value) => {
                let header = self.header_of_update(root, key, value, grows_from, (kind, expiry))?;
                match self.write_new(slot, header, key, value, expiry, search)? {
                    None => return Ok(Tried::NoSpace),
                    new => new,
                }
            }
        };
        change.new = new;
        let published = records.publish(slot, pin, &change)?;
        if published == Published::NoSpace
            && let Some((loc, size)) = new
        {
            self.log().mark_dead(loc, size)?;
        }
        Ok(Tried::of(published))
    }

    /// The header of a record that replaces one whose value had `grows_from` bytes.
    ///
    /// A value that an update has made longer is likely to grow further. It gets slack for twice
    /// its length, so that a value that grows byte by byte is copied only each time it doubles. In
    /// a store that appends, a value with elements gets an eighth.
    fn header_of_update(
        &self,
        root: Root,
        key: &[u8],
        value: &[u8],
        grows_from: Option<usize>,
        (kind, expiry): (ValueKind, Expiry),
    ) -> Result<Header, WriteError> {
        Self::check_lengths(key, value)?;
        let header = self.header_for(key, value, (kind, expiry), root.space());
        let grows = grows_from.is_some_and(|old| old < value.len());
        if !grows || header.capacity().is_none() {
            return Ok(header);
        }
        let capacity = match self.records().overwrites() {
            true => 2 * value.len(),
            false => value.len() + value.len() / PACKED_SLACK,
        };
        let capacity = capacity.min(MAX_IN_PLACE);
        let with_slack = Header::with_slack(key.len(), value.len(), capacity, root.space());
        let with_slack = with_slack.with_kind(kind);
        Ok(match header.has_expiry() {
            true => with_slack.with_expiry(),
            false => with_slack,
        })
    }

    /// Appends a record for `key`. Returns its place and size. `None`: no free space.
    fn write_new(
        &self,
        slot: &Slot<'_>,
        header: Header,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        search: &mut SpaceSearch,
    ) -> Result<Option<(Loc, u64)>, WriteError> {
        search.want(header.size());
        let loc = self.write_record(slot, header, expiry, key, value)?;
        Ok(loc.map(|loc| (loc, header.size())))
    }

    /// The header of a record that is to be written.
    #[inline]
    pub(crate) fn header_for(
        &self,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
        space: KeyspaceId,
    ) -> Header {
        let header = match self.records().overwrites() || kind.is_packed() {
            false => Header::record(key.len(), value.len(), space),
            true => Self::header_to_overwrite(key, value, space),
        };
        let header = match kind {
            ValueKind::STRING => header,
            kind => header.with_kind(kind),
        };
        match expiry {
            Expiry::Never => header,
            Expiry::At(_) => header.with_expiry(),
        }
    }

    /// As [`header_for`](Self::header_for), for a value that may be overwritten.
    #[inline(never)]
    fn header_to_overwrite(key: &[u8], value: &[u8], space: KeyspaceId) -> Header {
        match value.len() <= MAX_IN_PLACE {
            false => Header::record(key.len(), value.len(), space),
            true => Header::with_slack(key.len(), value.len(), value.len(), space),
        }
    }

    /// Appends a record. `None`: no free space. The caller is pinned.
    pub(crate) fn write_record(
        &self,
        slot: &Slot<'_>,
        header: Header,
        expiry: Expiry,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Loc>, WriteError> {
        let size = header.size();
        let Some(loc) = self.reserve_one(slot, header, size)? else {
            return Ok(None);
        };
        self.copy_body(loc, header, size, expiry, key, value)?;
        Ok(Some(loc))
    }

    /// Reserves space for a record, `size` bytes as its header says, and writes the header there.
    /// `None`: no free space. The caller is pinned.
    #[inline(always)]
    pub(crate) fn reserve_one(
        &self,
        slot: &Slot<'_>,
        header: Header,
        size: u64,
    ) -> Result<Option<Loc>, WriteError> {
        match self.log().try_reserve_one(slot, header, size) {
            Some(loc) => Ok(Some(loc)),
            None => self.reserve_one_slowly(slot, header),
        }
    }

    /// As [`Store::reserve_one`], if its head is busy or full, or the record is a bulk one.
    #[inline(never)]
    fn reserve_one_slowly(
        &self,
        slot: &Slot<'_>,
        header: Header,
    ) -> Result<Option<Loc>, WriteError> {
        let log = self.log();
        if log.is_large(header.size()) {
            return log.reserve_large(slot, header);
        }
        if log.is_bulk(header.size()) {
            return log.reserve_bulk(slot, header, Class::Ordinary);
        }
        let mut loc = Loc::of_byte(0);
        let reserved = log.reserve(slot, &[header], std::slice::from_mut(&mut loc))?;
        Ok((reserved > 0).then_some(loc))
    }

    /// Copies key and value to a reserved record of `size` bytes.
    #[inline(always)]
    pub(crate) fn copy_body(
        &self,
        loc: Loc,
        header: Header,
        size: u64,
        expiry: Expiry,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Corrupt> {
        let address = self.session().mem.address(loc, size)?;
        if mneme_sys::fault::ENABLED {
            // With fault points compiled in, the copy has a middle at which it can be abandoned.
            // SAFETY: as below.
            unsafe {
                address
                    .add(header.value_offset())
                    .write_bytes(0xa5, value.len() / 2)
            };
            mneme_sys::fault!("log.body.during");
        }
        // SAFETY: `reserve` gave these bytes to this thread alone, and no reader finds the record
        // before it is published, except copying readers that have lost their pins; a scan by
        // headers does not look at bodies of unpublished records.
        unsafe { write_body(address, header, expiry.word(), key, value) };
        mneme_sys::fault!("log.body.after");
        Ok(())
    }
}

/// The result of one attempt at an update.
pub(crate) enum Tried {
    Done(Updated),
    /// Another thread changed the key in between.
    Conflict,
    NoSpace,
}

impl Tried {
    pub fn of(published: Published) -> Tried {
        match published {
            Published::Inserted => Tried::Done(Updated::Inserted),
            Published::Replaced => Tried::Done(Updated::Replaced),
            Published::Removed => Tried::Done(Updated::Removed),
            Published::Absent | Published::Conflict => Tried::Conflict,
            Published::NoSpace => Tried::NoSpace,
        }
    }
}
