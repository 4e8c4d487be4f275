//! The cache's index: buckets of one cache line, each with a version and seven entries.
//!
//! **O(1) with a bounded tail**: a key has one bucket, and a record that finds it full replaces
//! another. **Nothing in it is trusted**: an entry says where a record may be, and the record's own
//! checksum, which is keyed by place and generation, says whether it is there. So a damaged, torn
//! or stale entry costs only a miss.
//!
//! An entry, never 0:
//!
//! | bits | what |
//! |---|---|
//! | 0..24 | the frame |
//! | 24..41 | where in the frame, in units of 16 bytes |
//! | 41..52 | the low bits of the frame's generation |
//! | 52..63 | the tag, bits of the key's hash |
//! | 63 | tentative: no reader uses it |
//!
//! A bucket holds at most one record with a given tag. Two keys with equal bucket and tag replace
//! each other, which happens to one key in 300 of a full index. So an entry's key need not be
//! compared.
//!
//! **No old value reappears**: [`invalidate`](CacheBucketOf::invalidate) raises the version and
//! then removes the entry that it finds. [`insert`](CacheBucketOf::insert) stores its entry
//! tentatively, then compares the version with the one read when its value was current, and only
//! then makes the entry valid. An invalidation in between is either noticed by the comparison, or
//! finds the entry.

use mneme_sync::Word;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// The number of entries of a bucket.
pub(crate) const ENTRIES: usize = 7;
/// The unit of a record's place in its frame, in bytes.
pub(crate) const UNIT: usize = 16;

const GENERATION_BITS: u32 = 11;
const TAG_BITS: u32 = 11;
const TENTATIVE: u64 = 1 << 63;

/// Where a record may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub frame: u32,
    /// The offset in bytes; a multiple of [`UNIT`] below 2 MiB.
    pub offset: u32,
    /// The low bits of the frame's generation.
    pub generation: u16,
    pub tag: u16,
}

/// The bits of a generation that an entry contains.
pub(crate) fn low_generation(generation: u32) -> u16 {
    (generation & ((1 << GENERATION_BITS) - 1)) as u16
}

/// The bits of a hash that an entry contains.
pub(crate) fn tag_of(hash: u64) -> u16 {
    (hash & ((1 << TAG_BITS) - 1)) as u16
}

impl Entry {
    pub fn pack(self) -> u64 {
        u64::from(self.frame)
            | u64::from(self.offset / UNIT as u32) << 24
            | u64::from(self.generation) << 41
            | u64::from(self.tag) << 52
    }

    /// Decodes any word.
    pub fn unpack(word: u64) -> Entry {
        Entry {
            frame: (word & 0xff_ffff) as u32,
            offset: (word >> 24 & 0x1_ffff) as u32 * UNIT as u32,
            generation: low_generation((word >> 41) as u32),
            tag: tag_of(word >> 52),
        }
    }
}

/// A bucket.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CacheBucketOf<W> {
    version: W,
    entries: [W; ENTRIES],
}

/// The bucket in a region.
pub(crate) type CacheBucket = CacheBucketOf<AtomicU64>;

const _: () = {
    assert!(size_of::<CacheBucket>() == 64);
    assert!(24 + 17 + GENERATION_BITS + TAG_BITS + 1 == 64);
};

/// The bucket for a hash, out of that many. Uses the hash's upper half, because the tag uses the
/// lower one.
pub(crate) fn bucket_of(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash >> 32) * buckets as u128) >> 32) as usize
}

fn is_of(word: u64, tag: u16) -> bool {
    word != 0 && Entry::unpack(word).tag == tag
}

impl<W: Word> CacheBucketOf<W> {
    /// The current version.
    pub fn version(&self) -> u64 {
        // SYNC: Acquire, so that the search for an entry, and the read of the current value, come
        // later.
        self.version.load(Acquire)
    }

