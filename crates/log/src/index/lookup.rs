//! Lookup: from a key and its place to its record, by one validated look at a bucket.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use mneme_sync::Word;

use super::Index;
use super::bucket::{BUCKET_WORDS, BucketOf, Entry, Held, HomeWord, LockWord, TAG_BITS};
use super::root::Root;
use super::shape::{DEPTH_SHIFT, DIRECTORY, Partition, Place, SegmentRef, not_sealed, sealed};
use super::tags::Tagged;
use crate::error::{Corrupt, ReadError, WriteError};
use crate::region::mem::{Keyed, Loc, Memory};
use crate::region::record::Record;
use crate::session::Wait;

/// An entry that was found, its place, and the result of reading its record.
pub(crate) struct FoundIn<'m, R, W = AtomicU64> {
    pub bucket: &'m BucketOf<W>,
    pub slot: usize,
    pub entry: Entry,
    pub record: R,
}

/// An entry that was found in a region.
pub(crate) type FoundEntry<'m> = FoundIn<'m, Record<'m>>;

/// An entry that was found in memory of this kind.
type FoundOf<'m, M> = FoundIn<'m, <M as Memory>::Record<'m>, <M as Memory>::Word>;

/// What one look saw, and the home bucket's word at that time. `None`: there is no bucket.
pub(crate) type Seen<T> = Option<(T, HomeWord)>;

/// The result of a look at a home bucket.
pub(crate) enum BucketRead<T> {
    /// The result was valid at one moment during the look, when the home had this word.
    Valid(T, HomeWord),
    /// The result may never have been valid. Look again once the transaction that the word names is
    /// over.
    Retry(LockWord),
}

/// What readers and writers do with the index, whatever memory it lies in.
pub(crate) trait Lookup: Memory<Word: Tagged> {
    /// Bucket `i` of `segment`.
    #[inline(always)]
    fn bucket(&self, segment: SegmentRef, i: u64) -> Result<&BucketOf<Self::Word>, Corrupt> {
        debug_assert!(i < segment.buckets());
        Ok(BucketOf::of_words(self.words(segment.bucket_at(i))?))
    }

    /// The word that a home bucket has now.
    #[inline]
    fn home_word(&self, at: Loc) -> Result<HomeWord, Corrupt> {
        let word = BucketOf::of_words(self.words(at)?).word();
        Ok(HomeWord { at, word })
    }

    /// The index page to which `place` belongs, `None` if there is none yet.
    #[inline(always)]
    fn index_segment(&self, root: Root, place: Place) -> Result<Option<SegmentRef>, Corrupt> {
        // SYNC: pairs with the Release stores of `resize::publish`: what the word names is filled.
        let at = root.partition(place.partition);
        match Partition::of_word(self.word(at)?.load(Acquire), at)? {
            Partition::Empty => Ok(None),
            Partition::One(segment) => Ok(Some(segment)),
            Partition::Directory { loc, depth } => {
                let at = loc.add_words(u64::from(place.tag >> (TAG_BITS - depth)));
                // SYNC: as above.
                SegmentRef::of_word(self.word(at)?.load(Acquire), at).map(Some)
            }
        }
    }

