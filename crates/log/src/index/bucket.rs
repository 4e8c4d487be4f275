//! A bucket is two cache lines: a lock word and 15 slots of a 22-bit tag and a 42-bit location.
//!
//! **Readers never write, and never wait for a plain lock.** Every change under a plain lock is one
//! 8-byte store that publishes, replaces or removes one entry, and no entry ever moves within a
//! page. So any state that a reader sees was valid at some instant, even if the lock's holder has
//! died. A transaction makes several such stores that belong together: its bit in the lock word
//! makes readers wait. A change sets this bit too if it needs more than one such store, or is made
//! only if a record has not expired yet.
//!
//! The lock word: locked 1 bit, transaction 1, reach 3, version 35, releases 8, holder's slot 16.
//! *Reach* is how far, in buckets, an entry whose home is this bucket may lie behind it. The
//! version counts the releases after a change. The other releases are counted separately: readers
//! need not look again after them, and yet a waiter sees that the holder made progress.
//!
//! The paper's bucket (Nibble §3.1, figure 4) holds 15 keys and 15 entries on four lines and makes
//! readers restart on every change; storing tags instead of keys halves the number of lines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sync::{SlotId, Word};

use super::tags::Tagged;
use crate::region::mem::{LOC_BITS, Loc};

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 15;
/// Words of a bucket.
pub(crate) const BUCKET_WORDS: u64 = 16;
/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = 64 - LOC_BITS;
/// The farthest that an entry may lie behind its home bucket.
pub(crate) const MAX_REACH: u64 = 7;

const LOCKED: u64 = 1;
const TXN: u64 = 1 << 1;
const REACH_SHIFT: u32 = 2;
const REACH_MASK: u64 = MAX_REACH << REACH_SHIFT;
const VERSION_ONE: u64 = 1 << 5;
const HOLDER_SHIFT: u32 = 48;
const VERSION_MASK: u64 = (RELEASE_ONE - 1) & !(VERSION_ONE - 1);
const RELEASE_ONE: u64 = 1 << 40;
const RELEASE_MASK: u64 = ((1 << HOLDER_SHIFT) - 1) & !(RELEASE_ONE - 1);
/// The holder of a bucket whose index page was replaced; no participant has this slot.
const RETIRED: u64 = 0xffff;

/// An index entry: where a record lies, and 22 bits of its key's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub u64);

impl Entry {
    #[inline]
    pub fn new(tag: u32, loc: Loc) -> Entry {
        Entry(u64::from(tag) << LOC_BITS | loc.bits())
    }

    #[inline]
    pub fn tag(self) -> u32 {
        (self.0 >> LOC_BITS) as u32
    }