    /// The entries of this tag.
    pub fn find(&self, tag: u16) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().filter_map(move |entry| {
            // SYNC: pairs with the exchanges in `insert`: the record is visible.
            let word = entry.load(Acquire);
            (is_of(word, tag) && word & TENTATIVE == 0).then(|| Entry::unpack(word))
        })
    }

    /// Removes the entry with this tag, now or when an insertion enters it whose value was read
    /// before. Returns the new version.
    pub fn invalidate(&self, tag: u16) -> u64 {
        let mut version = self.version.load(Relaxed);
        loop {
            let next = version.wrapping_add(1);
            // SYNC: Release, so that the change made before belongs to the new version.
            match self
                .version
                .compare_exchange(version, next, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => version = now,
            }
        }
        // SYNC: pairs with the fence in `insert`: either that one sees the version, or this one
        // sees its entry.
        W::fence(SeqCst);
        for entry in &self.entries {
            let mut word = entry.load(Acquire);
            while is_of(word, tag) {
                // It fails if the entry is made valid, or replaced, at this moment.
                match entry.compare_exchange(word, 0, AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(now) => word = now,
                }
            }
        }
        version.wrapping_add(1)
    }

    /// Enters a record, unless its tag was invalidated since the version was `version`. It replaces
    /// an entry with its tag, an empty one, one for which `is_stale` returns true, or else the one
    /// that `choice` selects. Returns whether it was entered.
    pub fn insert(
        &self,
        version: u64,
        new: Entry,
        choice: usize,
        is_stale: impl Fn(Entry) -> bool,
    ) -> bool {
        let words: [u64; ENTRIES] = std::array::from_fn(|at| self.entries[at].load(Acquire));
        let place = words
            .iter()
            .position(|word| is_of(*word, new.tag))
            .or_else(|| words.iter().position(|word| *word == 0))
            .or_else(|| {
                words
                    .iter()
                    .position(|word| word & TENTATIVE != 0 || is_stale(Entry::unpack(*word)))
            })
            .unwrap_or(choice % ENTRIES);
        let tentative = new.pack() | TENTATIVE;
        let entry = &self.entries[place];
        // SYNC: Release: a thread that sees the entry sees the record.
        if entry
            .compare_exchange(words[place], tentative, AcqRel, Acquire)
            .is_err()
        {
            return false;
        }
        mneme_sys::fault!("arena.lend.tentative");
        // SYNC: pairs with the fence in `invalidate`.
        W::fence(SeqCst);
        let valid = if self.version.load(Acquire) == version {
            new.pack()
        } else {
            0
        };
        // SYNC: as above. It fails if an invalidation has found the entry, or another insertion has
        // replaced it.
        let settled = entry
            .compare_exchange(tentative, valid, AcqRel, Acquire)
            .is_ok();
        settled && valid != 0
    }

    /// Removes stale entries; returns how many are left, and how many were removed.
    pub fn sweep(&self, is_stale: impl Fn(Entry) -> bool) -> (u64, u64) {
        let (mut left, mut removed) = (0, 0);
        for entry in &self.entries {
            let word = entry.load(Acquire);
            if word == 0 {
                continue;
            }
            if is_stale(Entry::unpack(word))
                && entry.compare_exchange(word, 0, AcqRel, Relaxed).is_ok()
            {
                removed += 1;
            } else {
                left += 1;
            }
        }
        (left, removed)
    }

    /// Empties a bucket that nobody else uses. Zero words are not written, so that their memory
    /// stays unallocated.
    pub fn reset(&self) {
        for word in self.entries.iter().chain([&self.version]) {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }

    /// Removes all entries, now or when insertions enter them whose values were read before.
    pub fn clear(&self) {
        let mut version = self.version.load(Relaxed);
        while let Err(now) =
            self.version
                .compare_exchange(version, version.wrapping_add(1), AcqRel, Relaxed)
        {
            version = now;
        }
        // SYNC: pairs with the fence in `insert`.
        W::fence(SeqCst);
        for entry in &self.entries {
            entry.store(0, Release);
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(tag: u16) -> Entry {
        Entry {
            frame: 7,
            offset: 32,
            generation: 3,
            tag,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 16 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        #[cfg_attr(miri, ignore = "plain arithmetic")]
        fn any_word_decodes_to_an_entry_that_encodes_to_it(word in any::<u64>()) {
            prop_assert_eq!(Entry::unpack(word).pack(), word & !TENTATIVE);
            prop_assert!(Entry::unpack(word).offset < 1 << 21);
        }
    }

    #[test]
    fn a_full_bucket_replaces_one_entry() {
        let bucket = CacheBucket::default();
        for tag in 0..ENTRIES as u16 {
            assert!(bucket.insert(0, entry(tag), 0, |_| false));
        }
        assert!(bucket.insert(0, entry(99), 3, |_| false));
        let there = |tag| bucket.find(tag).count();
        assert_eq!((0..7).map(there).collect::<Vec<_>>(), [1, 1, 1, 0, 1, 1, 1]);
        // A stale entry is replaced first, whatever the choice.
        assert!(bucket.insert(0, entry(100), 0, |entry| entry.tag == 5));
        assert_eq!((there(0), there(5), there(100)), (1, 0, 1));
    }

    #[test]
    fn a_tag_has_one_entry_and_an_older_value_is_not_entered() {
        let bucket = CacheBucket::default();
        let before = bucket.version();
        assert!(bucket.insert(before, entry(1), 0, |_| false));
        assert!(bucket.insert(
            before,
            Entry {
                frame: 8,
                ..entry(1)
            },
            0,
            |_| false
        ));
        assert_eq!(
            bucket.find(1).map(|found| found.frame).collect::<Vec<_>>(),
            [8]
        );
        let after = bucket.invalidate(1);
        assert_eq!(bucket.find(1).count(), 0);
        assert!(!bucket.insert(before, entry(1), 0, |_| false));
        assert_eq!(bucket.find(1).count(), 0);
        assert!(bucket.insert(after, entry(1), 0, |_| false));
        bucket.clear();
        assert_eq!(bucket.find(1).count(), 0);
        assert!(!bucket.insert(after, entry(1), 0, |_| false));
    }
}
