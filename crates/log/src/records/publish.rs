//! Publishing: the one moment at which a write takes effect, and what a death near it leaves.
//!
//! A writer's steps, each a fault point:
//!
//! 1. pin; reserve space at a head and write the record's header there; copy key and value;
//! 2. write the intent that names the home bucket; lock the bucket; if any process watches, count
//!    the change (see [`crate::store::watch`]); if the change feed has a follower, enter the change
//!    into the [feed](crate::feed);
//! 3. publish by one 8-byte store: into the old entry's slot, or into a free one;
//! 4. count: the database's records in the thread's own slot, the old record's bytes as dead;
//!    complete the entry in the change feed;
//! 5. unlock; clear the intent; unpin.
//!
//! Before the 8-byte store nothing is visible; after it, everything is. A writer that dies between
//! the store and the unlocking leaves a locked bucket, which does not stop readers, and an intent
//! with the intended value of its counter: the reaper completes both
//! ([`Records::repair_operation`]).

use mneme_sync::{DeadSlot, Pin, Slot};

use crate::error::{Corrupt, WriteError};
use crate::feed::item::RemovalCause;
use crate::index::bucket::{BUCKET_WORDS, Bucket, Entry, Held, SLOTS, TryLock};
use crate::index::counts::{self, CountsAfter, RecordCounts};
use crate::index::intent::{HomeChange, IndexIntent, OPERATION_LANE};
use crate::index::lookup::{FoundEntry, Lookup};
use crate::index::resize::{Resized, Why, retired};
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::inner::collection_of;
use crate::records::Records;
use crate::records::elements::Elements;
use crate::region::mem::Loc;
use crate::session::Wait;

/// A change of one key, ready to be published.
#[derive(Clone, Copy)]
pub(crate) struct KeyChange<'k> {
    pub root: Root,
    pub place: Place,
    /// The index page to which `place` led, if the caller has looked.
    pub segment: Option<SegmentRef>,
    pub key: &'k [u8],
    /// The record to be published and its size; `None`: the key is removed.
    pub new: Option<(Loc, u64)>,
    /// Whether that record has an expiry.
    pub expiring: bool,
    /// Whether the key is evicted to free space.
    pub evicting: bool,
    pub expect: Expect<'k>,
    /// The changed elements that the change feed gets instead of the whole value.
    pub says: Option<&'k Elements>,
}

impl<'k> KeyChange<'k> {
    /// The removal of `key`, whatever record it has.
    pub fn removal(root: Root, place: Place, key: &'k [u8]) -> KeyChange<'k> {
        KeyChange {
            root,
            place,
            segment: None,
            key,
            new: None,
            expiring: false,
            evicting: false,
            expect: Expect::Anything,
            says: None,
        }
    }
}

/// What [`Records::publish`] expects of the entry that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect<'k> {
    /// Any entry, or none.
    Anything,
    /// No entry.
    Absent,
    /// Exactly this location.
    At(Loc),
    /// Exactly this location, of a record that still has this expiry word, and has not expired.
    Expiring(Loc, u64),
    /// As `Expiring`, of a record that still has this value too. The value may be overwritten in
    /// place, so it is no longer than `MAX_IN_PLACE`.
    Value(Loc, u64, &'k [u8]),
    /// Exactly this location, of a record that has expired.
    ExpiredAt(Loc),
    /// Exactly this location, of a record that has any expiry.
    WithExpiry(Loc),
}

/// What [`Records::publish`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// A new key.
    Inserted,
    /// An older record was replaced.
    Replaced,
    /// The key was there, and is removed.
    Removed,
    /// There was nothing to remove.
    Absent,
    /// Another thread has changed the key since the caller looked.
    Conflict,
    /// The index has no free slot for another key.
    NoSpace,
}

impl Records {
    /// Publishes a record, or a removal, if the present record is as expected.
    ///
    /// On `Err` nothing was published, and the new record is counted as dead, as after a
    /// `Conflict`. After `NoSpace` the caller counts it.
    ///
    /// `_pin` shows that the caller is pinned. The pin began before the record's space was reserved
    /// and before the caller saw `change.segment`.
    #[inline(never)]
    pub(crate) fn publish(
        &self,
        slot: &Slot<'_>,
        pin: &Pin<'_>,
        change: &KeyChange<'_>,
    ) -> Result<Published, WriteError> {
        self.publish_inlined(slot, pin, change)
    }