    #[inline]
    pub fn loc(self) -> Loc {
        Loc::of_word(self.0)
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The value of a bucket's lock word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockWord(pub u64);

impl LockWord {
    #[inline]
    pub fn locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether no operation and no transaction holds the bucket, and its page is in use.
    #[inline(always)]
    pub fn is_unlocked(self) -> bool {
        self.0 & (LOCKED | TXN) == 0
    }

    #[inline]
    pub fn in_transaction(self) -> bool {
        self.0 & TXN != 0
    }

    /// Whether what was read between `before` and this look at the word belongs to no transaction,
    /// either under way or undone.
    #[inline]
    pub fn follows_no_transaction(self, before: LockWord) -> bool {
        (self.0 | before.0) & TXN == 0 && (self.0 ^ before.0) & VERSION_MASK == 0
    }

    /// Buckets behind this one that may hold entries whose home it is.
    #[inline]
    pub fn reach(self) -> u64 {
        (self.0 & REACH_MASK) >> REACH_SHIFT
    }

    pub fn holder(self) -> SlotId {
        SlotId((self.0 >> HOLDER_SHIFT) as u16)
    }

    pub fn retired(self) -> bool {
        self.locked() && self.0 >> HOLDER_SHIFT == RETIRED
    }

    /// The word after its holder has unlocked the bucket without a change.
    pub fn let_go(self) -> LockWord {
        let releases = (self.0 & RELEASE_MASK).wrapping_add(RELEASE_ONE) & RELEASE_MASK;
        LockWord(self.0 & (REACH_MASK | VERSION_MASK) | releases)
    }

    fn held_by(self, slot: SlotId) -> LockWord {
        let kept = self.0 & (REACH_MASK | VERSION_MASK | RELEASE_MASK);
        LockWord(kept | LOCKED | u64::from(slot.0) << HOLDER_SHIFT)
    }

    fn unlocked(self) -> LockWord {
        let version = (self.0 & VERSION_MASK).wrapping_add(VERSION_ONE) & VERSION_MASK;
        LockWord(self.0 & (REACH_MASK | RELEASE_MASK) | version)
    }
}

/// The word of a home bucket at the time of a look, and the bucket's location. The location matters
/// because the successor of a replaced page counts versions from the start, elsewhere. Nothing else
/// can lie at this location while the thread that has seen it is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HomeWord {
    pub at: Loc,
    pub word: LockWord,
}

impl HomeWord {
    /// Whether this is the bucket of `before`, and was not unlocked since.
    pub fn same_version(self, before: HomeWord) -> bool {
        self.at == before.at && (self.word.0 ^ before.word.0) & VERSION_MASK == 0
    }
}

/// What an attempt to lock a bucket found.
#[derive(Debug)]
pub(crate) enum TryLock<'b, W = AtomicU64> {
    /// The lock was taken.
    Held(Held<'b, W>),
    /// The page was replaced: look the bucket up again.
    Retired,
    /// Another thread holds it.
    Busy(LockWord),
}

/// One bucket.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct BucketOf<W>([W; BUCKET_WORDS as usize]);

/// The bucket as it lies in a region.
pub(crate) type Bucket = BucketOf<AtomicU64>;

impl<W: Tagged> BucketOf<W> {
    /// A bit for each slot whose entry has `tag`. (An empty slot looks like tag zero.)
    #[inline]
    pub fn matches(&self, tag: u32) -> u32 {
        W::matching(&self.0, tag)
    }

    /// The entries that have `tag`, each with its slot. Each is loaded when the iterator reaches
    /// it.
    #[inline(always)]
    pub fn entries_of(&self, tag: u32) -> impl Iterator<Item = (usize, Entry)> {
        let mut matches = self.matches(tag);
        std::iter::from_fn(move || self.next_of(tag, &mut matches))
    }

    /// The next entry that has `tag`, with its slot. `matches` has a bit for each slot that is
    /// still to be looked at.
    #[inline(always)]
    pub fn next_of(&self, tag: u32, matches: &mut u32) -> Option<(usize, Entry)> {
        while *matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            *matches &= *matches - 1;
            let entry = self.entry(slot);
            if !entry.is_empty() && entry.tag() == tag {
                return Some((slot, entry));
            }
        }
        None
    }

    /// Where the record of a key with this tag probably lies, for prefetching it.
    #[inline(always)]
    pub fn probable(&self, tag: u32) -> Option<Loc> {
        self.first_match(tag).map(Entry::loc)
    }

    /// The entry in the first slot whose word seemed to have `tag`.
    #[inline(always)]
    fn first_match(&self, tag: u32) -> Option<Entry> {
        let matches = self.matches(tag);
        if matches == 0 {
            return None;
        }
        let entry = self.entry(matches.trailing_zeros() as usize);
        (!entry.is_empty()).then_some(entry)
    }

    /// The first entry that has `tag`.
    #[inline(always)]
    pub fn first_of(&self, tag: u32) -> Option<Entry> {
        self.first_match(tag).filter(|entry| entry.tag() == tag)
    }
}

impl<W: Word> BucketOf<W> {
    #[inline]
    pub fn of_words(words: &[W; BUCKET_WORDS as usize]) -> &BucketOf<W> {
        // SAFETY: `repr(transparent)` over exactly this array.
        unsafe { &*std::ptr::from_ref(words).cast::<BucketOf<W>>() }
    }

    #[inline]
    pub fn word(&self) -> LockWord {
        // SYNC: pairs with the Release stores in `Held`: what the holder published is visible.
        LockWord(self.0[0].load(Acquire))
    }

