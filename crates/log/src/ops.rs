//! One operation on one key: reserve, copy, publish, account, all under one pin.
//!
//! A writer's steps, each a fault point:
//!
//! 1. pin; reserve space at a head and write the record's header there; copy key and value;
//! 2. write the intent that names the home bucket; lock the bucket;
//! 3. publish by one 8-byte store: into the old entry's slot, or into a free one;
//! 4. count: the database's records in the thread's own slot, the old record's bytes as dead;
//! 5. unlock; strike the intent out; unpin.
//!
//! Up to 3 nothing is visible; from 3 on everything is. A writer that dies between 3 and 5 leaves a
//! locked bucket, which readers pass through, and an intent with the value its counter was to have:
//! the reaper settles both ([`Core::repair_operation`]).

use mneme_sync::{DeadSlot, Pin, Slot};

use crate::core::{Core, OPERATION_LANE, Wait};
use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::bucket::{BUCKET_WORDS, Bucket, Entry, Held, SLOTS, TryLock};
use crate::index::resize::{Resized, Why};
use crate::index::root::Root;
use crate::index::{Found, Place, SegmentRef};
use crate::mem::Loc;
use crate::record::{Header, MAX_KEY, MAX_VALUE, write_body};
use crate::room::Room;
use crate::value::Value;

/// The intent of a thread that is about to lock a bucket: words as in [`words`].
pub(crate) const INTENT_BUCKET: u16 = 2;

/// Set in the intent when an operation is about to publish.
const READY: u64 = 1 << 32;

/// Words of an operation's intent.
mod words {
    /// The home bucket's location.
    pub const HOME: usize = 0;
    /// The entry to be published (0: a removal).
    pub const NEW: usize = 1;
    /// The entry it replaces (0: none).
    pub const OLD: usize = 2;
    /// The database's root id; 0: the number of records does not change.
    pub const ROOT: usize = 3;
    /// The value of this thread's counter for the root afterwards (two's complement).
    pub const COUNT: usize = 4;
    /// The index segment that the home bucket lies in (a segment word).
    pub const SEGMENT: usize = 5;
    /// The database, plus [`READY`](super::READY) once the words above are all written.
    pub const DATABASE: usize = 6;
}

/// What an update does with a key, see [`LogStore::update`](crate::LogStore::update).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Leave it as it is.
    Keep,
    /// Store this value.
    Replace(Vec<u8>),
    /// Remove it.
    Remove,
}

/// What an update did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Updated {
    /// The key is there, as before.
    Kept,
    /// The key is new.
    Inserted,
    /// The key has another value.
    Replaced,
    /// The key is gone.
    Removed,
    /// The key was not there, and is not.
    Absent,
}

/// What [`Core::publish`] is to do with the entry it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// Whatever is there.
    Anything,
    /// No entry.
    Absent,
    /// Exactly this location.
    At(Loc),
}

/// What [`Core::publish`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// A new key.
    Inserted,
    /// In place of an older record.
    Replaced,
    /// The key is gone now.
    Removed,
    /// There was nothing to remove.
    Absent,
    /// Somebody changed the key since the caller looked.
    Conflict,
    /// The index has no room for another key.
    NoRoom,
}

