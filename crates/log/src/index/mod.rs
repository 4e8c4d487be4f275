//! The index: from a key's hash to the location of its record, growing and shrinking in small
//! steps.
//!
//! A database has an index of its own, named by a *root*: a block with one word for each of 2^p
//! partitions, chosen by the top p bits of the hash. A partition is a small extendible hash table
//! over the next 22 bits, the *tag*. It is one index segment at first, and later a directory of
//! segments. An index segment is 2 to 48 [buckets](bucket) that share out its interval of tags
//! evenly and in order:
//!
//! ```text
//! root ─► partition word ─► [directory ─►] index segment: bucket, bucket, … bucket
//!         by the top p bits   by the tag's first bits       by the tag's next bits
//! ```
//!
//! So the order of buckets is the order of hashes, whatever the shape of the index: a place in it
//! is a scan's cursor. And because position and tag together hold 22 bits of the hash, a segment is
//! grown, split or merged without reading a single record.
//!
//! **No operation pays for more than one index segment.** A full segment of at most 48 buckets is
//! replaced by one half or a third larger, or by two (see [`resize`]): some 600 entries are copied,
//! whatever the size of the table (the paper doubles a partition at a time, Nibble §3.1). The steps
//! 2, 3, 4, 6, … 32, 48, 2 x 32 keep the mean fill near 0.7 where doubling would leave 0.6.
//!
//! An entry that finds its home bucket full goes to one of the next seven; its home's *reach* tells
//! readers how far to look.

pub(crate) mod bucket;
pub(crate) mod pool;
pub(crate) mod resize;
pub(crate) mod root;
pub(crate) mod tags;

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use bucket::{BUCKET_WORDS, BucketOf, Entry, Held, HomeWord, LockWord, SLOTS, TAG_BITS};
use mneme_sync::Word;

use crate::core::{Core, Wait};
use crate::error::{Corrupt, ReadError, WriteError};
use crate::mem::{Keyed, LOC_BITS, Loc, Memory};
use crate::record::{Header, Record};
use root::Root;

/// Where a key belongs in an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The partition: the hash's top bits.
    pub partition: u32,
    /// The next 22 bits.
    pub tag: u32,
}

impl Place {
    /// The place of a key with this hash in an index of 2^`bits` partitions.
    #[inline]
    pub fn of_hash(hash: u64, bits: u32) -> Place {
        Place {
            partition: (hash >> (64 - bits)) as u32,
            tag: (hash << bits >> (64 - TAG_BITS)) as u32,
        }
    }
}

/// How often a partition's segments split at most: directories have at most 2^12 words.
pub(crate) const MAX_DEPTH: u32 = 12;
/// Sizes of an index segment, in buckets.
pub(crate) const SIZES: [u64; 10] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

/// Lines of a record, behind its first ones, that are prefetched at most.
const MAX_REST: u64 = 32;

const BUCKETS_SHIFT: u32 = LOC_BITS;
const DEPTH_SHIFT: u32 = 48;
const PRESENT: u64 = 1 << 63;
const DIRECTORY: u64 = 1 << 62;
/// Shift of the seal: ten bits computed from the others.
const SEAL_SHIFT: u32 = 52;
const SEAL: u64 = ((1 << 10) - 1) << SEAL_SHIFT;

/// The word with its seal. Following a damaged index word could lock, and fill, unrelated words
/// that look like a bucket, or make present keys look absent. Every change of one bit breaks the
/// seal, and so do all but one in a thousand of other changes.
#[inline]
const fn sealed(word: u64) -> u64 {
    let rest = word & !SEAL;
    let sum = rest.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 10);
    rest | sum << SEAL_SHIFT
}

#[cold]
fn not_sealed(loc: Loc) -> Corrupt {
    Corrupt::at(
        loc.byte(),
        "an index word that names no segment and no directory",
    )
}