    /// [`publish`](Self::publish), inlined into a caller that knows some of the change at compile
    /// time. Functions that are not inlined get a copy of the change, so that the fields of the
    /// original stay in registers.
    #[inline(always)]
    pub(crate) fn publish_inlined(
        &self,
        slot: &Slot<'_>,
        _pin: &Pin<'_>,
        change: &KeyChange<'_>,
    ) -> Result<Published, WriteError> {
        match self.try_publish(slot, change) {
            Ok(published) => Ok(published),
            Err(WriteError::FeedFull) => self.publish_in_pieces(slot, &{ *change }),
            Err(error) => Err(self.give_up(&{ *change }, error)),
        }
    }

    /// The rest of [`Records::publish`] if the change feed has no space for the change in an entry.
    #[cold]
    #[inline(never)]
    fn publish_in_pieces(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
    ) -> Result<Published, WriteError> {
        if change.says.is_some() {
            // It fits an entry.
            return Err(self.give_up(change, WriteError::FeedFull));
        }
        let id = self.index().root_id(change.root)?;
        let published =
            self.in_pieces(slot, self.item_of(id, change, RemovalCause::Asked)?, || {
                self.try_publish(slot, change)
            });
        published.map_err(|error| self.give_up(change, error))
    }

    /// Counts the new record of a failed change as dead: a change fails only before it is
    /// published.
    #[cold]
    fn give_up(&self, change: &KeyChange<'_>, error: WriteError) -> WriteError {
        if let Some((loc, size)) = change.new {
            self.log().try_mark_dead(loc, size);
        }
        error
    }

    #[inline(always)]
    fn try_publish(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
    ) -> Result<Published, WriteError> {
        let id = self.index().root_id(change.root)?;
        // Almost every write ends here. The code that waits, or changes the index' shape, is out of
        // line.
        let segment = match change.segment {
            None => (self.session().mem).index_segment(change.root, change.place)?,
            seen => seen,
        };
        if let Some(segment) = segment
            && let TryLock::Held(held) = self.try_lock_home(slot, segment, change.place)?
        {
            let outcome = self.publish_held(slot, segment, change, id, held);
            slot.intent(OPERATION_LANE).clear();
            if let Some(published) = self.conclude(slot, segment, change, outcome?)? {
                return Ok(published);
            }
        }
        self.publish_waiting(slot, &{ *change }, id)
    }

    /// The rest of [`Records::try_publish`] if the bucket was locked, or had no free slot.
    #[cold]
    #[inline(never)]
    fn publish_waiting(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
        id: u64,
    ) -> Result<Published, WriteError> {
        let (root, place) = (change.root, change.place);
        let mut wait = Wait::new();
        loop {
            let Some(segment) = self.session().mem.index_segment(root, place)? else {
                if change.new.is_none() {
                    return Ok(Published::Absent);
                }
                if !matches!(change.expect, Expect::Anything | Expect::Absent) {
                    return self.conflict(change);
                }
                if !self.grow_page_for(slot, change, None, &mut wait)? {
                    return Ok(Published::NoSpace);
                }
                continue;
            };
            let Some(held) = self.lock_home(slot, segment, place, &mut wait)? else {
                continue;
            };
            let outcome = self.publish_held(slot, segment, change, id, held);
            slot.intent(OPERATION_LANE).clear();
            if let Some(published) = self.conclude(slot, segment, change, outcome?)? {
                return Ok(published);
            }
            if !self.grow_page_for(slot, change, Some(segment), &mut wait)? {
                return Ok(Published::NoSpace);
            }
        }
    }

    /// Grows the index for a change that found no slot in `segment`, or waits once for the thread
    /// that blocks that. Returns false if there is no free space.
    fn grow_page_for(
        &self,
        slot: &Slot<'_>,
        change: &KeyChange<'_>,
        segment: Option<SegmentRef>,
        wait: &mut Wait,
    ) -> Result<bool, WriteError> {
        match (self.index()).resize(slot, change.root, change.place, segment, Why::Full)? {
            Resized::Done => {}
            Resized::NoSpace | Resized::LimboFull => return Ok(false),
            Resized::Busy(holder, what) => self.session().wait_on(slot, wait, holder, what)?,
        }
        Ok(true)
    }

