//! Idle frames are lent to the second class, which may lose them at any moment.
//!
//! **A claim never waits for the second class, and the second class never takes frames that the
//! reserve or a claim needs.** A frame changes hands by a compare-and-swap on its descriptor
//! (`descriptor::lending`), not under the arena's lock, so a tenant that sleeps or is dead delays
//! nobody. For each node at most one frame is being filled, and no claim can take that one.
//!
//! The search tree contains *claimable* frames: free or rented. Tenants do not change it. The frame
//! that a tenant is filling is recorded in its node's [`FillNode`], and a claim removes it from the
//! tree before it searches ([`Arena::mask_filling`]). The idle bitmap says which frames are free
//! and resident. It is a hint: its readers check the descriptor, and a wrong bit costs a better
//! choice, never a frame.
//!
//! Why the reserve is safe: the tenant takes a frame, passes a SeqCst fence, and reads the arena's
//! lock and the number of frames left. The claim takes the lock, passes a SeqCst fence, and reads
//! which frames are being filled. So either the claim counts the tenant's frame as taken, or the
//! tenant sees that the lock is held and gives the frame back.
//!
//! Only frames that were claimed before (generation above 0) are lent, because they have memory.
//! They are lent from the highest address down, while claims take the lowest.

use crate::CreateError;
use crate::arena::Arena;
use crate::descriptor::State;
use crate::discardable::index::{CacheBucket, ENTRIES};
use crate::frame::{FRAME_BYTES, Frame};
use crate::free_runs::words_of;
use crate::layout::LendingShape;
use mneme_sync::RobustLock;
use mneme_sys::RegionError;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The number of victims for each node that the cache's policy chooses in advance.
pub(crate) const VICTIMS: usize = 64;
/// The number of classes for the durations of claims: four to an octave, from 64 ns on.
pub(crate) const TIMES: usize = 64;
/// The number of words of the idle bitmap that a claim searches for a run of idle frames (4,096
/// frames, under a microsecond). After that it takes what the tree finds.
const IDLE_WORDS: u32 = 64;
/// The number of candidates that a tenant tries before it gives up.
const TRIES: usize = 16;

/// How an arena lends its idle frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LendingOptions {
    /// The number of records that the cache's index is made for, 1 to 2^32. An entry takes 8 bytes,
    /// and the index gets 1.15 times as many. A good value is the number of bytes to lend, divided
    /// by the mean size of a record with its key and 24 bytes.
    pub records: u64,
    /// The maximum number of frames that are lent. Lent memory is resident: `u32::MAX` lets the
    /// process grow to the arena's whole capacity.
    pub max_frames: u32,
}

/// The assumed size of a record in bytes if nothing is known about it.
const MEAN_RECORD: u64 = 256;

impl LendingOptions {
    /// Options for lending at most that many bytes of an arena of `capacity` bytes, to records of
    /// about 256 bytes.
    #[must_use]
    pub fn of_bytes(bytes: u64, capacity: u64) -> LendingOptions {
        LendingOptions {
            records: (bytes.min(capacity) / MEAN_RECORD).clamp(1, 1 << 32),
            max_frames: u32::try_from(bytes.div_ceil(FRAME_BYTES)).unwrap_or(u32::MAX),
        }
    }

    /// The size of the index in bytes.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.buckets()
            .saturating_mul(size_of::<CacheBucket>() as u64)
    }

    fn buckets(&self) -> u64 {
        self.records.div_ceil(ENTRIES as u64 - 1)
    }

    pub(crate) fn shape(&self, nodes: u16) -> Result<LendingShape, CreateError> {
        if self.records == 0 || self.records > 1 << 32 {
            return Err(CreateError::Options(
                "a cache's index has 1 to 2^32 records",
            ));
        }
        Ok(LendingShape {
            nodes,
            buckets: self.buckets(),
        })
    }
}