/// An index segment: the contents of a partition or directory word whose seal was checked.
///
/// The word itself, as are a [`Root`] and a [`Loc`]: what every lookup carries from one step to the
/// next stays in registers. A value of several words goes through memory at calls, and one that is
/// read back in other pieces than it was stored in waits until every instruction before it is done,
/// and with it the fetches of the next operation: single lookups at half their speed (measured).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRef(NonZeroU64);

impl SegmentRef {
    /// The segment of `buckets` buckets at `loc`, whose entries share the first `depth` bits of
    /// their tags.
    #[inline]
    pub const fn new(loc: Loc, buckets: u64, depth: u32) -> SegmentRef {
        let rest = loc.bits() | buckets << BUCKETS_SHIFT | (depth as u64) << DEPTH_SHIFT;
        match NonZeroU64::new(sealed(rest | PRESENT)) {
            Some(word) => SegmentRef(word),
            None => unreachable!(),
        }
    }

    /// The segment that `word`, found at `at`, names.
    #[inline(always)]
    pub fn of_word(word: u64, at: Loc) -> Result<SegmentRef, Corrupt> {
        if sealed(word) == word
            && word >> 62 == PRESENT >> 62
            && let Some(word) = NonZeroU64::new(word)
            && let segment = SegmentRef(word)
            && segment.buckets() > 0
            && segment.depth() <= MAX_DEPTH
        {
            Ok(segment)
        } else {
            Err(not_sealed(at))
        }
    }

    /// The segment that `word` names, for readers that use only its location. `None` means nothing:
    /// the word may be damaged, or no segment.
    #[inline(always)]
    fn try_of_word(word: u64) -> Option<SegmentRef> {
        if sealed(word) == word && word >> 62 == PRESENT >> 62 {
            NonZeroU64::new(word).map(SegmentRef)
        } else {
            None
        }
    }

    /// Where it begins.
    #[inline]
    pub fn loc(self) -> Loc {
        Loc::of_word(self.word())
    }

    /// How many buckets it has.
    #[inline]
    pub const fn buckets(self) -> u64 {
        self.word() >> BUCKETS_SHIFT & 63
    }

    /// Leading bits of the tag that all its entries share.
    #[inline]
    pub const fn depth(self) -> u32 {
        (self.word() >> DEPTH_SHIFT & 15) as u32
    }

    #[inline]
    pub const fn word(self) -> u64 {
        self.0.get()
    }

    /// The number of the bucket that is `tag`'s home.
    #[inline]
    pub fn home(self, tag: u32) -> u64 {
        let below = u64::from(tag) << self.depth() & ((1 << TAG_BITS) - 1);
        (below * self.buckets()) >> TAG_BITS
    }

    /// Where bucket `i` lies.
    #[inline]
    pub fn bucket_at(self, i: u64) -> Loc {
        self.loc().add_words(i * BUCKET_WORDS)
    }

    /// Where the home bucket of `tag` lies.
    #[inline]
    pub fn home_at(self, tag: u32) -> Loc {
        self.bucket_at(self.home(tag))
    }

    /// The home bucket of `tag`, with its word.
    #[inline]
    pub fn home_word(self, tag: u32, word: LockWord) -> HomeWord {
        HomeWord {
            at: self.home_at(tag),
            word,
        }
    }

    /// The first tag whose home is bucket `i`.
    pub fn first_tag(self, prefix: u32, i: u64) -> u32 {
        let below = (i << TAG_BITS).div_ceil(self.buckets()) as u32 >> self.depth();
        let rounded =
            (i << TAG_BITS).div_ceil(self.buckets()) as u32 & ((1 << self.depth()) - 1) != 0;
        prefix_tag(prefix, self.depth()) + below + u32::from(rounded)
    }

    /// The bits that all tags of this segment begin with, of which `tag` is one.
    pub fn prefix(self, tag: u32) -> u32 {
        if self.depth() == 0 {
            0
        } else {
            tag >> (TAG_BITS - self.depth())
        }
    }

