//! Overwriting values in place, as a store with [`UpdatePolicy::InPlace`](crate::UpdatePolicy)
//! does: nothing dies, so nothing needs compaction, however full the store is.
//!
//! A record of a value up to [`MAX_IN_PLACE`] bytes has *slack*: its header has the maximum length
//! of a value that may overwrite the present one. A value is overwritten under its bucket's lock,
//! with the bit set that makes readers wait. Readers copy the value, and accept the copy only if
//! the bucket's version is the same before and after (a sequence lock). Keys never change, so they
//! are compared in place.
//!
//! **No death leaves a torn value.** First the new bytes are written to the thread's redo area, and
//! then the intent names them: a repairer overwrites again from there. Without that intent no byte
//! was changed.
//!
//! A value that does not fit, and any value longer than the limit, is appended and published as in
//! a store that always appends. After Nibble-2 (dissertation, ch. VI).
//!
//! Values with elements are overwritten under either policy: when a small part of such a value
//! changes often, most of its bytes stay as they are. So their records have slack, are never lent,
//! and a change of an element writes only the bytes that differ ([`Records::edit_in_place`]).

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::fence;

use mneme_sync::Slot;

use crate::error::{Corrupt, ReadError, WriteError};
use crate::feed::item::Item;
use crate::feed::ring::Reserved;
use crate::index::bucket::{Entry, Held, HomeWord, TryLock};
use crate::index::counts::RecordCounts;
use crate::index::intent::OPERATION_LANE;
use crate::index::lookup::{FoundEntry, Lookup, Seen};
use crate::index::prefetch::MAX_REST;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::Records;
use crate::records::change_set::{ChangeSet, Counted, Piece, write_down};
use crate::records::elements::Elements;
use crate::records::expiry::{Expiry, Stored};
use crate::records::patch::Overtaken;
use crate::records::publish::{Expect, KeyChange, Published};
use crate::region::kind::ValueKind;
use crate::region::mem::Loc;
use crate::region::record::{Header, MAX_IN_PLACE, Record};
use crate::session::Wait;

/// A record that was found: its entry, and when it expires.
type Expiring<'m> = (Entry, u64, Record<'m>);

/// What a copying lookup has found.
pub(crate) enum CopyOut {
    Found(Copied),
    /// The word of the key's home, if there is a home.
    Absent(Option<HomeWord>),
}

/// A value that was copied from a store that overwrites, and what was seen together with it.
pub(crate) struct Copied {
    pub entry: Entry,
    pub home: HomeWord,
    pub expires: u64,
    header: Header,
}

/// A change of a value in place: bytes at places, and its items in the change feed. See
/// [`Database::edit_in_place`](crate::Database::edit_in_place).
pub struct ValueEdit {
    /// The length of the value afterwards.
    len: usize,
    bytes: Vec<u8>,
    /// The place of each piece in the value, and where its bytes begin and end in `bytes`.
    pieces: [(usize, usize, usize); MOST_PIECES],
    count: usize,
    elements: Elements,
}

/// Writes into an edit what is to be changed in a value. `None`: it cannot be changed in place.
type DecideEdit<'d> = dyn FnMut(&[u8], &mut ValueEdit) -> Option<bool> + 'd;

/// The maximum number of pieces of an edit.
const MOST_PIECES: usize = 2;

/// The number of bytes of values that are compared at once.
const WORD: usize = 32;

/// A value of up to this length is written whole, without comparing it with the old one.
const SHORT: usize = 256;
/// The number of bytes at the beginning of a value that may differ while those after them do not.
const HEAD: usize = 16;

impl ValueEdit {
    pub(crate) fn new(kind: ValueKind, are_wanted: bool) -> ValueEdit {
        ValueEdit {
            len: 0,
            bytes: Vec::new(),
            pieces: [(0, 0, 0); MOST_PIECES],
            count: 0,
            elements: Elements::new(kind, are_wanted),
        }
    }

    fn begin(&mut self, len: usize) {
        self.len = len;
        self.bytes.clear();
        self.count = 0;
        self.elements.clear();
    }

    /// The bytes that `append` appends go to `at` in the value. Returns false if this is the third
    /// piece: an edit has at most two.
    #[must_use]
    pub fn write(&mut self, at: usize, append: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(piece) = self.pieces.get_mut(self.count) else {
            return false;
        };
        let begin = self.bytes.len();
        append(&mut self.bytes);
        *piece = (at, begin, self.bytes.len());
        self.count += 1;
        true
    }