    /// Does the work that is due after the bucket is unlocked. `None`: the key found no slot in
    /// `segment`.
    #[inline(always)]
    fn conclude(
        &self,
        slot: &Slot<'_>,
        segment: SegmentRef,
        change: &KeyChange<'_>,
        outcome: Option<Done>,
    ) -> Result<Option<Published>, WriteError> {
        let Some(Done {
            published,
            died,
            look,
        }) = outcome
        else {
            return Ok(None);
        };
        if published == Published::Conflict {
            return self.conflict(&{ *change }).map(Some);
        }
        if let Some((loc, size)) = died {
            self.log().try_mark_dead(loc, size);
        }
        if change.expiring {
            self.expect_expiries();
        }
        if let Some(why) = look {
            // The change is made already. If a change of shape fails, it is left for later.
            let _ = (self.index()).resize(slot, change.root, change.place, Some(segment), why);
        }
        Ok(Some(published))
    }

    /// Counts the new record of a change that was not made as dead.
    #[cold]
    #[inline(never)]
    fn conflict(&self, change: &KeyChange<'_>) -> Result<Published, WriteError> {
        if let Some((loc, size)) = change.new {
            self.log().mark_dead(loc, size)?;
        }
        Ok(Published::Conflict)
    }

    /// Announces a change at the home bucket of `place`, and locks it if it is free. If it is not,
    /// the announcement is withdrawn.
    #[inline(always)]
    pub(crate) fn try_lock_home(
        &self,
        slot: &Slot<'_>,
        segment: SegmentRef,
        place: Place,
    ) -> Result<TryLock<'_>, Corrupt> {
        let home = (self.session().mem).bucket(segment, segment.home(place.tag))?;
        let announced = IndexIntent::Home {
            home: segment.home_at(place.tag),
            change: None,
        };
        announced.announce(slot);
        mneme_sys::fault!("log.intent");
        let locked = home.try_lock(slot.id());
        match locked {
            TryLock::Held(_) => mneme_sys::fault!("log.bucket.locked"),
            TryLock::Retired | TryLock::Busy(_) => slot.intent(OPERATION_LANE).clear(),
        }
        Ok(locked)
    }

    /// Locks the home bucket of `place`; `None`: look the page up again.
    pub(crate) fn lock_home<'c>(
        &'c self,
        slot: &Slot<'_>,
        segment: SegmentRef,
        place: Place,
        wait: &mut Wait,
    ) -> Result<Option<Held<'c>>, WriteError> {
        match self.try_lock_home(slot, segment, place)? {
            TryLock::Held(held) => Ok(Some(held)),
            TryLock::Retired => {
                // The word that named the page was changed before the page was retired. This thread
                // has seen both in that order, so the next look finds another page. SYNC: pairs
                // with the Release store in `Held::retire`.
                let _ = self
                    .session()
                    .mem
                    .bucket(segment, segment.home(place.tag))?
                    .word();
                if wait.found_retired(segment.word()) {
                    Ok(None)
                } else {
                    Err(retired(segment.loc()).into())
                }
            }
            TryLock::Busy(word) => {
                self.index().wait_for(slot, wait, word)?;
                Ok(None)
            }
        }
    }

    /// Makes the index name the copy at `new` instead of `old`. Returns false if it no longer names
    /// `old`.
    ///
    /// `seen`: the index page to which `place` led, if the caller has looked under its present pin.
    pub(crate) fn relocate(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        mut seen: Option<SegmentRef>,
        old: Loc,
        new: Loc,
    ) -> Result<bool, WriteError> {
        let (old, new) = (Entry::new(place.tag, old), Entry::new(place.tag, new));
        let mut wait = Wait::new();
        loop {
            let segment = match seen.take() {
                Some(segment) => segment,
                None => match self.session().mem.index_segment(root, place)? {
                    Some(segment) => segment,
                    None => return Ok(false),
                },
            };
            let Some(held) = self.lock_home(slot, segment, place, &mut wait)? else {
                continue;
            };
            let relocated = self.relocate_held(segment, old, new);
            held.unlock();
            slot.intent(OPERATION_LANE).clear();
            return Ok(relocated?);
        }
    }

    /// The part of [`Records::relocate`] that holds the home bucket.
    fn relocate_held(&self, segment: SegmentRef, old: Entry, new: Entry) -> Result<bool, Corrupt> {
        let Some(found) = self.session().mem.find_entry(segment, old)? else {
            return Ok(false);
        };
        self.complete_copy(old.loc(), new.loc())?;
        found.bucket.replace(found.slot, new);
        mneme_sys::fault!("log.published");
        Ok(true)
    }

    /// The part of [`Records::publish`] that holds the home bucket. It unlocks the bucket. `None`:
    /// no slot is free within reach of the home.
    #[inline(always)]
    fn publish_held(
        &self,
        slot: &Slot<'_>,
        segment: SegmentRef,
        change: &KeyChange<'_>,
        id: u64,
        mut held: Held<'_>,
    ) -> Result<Option<Done>, WriteError> {
        let (root, place) = (change.root, change.place);
        let home = held.bucket();
        let found = match (self.session().mem).find_from(home, segment, place.tag, change.key) {
            Ok(found) => found,
            Err(corrupt) => {
                held.unlock();
                return Err(corrupt.into());
            }
        };
        let expected = matches!(change.expect, Expect::Anything)
            || self.is_expected(&held, change.expect, found.as_ref());
        if !expected || (found.is_none() && change.new.is_none()) {
            held.unlock();
            let published = match expected {
                true => Published::Absent,
                false => Published::Conflict,
            };
            return Ok(Some(Done::unchanged(published)));
        }
        mneme_sys::fault!("log.expected");
        let expires = found.as_ref().map(|f| f.record.expires());
        // Callers already see an expired record as absent.
        let was_there = expires.is_some_and(|expires| !self.has_passed(expires));
        let cause = match was_there {
            false => RemovalCause::Expired,
            true if change.evicting => RemovalCause::Evicted,
            true => RemovalCause::Asked,
        };
        let entered = match change.says {
            None if change.new.is_none() && cause != RemovalCause::Asked => {
                self.enter_own_removal(slot, || self.item_of(id, &{ *change }, cause))
            }
            None => self.enter_change(slot, || self.item_of(id, &{ *change }, cause)),
            Some(elements) => self
                .item_of(id, &{ *change }, cause)
                .map_err(WriteError::from)
                .and_then(|whole| self.enter_elements(slot, elements, whole)),
        };
        let fed = match entered {
            Ok(fed) => fed,
            Err(error) => {
                held.unlock();
                return Err(error);
            }
        };
        let entry = change
            .new
            .map_or(Entry(0), |(loc, _)| Entry::new(place.tag, loc));
        self.note_change(root, place);
        let delta = RecordCounts::change(
            expires.map(|expires| expires != 0),
            change.new.map(|_| change.expiring),
        );
        let main = found.as_ref().and_then(|found| {
            let record = &found.record;
            record
                .header()
                .kind()
                .is_large()
                .then(|| collection_of(record.value()))
        });
        let publish = HomeChange::Publish {
            segment,
            new: entry,
            old: found.as_ref().map_or(Entry(0), |found| found.entry),
            counts: CountsAfter::of(slot, root.space(), id, delta),
        };
        publish.announce(slot);
        let done = match found {
            Some(found) => exchange(change, &found, entry, was_there),
            None => match self.insert(segment, place, &mut held, entry) {
                Ok(Some(done)) => done,
                full => {
                    self.void_change(fed);
                    held.unlock();
                    return full.map_err(Into::into);
                }
            },
        };
        mneme_sys::fault!("log.published");
        if let Some(id) = main {
            self.index().lose_main(id);
        }
        counts::count(slot, root.space(), id, delta);
        mneme_sys::fault!("log.counted");
        self.complete_change(fed);
        held.unlock();
        mneme_sys::fault!("log.bucket.unlocked");
        Ok(Some(done))
    }

    /// Inserts `entry`. `None`: no slot is free within reach of the home, which is held.
    #[inline(always)]
    fn insert(
        &self,
        segment: SegmentRef,
        place: Place,
        held: &mut Held<'_>,
        entry: Entry,
    ) -> Result<Option<Done>, Corrupt> {
        let Some(distance) = self.session().mem.insert_entry(segment, held, entry)? else {
            return Ok(None);
        };
        let crowded = distance > 0 && (distance > 2 || worth_a_look(place));
        Ok(Some(Done {
            published: Published::Inserted,
            died: None,
            look: crowded.then_some(Why::Crowded),
        }))
    }

    /// Completes an operation whose thread died: it took place if and only if its entry is
    /// published.
    pub(crate) fn repair_operation(&self, dead: &DeadSlot<'_>) -> Result<(), WriteError> {
        let announced = IndexIntent::of_dead(dead, OPERATION_LANE)?;
        let Some(IndexIntent::Home { home, change }) = announced else {
            return Ok(());
        };
        let bucket = Bucket::of_words(self.session().mem.words(home)?);
        let Some(held) = bucket.inherit(dead.id()) else {
            // The thread never had the lock, or released it: nothing is half done.
            return Ok(());
        };
        match change {
            None => {}
            Some(HomeChange::Word {
                record,
                offset,
                word,
                counts,
            }) => {
                self.change_word_again(dead, record, (offset, word), counts)?;
                self.settle_change_of(dead, true)?;
            }
            Some(HomeChange::Bytes {
                pieces,
                guard,
                counts,
            }) => {
                let made = self.change_bytes_again(dead, &held, (pieces, guard), counts)?;
                self.settle_change_of(dead, made)?;
            }
            Some(HomeChange::Publish {
                segment,
                new,
                old,
                counts,
            }) => {
                // An insertion is recognised by its entry, a removal by the lack of the old one.
                // Both lie within the home's reach.
                let reach = held.word().reach();
                let happened = if old.is_empty() {
                    self.entry_near(segment, home, reach, new)?
                } else {
                    !self.entry_near(segment, home, reach, old)?
                };
                if let Some(counts) = counts.filter(|_| happened) {
                    counts.finish(dead);
                }
                self.settle_change_of(dead, happened)?;
                if happened && !old.is_empty() {
                    let record = self.session().mem.record(old.loc())?;
                    self.index().note_main_gone(&record);
                    self.log().mark_dead(old.loc(), record.header().size())?;
                }
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
        let first = home.byte().wrapping_sub(segment.loc().byte()) / (BUCKET_WORDS * 8);
        if first >= segment.buckets() {
            return Err(Corrupt::at(
                home.byte(),
                "an intent names a bucket outside its segment",
            ));
        }
        for distance in 0..=reach.min(segment.max_reach()) {
            let bucket = (self.session().mem).bucket(segment, segment.behind(first, distance))?;
            if (0..SLOTS).any(|i| bucket.entry(i) == entry) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Samples one in four places, so that the fill of a page is checked now and then.
#[inline]
fn worth_a_look(place: Place) -> bool {
    place.tag & 3 == 0
}

/// Replaces the found entry by `entry`, or removes it. The home is held.
#[inline(always)]
fn exchange(change: &KeyChange<'_>, found: &FoundEntry<'_>, entry: Entry, was_there: bool) -> Done {
    found.bucket.replace(found.slot, entry);
    let removed = change.new.is_none();
    let sparse = removed && worth_a_look(change.place) && found.bucket.used() <= 2;
    Done {
        published: match (removed, was_there) {
            (true, true) => Published::Removed,
            (true, false) => Published::Absent,
            (false, true) => Published::Replaced,
            (false, false) => Published::Inserted,
        },
        died: Some((found.entry.loc(), found.record.header().size())),
        look: sparse.then_some(Why::Sparse),
    }
}

/// What happened under the bucket's lock, and what remains to be done after the unlocking.
#[derive(Clone, Copy)]
struct Done {
    published: Published,
    /// The record that was replaced or removed, and its size.
    died: Option<(Loc, u64)>,
    /// The page may be full enough to grow, or empty enough to shrink.
    look: Option<Why>,
}

impl Done {
    fn unchanged(published: Published) -> Done {
        Done {
            published,
            died: None,
            look: None,
        }
    }
}