    /// The first tag that has the same home as `tag`.
    pub fn first_of_home(self, tag: u32) -> u32 {
        self.first_tag(self.prefix(tag), self.home(tag))
    }

    /// The bucket `distance` behind bucket `home`, around the end.
    #[inline]
    pub fn behind(self, home: u64, distance: u64) -> u64 {
        let i = home + distance;
        if i >= self.buckets() {
            i - self.buckets()
        } else {
            i
        }
    }

    /// How far behind its home an entry may lie in this segment.
    pub fn max_reach(self) -> u64 {
        bucket::MAX_REACH.min(self.buckets() - 1)
    }
}

impl std::fmt::Debug for SegmentRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (buckets, depth, at) = (self.buckets(), self.depth(), self.loc().byte());
        write!(f, "{buckets} buckets of depth {depth} at byte {at}")
    }
}

/// The first tag that begins with the `depth` bits of `prefix`.
pub(crate) fn prefix_tag(prefix: u32, depth: u32) -> u32 {
    if depth == 0 {
        0
    } else {
        prefix << (TAG_BITS - depth)
    }
}

/// What a partition word says.
pub(crate) enum Partition {
    /// No record was ever stored there.
    Empty,
    /// One index segment.
    One(SegmentRef),
    /// A directory of 2^`depth` words.
    Directory { loc: Loc, depth: u32 },
}

impl Partition {
    /// What `word`, found at `at`, says.
    #[inline(always)]
    pub fn of_word(word: u64, at: Loc) -> Result<Partition, Corrupt> {
        if word == 0 {
            Ok(Partition::Empty)
        } else if word & DIRECTORY == 0 {
            SegmentRef::of_word(word, at).map(Partition::One)
        } else {
            let (loc, depth) = (Loc::of_word(word), (word >> DEPTH_SHIFT & 15) as u32);
            let whole = Partition::directory_word(loc, depth) == word;
            if whole && (1..=MAX_DEPTH).contains(&depth) {
                Ok(Partition::Directory { loc, depth })
            } else {
                Err(not_sealed(at))
            }
        }
    }

    #[inline]
    pub fn directory_word(loc: Loc, depth: u32) -> u64 {
        sealed(loc.bits() | u64::from(depth) << DEPTH_SHIFT | PRESENT | DIRECTORY)
    }
}

/// An entry that was found, and where.
pub(crate) struct FoundIn<R> {
    pub bucket: u64,
    pub slot: usize,
    pub entry: Entry,
    pub record: R,
}

/// An entry that was found in a region.
pub(crate) type Found<'m> = FoundIn<Record<'m>>;

/// The result of a look at a home bucket.
pub(crate) enum BucketRead<T> {
    /// This was true at one moment during the look, when the home had this word.
    Valid(T, HomeWord),
    /// What was seen may have been true at no moment. Look again, once the transaction that the
    /// word names is over.
    Retry(LockWord),
}

/// What readers and writers do with the index, whatever memory it lies in.
pub(crate) trait Lookup: Memory {
    /// Bucket `i` of `segment`.
    #[inline(always)]
    fn bucket(&self, segment: SegmentRef, i: u64) -> Result<&BucketOf<Self::Word>, Corrupt> {
        debug_assert!(i < segment.buckets());
        Ok(BucketOf::of_words(self.words(segment.bucket_at(i))?))
    }

