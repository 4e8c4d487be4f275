//! The words that lead to a bucket, and their meaning: where a key belongs, an index page, the
//! contents of a partition.

use std::num::NonZeroU64;

use super::bucket::{BUCKET_WORDS, HomeWord, LockWord, MAX_REACH, TAG_BITS};
use crate::error::Corrupt;
use crate::region::mem::{LOC_BITS, Loc};

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

/// The maximum number of times that a partition's pages split: directories have at most 2^12 words.
pub(crate) const MAX_DEPTH: u32 = 12;
/// Sizes of an index page, in buckets.
pub(crate) const SIZES: [u64; 10] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

const BUCKETS_SHIFT: u32 = LOC_BITS;
pub(super) const DEPTH_SHIFT: u32 = 48;
const PRESENT: u64 = 1 << 63;
pub(super) const DIRECTORY: u64 = 1 << 62;
/// Shift of the seal: ten bits computed from the others.
const SEAL_SHIFT: u32 = 52;
const SEAL: u64 = ((1 << 10) - 1) << SEAL_SHIFT;

/// The word with its seal. Following a damaged index word could lock and fill unrelated words that
/// look like a bucket, or make present keys look absent. Every change of one bit breaks the seal,
/// and so do all but one in a thousand of other changes.
#[inline]
pub(super) const fn sealed(word: u64) -> u64 {
    let rest = word & !SEAL;
    let sum = rest.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 10);
    rest | sum << SEAL_SHIFT
}

#[cold]
pub(super) fn not_sealed(loc: Loc) -> Corrupt {
    Corrupt::at(
        loc.byte(),
        "an index word that names no segment and no directory",
    )
}

/// An index page: the contents of a partition or directory word whose seal was checked.
///
/// It is the word itself, as are a [`Root`] and a [`Loc`], so that what every lookup carries from
/// one step to the next stays in registers. A value of several words goes through memory at calls.
/// If it is read back in other pieces than it was stored in, the load waits until every instruction
/// before it is done, and so do the fetches of the next operation: single lookups ran at half their
/// speed (measured).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRef(NonZeroU64);

impl SegmentRef {
    /// The page of `buckets` buckets at `loc`, whose entries share the first `depth` bits of their
    /// tags.
    #[inline]
    pub const fn new(loc: Loc, buckets: u64, depth: u32) -> SegmentRef {
        let rest = loc.bits() | buckets << BUCKETS_SHIFT | (depth as u64) << DEPTH_SHIFT;
        match NonZeroU64::new(sealed(rest | PRESENT)) {
            Some(word) => SegmentRef(word),
            None => unreachable!(),
        }
    }

    /// The page that `word`, found at `at`, names.
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

    /// The page that `word` names, for readers that use only its location. `None` says nothing: the
    /// word may be damaged, or name no page.
    #[inline(always)]
    pub(super) fn try_of_word(word: u64) -> Option<SegmentRef> {
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

    /// The place of bucket `i`.
    #[inline]
    pub fn bucket_at(self, i: u64) -> Loc {
        self.loc().add_words(i * BUCKET_WORDS)
    }

    /// The place of the home bucket of `tag`.
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

    /// The bits with which all tags of this page begin, one of which is `tag`.
    pub fn prefix(self, tag: u32) -> u32 {
        if self.depth() == 0 {
            0
        } else {
            tag >> (TAG_BITS - self.depth())
        }
    }

    /// The first tag with the same home as `tag`.
    pub fn first_of_home(self, tag: u32) -> u32 {
        self.first_tag(self.prefix(tag), self.home(tag))
    }

    /// The bucket `distance` behind bucket `home`, with wrap-around.
    #[inline]
    pub fn behind(self, home: u64, distance: u64) -> u64 {
        let i = home + distance;
        if i >= self.buckets() {
            i - self.buckets()
        } else {
            i
        }
    }

    /// How far behind its home an entry may lie in this page.
    pub fn max_reach(self) -> u64 {
        MAX_REACH.min(self.buckets() - 1)
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

/// The meaning of a partition word.
pub(crate) enum Partition {
    /// No record was ever stored there.
    Empty,
    /// One index page.
    One(SegmentRef),
    /// A directory of 2^`depth` words.
    Directory { loc: Loc, depth: u32 },
}

impl Partition {
    /// The meaning of `word`, found at `at`.
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