/// The part that all nodes share.
#[repr(C, align(128))]
pub(crate) struct LendingHeader {
    /// The secret key of the index and of the records' checksums.
    pub seed: AtomicU64,
    pub max_frames: AtomicU32,
    /// The approximate number of frames that are lent: a death during a change makes it wrong until
    /// the next sweep.
    pub lent: AtomicU32,
    /// The number of the last frame that was sealed; frames are numbered in that order.
    pub born: AtomicU64,
    /// The number of rented frames that claims took. Written under the arena's lock.
    pub discards: AtomicU64,
    /// The numbers of lookups that found a copy, and that did not, as far as openings have added
    /// them.
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    _line: [AtomicU64; 10],
    /// The number of claims in each class of durations. Written under the arena's lock.
    pub times: [AtomicU64; TIMES],
}

/// The frame of a node that is being filled, and its owner.
#[repr(C, align(128))]
pub(crate) struct FillNode {
    /// Guards everything except `masked` and `victims`. Nobody waits for it.
    pub lock: RobustLock,
    /// The frame that is, or is about to be, in state `Filling`; 0 for none.
    pub frame: AtomicU64,
    /// The number of its bytes in use. [`NOT_BEGUN`] while it is not certain that the frame is
    /// kept.
    pub used: AtomicU64,
    /// The number of the frame that the policy examined last.
    pub hand: AtomicU64,
    /// The frame that was removed from the search tree. Written under the arena's lock.
    pub masked: AtomicU64,
    _line: [AtomicU64; 11],
    /// The frames that the policy evicts first, each with its generation. Taken by swapping with 0.
    pub victims: [AtomicU64; VICTIMS],
}

/// The value of [`FillNode::used`] for a frame that must not be written to yet.
pub(crate) const NOT_BEGUN: u64 = u64::MAX;

/// The policy's information about a frame.
#[repr(C)]
pub(crate) struct FrameUse {
    /// Its number among the frames that were sealed.
    pub born: AtomicU64,
    /// The sampled number of hits.
    pub hits: AtomicU64,
}

const _: () = {
    assert!(size_of::<LendingHeader>() == 640);
    assert!(size_of::<FillNode>() == 640);
    assert!(size_of::<FrameUse>() == 16);
};

impl LendingHeader {
    /// Everything except the times was zero before.
    pub fn begin(&self, seed: u64, max_frames: u32) {
        self.seed.store(seed, Relaxed);
        self.max_frames.store(max_frames, Relaxed);
    }
}

/// The parts of an arena that lends.
#[derive(Clone, Copy)]
pub(crate) struct Lending<'a> {
    header: &'a LendingHeader,
    nodes: &'a [FillNode],
    idle: &'a [AtomicU64],
    uses: &'a [FrameUse],
    index: &'a [CacheBucket],
}

impl<'a> Lending<'a> {
    pub fn header(&self) -> &'a LendingHeader {
        self.header
    }

    pub fn nodes(&self) -> &'a [FillNode] {
        self.nodes
    }

    pub fn node(&self, node: u16) -> Option<&'a FillNode> {
        self.nodes.get(usize::from(node))
    }

    /// The idle bitmap.
    pub fn idle(&self) -> &'a [AtomicU64] {
        self.idle
    }

    pub fn index(&self) -> &'a [CacheBucket] {
        self.index
    }

    pub fn uses(&self, frame: u32) -> Option<&'a FrameUse> {
        self.uses.get(frame as usize)
    }

    /// Whether the search tree contains this frame, which is being filled: its node names it, and
    /// no claim has removed it since. Called under the arena's lock.
    pub fn is_in_tree(&self, frame: u32) -> bool {
        self.nodes.iter().any(|node| {
            // SYNC: pairs with the Release store in `rent`.
            node.frame.load(Acquire) == u64::from(frame)
                && node.masked.load(Relaxed) != u64::from(frame)
        })
    }

    /// Marks frames as idle or not. Relaxed, because it is a hint.
    pub fn mark_idle(&self, frames: &Range<u32>, idle: bool) {
        for (index, mask) in words_of(frames) {
            let Some(word) = self.idle.get(index as usize) else {
                return;
            };
            if idle {
                word.fetch_or(mask, Relaxed);
            } else {
                word.fetch_and(!mask, Relaxed);
            }
        }
    }

    /// Changes the number of lent frames.
    pub fn count_lent(&self, more: i32) {
        // Relaxed: nothing else depends on the number. It never goes below 0, whatever a death
        // left.
        let _ = self.header.lent.fetch_update(Relaxed, Relaxed, |lent| {
            Some(lent.saturating_add_signed(more))
        });
    }

    /// Records a claim with its duration and the number of frames that it discarded. Called under
    /// the arena's lock.
    pub fn count_claim(&self, nanoseconds: u64, discarded: u32) {
        // Relaxed: written under the lock, read as a hint.
        let add =
            |word: &AtomicU64, more| word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
        add(&self.header.times[time_class(nanoseconds)], 1);
        if discarded > 0 {
            add(&self.header.discards, u64::from(discarded));
            self.count_lent(-(discarded as i32));
        }
    }
}