    /// The record of `key`, if it lies in its home bucket, without slack, and nothing there is
    /// unusual. `None` does not mean that the key is absent: look again by [`Index::find`], which
    /// waits for transactions, follows entries that lie behind their home, and distinguishes damage
    /// from absence.
    ///
    /// Almost every successful lookup ends here. Its results fit in a register, and it does so
    /// little that a processor overlaps it with the next lookup's cache misses.
    #[inline(always)]
    fn try_fast_record(
        &self,
        segment: SegmentRef,
        tag: u32,
        key: &[u8],
    ) -> Option<Self::Record<'_>> {
        let home = self.bucket(segment, segment.home(tag)).ok()?;
        let before = home.word();
        // That another entry with this tag comes before it is as rare as a key behind its home.
        let record = self.plain_record(home.first_of(tag)?.loc())?;
        // As in `read_bucket`; a locked bucket, whose page may have been replaced, is left to that
        // function.
        let settled = before.is_unlocked() && home.word() == before;
        (settled && record.has_key(key)).then_some(record)
    }

    /// The index page to which `place` belongs, if there is one and nothing is unusual. `None` does
    /// not mean that there is none: look again by [`index_segment`](Self::index_segment).
    ///
    /// Only the bits that are used here are checked, not the seal: a key that is found there is the
    /// key.
    #[inline(always)]
    fn try_fast_segment(&self, root: Root, place: Place) -> Option<SegmentRef> {
        // SYNC: as in `index_segment`.
        let mut word = self
            .word(root.partition(place.partition))
            .ok()?
            .load(Acquire);
        if word & DIRECTORY != 0 {
            if sealed(word) != word {
                return None;
            }
            let depth = (word >> DEPTH_SHIFT & 15) as u32;
            let at = Loc::of_word(word).add_words(u64::from(place.tag >> (TAG_BITS - depth)));
            // SYNC: as above.
            word = self.word(at).ok()?.load(Acquire);
        }
        SegmentRef::try_of_word(word)
    }

    /// Looks for `key` from its home bucket on, ignoring locks.
    #[inline(always)]
    fn find_in(
        &self,
        segment: SegmentRef,
        tag: u32,
        key: &[u8],
    ) -> Result<Option<FoundOf<'_, Self>>, Corrupt> {
        self.find_from(self.bucket(segment, segment.home(tag))?, segment, tag, key)
    }

    /// As [`find_in`](Self::find_in), by a caller that knows the `home` bucket.
    #[inline(always)]
    fn find_from<'m>(
        &'m self,
        home: &'m BucketOf<Self::Word>,
        segment: SegmentRef,
        tag: u32,
        key: &[u8],
    ) -> Result<Option<FoundOf<'m, Self>>, Corrupt> {
        if let Some(found) = in_bucket(self, home, tag, key)? {
            return Ok(Some(found));
        }
        // Loaded after the slots: an entry that is published behind this bucket later than that was
        // not there when this search began, or no reader was promised to see it.
        match home.word().reach() {
            0 => Ok(None),
            reach => behind_home(self, segment, tag, key, reach),
        }
    }

    /// Looks for exactly `entry` from its home bucket on. No record is read.
    fn find_entry(
        &self,
        segment: SegmentRef,
        entry: Entry,
    ) -> Result<Option<FoundIn<'_, (), Self::Word>>, Corrupt> {
        let home = segment.home(entry.tag());
        // Loaded first: an entry that is published here later is not the one that the caller has
        // seen.
        let reach = self.bucket(segment, home)?.word().reach();
        for distance in 0..=reach.min(segment.max_reach()) {
            let bucket = self.bucket(segment, segment.behind(home, distance))?;
            let mut same_tag = bucket.entries_of(entry.tag());
            if let Some((slot, _)) = same_tag.find(|(_, found)| *found == entry) {
                return Ok(Some(FoundIn {
                    bucket,
                    slot,
                    entry,
                    record: (),
                }));
            }
        }
        Ok(None)
    }

    /// The one validated look at a bucket: what `look` sees from the home of `place` on in
    /// `segment`. Under its present pin, the caller has seen that `place` leads to `segment`.
    ///
    /// All of a transaction's locks are set before its first publication and kept until its last,
    /// or until it is undone. So a reader that has seen a part of it sees its bit now, or saw it
    /// before, or sees by the version that the bucket was unlocked since.
    ///
    /// A page that is replaced is locked before its successor can be found, and stays locked. So a
    /// reader that has seen anything written after that sees the lock, and looks the page up again.
    ///
    /// `own`: a transaction that is under way there is the calling thread's, and has published
    /// nothing.
    #[inline(always)]
    fn read_bucket<T>(
        &self,
        root: Root,
        place: Place,
        segment: SegmentRef,
        own: bool,
        look: impl FnOnce(LockWord) -> Result<T, Corrupt>,
    ) -> Result<BucketRead<T>, Corrupt> {
        let home = self.bucket(segment, segment.home(place.tag))?;
        let before = home.word();
        let seen = look(before)?;
        // SYNC: pairs with the Release stores of `BucketOf::replace` and the release fence in
        // `exclude_readers`. A miss consists of relaxed loads. A reader that has seen a removal, or
        // a new byte, sees the bit that was set before, or the unlocking.
        Self::Word::fence(Acquire);
        let word = home.word();
        Ok(
            if (word.follows_no_transaction(before) || own)
                && (!word.locked() || self.index_segment(root, place)? == Some(segment))
            {
                BucketRead::Valid(seen, segment.home_word(place.tag, word))
            } else {
                BucketRead::Retry(word)
            },
        )
    }

    /// Publishes a new `entry` in the first free slot from its home bucket on, which the caller
    /// holds. Returns how far behind home it is. `None`: no slot is free within reach.
    #[inline]
    fn insert_entry(
        &self,
        segment: SegmentRef,
        held: &mut Held<'_, Self::Word>,
        entry: Entry,
    ) -> Result<Option<u64>, Corrupt> {
        let home = segment.home(entry.tag());
        for distance in 0..=segment.max_reach() {
            let bucket = self.bucket(segment, segment.behind(home, distance))?;
            held.extend_reach(distance);
            if bucket.publish(entry).is_some() {
                return Ok(Some(distance));
            }
        }
        Ok(None)
    }
}

impl<M: Memory<Word: Tagged>> Lookup for M {}

