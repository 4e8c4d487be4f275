//! Reads that copy, under pins that may be revoked: **a reader that is stopped or swapped out
//! blocks others for no longer than about a second, and what it returns is whole.**
//!
//! Everything is read by racing loads and copies (see [`crate::region::racing`]). If the pin was
//! still valid at the end, the result is as reliable as under a firm pin. If it was revoked
//! meanwhile, the bytes may belong to another record by then: the result, damage included, is
//! discarded, and the read starts over. After [`TRIES`] such losses it reads under a firm pin: one
//! value may take longer to copy than others wait for a pin, and a read that never ends is no
//! better than a pin that is held for long. Then a reader blocks others only if it is stopped
//! again, in that very attempt.
//!
//! A copy of a value that may be patched is accepted if the value was not patched meanwhile. After
//! the same number of losses to patches, a reader seals the value under its firm pin, if it may
//! write (see [`crate::records::patch`]).
//!
//! A reader never waits under such a pin: if a transaction or a swap blocks it, it unpins, waits,
//! and looks again. No code of a caller runs under such a pin either.

use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU64, fence};

use mneme_sync::RevocablePin;

use crate::buffer::NoMemory;
use crate::error::{ReadError, WriteError};
use crate::index::bucket::LockWord;
use crate::index::lookup::{BucketRead, Lookup};
use crate::index::prefetch::{AHEAD_LINES, DISTANCE, Fetch, WIDTH};
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::Records;
use crate::records::expiry::{Before, RecordLife};
use crate::records::patch::Overtaken;
use crate::records::value::Value;
use crate::region::kind::ValueKind;
use crate::region::patch_word::{PatchWord, Seal, seal};
use crate::region::racing::{PIECE, Racing, RacingRecord};
use crate::region::space::KeyspaceId;
use crate::session::Wait;

/// How many pins a read may lose before it takes a firm one.
const TRIES: u32 = 3;
/// The longest part of a value that can usually be copied between two patches, and how often the
/// copy is retried at once.
pub(crate) const SHORT: usize = 4096;
pub(crate) const SHORT_TRIES: u32 = 16;

/// The whole range of a value.
pub(crate) fn all(len: usize) -> Range<usize> {
    0..len
}

/// The part of `range` that lies in a value of `len` bytes.
pub(crate) fn within(range: &impl Fn(usize) -> Range<usize>, len: usize) -> Range<usize> {
    let range = range(len);
    let end = range.end.min(len);
    range.start.min(end)..end
}

/// The conditions for a look of a copying reader.
pub(crate) struct Hold<'p> {
    /// Its pin, if it can be revoked.
    pin: Option<&'p RevocablePin<'p>>,
    /// A time that had come before the look.
    before: &'p Before,
    /// Whether the transaction under way in its first bucket is the calling thread's.
    pub own: bool,
}

impl Hold<'_> {
    /// Whether the result so far is valid.
    pub fn is_valid(&self) -> bool {
        self.pin.is_none_or(RevocablePin::is_valid)
    }

    /// Whether a present record with this expiry word counts as present, even if it has expired.
    pub fn sees_expired(&self, records: &Records, expires: u64) -> bool {
        records.life(expires, self.before) == RecordLife::Live
    }

    /// Whether the pin cannot be revoked, so that what was found may be changed.
    fn is_firm(&self) -> bool {
        self.pin.is_none()
    }
}

/// The result of a look under a pin that may be revoked.
pub(crate) enum Looked<T> {
    Seen(T),
    /// A transaction, or an overwriting, is or was under way in the bucket of this word. Or the key
    /// may have expired since it was seen.
    Unsettled(LockWord),
    /// The pin was revoked.
    Lost,
    /// The value was patched meanwhile.
    Overtaken,
}