    /// The entry in slot `i`.
    #[inline]
    pub fn entry(&self, i: usize) -> Entry {
        // SYNC: pairs with the Release publications in `Held`: the record's bytes are visible.
        Entry(self.0[i + 1].load(Acquire))
    }

    /// The word of slot `i`.
    pub fn slot(&self, i: usize) -> &W {
        &self.0[i + 1]
    }

    /// Entries in use.
    pub fn used(&self) -> usize {
        (0..SLOTS)
            .filter(|&i| self.0[i + 1].load(Relaxed) != 0)
            .count()
    }

    /// Prefetches both lines.
    #[inline(always)]
    pub fn prefetch(&self) {
        for line in self.0.chunks_exact(BUCKET_WORDS as usize / 2) {
            mneme_sys::prefetch(line.as_ptr().cast());
        }
    }

    /// One attempt to lock. The caller's intent names this bucket already.
    #[inline(always)]
    pub fn try_lock(&self, slot: SlotId) -> TryLock<'_, W> {
        let word = LockWord(self.0[0].load(Relaxed));
        if word.locked() {
            return if word.retired() {
                TryLock::Retired
            } else {
                TryLock::Busy(word)
            };
        }
        let held = word.held_by(slot);
        // SYNC: pairs with the Release store in `Held::unlock`: the last holder's changes are
        // visible.
        match self.0[0].compare_exchange(word.0, held.0, Acquire, Relaxed) {
            Ok(_) => TryLock::Held(Held {
                bucket: self,
                word: held,
            }),
            Err(now) => {
                let now = LockWord(now);
                if now.retired() {
                    TryLock::Retired
                } else {
                    TryLock::Busy(now)
                }
            }
        }
    }

    /// The lock of a dead holder, for the reaper.
    pub fn inherit(&self, dead: SlotId) -> Option<Held<'_, W>> {
        let word = self.word();
        (word.locked() && word.holder() == dead && dead.0 != 0)
            .then_some(Held { bucket: self, word })
    }

    /// Puts an entry into slot `i` of a bucket that no other thread can see yet.
    pub fn fill(&self, i: usize, entry: Entry) {
        self.0[i + 1].store(entry.0, Relaxed);
    }

    /// Sets the reach of a bucket that no other thread can see yet.
    pub fn fill_reach(&self, reach: u64) {
        let word = self.0[0].load(Relaxed);
        if LockWord(word).reach() < reach {
            self.0[0].store(word & !REACH_MASK | reach << REACH_SHIFT, Relaxed);
        }
    }

    /// Claims a free slot for `entry`, which publishes it. Returns the slot's number. The caller
    /// holds the entry's home bucket and has extended its reach to here.
    pub fn publish(&self, entry: Entry) -> Option<usize> {
        for i in 0..SLOTS {
            if self.0[i + 1].load(Relaxed) == 0 {
                // Several homes may place entries here at once: the slot is won by this exchange.
                // SYNC: pairs with the Acquire load in `entry`.
                if self.0[i + 1]
                    .compare_exchange(0, entry.0, Release, Relaxed)
                    .is_ok()
                {
                    return Some(i);
                }
            }
        }
        None
    }

    /// Replaces the entry in slot `i`, or removes it with `Entry(0)`. The caller holds its home
    /// bucket.
    pub fn replace(&self, i: usize, entry: Entry) {
        // SYNC: pairs with the Acquire load in `entry`.
        self.0[i + 1].store(entry.0, Release);
    }
}

/// A held bucket lock. Dropping it does not unlock: a holder that unwinds is treated as one that
/// died.
#[must_use]
#[derive(Debug)]
pub(crate) struct Held<'b, W = AtomicU64> {
    bucket: &'b BucketOf<W>,
    word: LockWord,
}

