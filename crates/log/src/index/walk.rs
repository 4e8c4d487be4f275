//! Walks an index in the order of its keys' hashes, one home bucket at a time: for scans, sweeps
//! and samples.

use super::Index;
use super::bucket::{Entry, LockWord, MAX_REACH, SLOTS, TAG_BITS};
use super::lookup::Lookup;
use super::root::Root;
use super::shape::{Place, SegmentRef, prefix_tag};
use crate::error::{Corrupt, ReadError};

/// The maximum number of entries whose home is one bucket.
pub(crate) const HOME_ENTRIES: usize = SLOTS * (MAX_REACH as usize + 1);

/// A home bucket's place in hash order: partition and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HashOrder {
    pub partition: u64,
    pub tag: u64,
}

impl HashOrder {
    /// The place of a tag in a partition.
    pub fn at(partition: u64, tag: u64) -> HashOrder {
        HashOrder { partition, tag }
    }

    /// Whether nothing is left in an index of `partitions` partitions.
    pub fn is_over(self, partitions: u64) -> bool {
        self.partition >= partitions
    }

    pub fn place(self) -> Place {
        Place {
            partition: self.partition as u32,
            tag: self.tag as u32,
        }
    }

    /// Moves on to tag `next` of the partition, or to the next partition if there is none.
    pub fn go_to(&mut self, next: u64) {
        if next >> TAG_BITS == 0 {
            self.tag = next;
        } else {
            *self = HashOrder {
                partition: self.partition + 1,
                tag: 0,
            };
        }
    }
}

impl Index {
    /// Hands out all entries whose home is the bucket at `at`, and moves `at` to the next one. The
    /// caller is pinned.
    pub(crate) fn entries_here(
        &self,
        root: Root,
        at: &mut HashOrder,
        mut hand_out: impl FnMut(Entry),
    ) -> Result<(), ReadError> {
        let place = at.place();
        let segment = self.session().mem.index_segment(root, place)?;
        let mut entries = [Entry(0); HOME_ENTRIES];
        let seen = self.look(root, place, segment, |segment, word| {
            Ok((
                segment,
                self.home_entries(segment, place.tag, word, &mut entries)?,
            ))
        })?;
        let Some(((segment, count), _)) = seen else {
            at.go_to(1 << TAG_BITS);
            return Ok(());
        };
        for &entry in &entries[..count] {
            hand_out(entry);
        }
        at.go_to(next_interval(place.tag, segment));
        Ok(())
    }

    /// Moves `at` past damage, to the next bucket that can be found. The caller is pinned.
    #[cold]
    pub(crate) fn pass_by(&self, root: Root, at: &mut HashOrder) {
        let place = at.place();
        let next = match self.session().mem.index_segment(root, place) {
            Ok(Some(segment)) => next_interval(place.tag, segment).max(at.tag + 1),
            // The words that lead to the segment are damaged.
            _ => 1 << TAG_BITS,
        };
        at.go_to(next);
    }

    /// The entries of `tag` and of later tags whose home is its bucket. `word` is that bucket's
    /// word. Returns their number.
    pub(crate) fn home_entries(
        &self,
        segment: SegmentRef,
        tag: u32,
        word: LockWord,
        entries: &mut [Entry; HOME_ENTRIES],
    ) -> Result<usize, Corrupt> {
        let (home, mut count) = (segment.home(tag), 0);
        // The reach may grow meanwhile. Entries that come with it are newer than this step.
        for distance in 0..=word.reach().min(segment.max_reach()) {
            let bucket = (self.session().mem).bucket(segment, segment.behind(home, distance))?;
            for entry in (0..SLOTS).map(|i| bucket.entry(i)) {
                let of = entry.tag();
                if !entry.is_empty() && of >= tag && segment.home(of) == home {
                    entries[count] = entry;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// The first tag after the interval of `tag`'s home bucket; `1 << TAG_BITS`: the partition's end.
pub(crate) fn next_interval(tag: u32, segment: SegmentRef) -> u64 {
    let (home, prefix) = (segment.home(tag), segment.prefix(tag));
    if home + 1 < segment.buckets() {
        u64::from(segment.first_tag(prefix, home + 1))
    } else {
        u64::from(prefix_tag(prefix, segment.depth())) + (1 << (TAG_BITS - segment.depth()))
    }
}