    /// The index segment that `place` falls into, `None` if there is none yet.
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
    /// unusual. `None` does not mean that the key is absent: look again by [`Core::find`], which
    /// waits for transactions, follows entries that lie behind their home, and tells damage from
    /// absence.
    ///
    /// Almost every lookup that finds something ends here. Its results fit a register, and it does
    /// little enough that a processor overlaps it with the next lookup's misses.
    #[inline(always)]
    fn try_fast_record(
        &self,
        segment: SegmentRef,
        tag: u32,
        key: &[u8],
    ) -> Option<Self::Record<'_>> {
        let home = self.bucket(segment, segment.home(tag)).ok()?;
        let before = home.word();
        // Another entry with this tag before it is as rare as a key behind its home.
        let record = self.plain_record(home.first_of(tag)?.loc())?;
        // As in `read_bucket`; a locked bucket, whose page may have been replaced, is left to that.
        let settled = before.is_unlocked() && home.word() == before;
        (settled && record.has_key(key)).then_some(record)
    }

    /// The index segment that `place` falls into, if there is one and nothing is unusual. `None`
    /// does not mean that there is none: look again by [`index_segment`](Self::index_segment).
    ///
    /// Only the bits that are followed here are checked, not the seal: a key that is found there is
    /// the key.
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
    ) -> Result<Option<FoundIn<Self::Record<'_>>>, Corrupt> {
        let home = segment.home(tag);
        let bucket = self.bucket(segment, home)?;
        if let Some(found) = self.find_in_bucket(bucket, home, tag, key)? {
            return Ok(Some(found));
        }
        // Loaded after the slots: an entry published behind this bucket later than that was not
        // there when this search began, or is an answer no reader was promised.
        match bucket.word().reach() {
            0 => Ok(None),
            reach => self.find_behind(segment, tag, key, reach),
        }
    }

    /// Looks for `key` in the `reach` buckets behind the home.
    #[inline(never)]
    fn find_behind(
        &self,
        segment: SegmentRef,
        tag: u32,
        key: &[u8],
        reach: u64,
    ) -> Result<Option<FoundIn<Self::Record<'_>>>, Corrupt> {
        for distance in 1..=reach.min(segment.max_reach()) {
            let i = segment.behind(segment.home(tag), distance);
            let found = self.find_in_bucket(self.bucket(segment, i)?, i, tag, key)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Looks for `key` in `bucket`, which is number `number` of its segment.
    #[inline(always)]
    fn find_in_bucket(
        &self,
        bucket: &BucketOf<Self::Word>,
        number: u64,
        tag: u32,
        key: &[u8],
    ) -> Result<Option<FoundIn<Self::Record<'_>>>, Corrupt> {
        for (slot, entry) in bucket.entries_of(tag) {
            let record = self.record(entry.loc())?;
            if record.has_key(key) {
                return Ok(Some(FoundIn {
                    bucket: number,
                    slot,
                    entry,
                    record,
                }));
            }
        }
        Ok(None)
    }

    /// The one validated look at a bucket: what `look` sees from the home of `place` on in
    /// `segment`. The caller has seen `place` lead to `segment` under its present pin.
    ///
    /// All of a transaction's locks are set before its first publication and kept until its last,
    /// or until it is undone. So a reader that has seen a part of it sees its bit now, or did
    /// before, or sees by the version that the bucket was unlocked since.
    ///
    /// A page that is replaced is locked before its successor can be found, and for good. So a
    /// reader that has seen anything that was written after that sees the lock, and looks the page
    /// up again.
    #[inline(always)]
    fn read_bucket<T>(
        &self,
        root: Root,
        place: Place,
        segment: SegmentRef,
        look: impl FnOnce(LockWord) -> Result<T, Corrupt>,
    ) -> Result<BucketRead<T>, Corrupt> {
        let home = self.bucket(segment, segment.home(place.tag))?;
        let before = home.word();
        let seen = look(before)?;
        // SYNC: pairs with the Release stores of `BucketOf::replace` and the release fence in
        // `exclude_readers`: a miss consists of relaxed loads, and a reader that has seen a
        // removal, or a new byte, sees the bit that was set before, or the unlocking.
        Self::Word::fence(Acquire);
        let word = home.word();
        Ok(
            if word.follows_no_transaction(before)
                && (!word.locked() || self.index_segment(root, place)? == Some(segment))
            {
                BucketRead::Valid(seen, segment.home_word(place.tag, word))
            } else {
                BucketRead::Retry(word)
            },
        )
    }

    /// Looks for exactly `entry` from its home bucket on: bucket and slot. No record is read.
    fn find_entry(
        &self,
        segment: SegmentRef,
        entry: Entry,
    ) -> Result<Option<(u64, usize)>, Corrupt> {
        let home = segment.home(entry.tag());
        // Loaded first: an entry that is published here later is not the one that the caller has
        // seen.
        let reach = self
            .bucket(segment, home)?
            .word()
            .reach()
            .min(segment.max_reach());
        for distance in 0..=reach {
            let i = segment.behind(home, distance);
            let bucket = self.bucket(segment, i)?;
            if let Some(slot) = (0..SLOTS).find(|&s| bucket.entry(s) == entry) {
                return Ok(Some((i, slot)));
            }
        }
        Ok(None)
    }

    /// Publishes a new `entry` in the first free slot from its home bucket on, which the caller
    /// holds. Returns how far behind home. `None`: no slot is free within reach.
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