impl Core {
    pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        if key.len() > MAX_KEY {
            return Err(WriteError::KeyTooLong(key.len()));
        }
        if value.len() > MAX_VALUE {
            return Err(WriteError::ValueTooLong(value.len()));
        }
        Ok(())
    }

    /// The value of `key`, kept readable by its pin.
    #[inline]
    pub(crate) fn get(&self, database: u8, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        if key.len() > MAX_KEY {
            return Ok(None);
        }
        let slot = self.participants.slot()?;
        let pin = slot.pin();
        let Some(root) = self.root(database)? else {
            return Ok(None);
        };
        let place = self.place(key);
        Ok(self
            .find(&slot, &root, place, key)?
            .map(|found| Value::new(found.record.value(), pin)))
    }

    /// Stores `value` under `key`.
    pub(crate) fn put(&self, database: u8, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Self::check_lengths(key, value)?;
        let header = Header::record(key.len(), value.len(), database);
        let slot = self.participants.slot()?;
        let place = self.place(key);
        let mut room = Room::new(header.size());
        loop {
            {
                let pin = slot.pin();
                if let Some(root) = self.root_or_create(&slot, database)?
                    && self.prefetch_bucket(&root, place).is_ok()
                    && let Some(loc) = self.write_record(&slot, header, key, value)?
                {
                    let size = header.size();
                    let published = self.publish(
                        &slot,
                        &pin,
                        &root,
                        place,
                        key,
                        Some(loc),
                        size,
                        Expect::Anything,
                    )?;
                    if published != Published::NoRoom {
                        return Ok(());
                    }
                    self.record_died(loc, header.size())?;
                }
            }
            self.make_room(&slot, &mut room)?;
        }
    }

    /// Removes `key`; whether it was there.
    pub(crate) fn remove(&self, database: u8, key: &[u8]) -> Result<bool, WriteError> {
        if key.len() > MAX_KEY {
            return Ok(false);
        }
        let slot = self.participants.slot()?;
        let pin = slot.pin();
        let Some(root) = self.root(database)? else {
            return Ok(false);
        };
        let place = self.place(key);
        let published = self.publish(&slot, &pin, &root, place, key, None, 0, Expect::Anything)?;
        Ok(published == Published::Removed)
    }

    /// Empties a database.
    pub(crate) fn clear(&self, database: u8) -> Result<(), WriteError> {
        let slot = self.participants.slot()?;
        let mut wait = Wait::new();
        while !self.drop_root(&slot, database)? {
            self.sweep(&slot)?;
            self.wait_for(&slot, &mut wait, slot.id())?;
        }
        Ok(())
    }

    /// Decides on `key` by its present value, atomically; `decide` may be called more than once.
    pub(crate) fn update(
        &self,
        database: u8,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> Decision,
    ) -> Result<Updated, WriteError> {
        Self::check_lengths(key, &[])?;
        let slot = self.participants.slot()?;
        let place = self.place(key);
        let mut room = Room::new(0);
        loop {
            let tried = {
                let pin = slot.pin();
                match self.root_or_create(&slot, database)? {
                    Some(root) => {
                        self.try_update(&slot, &pin, &root, place, key, &mut decide, &mut room)?
                    }
                    None => Tried::NoRoom,
                }
            };
            match tried {
                Tried::Done(updated) => return Ok(updated),
                Tried::Conflict => {}
                Tried::NoRoom => self.make_room(&slot, &mut room)?,
            }
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "each is one fact of the operation"
    )]
    fn try_update(
        &self,
        slot: &Slot<'_>,
        pin: &Pin<'_>,
        root: &Root,
        place: Place,
        key: &[u8],
        decide: &mut impl FnMut(Option<&[u8]>) -> Decision,
        room: &mut Room,
    ) -> Result<Tried, WriteError> {
        let found = self.find(slot, root, place, key)?;
        let decision = decide(found.as_ref().map(|f| f.record.value()));
        let expect = found
            .as_ref()
            .map_or(Expect::Absent, |f| Expect::At(f.entry.loc()));
        let (new, size) = match &decision {
            Decision::Keep => {
                return Ok(Tried::Done(if found.is_some() {
                    Updated::Kept
                } else {
                    Updated::Absent
                }));
            }
            Decision::Remove if found.is_none() => return Ok(Tried::Done(Updated::Absent)),
            Decision::Remove => (None, 0),
            Decision::Replace(value) => {
                Self::check_lengths(key, value)?;
                let header = Header::record(key.len(), value.len(), root.database);
                room.want(header.size());
                match self.write_record(slot, header, key, value)? {
                    Some(loc) => (Some(loc), header.size()),
                    None => return Ok(Tried::NoRoom),
                }
            }
        };
        Ok(
            match self.publish(slot, pin, root, place, key, new, size, expect)? {
                Published::Inserted => Tried::Done(Updated::Inserted),
                Published::Replaced => Tried::Done(Updated::Replaced),
                Published::Removed => Tried::Done(Updated::Removed),
                Published::Absent | Published::Conflict => Tried::Conflict,
                Published::NoRoom => {
                    if let Some(loc) = new {
                        self.record_died(loc, size)?;
                    }
                    Tried::NoRoom
                }
            },
        )
    }

    /// Appends a record; `None`: no room. The caller is pinned.
    pub(crate) fn write_record(
        &self,
        slot: &Slot<'_>,
        header: Header,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Loc>, WriteError> {
        let loc = if self.is_large(header.size()) {
            match self.reserve_large(slot, header)? {
                Some(loc) => loc,
                None => return Ok(None),
            }
        } else {
            let mut locs = [Loc::of_byte(0)];
            if self.reserve(slot, &[header], &mut locs)? == 0 {
                return Ok(None);
            }
            locs[0]
        };
        self.copy_body(loc, header, key, value)?;
        Ok(Some(loc))
    }

    /// Copies key and value to a reserved record.
    pub(crate) fn copy_body(
        &self,
        loc: Loc,
        header: Header,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Corrupt> {
        let address = self.mem.address(loc, header.size())?;
        if mneme_sys::fault::ENABLED {
            // With fault points compiled in the copy has a middle at which it can be abandoned.
            let half = value.len() / 2;
            let part = Header::record(key.len(), half, header.database());
            if part.has_expiry() == header.has_expiry() {
                // SAFETY: the record was reserved with room for more than this prefix of it.
                unsafe { write_body(address, part, key, &value[..half]) };
            }
            mneme_sys::fault!("log.body.during");
        }
        // SAFETY: `reserve` gave these bytes to this thread alone, and nobody finds the record before
        // it is published; a scan by headers does not look at bodies of unpublished records.
        unsafe { write_body(address, header, key, value) };
        mneme_sys::fault!("log.body.after");
        Ok(())
    }

    /// Publishes the record at `new` (or the removal, `None`) for `key`, if what is there is expected.
    ///
    /// `_pin` shows that the caller is pinned, since before the record's space was reserved.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is one fact of the operation"
    )]
    pub(crate) fn publish(
        &self,
        slot: &Slot<'_>,
        _pin: &Pin<'_>,
        root: &Root,
        place: Place,
        key: &[u8],
        new: Option<Loc>,
        new_size: u64,
        expect: Expect,
    ) -> Result<Published, WriteError> {
        let mut wait = Wait::new();
        loop {
            let Some(segment) = self.mem.index_segment(root, place)? else {
                if new.is_none() || matches!(expect, Expect::At(_)) {
                    return Ok(if new.is_none() {
                        Published::Absent
                    } else {
                        Published::Conflict
                    });
                }
                if self.resize(slot, root, place, None, Why::Full)? == Resized::NoRoom {
                    return Ok(Published::NoRoom);
                }
                continue;
            };
            let Some(held) = self.lock_home(slot, segment, place, &mut wait)? else {
                continue;
            };
            let outcome = self.publish_held(slot, root, segment, place, key, new, expect, held)?;
            slot.intent(OPERATION_LANE).clear();
            match outcome {
                Outcome::Done {
                    published,
                    died,
                    crowded,
                    sparse,
                } => {
                    if let Some((loc, size)) = died {
                        self.record_died(loc, size)?;
                    }
                    if published == Published::Conflict
                        && let Some(loc) = new
                    {
                        self.record_died(loc, new_size)?;
                    }
                    if crowded {
                        self.resize(slot, root, place, Some(segment), Why::Crowded)?;
                    } else if sparse {
                        self.resize(slot, root, place, Some(segment), Why::Sparse)?;
                    }
                    return Ok(published);
                }
                Outcome::Full => match self.resize(slot, root, place, Some(segment), Why::Full)? {
                    Resized::Done => {}
                    Resized::NoRoom => return Ok(Published::NoRoom),
                    Resized::Busy => self.wait_for(slot, &mut wait, slot.id())?,
                },
            }
        }
    }

    /// Locks the home bucket of `place`; `None`: look the segment up again.
    #[inline]
    fn lock_home<'c>(
        &'c self,
        slot: &Slot<'_>,
        segment: SegmentRef,
        place: Place,
        wait: &mut Wait,
    ) -> Result<Option<Held<'c>>, WriteError> {
        let home = self.mem.bucket(segment, segment.home(place.tag))?;
        let loc = segment
            .loc
            .add_words(segment.home(place.tag) * crate::index::bucket::BUCKET_WORDS);
        slot.intent(OPERATION_LANE)
            .begin(INTENT_BUCKET, &[loc.bits()]);
        mneme_sys::fault!("log.intent");
        match home.try_lock(slot.id()) {
            TryLock::Held(held) => {
                mneme_sys::fault!("log.bucket.locked");
                Ok(Some(held))
            }
            TryLock::Retired => {
                slot.intent(OPERATION_LANE).clear();
                Ok(None)
            }
            TryLock::Busy(word) => {
                slot.intent(OPERATION_LANE).clear();
                self.wait_for(slot, wait, word.holder())?;
                Ok(None)
            }
        }
    }

    /// Makes the index lead to the copy at `new` instead of `old`; false if it leads elsewhere by now.
    pub(crate) fn relocate(
        &self,
        slot: &Slot<'_>,
        root: &Root,
        place: Place,
        old: Loc,
        new: Loc,
    ) -> Result<bool, WriteError> {
        let (old, new) = (Entry::new(place.tag, old), Entry::new(place.tag, new));
        let mut wait = Wait::new();
        loop {
            let Some(segment) = self.mem.index_segment(root, place)? else {
                return Ok(false);
            };
            let Some(held) = self.lock_home(slot, segment, place, &mut wait)? else {
                continue;
            };
            let found = self.mem.find_entry(segment, old);
            if let Ok(Some((bucket, i))) = found
                && let Ok(bucket) = self.mem.bucket(segment, bucket)
            {
                bucket.replace(i, new);
                mneme_sys::fault!("log.published");
            }
            held.unlock();
            slot.intent(OPERATION_LANE).clear();
            return Ok(found?.is_some());
        }
    }

    /// The part of [`Core::publish`] that holds the home bucket.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is one fact of the operation"
    )]
    #[inline]
    fn publish_held(
        &self,
        slot: &Slot<'_>,
        root: &Root,
        segment: SegmentRef,
        place: Place,
        key: &[u8],
        new: Option<Loc>,
        expect: Expect,
        mut held: Held<'_>,
    ) -> Result<Outcome, WriteError> {
        let found = match self.mem.find_in(segment, place.tag, key) {
            Ok(found) => found,
            Err(corrupt) => {
                held.unlock();
                return Err(corrupt.into());
            }
        };
        let done = |published| Outcome::Done {
            published,
            died: None,
            crowded: false,
            sparse: false,
        };
        let expected = match (expect, &found) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::At(loc), Some(found)) => found.entry.loc() == loc,
            _ => false,
        };
        if !expected {
            held.unlock();
            return Ok(done(Published::Conflict));
        }
        let entry = new.map_or(Entry(0), |loc| Entry::new(place.tag, loc));
        let delta = i64::from(new.is_some()) - i64::from(found.is_some());
        self.note_operation(slot, root, segment, entry, found.as_ref(), delta);
        let outcome = match (&found, new) {
            (Some(found), _) => {
                let bucket = self.mem.bucket(segment, found.bucket)?;
                bucket.replace(found.slot, entry);
                mneme_sys::fault!("log.published");
                let removed = new.is_none();
                Outcome::Done {
                    published: if removed {
                        Published::Removed
                    } else {
                        Published::Replaced
                    },
                    died: Some((found.entry.loc(), found.record.header().size())),
                    crowded: false,
                    sparse: removed && self.worth_a_look(place) && bucket.used() <= 2,
                }
            }
            (None, None) => {
                held.unlock();
                return Ok(done(Published::Absent));
            }
            (None, Some(_)) => {
                let home = segment.home(place.tag);
                let mut distance = 0;
                loop {
                    let bucket = self.mem.bucket(segment, segment.behind(home, distance))?;
                    held.extend_reach(distance);
                    if bucket.publish(entry).is_some() {
                        break;
                    }
                    distance += 1;
                    if distance > segment.max_reach() {
                        held.unlock();
                        return Ok(Outcome::Full);
                    }
                }
                mneme_sys::fault!("log.published");
                let crowded = distance > 0 && (distance > 2 || self.worth_a_look(place));
                Outcome::Done {
                    published: Published::Inserted,
                    died: None,
                    crowded,
                    sparse: false,
                }
            }
        };
        if delta != 0 {
            slot.count(usize::from(root.database), root.id, delta);
        }
        mneme_sys::fault!("log.counted");
        held.unlock();
        mneme_sys::fault!("log.bucket.unlocked");
        Ok(outcome)
    }

    /// Completes the intent of an operation, before its publication.
    #[inline]
    fn note_operation(
        &self,
        slot: &Slot<'_>,
        root: &Root,
        segment: SegmentRef,
        entry: Entry,
        found: Option<&Found<'_>>,
        delta: i64,
    ) {
        let intent = slot.intent(OPERATION_LANE);
        intent.set(words::NEW, entry.0);
        intent.set(words::OLD, found.map_or(0, |f| f.entry.0));
        intent.set(words::SEGMENT, segment.word());
        if delta != 0 {
            let counted = match slot.counted(usize::from(root.database)) {
                Some((id, count)) if id == root.id => count,
                _ => 0,
            };
            intent.set(words::ROOT, root.id);
            intent.set(words::COUNT, (counted + delta) as u64);
        }
        intent.set(words::DATABASE, u64::from(root.database) | READY);
    }

    /// Samples one in four places, so that the state of a segment is looked at now and then.
    #[inline]
    fn worth_a_look(&self, place: Place) -> bool {
        place.tag & 3 == 0
    }

    /// Settles an operation whose thread died: it happened if its entry is published, else not.
    pub(crate) fn repair_operation(&self, dead: &DeadSlot<'_>) -> Result<(), WriteError> {
        let Some(intent) = dead.intent(OPERATION_LANE) else {
            return Ok(());
        };
        if intent.kind != INTENT_BUCKET {
            return Ok(());
        }
        let home_loc = Loc::of_word(intent.words[words::HOME]);
        let home = Bucket::of_words(self.mem.words(home_loc)?);
        let Some(held) = home.inherit(dead.id()) else {
            // It never had the lock, or gave it back: nothing is half done.
            return Ok(());
        };
        if intent.words[words::DATABASE] & READY != 0 {
            let segment = SegmentRef::of_word(intent.words[words::SEGMENT]);
            let new = Entry(intent.words[words::NEW]);
            let old = Entry(intent.words[words::OLD]);
            let root_id = intent.words[words::ROOT];
            // An insertion is found by its entry, a removal by the lack of the old one. Both lie
            // within the home's reach.
            let happened = if old.is_empty() {
                self.entry_near(segment, home_loc, held.word().reach(), new)?
            } else {
                !self.entry_near(segment, home_loc, held.word().reach(), old)?
            };
            if happened && root_id != 0 {
                let count = intent.words[words::COUNT] as i64;
                let database = intent.words[words::DATABASE] & !READY;
                dead.set_count(database as usize, root_id, count);
            }
            if happened && !old.is_empty() {
                let record = self.mem.record(old.loc())?;
                self.record_died(old.loc(), record.header().size())?;
            }
        }
        held.unlock();
        Ok(())
    }

    /// Whether `entry` lies in the bucket at `home` or up to `reach` behind it.
    fn entry_near(
        &self,
        segment: SegmentRef,
        home: Loc,
        reach: u64,
        entry: Entry,
    ) -> Result<bool, Corrupt> {
        let first = home.byte().wrapping_sub(segment.loc.byte()) / (BUCKET_WORDS * 8);
        if first >= segment.buckets {
            return Err(Corrupt {
                offset: home.byte(),
                what: "an intent names a bucket outside its segment".into(),
            });
        }
        for distance in 0..=reach.min(segment.max_reach()) {
            let bucket = self.mem.bucket(segment, segment.behind(first, distance))?;
            if (0..SLOTS).any(|i| bucket.entry(i) == entry) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What one attempt at an update came to.
enum Tried {
    Done(Updated),
    /// Somebody changed the key in between.
    Conflict,
    NoRoom,
}

/// What happened under the bucket's lock, and what is to be done after it.
enum Outcome {
    Done {
        published: Published,
        /// The record that was replaced or removed, and its size.
        died: Option<(Loc, u64)>,
        /// The segment may be full enough to grow.
        crowded: bool,
        /// The segment may be empty enough to shrink.
        sparse: bool,
    },
    /// No slot within reach of the home bucket.
    Full,
}