    /// Sets the length of the value afterwards.
    pub fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Replaces the value, which is `old`, by `new`: only what differs is written. Whatever was
    /// written to this edit before is discarded.
    pub fn replace(&mut self, old: &[u8], new: Vec<u8>) {
        self.pieces = differing(old, &new).map(|of| (of.start, of.start, of.end));
        (self.len, self.count) = (new.len(), MOST_PIECES);
        self.bytes = new;
    }

    /// The changed elements, for the change feed.
    pub fn elements(&mut self) -> &mut Elements {
        &mut self.elements
    }

    /// Each piece's place in the value and its bytes.
    fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pieces[..self.count]
            .iter()
            .map(|&(at, begin, end)| (at, &self.bytes[begin..end]))
    }
}

impl std::fmt::Debug for ValueEdit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueEdit")
            .field("len", &self.len)
            .field("pieces", &self.count)
            .finish_non_exhaustive()
    }
}

impl Records {
    /// Changes parts of the value of `key`, which has elements and is of this kind, in place.
    /// Returns whether anything was changed. `None`: it cannot be changed in place, because the key
    /// is absent or busy, or the change does not fit. Then nothing was changed.
    ///
    /// `decide` gets the value while the home is held, so that nothing is looked up twice or
    /// copied. The caller is pinned.
    pub(crate) fn edit_in_place(
        &self,
        slot: &Slot<'_>,
        (root, place): (Root, Place),
        (key, kind): (&[u8], ValueKind),
        edit: &mut ValueEdit,
        decide: &mut DecideEdit<'_>,
    ) -> Result<Option<bool>, WriteError> {
        let id = self.index().root_id(root)?;
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(None);
        };
        let TryLock::Held(held) = self.try_lock_home(slot, segment, place)? else {
            return Ok(None);
        };
        let edited = self.edit_held(
            slot,
            &held,
            segment,
            (root, id, place),
            (key, kind),
            (edit, decide),
        );
        match edited {
            Ok(Some(true)) => held.unlock(),
            _ => held.unlock_unchanged(),
        }
        mneme_sys::fault!("log.overwrite.unlocked");
        slot.intent(OPERATION_LANE).clear();
        if matches!(edited, Ok(Some(_))) {
            self.note_access(root, place);
        }
        edited
    }

    /// The part of [`edit_in_place`](Self::edit_in_place) that holds the home.
    fn edit_held(
        &self,
        slot: &Slot<'_>,
        held: &Held<'_>,
        segment: SegmentRef,
        (root, id, place): (Root, u64, Place),
        (key, kind): (&[u8], ValueKind),
        (edit, decide): (&mut ValueEdit, &mut DecideEdit<'_>),
    ) -> Result<Option<bool>, WriteError> {
        let found = (self.session().mem).find_from(held.bucket(), segment, place.tag, key)?;
        let Some(found) = found else {
            return Ok(None);
        };
        let (record, header) = (found.record, found.record.header());
        if !self.is_live_at(held, &record, record.expires()) {
            return Ok(None);
        }
        header.kind().expect(kind)?;
        let Some(capacity) = header.capacity() else {
            return Ok(None);
        };
        // No other thread changes it while the home is held.
        let value = record.value();
        edit.begin(value.len());
        match decide(value, edit) {
            Some(true) => {}
            kept => return Ok(kept),
        }
        let fits = edit.len <= capacity
            && edit
                .pieces()
                .all(|(at, bytes)| at.saturating_add(bytes.len()) <= edit.len);
        let is_said = self.session().feed.kept().is_none() || edit.elements.are_shorter(key, value);
        if !fits || !is_said {
            return Ok(None);
        }
        let head = header.with_length(edit.len).0.to_le_bytes();
        let piece = |offset, bytes| Piece {
            loc: found.entry.loc(),
            record,
            offset,
            bytes,
        };
        let mut pieces = [piece(0, &[]); MOST_PIECES + 1];
        let values = edit
            .pieces()
            .map(|(at, bytes)| piece(header.value_offset() + at, bytes));
        let head = (edit.len != value.len()).then(|| piece(0, &head[..]));
        let mut count = 0;
        for (place, piece) in pieces.iter_mut().zip(values.chain(head)) {
            *place = piece;
            count += 1;
        }
        let pieces = &pieces[..count];
        if !write_down(slot, pieces) {
            return Ok(None);
        }
        let fed = match edit.elements.is_empty() {
            true => self.enter_change(slot, || Ok(Item::Touch { root: id, key })),
            false => {
                let whole = Item::Put {
                    root: id,
                    key,
                    kind: kind.number(),
                    expiry: Expiry::Never,
                    bytes: value,
                };
                self.enter_elements(slot, &edit.elements, whole)
            }
        }?;
        // Before the intent, after which a repairer would make the change.
        self.note_change(root, place);
        let set = ChangeSet {
            pieces,
            guard: None,
            counted: None,
        };
        self.change_bytes(slot, held, &set);
        self.complete_change(fed);
        Ok(Some(true))
    }

    /// Copies the value of `key` to `value`, unless it is stored as a whole and has another kind
    /// than `wanted`. The caller is pinned, and has seen since then that `place` leads to
    /// `segment`.
    pub(crate) fn copy_out(
        &self,
        root: Root,
        place: Place,
        mut segment: Option<SegmentRef>,
        key: &[u8],
        value: &mut Vec<u8>,
        wanted: Option<ValueKind>,
    ) -> Result<CopyOut, ReadError> {
        let mut overtaken = Overtaken::default();
        let seen = loop {
            let seen = self.look_out(root, place, segment, key, value)?;
            let record = match &seen {
                Some((Some((_, _, record)), _)) if record.header().capacity().is_none() => record,
                _ => break seen,
            };
            // Once it is sealed the value never changes. Otherwise a copy of a GiB, valid only if
            // no thread writes to its bucket meanwhile, might be retried for ever.
            let is_refused = wanted.is_some_and(|kind| kind != record.header().kind());
            if is_refused || self.copy_whole(record, value)? {
                break seen;
            }
            overtaken.again(self)?;
            segment = self.session().mem.index_segment(root, place)?;
        };
        Ok(match seen {
            None => CopyOut::Absent(None),
            Some((None, home)) => CopyOut::Absent(Some(home)),
            Some((Some((entry, expires, record)), home)) => CopyOut::Found(Copied {
                entry,
                home,
                expires,
                header: record.header(),
            }),
        })
    }

    /// The lookup of [`Records::copy_out`]. It copies a value with slack.
    fn look_out<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Seen<Option<Expiring<'m>>>, ReadError> {
        self.index().look(root, place, segment, |segment, _| {
            let found = self.session().mem.find_in(segment, place.tag, key)?;
            let copied = found.map(|found| {
                if found.record.header().capacity().is_some() {
                    found.record.copy_value(value);
                }
                (found.entry, found.record.expires(), found.record)
            });
            // SYNC: pairs with the release fence in `exclude_readers`: a reader that has read a new
            // byte sees the bit, or the unlocking.
            fence(Acquire);
            Ok(copied)
        })
    }

    /// Overwrites the value of `change.key`, if the record is as expected and the new value fits in
    /// place of the old one. `None`: it does not fit, or there is no old value. Then nothing was
    /// changed. The caller is pinned.
    ///
    /// `copied`: what the caller has copied as the value that is expected. As long as the home has
    /// that version, nothing is looked up again. If the change expects a value, only bytes that
    /// differ from it are written.
    pub(crate) fn overwrite(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
        copied: Option<&Copied>,
    ) -> Result<Option<Published>, WriteError> {
        if value.len() > MAX_IN_PLACE {
            return Ok(None);
        }
        let id = self.index().root_id(change.root)?;
        let item = Item::Put {
            root: id,
            key: change.key,
            kind: kind.number(),
            expiry,
            bytes: value,
        };
        let try_it = || self.try_overwrite(slot, change, (id, item), value, (kind, expiry), copied);
        match try_it() {
            Err(WriteError::FeedFull) if change.says.is_none() => {
                self.in_pieces(slot, item, try_it)
            }
            overwritten => overwritten,
        }
    }

    #[inline(always)]
    fn try_overwrite(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
        (id, item): (u64, Item<'_>),
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
        mut copied: Option<&Copied>,
    ) -> Result<Option<Published>, WriteError> {
        let session = self.session();
        let (root, place) = (change.root, change.place);
        let mut seen = change.segment;
        let differing = match change.expect {
            Expect::Value(_, _, old) => differing(old, value),
            _ => [0..value.len(), 0..0],
        };
        let mut wait = Wait::new();
        loop {
            let segment = match seen.take() {
                Some(segment) => segment,
                None => match session.mem.index_segment(root, place)? {
                    Some(segment) => segment,
                    None => return Ok(None),
                },
            };
            // First without the lock: a value that does not fit is not written down, and the lock
            // is held for less time.
            let copied = copied.take();
            let (loc, record) = match copied {
                Some(copied) => (copied.entry.loc(), session.mem.record(copied.entry.loc())?),
                None => {
                    // The old value's cache lines are fetched while the new one is written down.
                    let lines = (change.key.len() + value.len()).div_ceil(64) as u64 + 1;
                    let home = session.mem.bucket(segment, segment.home(place.tag))?;
                    if let Some(old) = home.probable(place.tag) {
                        session.mem.prefetch_lines(old, 0..lines.min(MAX_REST));
                    }
                    match session
                        .mem
                        .find_from(home, segment, place.tag, change.key)?
                    {
                        Some(found) => (found.entry.loc(), found.record),
                        None => return Ok(None),
                    }
                }
            };
            if !holds(record.header(), value, kind, expiry) {
                return Ok(None);
            }
            // Header and expiry, if there is a word for it.
            let header = record.header().with_length(value.len()).0;
            let head = [header, expiry.word()].map(u64::to_le_bytes);
            let head = &head.as_flattened()[..record.header().key_offset()];
            let piece = |offset, bytes| Piece {
                loc,
                record,
                offset,
                bytes,
            };
            let value_at = record.header().value_offset();
            let [first, second] =
                (differing.clone()).map(|range| piece(value_at + range.start, &value[range]));
            let pieces = [first, piece(0, head), second];
            let pieces = match second.bytes {
                [] => &pieces[..2],
                _ => &pieces,
            };
            if !write_down(slot, pieces) {
                return Ok(None);
            }
            let Some(held) = self.lock_home(slot, segment, place, &mut wait)? else {
                continue;
            };
            let is_as_copied = copied.is_some_and(|copied| {
                segment
                    .home_word(place.tag, held.word())
                    .same_version(copied.home)
                    && record.header().shape() == copied.header.shape()
                    && self.is_live_at(&held, &record, copied.expires)
            });
            if !is_as_copied {
                let found = session.mem.find_in(segment, place.tag, change.key);
                let target = match &found {
                    Ok(Some(found)) if self.is_expected(&held, change.expect, Some(found)) => {
                        Some(found)
                    }
                    _ => None,
                };
                if !target.is_some_and(|found| pieces[0].is_of(found)) {
                    // Nothing was changed: readers that check the version need not retry.
                    held.unlock_unchanged();
                    slot.intent(OPERATION_LANE).clear();
                    let has_moved = target.is_some();
                    found?;
                    if has_moved {
                        continue;
                    }
                    return Ok(None);
                }
            }
            let (held, fed) = match change.says {
                None => self.enter_or_unlock(slot, held, || Ok(item))?,
                Some(elements) => {
                    let entered = self.enter_elements(slot, elements, item);
                    self.or_unlock(slot, held, entered)?
                }
            };
            // Before the intent, after which a repairer would make the change.
            self.note_change(root, place);
            let was = record.expires();
            let counted = Counted {
                space: root.space(),
                root: id,
                delta: RecordCounts::change(Some(was != 0), Some(expiry != Expiry::Never)),
            };
            let published = match self.has_passed(was) {
                true => Published::Inserted,
                false => Published::Replaced,
            };
            self.overwrite_held(slot, held, (pieces, counted), fed);
            self.note_access(root, place);
            if expiry != Expiry::Never {
                self.expect_expiries();
            }
            return Ok(Some(published));
        }
    }

    /// Changes the bytes of a record whose home is held, and unlocks it.
    #[inline(always)]
    fn overwrite_held(
        &self,
        slot: &Slot<'_>,
        held: Held<'_>,
        (pieces, counted): (&[Piece<'_>], Counted),
        fed: Option<Reserved>,
    ) {
        let set = ChangeSet {
            pieces,
            guard: None,
            counted: Some(counted),
        };
        self.change_bytes(slot, &held, &set);
        self.complete_change(fed);
        held.unlock();
        mneme_sys::fault!("log.overwrite.unlocked");
        slot.intent(OPERATION_LANE).clear();
    }

    /// Completes the copy at `new` of the record at `old`: value, length, expiry. The bucket is
    /// held, so that no thread overwrites either.
    pub(crate) fn complete_copy(&self, old: Loc, new: Loc) -> Result<(), Corrupt> {
        let record = self.session().mem.record(old)?;
        let copy = self.session().mem.record(new)?;
        if record.header().shape() != copy.header().shape() {
            // The record was damaged since it was copied: its present value may not fit into the
            // copy.
            return Err(Corrupt::at(old.byte(), "a record that changed its shape"));
        }
        self.complete_patchable(&record, &copy);
        if record.header().capacity().is_some() {
            let header = copy.header().with_length(record.header().value_len());
            copy.store(copy.header().value_offset(), record.value());
            copy.store(0, &header.0.to_le_bytes());
        }
        copy.set_expires(record.expires());
        Ok(())
    }

    /// Whether the record found at a key's home, which is held, is as a change expects.
    ///
    /// Changes of other keys in the bucket make no difference. Otherwise a change of one key might
    /// be retried for ever beside busy neighbours. While a caller is pinned no location is reused.
    ///
    /// If the answer depends on a time that has not come, readers wait until the home is unlocked.
    pub(crate) fn is_expected(
        &self,
        held: &Held<'_>,
        expect: Expect<'_>,
        found: Option<&FoundEntry<'_>>,
    ) -> bool {
        match (expect, found) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::At(loc), Some(found)) => found.entry.loc() == loc,
            (Expect::Expiring(loc, expires), Some(found)) => {
                found.entry.loc() == loc && self.is_live_at(held, &found.record, expires)
            }
            (Expect::Value(loc, expires, value), Some(found)) => {
                found.entry.loc() == loc
                    && self.is_live_at(held, &found.record, expires)
                    && found.record.value() == value
            }
            (Expect::ExpiredAt(loc), Some(found)) => {
                found.entry.loc() == loc && self.is_expired(&found.record)
            }
            (Expect::WithExpiry(loc), Some(found)) => {
                found.entry.loc() == loc && found.record.expires() != 0
            }
            _ => false,
        }
    }

    /// Whether the record has the expiry that it had when its change was decided on, and has not
    /// expired since. If it has expired, other threads may have seen the key as absent, so the
    /// change is decided on again.
    ///
    /// It may expire before the change takes effect. Readers must not report that, because the
    /// change would revive the key: they wait from before the time is read.
    fn is_live_at(&self, held: &Held<'_>, record: &Record<'_>, expires: u64) -> bool {
        if record.expires() != expires {
            return false;
        }
        if expires == 0 {
            return true;
        }
        held.exclude_readers();
        // SYNC: the bit is visible before the clock is read.
        fence(SeqCst);
        !self.has_passed(expires)
    }
}