impl<M: Memory> Lookup for M {}

impl Core {
    /// The place of `key` in the indexes of this store.
    #[inline(always)]
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        Place::of_hash(self.hash(key), self.tables.geometry.partition_bits as u32)
    }

    /// Looks `key` up as a reader: past plain locks, not past a transaction's.
    ///
    /// The caller is pinned, and has seen `place` lead to `segment` since.
    #[inline(always)]
    pub(crate) fn find<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
    ) -> Result<Option<Found<'m>>, ReadError> {
        let seen = self.find_seen(root, place, segment, key)?;
        Ok(seen.and_then(|(found, _)| found))
    }

    /// As [`find`](Self::find), with the home bucket's word at that time. `None`: there is no
    /// bucket.
    #[inline(always)]
    pub(crate) fn find_seen<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
    ) -> Result<Option<(Option<Found<'m>>, HomeWord)>, ReadError> {
        self.look(root, place, segment, |segment, _| {
            self.mem.find_in(segment, place.tag, key)
        })
    }

    /// What `look` sees from the home bucket of `place` on, once it belongs to no half-done
    /// transaction; `look` may be called more than once. `None`: there is no bucket.
    ///
    /// The caller is pinned, and has seen `place` lead to `segment` since.
    #[inline(always)]
    pub(crate) fn look<T>(
        &self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        mut look: impl FnMut(SegmentRef, LockWord) -> Result<T, Corrupt>,
    ) -> Result<Option<(T, HomeWord)>, ReadError> {
        let Some(segment) = segment else {
            return Ok(None);
        };
        let seen = self
            .mem
            .read_bucket(root, place, segment, |word| look(segment, word))?;
        match seen {
            BucketRead::Valid(seen, home) => Ok(Some((seen, home))),
            BucketRead::Retry(word) => self.look_again(root, place, word, &mut look),
        }
    }

    /// The rest of [`Core::look`], for a `word` that shows a transaction, or a page that was
    /// replaced.
    #[cold]
    #[inline(never)]
    fn look_again<T>(
        &self,
        root: Root,
        place: Place,
        mut word: LockWord,
        look: &mut impl FnMut(SegmentRef, LockWord) -> Result<T, Corrupt>,
    ) -> Result<Option<(T, HomeWord)>, ReadError> {
        let slot = self.participants.slot()?;
        let mut wait = Wait::new();
        loop {
            if word.in_transaction() {
                self.wait_for(&slot, &mut wait, word)
                    .map_err(WriteError::while_reading)?;
            }
            let Some(segment) = self.mem.index_segment(root, place)? else {
                return Ok(None);
            };
            let seen = self
                .mem
                .read_bucket(root, place, segment, |word| look(segment, word))?;
            match seen {
                BucketRead::Valid(seen, home) => return Ok(Some((seen, home))),
                BucketRead::Retry(now) => word = now,
            }
        }
    }

    /// Prefetches the lines of `place`'s home bucket.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(
        &self,
        root: Root,
        place: Place,
    ) -> Result<Option<SegmentRef>, Corrupt> {
        let segment = self.mem.index_segment(root, place)?;
        if let Some(segment) = segment {
            self.mem.prefetch_lines(segment.home_at(place.tag), 0..2);
        }
        Ok(segment)
    }

    /// Prefetches the first lines of the record that `place`'s home bucket probably names. Returns
    /// its location.
    #[inline(always)]
    pub(crate) fn prefetch_record(
        &self,
        segment: SegmentRef,
        tag: u32,
        lines: u64,
    ) -> Result<Option<Loc>, Corrupt> {
        let bucket = self.mem.bucket(segment, segment.home(tag))?;
        let matches = bucket.matches(tag);
        if matches == 0 {
            return Ok(None);
        }
        let entry = bucket.entry(matches.trailing_zeros() as usize);
        if entry.is_empty() {
            return Ok(None);
        }
        self.mem.prefetch_lines(entry.loc(), 0..lines);
        Ok(Some(entry.loc()))
    }

    /// Prefetches the rest, behind the first `lines` lines, of the record at `loc`, whose header is
    /// loaded.
    #[inline(always)]
    pub(crate) fn prefetch_rest(&self, loc: Loc, lines: u64) {
        if let Ok(word) = self.mem.word(loc) {
            let bytes = Header(word.load(Relaxed)).size();
            let end = bytes.div_ceil(64).min(lines + MAX_REST);
            self.mem.prefetch_lines(loc, lines..end);
        }
    }

    /// All index segments of a partition, in hash order, with the prefix of the tags in each.
    pub(crate) fn partition_segments(
        &self,
        root: Root,
        partition: u32,
    ) -> Result<Vec<(u32, SegmentRef)>, Corrupt> {
        let at = root.partition(partition);
        Ok(
            match Partition::of_word(self.mem.word(at)?.load(Acquire), at)? {
                Partition::Empty => Vec::new(),
                Partition::One(segment) => vec![(0, segment)],
                Partition::Directory { loc, depth } => {
                    let mut segments = Vec::new();
                    let mut i = 0;
                    while i < 1u64 << depth {
                        let at = loc.add_words(i);
                        let segment = SegmentRef::of_word(self.mem.word(at)?.load(Acquire), at)?;
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
        let words = self
            .mem
            .word_slice(segment.loc(), (segment.buckets() * BUCKET_WORDS) as usize)?;
        let used = words
            .iter()
            .enumerate()
            .filter(|(i, w)| i % 16 != 0 && w.load(Relaxed) != 0);
        Ok(used.count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_in_hash_order_and_cover_every_bucket() {
        for buckets in SIZES {
            for depth in [0, 1, 5, MAX_DEPTH] {
                let segment = SegmentRef::new(Loc::of_byte(1 << 21), buckets, depth);
                let at = Loc::of_byte(64);
                assert_eq!(SegmentRef::of_word(segment.word(), at), Ok(segment));
                let directory = Partition::directory_word(segment.loc(), depth.max(1));
                assert!(Partition::of_word(directory, at).is_ok());
                for bit in 0..64 {
                    let damaged = [segment.word() ^ 1 << bit, directory ^ 1 << bit];
                    assert!(
                        damaged
                            .iter()
                            .all(|word| Partition::of_word(*word, at).is_err())
                    );
                }
                let prefix = (1u32 << depth) - 1;
                let first = prefix_tag(prefix, depth);
                let mut last = 0;
                for step in 0..1u32 << (TAG_BITS - depth).min(14) {
                    let home = segment.home(
                        first + step * (1 << (TAG_BITS - depth - (TAG_BITS - depth).min(14))),
                    );
                    assert!(
                        home == last || home == last + 1,
                        "homes ascend without a gap"
                    );
                    last = home;
                }
                assert_eq!(last, buckets - 1);
                for i in 0..buckets {
                    let tag = segment.first_tag(prefix, i);
                    assert_eq!(segment.home(tag), i);
                    assert!(i == 0 || segment.home(tag - 1) == i - 1);
                }
            }
        }
    }
}
