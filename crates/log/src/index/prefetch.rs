//! Fetching ahead what a lookup, or a batch of them, will touch.

use std::sync::atomic::Ordering::Relaxed;

use super::Index;
use super::lookup::Lookup;
use super::root::Root;
use super::shape::{Place, SegmentRef};
use crate::error::{Corrupt, ReadError};
use crate::region::mem::Loc;
use crate::region::record::Header;

/// Lines of a record, behind its first ones, that are prefetched at most.
pub(crate) const MAX_REST: u64 = 32;
/// Keys of which buckets and records are fetched together.
pub(crate) const WIDTH: usize = 32;
/// Lines of a record that are prefetched at most before its header is loaded. The rest follow by
/// the length in the header.
pub(crate) const AHEAD_LINES: u64 = 3;
/// How many records ahead the rest of a record is prefetched.
pub(crate) const DISTANCE: usize = 4;

/// A batch whose buckets and records are being prefetched: the places of its keys.
pub(crate) struct PrefetchBatch {
    pub places: [Place; WIDTH],
    pub segments: [Option<SegmentRef>; WIDTH],
    /// Where their records probably lie.
    pub locs: [Option<Loc>; WIDTH],
}

/// The keys of a batch, with or without values.
pub(crate) trait Keys {
    /// At most `WIDTH`.
    fn count(&self) -> usize;
    fn key(&self, i: usize) -> &[u8];
}

impl<K: AsRef<[u8]>> Keys for &[K] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, i: usize) -> &[u8] {
        self[i].as_ref()
    }
}

impl Index {
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

    /// Starts fetching all that a batch of up to `WIDTH` keys will touch.
    #[inline]
    pub(crate) fn prefetch_batch(
        &self,
        root: Root,
        keys: &impl Keys,
        lines: u64,
    ) -> Result<PrefetchBatch, ReadError> {
        let mut ahead = PrefetchBatch {
            places: [Place {
                partition: 0,
                tag: 0,
            }; WIDTH],
            segments: [None; WIDTH],
            locs: [None; WIDTH],
        };
        for i in 0..keys.count() {
            ahead.places[i] = self.place(keys.key(i));
            ahead.segments[i] = self.prefetch_bucket(root, ahead.places[i])?;
        }
        for i in 0..keys.count() {
            if let Some(segment) = ahead.segments[i] {
                ahead.locs[i] = self.prefetch_record(segment, ahead.places[i].tag, lines)?;
            }
        }
        Ok(ahead)
    }
}