/// Whether a record with this header has the kind, can hold the value, and has a word for the
/// expiry. A record never changes its kind: readers look at it without a lock.
fn holds(header: Header, value: &[u8], kind: ValueKind, expiry: Expiry) -> bool {
    let capacity = header
        .capacity()
        .is_some_and(|capacity| value.len() <= capacity);
    capacity && header.kind() == kind && (expiry == Expiry::Never || header.has_expiry())
}

/// The ranges in which two values differ: at most two, the second of which may be empty. Values
/// with elements begin with lengths and counts, which are one range. A short value is written as a
/// whole.
fn differing(old: &[u8], new: &[u8]) -> [Range<usize>; 2] {
    if new.len() <= SHORT {
        return [0..new.len(), 0..0];
    }
    let begin = same_from(old, new, 0);
    let next = match begin < HEAD {
        true => same_from(old, new, HEAD),
        false => begin,
    };
    let end = match new.len() <= old.len() {
        true => new.len() - same_until(&old[..new.len()], &new[next..]),
        false => new.len(),
    };
    match begin < HEAD {
        true => [begin..HEAD, next..end],
        false => [begin..end, 0..0],
    }
}

/// The end of the range from `at` on in which two values are equal.
fn same_from(old: &[u8], new: &[u8], at: usize) -> usize {
    let (old, new) = (old.get(at..).unwrap_or_default(), &new[at..]);
    let (words, of_new) = (old.as_chunks::<WORD>().0, new.as_chunks::<WORD>().0);
    let alike = words.iter().zip(of_new).take_while(|(old, new)| old == new);
    let begin = WORD * alike.count();
    let rest = old[begin..].iter().zip(&new[begin..]);
    at + begin + rest.take_while(|(old, new)| old == new).count()
}