/// The class of a duration: two bits below the highest one.
pub(crate) fn time_class(nanoseconds: u64) -> usize {
    let scaled = (nanoseconds >> 4).max(4);
    let octave = scaled.ilog2() - 2;
    ((octave as usize) << 2 | (scaled >> octave & 3) as usize).min(TIMES - 1)
}

/// The longest duration of a class, in nanoseconds.
pub(crate) fn class_end(class: usize) -> u64 {
    ((((class as u64 & 3) + 5) << (class >> 2)) << 4) - 1
}

/// Encodes a victim: a frame with its generation.
pub(crate) fn pack_victim(frame: u32, generation: u32) -> u64 {
    u64::from(frame) | u64::from(generation) << 32
}

impl Arena {
    /// The parts that only an arena that lends has.
    #[inline]
    pub(crate) fn lending(&self) -> Result<Option<Lending<'_>>, RegionError> {
        let Some(places) = &self.geometry.lending else {
            return Ok(None);
        };
        let region = &self.region;
        let frames = self.geometry.max_frames as usize;
        let buckets = usize::try_from(places.shape.buckets).unwrap_or(usize::MAX);
        Ok(Some(Lending {
            header: region.view_at(places.header)?,
            nodes: region.view_slice_at(places.nodes, usize::from(places.shape.nodes))?,
            idle: region.view_slice_at(places.idle, self.geometry.shape.words())?,
            uses: region.view_slice_at(places.uses, frames)?,
            index: region.view_slice_at(places.index, buckets)?,
        }))
    }

    /// Changes the maximum number of lent frames, for frames that are lent afterwards. Does nothing
    /// in an arena that does not lend.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn set_max_lent(&self, frames: u32) -> Result<(), RegionError> {
        self.may_write()?;
        if let Some(lending) = self.lending()? {
            // Relaxed: nothing else depends on the number.
            lending.header.max_frames.store(frames, Relaxed);
        }
        Ok(())
    }

    /// Removes frames that are being filled from the search tree, and puts back those that no
    /// longer are. Only for the holder of the lock. Returns whether the tree has changed.
    pub(crate) fn mask_filling(&self) -> Result<bool, RegionError> {
        let Some(lending) = self.lending()? else {
            return Ok(false);
        };
        // SYNC: pairs with the fence in `begin_filling`: see the documentation of this module.
        fence(SeqCst);
        let (table, summary) = (self.table()?, self.summary()?);
        let mut changed = false;
        for node in lending.nodes {
            // SYNC: pairs with the Release store in `rent`, which comes before the descriptor's.
            let frame = node.frame.load(Acquire);
            let is_filling = |frame: u64| {
                let status = u32::try_from(frame)
                    .ok()
                    .and_then(|frame| table.get(frame)?.status());
                status.is_some_and(|status| status.state == State::Filling)
            };
            let filling = if is_filling(frame) { frame } else { 0 };
            let masked = node.masked.load(Relaxed);
            // The tree may contain it again: it was derived when the frame was sealed, before it
            // was filled again.
            let is_out = |frame: u64| frame == 0 || !summary.is_free(frame as u32);
            if masked == filling && is_out(filling) {
                continue;
            }
            node.masked.store(filling, Relaxed);
            for frame in [masked, filling] {
                if let Ok(frame) = u32::try_from(frame)
                    && (self.geometry.first_frame..self.end_frame()).contains(&frame)
                {
                    self.derive(frame..frame + 1)?;
                }
            }
            changed = true;
        }
        Ok(changed)
    }

    /// The run on the node that costs as little as possible: idle frames or, for a single frame,
    /// the one that the cache's policy evicts first. `None` if the run that the tree finds is as
    /// good.
    pub(crate) fn cheapest(
        &self,
        lending: &Lending<'_>,
        node: u16,
        frames: u32,
        align_log2: u32,
    ) -> Result<Option<u32>, RegionError> {
        let summary = self.summary()?;
        let idle = self.idle_view(lending);
        for zone in self.zones()?.filter(|zone| zone.node == node) {
            let range = self.backed.below_withheld(&zone);
            // Idle frames are claimable, so no run of idle frames lies before this one.
            if let Some(start) = summary.find(range.clone(), frames, align_log2)
                && let Some(run) = idle.scan(start..range.end, frames, align_log2, IDLE_WORDS)
            {
                let mut is_idle = true;
                for frame in (run..run + frames).filter(|frame| !summary.is_free(*frame)) {
                    // A late hint by a tenant that slept before it set the bit. It is cleared.
                    lending.mark_idle(&(frame..frame + 1), false);
                    is_idle = false;
                }
                if is_idle {
                    return Ok(Some(run));
                }
            }
        }
        if frames > 1 || align_log2 > 0 {
            return Ok(None);
        }
        let table = self.table()?;
        let Some(fill) = lending.node(node) else {
            return Ok(None);
        };
        Ok(self
            .take_victim(&table, fill)
            .map(|(frame, _)| frame)
            .filter(|frame| summary.is_free(*frame)))
    }

    fn idle_view<'a>(&'a self, lending: &Lending<'a>) -> crate::free_runs::Summary<'a> {
        crate::free_runs::Summary::bitmap(&self.geometry.shape, lending.idle)
    }

    /// The frames that the second class is filling at this moment, by address. No claim gets one of
    /// these, nor a run across it.
    #[must_use]
    pub fn being_filled(&self) -> Vec<Frame> {
        let named = self.named_by_tenants().into_iter();
        named
            .filter(|(_, is_claimable)| !is_claimable)
            .map(|(frame, _)| Frame(frame))
            .collect()
    }

    /// The frames about which the search tree may be wrong, by address, with whether a claim may
    /// take them: those being filled, which the tree contains until a claim examines them, and
    /// those filled since a claim removed them.
    pub(crate) fn named_by_tenants(&self) -> Vec<(u32, bool)> {
        let (Ok(Some(lending)), Ok(table)) = (self.lending(), self.table()) else {
            return Vec::new();
        };
        let named = lending.nodes.iter().flat_map(|node| {
            // SYNC: pairs with the Release store in `rent`.
            [node.frame.load(Acquire), node.masked.load(Relaxed)]
        });
        let mut named: Vec<(u32, bool)> = named
            .filter_map(|frame| {
                let frame = u32::try_from(frame).ok().filter(|frame| *frame > 0)?;
                let status = table.get(frame)?.status()?;
                let is_lent = status.state == State::Filling || status.state.is_claimable();
                is_lent.then_some((frame, status.state.is_claimable()))
            })
            .collect();
        named.sort_unstable();
        named.dedup_by_key(|(frame, _)| *frame);
        named
    }
}

mod renting;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_class_with_the_next_end() {
        for nanoseconds in (0..5000).chain([20_000, 1 << 20, 3_000_000]) {
            let class = time_class(nanoseconds);
            assert!(nanoseconds <= class_end(class), "{nanoseconds}");
            assert!(
                class == 0 || nanoseconds > class_end(class - 1),
                "{nanoseconds}"
            );
        }
        assert_eq!(time_class(u64::MAX), TIMES - 1);
    }
}