impl<T> Looked<T> {
    /// Applies `f` to what was seen.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Looked<U> {
        match self {
            Looked::Seen(seen) => Looked::Seen(f(seen)),
            Looked::Unsettled(word) => Looked::Unsettled(word),
            Looked::Lost => Looked::Lost,
            Looked::Overtaken => Looked::Overtaken,
        }
    }
}

/// A record without its value.
pub(crate) struct Outline {
    root: Root,
    place: Place,
    /// The word of its expiry.
    pub expires: u64,
    /// All bytes that it occupies.
    bytes: u64,
    kind: ValueKind,
}

/// Appends a part of a value that may be patched, unless it is patched meanwhile.
fn copy_unless_patched(
    hold: &Hold<'_>,
    record: &RacingRecord<'_>,
    (word, seen): (&AtomicU64, PatchWord),
    part: &Range<usize>,
    to: &mut Vec<u8>,
) -> Result<Looked<()>, NoMemory> {
    if seen.is_odd() {
        return Ok(Looked::Overtaken);
    }
    let begin = to.len();
    // A long copy that will be rejected is abandoned early.
    let same = || PatchWord::load(word).same_bytes(seen);
    let copied = record.append_range(part.clone(), to, || hold.is_valid() && same())?;
    // SYNC: pairs with the release fence in `patch_word::begin`: a reader that has read a new byte
    // sees the odd word.
    fence(Acquire);
    if copied && same() {
        return Ok(Looked::Seen(()));
    }
    to.truncate(begin);
    Ok(match hold.is_valid() {
        true => Looked::Overtaken,
        false => Looked::Lost,
    })
}