/// The number of bytes at the end of two values that are equal.
fn same_until(old: &[u8], new: &[u8]) -> usize {
    let (words, of_new) = (old.as_rchunks::<WORD>().1, new.as_rchunks::<WORD>().1);
    let words = words.iter().rev().zip(of_new.iter().rev());
    let end = WORD * words.take_while(|(old, new)| old == new).count();
    let rest = old[..old.len() - end].iter().rev();
    let rest = rest.zip(new[..new.len() - end].iter().rev());
    end + rest.take_while(|(old, new)| old == new).count()
}

impl Copied {
    /// What a change expects that was decided on when the record was as seen here, with this value.
    /// `is_live`: it had not expired.
    pub fn expect<'v>(&self, value: &'v [u8], is_live: bool) -> Expect<'v> {
        let loc = self.entry.loc();
        if !is_live {
            Expect::ExpiredAt(loc)
        } else if self.header.capacity().is_some() {
            Expect::Value(loc, self.expires, value)
        } else if self.header.has_expiry() {
            Expect::Expiring(loc, self.expires)
        } else {
            Expect::At(loc)
        }
    }

    /// The value's kind.
    pub fn kind(&self) -> ValueKind {
        self.header.kind()
    }

    /// The stored record, expired or not.
    pub fn still_stored<'v>(&self, value: &'v [u8]) -> Stored<'v> {
        Stored {
            value,
            expiry: Expiry::of_word(self.expires),
            kind: self.kind(),
        }
    }
}