/// The part of [`Lookup::find_in`] for one bucket.
#[inline(always)]
fn in_bucket<'m, M: Lookup + ?Sized>(
    mem: &'m M,
    bucket: &'m BucketOf<M::Word>,
    tag: u32,
    key: &[u8],
) -> Result<Option<FoundOf<'m, M>>, Corrupt> {
    let mut matches = bucket.matches(tag);
    while let Some((slot, entry)) = bucket.next_of(tag, &mut matches) {
        let record = mem.record(entry.loc())?;
        if record.has_key(key) {
            return Ok(Some(FoundIn {
                bucket,
                slot,
                entry,
                record,
            }));
        }
    }
    Ok(None)
}

/// The part of [`Lookup::find_in`] for the `reach` buckets behind the home.
#[inline(never)]
fn behind_home<'m, M: Lookup + ?Sized>(
    mem: &'m M,
    segment: SegmentRef,
    tag: u32,
    key: &[u8],
    reach: u64,
) -> Result<Option<FoundOf<'m, M>>, Corrupt> {
    for distance in 1..=reach.min(segment.max_reach()) {
        let i = segment.behind(segment.home(tag), distance);
        let found = in_bucket(mem, mem.bucket(segment, i)?, tag, key)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

impl Index {
    /// What `look` sees from the home bucket of `place` on, once no transaction is under way there;
    /// `look` may be called more than once. `None`: there is no bucket.
    ///
    /// The caller is pinned, and has seen since then that `place` leads to `segment`.
    #[inline(always)]
    pub(crate) fn look<T>(
        &self,
        root: Root,
        place: Place,
        mut segment: Option<SegmentRef>,
        mut look: impl FnMut(SegmentRef, LockWord) -> Result<T, Corrupt>,
    ) -> Result<Seen<T>, ReadError> {
        let (mut wait, mut own) = (None, false);
        while let Some(of) = segment {
            let seen =
                (self.session().mem).read_bucket(root, place, of, own, |word| look(of, word))?;
            match seen {
                BucketRead::Valid(seen, home) => return Ok(Some((seen, home))),
                BucketRead::Retry(word) => {
                    own = self.await_settled(root, place, word, &mut wait, &mut segment)?;
                }
            }
        }
        Ok(None)
    }

    /// As [`look`](Self::look), for `key`: returns the entry, and the home bucket's word at that
    /// time.
    #[inline(always)]
    pub(crate) fn find<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
    ) -> Result<Seen<Option<FoundEntry<'m>>>, ReadError> {
        self.look(root, place, segment, |segment, _| {
            self.session().mem.find_in(segment, place.tag, key)
        })
    }

    /// Waits once for the transaction that `word` shows, if any. Returns whether it is the calling
    /// thread's own, whose body is running: that one is not waited for. Sets `segment` to the page
    /// to which `place` now leads, because the page may have been replaced.
    #[cold]
    #[inline(never)]
    fn await_settled(
        &self,
        root: Root,
        place: Place,
        word: LockWord,
        wait: &mut Option<Wait>,
        segment: &mut Option<SegmentRef>,
    ) -> Result<bool, ReadError> {
        if word.in_transaction() {
            let (slot, wait) = (
                self.session().participants.slot()?,
                wait.get_or_insert_default(),
            );
            if word.holder() == slot.id() {
                return Ok(true);
            }
            self.wait_for(&slot, wait, word)
                .map_err(WriteError::while_reading)?;
        }
        *segment = self.session().mem.index_segment(root, place)?;
        Ok(false)
    }

    /// All index pages of a partition, in hash order, with the prefix of the tags in each.
    pub(crate) fn partition_segments(
        &self,
        root: Root,
        partition: u32,
    ) -> Result<Vec<(u32, SegmentRef)>, Corrupt> {
        let at = root.partition(partition);
        Ok(
            match Partition::of_word(self.session().mem.word(at)?.load(Acquire), at)? {
                Partition::Empty => Vec::new(),
                Partition::One(segment) => vec![(0, segment)],
                Partition::Directory { loc, depth } => {
                    let mut segments = Vec::new();
                    let mut i = 0;
                    while i < 1u64 << depth {
                        let at = loc.add_words(i);
                        let segment =
                            SegmentRef::of_word(self.session().mem.word(at)?.load(Acquire), at)?;
                        if segment.depth() > depth {
                            return Err(not_sealed(at));
                        }
                        segments.push(((i >> (depth - segment.depth())) as u32, segment));
                        i += 1 << (depth - segment.depth());
                    }
                    segments
                }
            },
        )
    }

    /// Entries in use in `segment`.
    pub(crate) fn segment_used(&self, segment: SegmentRef) -> Result<u64, Corrupt> {
        let words = (self.session().mem)
            .word_slice(segment.loc(), (segment.buckets() * BUCKET_WORDS) as usize)?;
        let used = words
            .iter()
            .enumerate()
            .filter(|(i, w)| i % 16 != 0 && w.load(Relaxed) != 0);
        Ok(used.count() as u64)
    }
}