impl Records {
    /// The result of `look` in the space of `database` under a pin that was still valid at the end.
    /// `look` may be called more than once, and only its last result counts.
    pub(crate) fn look_copying<T>(
        &self,
        database: u8,
        look: impl FnMut(&Hold<'_>, KeyspaceId) -> Result<Looked<T>, ReadError>,
    ) -> Result<T, ReadError> {
        self.look_copying_after(Before::default(), database, look)
    }

    /// As [`look_copying`](Self::look_copying), with a time that had come before the look.
    pub(crate) fn look_copying_after<T>(
        &self,
        before: Before,
        database: u8,
        mut look: impl FnMut(&Hold<'_>, KeyspaceId) -> Result<Looked<T>, ReadError>,
    ) -> Result<T, ReadError> {
        let (mut wait, mut lost, mut overtaken) = (Wait::new(), 0, Overtaken::default());
        let mut own = false;
        loop {
            let hold = |pin| Hold {
                pin,
                before: &before,
                own,
            };
            let seen = if lost < TRIES {
                let pin = self.session().participants.pin_revocable()?;
                let space = self.index().space(database);
                let seen = space.map(|space| look(&hold(Some(&pin)), space));
                mneme_sys::fault!("log.copy.seen");
                if pin.leave().is_err() {
                    lost += 1;
                    continue;
                }
                seen
            } else {
                let _pin = self.session().participants.pin()?;
                self.index()
                    .space(database)
                    .map(|space| look(&hold(None), space))
            };
            let waited = match seen.transpose()? {
                Some(Looked::Seen(seen)) => return Ok(seen),
                Some(Looked::Unsettled(word)) if word.in_transaction() => {
                    let slot = self.session().participants.slot()?;
                    own = word.holder() == slot.id();
                    match own {
                        true => Ok(()),
                        false => self.index().wait_for(&slot, &mut wait, word),
                    }
                }
                Some(Looked::Overtaken) if lost < TRIES => {
                    lost += 1;
                    Ok(())
                }
                Some(Looked::Overtaken) => {
                    overtaken.again(self)?;
                    Ok(())
                }
                Some(Looked::Unsettled(_) | Looked::Lost) => Ok(()),
                None => (self.index()).await_swap(&self.session().participants.slot()?, &mut wait),
            };
            waited.map_err(WriteError::while_reading)?;
        }
    }

    /// A copy of the value of `key`, which has this kind.
    pub(crate) fn get_copied(
        &self,
        database: u8,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Option<Value<'_>>, ReadError> {
        let mut value = Vec::new();
        let there = match kind {
            ValueKind::STRING => self.get_into(database, key, &mut value)?,
            _ => self.get_into_slowly(database, key, Some(kind), &mut value)?,
        };
        Ok(there.then(|| Value::copied(value)))
    }

    /// Whether `key` is present.
    pub(crate) fn contains(&self, database: u8, key: &[u8]) -> Result<bool, ReadError> {
        if self.lends {
            let _pin = self.session().participants.pin()?;
            if self.try_fast_read(database, key).is_some() {
                return Ok(true);
            }
        }
        // This does not use `get`, which would seal a value that may be patched.
        let found = self.find_copying(database, key)?;
        if let Some(outline) = &found {
            self.note_access(outline.root, outline.place);
        }
        Ok(found.is_some())
    }

    /// The record of `key` without its value. `None`: the key is absent.
    pub(crate) fn find_copying(
        &self,
        database: u8,
        key: &[u8],
    ) -> Result<Option<Outline>, ReadError> {
        self.look_copying(database, |hold, space| {
            let Some(root) = self.index().root(space)? else {
                return Ok(Looked::Seen(None));
            };
            let place = self.index().place(key);
            let Some(segment) = self.session().mem.index_segment(root, place)? else {
                return Ok(Looked::Seen(None));
            };
            let racing = Racing(&self.session().mem);
            let seen = racing.read_bucket(root, place, segment, hold.own, |_| {
                let found = racing.find_in(segment, place.tag, key)?;
                Ok(found.map(|found| Outline {
                    root,
                    place,
                    expires: found.record.expires(),
                    bytes: found.record.header().size(),
                    kind: found.record.header().kind(),
                }))
            })?;
            Ok(match seen {
                BucketRead::Valid(None, _) => Looked::Seen(None),
                BucketRead::Valid(Some(outline), home) => {
                    match self.life(outline.expires, hold.before) {
                        RecordLife::Live => Looked::Seen(Some(outline)),
                        RecordLife::Expired => Looked::Seen(None),
                        RecordLife::Unsure => Looked::Unsettled(home.word),
                    }
                }
                BucketRead::Retry(word) => Looked::Unsettled(word),
            })
        })
    }

    /// The kind of the value of `key`.
    pub(crate) fn kind(&self, database: u8, key: &[u8]) -> Result<Option<ValueKind>, ReadError> {
        let found = self.find_copying(database, key)?;
        Ok(found.map(|outline| outline.kind))
    }

    /// Bytes that the record of `key` occupies.
    pub(crate) fn record_bytes(&self, database: u8, key: &[u8]) -> Result<Option<u64>, ReadError> {
        let found = self.find_copying(database, key)?;
        Ok(found.map(|outline| outline.bytes))
    }

    /// Copies the value of `key` to `value`. Returns whether the key is present.
    #[inline]
    pub(crate) fn get_into(
        &self,
        database: u8,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        value.clear();
        // SAFETY: until the pin is left this only loads and copies.
        if let Some(pin) = unsafe { self.session().participants.fast_pin() } {
            let copied = self.try_fast_copy(self.try_fast_read(database, key), value);
            if pin.leave().is_ok() && copied {
                return Ok(true);
            }
        }
        self.get_into_slowly(database, key, Some(ValueKind::STRING), value)
    }

    /// As [`Records::get_into`], if anything is unusual, or a value of another kind is wanted.
    /// `None`: any kind.
    #[inline(never)]
    pub(crate) fn get_into_slowly(
        &self,
        database: u8,
        key: &[u8],
        wants: Option<ValueKind>,
        value: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        self.look_copying(database, |hold, space| {
            value.clear();
            let Some(root) = self.index().root(space)? else {
                return Ok(Looked::Seen(false));
            };
            let place = self.index().place(key);
            let segment = self.session().mem.index_segment(root, place)?;
            let copied = self.copy_key(hold, root, place, segment, (key, wants), &all, value)?;
            Ok(copied.map(|there| there.is_some()))
        })
    }

    /// Appends the value that an optimistic read found. Returns false if it found nothing, or the
    /// value is not short, or there is no memory for it.
    #[inline(always)]
    fn try_fast_copy(&self, found: Option<RacingRecord<'_>>, to: &mut Vec<u8>) -> bool {
        let Some(record) = found.filter(|_| !self.overwrites()) else {
            return false;
        };
        record.header().plain_len() <= PIECE && record.append_plain_value(to).is_ok()
    }

    /// Appends the part of the value of `key` that lies in `range`. `place` is that of the key, and
    /// led to `segment` under the caller's pin. Returns the value's length and kind, if the key is
    /// present. If a kind is wanted, a value of another kind is an error.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is one fact of the operation"
    )]
    pub(crate) fn copy_key(
        &self,
        hold: &Hold<'_>,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        (key, wants): (&[u8], Option<ValueKind>),
        range: &impl Fn(usize) -> Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<Looked<Option<(usize, ValueKind)>>, ReadError> {
        let Some(segment) = segment else {
            return Ok(Looked::Seen(None));
        };
        let (racing, begin) = (Racing(&self.session().mem), to.len());
        let mut copied_in_bucket = Ok(());
        let seen = racing.read_bucket(root, place, segment, hold.own, |_| {
            let found = racing.find_in(segment, place.tag, key)?;
            if let Some(found) = &found
                && found.record.header().capacity().is_some()
            {
                let part = within(range, found.record.header().value_len());
                copied_in_bucket = found.record.append_part(part, to);
            }
            let seen = found.map(|found| {
                let record = found.record;
                (record, record.patch(), record.expires())
            });
            Ok(seen)
        })?;
        let (record, patch) = match seen {
            BucketRead::Retry(word) => {
                to.truncate(begin);
                return Ok(Looked::Unsettled(word));
            }
            BucketRead::Valid(None, _) => return Ok(Looked::Seen(None)),
            BucketRead::Valid(Some((record, patch, expires)), home) => {
                let life = self.life(expires, hold.before);
                if life != RecordLife::Live {
                    to.truncate(begin);
                    return Ok(match life {
                        RecordLife::Unsure => Looked::Unsettled(home.word),
                        _ => Looked::Seen(None),
                    });
                }
                (record, patch)
            }
        };
        let kind = record.header().kind();
        if let Some(Err(wrong)) = wants.map(|wants| kind.expect(wants)) {
            to.truncate(begin);
            return Err(wrong.into());
        }
        copied_in_bucket?;
        // Only a value with slack is copied already. Changes in the bucket do not affect the copy
        // of any other value, however long it takes.
        let copied = match patch {
            Some((word, seen)) => self.copy_patchable(hold, &record, (word, seen), range, to)?,
            None if record.header().capacity().is_some() => {
                Looked::Seen(record.header().value_len())
            }
            None => {
                let len = record.header().plain_len();
                match record.append_range(within(range, len), to, || hold.is_valid())? {
                    true => Looked::Seen(len),
                    false => Looked::Lost,
                }
            }
        };
        if let Looked::Seen(_) = copied {
            self.note_access(root, place);
        }
        Ok(copied.map(|len| Some((len, kind))))
    }

    /// The part of [`Records::copy_key`] for a value that may be patched: its length.
    fn copy_patchable(
        &self,
        hold: &Hold<'_>,
        record: &RacingRecord<'_>,
        (word, mut seen): (&AtomicU64, PatchWord),
        range: &impl Fn(usize) -> Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<Looked<usize>, NoMemory> {
        let len = |seen: PatchWord| seen.len().min(record.header().patch_capacity());
        let part = within(range, len(seen));
        if part.is_empty() {
            // The length alone is valid in any state of the word.
            return Ok(Looked::Seen(len(seen)));
        }
        // A short part can soon be copied in spite of patches. Sealing the value for it would make
        // the next patch copy all of it.
        for _ in 0..if part.len() <= SHORT { SHORT_TRIES } else { 0 } {
            match copy_unless_patched(hold, record, (word, seen), &within(range, len(seen)), to)? {
                Looked::Overtaken => std::hint::spin_loop(),
                copied => return Ok(copied.map(|()| len(seen))),
            }
            seen = PatchWord::load(word);
        }
        if hold.is_firm() && !self.session().read_only {
            if seal(word) == Seal::Odd {
                return Ok(Looked::Overtaken);
            }
            seen = PatchWord::load(word);
        }
        let part = within(range, len(seen));
        let copied = copy_unless_patched(hold, record, (word, seen), &part, to)?;
        Ok(copied.map(|()| len(seen)))
    }

    /// Calls `visit` with each key's number and a copy of its value, in order.
    pub(crate) fn copy_many<K: AsRef<[u8]>>(
        &self,
        database: u8,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ReadError> {
        let mut bytes = Vec::new();
        let mut values = [const { None }; WIDTH];
        let mut done = 0;
        while done < keys.len() {
            let some = &keys[done..keys.len().min(done + WIDTH)];
            let copied = self.look_copying(database, |hold, space| {
                self.copy_batch(hold, space, some, &mut bytes, &mut values)
            })?;
            for (i, value) in values[..copied].iter().enumerate() {
                let value = value.clone().map(|value: Range<usize>| &bytes[value]);
                visit(done + i, value);
            }
            done += copied;
        }
        Ok(())
    }

    /// Copies the values of a first part of `keys` to `bytes`, as many as are worth one pin.
    /// Returns their number, at least one. A transaction or swap that blocks a later key ends the
    /// batch before that key.
    fn copy_batch<K: AsRef<[u8]>>(
        &self,
        hold: &Hold<'_>,
        space: KeyspaceId,
        keys: &[K],
        bytes: &mut Vec<u8>,
        values: &mut [Option<Range<usize>>; WIDTH],
    ) -> Result<Looked<usize>, ReadError> {
        bytes.clear();
        let Some(root) = self.index().root(space)? else {
            values[..keys.len()].fill(None);
            return Ok(Looked::Seen(keys.len()));
        };
        let ahead = self.index().prefetch_batch(root, &keys, Fetch::Values)?;
        for (i, key) in keys.iter().enumerate() {
            if let Some(&Some(loc)) = ahead.locs.get(i + DISTANCE) {
                self.index().prefetch_rest(loc, AHEAD_LINES);
            }
            let (place, segment, key) = (ahead.places[i], ahead.segment(i), key.as_ref());
            // A transaction at another key's home may belong to another thread.
            let own = hold.own && i == 0;
            let hold = &Hold { own, ..*hold };
            let begin = bytes.len();
            let fast = segment.and_then(|segment| self.try_fast_read_in(root, place, segment, key));
            let there = if self.try_fast_copy(fast, bytes) {
                true
            } else {
                let sought = (key, Some(ValueKind::STRING));
                match self.copy_key(hold, root, place, segment, sought, &all, bytes) {
                    Ok(Looked::Seen(there)) => there.is_some(),
                    Ok(Looked::Lost) => return Ok(Looked::Lost),
                    Ok(Looked::Unsettled(_) | Looked::Overtaken) | Err(_) if i > 0 => {
                        return Ok(Looked::Seen(i));
                    }
                    Ok(Looked::Overtaken) => return Ok(Looked::Overtaken),
                    Ok(Looked::Unsettled(word)) => return Ok(Looked::Unsettled(word)),
                    Err(error) => return Err(error),
                }
            };
            values[i] = there.then_some(begin..bytes.len());
            if bytes.len() > PIECE {
                return Ok(Looked::Seen(i + 1));
            }
        }
        Ok(Looked::Seen(keys.len()))
    }
}