impl<'b, W: Word> Held<'b, W> {
    #[inline]
    pub fn bucket(&self) -> &'b BucketOf<W> {
        self.bucket
    }

    pub fn word(&self) -> LockWord {
        self.word
    }

    /// Makes readers look up to `reach` buckets behind this one.
    pub fn extend_reach(&mut self, reach: u64) {
        if self.word.reach() < reach {
            self.word = LockWord(self.word.0 & !REACH_MASK | reach << REACH_SHIFT);
            // SYNC: pairs with the Acquire load in `Bucket::word`; precedes the publication there.
            self.bucket.0[0].store(self.word.0, Release);
        }
    }

    /// Makes readers wait until the lock is released.
    pub fn set_transaction(&self) {
        // SYNC: pairs with the Acquire load in `Bucket::word`.
        self.bucket.0[0].store(self.word.0 | TXN, Release);
    }

    /// Makes readers wait, and keeps the bit set in every later store to the word.
    pub fn become_transaction(&mut self) {
        self.word = LockWord(self.word.0 | TXN);
        self.set_transaction();
    }

    /// Releases the lock.
    #[inline]
    pub fn unlock(self) {
        // SYNC: pairs with the Acquire exchange in `try_lock`.
        self.bucket.0[0].store(self.word.unlocked().0, Release);
    }

    /// Releases the lock of a bucket that was not changed.
    pub fn unlock_unchanged(self) {
        // SYNC: as in `unlock`.
        self.bucket.0[0].store(self.word.let_go().0, Release);
    }

    /// Marks the bucket as replaced, for ever. Its entries stay readable as they are.
    pub fn retire(self) {
        // SYNC: pairs with the Acquire load in `Bucket::word`.
        self.bucket.0[0].store(self.word.held_by(SlotId(RETIRED as u16)).0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> [AtomicU64; 16] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn the_word_keeps_reach_and_counts_versions() {
        let words = empty();
        let bucket = Bucket::of_words(&words);
        let TryLock::Held(mut held) = bucket.try_lock(SlotId(7)) else {
            panic!("free bucket refused")
        };
        assert_eq!(bucket.word().holder(), SlotId(7));
        assert!(matches!(bucket.try_lock(SlotId(8)), TryLock::Busy(w) if w.holder() == SlotId(7)));
        held.extend_reach(3);
        held.extend_reach(1);
        held.unlock();
        let word = bucket.word();
        assert!(!word.locked());
        assert_eq!(
            (word.reach(), word.holder(), word.0 & VERSION_MASK),
            (3, SlotId(0), VERSION_ONE)
        );
    }

    #[test]
    fn a_release_without_a_change_is_seen_by_waiters_and_not_by_readers() {
        let words = empty();
        let bucket = Bucket::of_words(&words);
        let mut held = Vec::new();
        for changes in [false, false, true] {
            let TryLock::Held(lock) = bucket.try_lock(SlotId(7)) else {
                panic!("free bucket refused")
            };
            held.push(bucket.word());
            match changes {
                true => lock.unlock(),
                false => lock.unlock_unchanged(),
            }
        }
        let at = Loc::of_byte(64);
        let [first, second, third] = [0, 1, 2].map(|i| HomeWord { at, word: held[i] });
        assert!(first.word != second.word && second.word != third.word);
        assert!(first.same_version(second) && second.same_version(third));
        let word = bucket.word();
        assert!(!third.same_version(HomeWord { at, word }));
    }

    #[test]
    fn a_retired_bucket_is_never_locked_again_but_stays_readable() {
        let words = empty();
        let bucket = Bucket::of_words(&words);
        let entry = Entry::new(5, Loc::of_byte(64));
        assert_eq!(bucket.publish(entry), Some(0));
        let TryLock::Held(held) = bucket.try_lock(SlotId(1)) else {
            panic!()
        };
        held.retire();
        assert!(matches!(bucket.try_lock(SlotId(2)), TryLock::Retired));
        assert!(bucket.inherit(SlotId(1)).is_none());
        assert_eq!(bucket.entry(0), entry);
    }

    #[test]
    fn matches_finds_every_slot_with_the_tag() {
        let words = empty();
        let bucket = Bucket::of_words(&words);
        for i in 0..SLOTS {
            bucket.fill(
                i,
                Entry::new(
                    if i % 3 == 0 { 9 } else { 10 },
                    Loc::of_byte(8 * (i as u64 + 1)),
                ),
            );
        }
        assert_eq!(bucket.matches(9), 0b001001001001001);
        assert_eq!(bucket.matches((1 << TAG_BITS) - 1), 0);
        assert_eq!(bucket.publish(Entry::new(1, Loc::of_byte(8))), None);
    }
}
