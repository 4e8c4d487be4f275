//! Prefetching what a lookup, or a batch of them, will touch.

use std::sync::atomic::Ordering::Relaxed;

use super::Index;
use super::bucket::Bucket;
use super::lookup::Lookup;
use super::root::Root;
use super::shape::{Place, SegmentRef};
use crate::error::{Corrupt, ReadError};
use crate::region::mem::Loc;
use crate::region::record::Header;

/// The maximum number of lines of a record, after its first ones, that are prefetched.
pub(crate) const MAX_REST: u64 = 32;
/// The number of keys whose buckets and records are prefetched together.
pub(crate) const WIDTH: usize = 32;
/// The maximum number of lines of a record that are prefetched before its header is loaded. The
/// rest follow by the length in the header.
pub(crate) const AHEAD_LINES: u64 = 3;
/// How many buckets are prefetched before the first is looked at.
const BEHIND: usize = 12;
/// How many records ahead the rest of a record is prefetched.
pub(crate) const DISTANCE: usize = 4;

/// What is prefetched of the records of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// The first lines, with values that are read.
    Values,
    /// Headers and keys only: an old value is not read.
    Keys,
    /// The first lines, enough for most short records: it is not known what will be read.
    Beginnings,
}

/// A batch whose buckets and records are being prefetched: the places of its keys.
pub(crate) struct PrefetchBatch<'m> {
    pub places: [Place; WIDTH],
    /// Their home buckets, each with its index segment.
    homes: [Option<(SegmentRef, &'m Bucket)>; WIDTH],
    /// The probable locations of their records.
    pub locs: [Option<Loc>; WIDTH],
}

impl PrefetchBatch<'_> {
    /// The index page to which key number `i` belongs.
    #[inline]
    pub fn segment(&self, i: usize) -> Option<SegmentRef> {
        self.homes[i].map(|(segment, _)| segment)
    }
}

/// The keys of a batch, with or without values.
pub(crate) trait BatchKeys {
    /// At most `WIDTH`.
    fn count(&self) -> usize;
    fn key(&self, i: usize) -> &[u8];
}

impl<K: AsRef<[u8]>> BatchKeys for &[K] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, i: usize) -> &[u8] {
        self[i].as_ref()
    }
}

impl Index {
    /// Prefetches the lines of `place`'s home bucket. Returns the bucket and its index segment.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(
        &self,
        root: Root,
        place: Place,
    ) -> Result<Option<(SegmentRef, &Bucket)>, Corrupt> {
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(None);
        };
        let bucket = (self.session().mem).bucket(segment, segment.home(place.tag))?;
        bucket.prefetch();
        Ok(Some((segment, bucket)))
    }

    /// Prefetches the rest, behind the first `lines` lines, of the record at `loc`, whose header is
    /// loaded.
    #[inline(always)]
    pub(crate) fn prefetch_rest(&self, loc: Loc, lines: u64) {
        if let Ok(word) = self.session().mem.word(loc) {
            let bytes = Header(word.load(Relaxed)).size();
            let end = bytes.div_ceil(64).min(lines + MAX_REST);
            self.session().mem.prefetch_lines(loc, lines..end);
        }
    }

    /// Starts fetching all that a batch of up to `WIDTH` keys will touch.
    #[inline]
    pub(crate) fn prefetch_batch(
        &self,
        root: Root,
        keys: &impl BatchKeys,
        fetch: Fetch,
    ) -> Result<PrefetchBatch<'_>, ReadError> {
        let mut ahead = PrefetchBatch {
            places: [Place {
                partition: 0,
                tag: 0,
            }; WIDTH],
            homes: [None; WIDTH],
            locs: [None; WIDTH],
        };
        let count = keys.count();
        for i in 0..count + BEHIND {
            if i < count {
                ahead.places[i] = self.place(keys.key(i));
                ahead.homes[i] = self.prefetch_bucket(root, ahead.places[i])?;
            }
            if let Some(i) = i.checked_sub(BEHIND)
                && let Some((_, home)) = ahead.homes[i]
                && let Some(loc) = home.probable(ahead.places[i].tag)
            {
                match fetch {
                    Fetch::Values => self.session().mem.prefetch_lines(loc, 0..AHEAD_LINES),
                    Fetch::Beginnings => self.session().mem.prefetch_lines(loc, 0..2),
                    Fetch::Keys => self.session().mem.prefetch_key(loc, keys.key(i).len()),
                }
                ahead.locs[i] = Some(loc);
            }
        }
        Ok(ahead)
    }
}