impl Record<'_> {
    /// Copies the value, which another thread may be overwriting.
    pub fn copy_value(&self, to: &mut Vec<u8>) {
        let len = self.value_len();
        to.clear();
        to.reserve(len);
        let copy = &mut to.spare_capacity_mut()[..len];
        // SAFETY: the record is mapped; a thread that writes to it meanwhile does so by `store`.
        unsafe { mneme_sys::racy::load_uninit(self.value_address(), copy) };
        // SAFETY: this number of bytes is initialised now.
        unsafe { to.set_len(len) };
    }
}

impl Held<'_> {
    /// Makes readers that copy wait until the bucket is unlocked, before the first byte is changed.
    pub(crate) fn exclude_readers(&self) {
        self.set_transaction();
        // SYNC: pairs with the acquire fence in `look_out`.
        fence(Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "plain arithmetic that takes minutes")]
        fn what_differs_makes_the_new_value_of_the_old_one(
            old in vec(0..2u8, 0..700),
            cuts in vec((0..700usize, 0..40usize, vec(0..3u8, 0..40)), 0..3),
        ) {
            let mut new = old.clone();
            for (at, len, bytes) in cuts {
                let at = at.min(new.len());
                new.splice(at..(at + len).min(new.len()), bytes);
            }
            let mut made = old.clone();
            made.resize(new.len(), 7);
            for range in differing(&old, &new) {
                made[range.clone()].copy_from_slice(&new[range]);
            }
            prop_assert_eq!(made, new);
        }
    }

    #[test]
    fn only_what_differs_is_written() {
        let old: Vec<u8> = (0..1000u32).map(|i| (i / 3) as u8).collect();
        let mut new = old.clone();
        assert_eq!(differing(&old, &new), [1000..1000, 0..0]);
        new[3] ^= 1;
        new[501] ^= 1;
        new[509] ^= 1;
        assert_eq!(differing(&old, &new), [3..HEAD, 501..510]);
        new[3] = old[3];
        new.extend([1; 7]);
        assert_eq!(differing(&old, &new), [501..1007, 0..0]);
        assert_eq!(differing(&old, &old[..900]), [900..900, 0..0]);
    }
}
