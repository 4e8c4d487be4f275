//! Idle frames are lent to the second class, which may lose them at any moment.
//!
//! **A claim never waits for the second class, and the second class never takes what the reserve
//! or a claim needs.** A frame goes from one to the other by compare-and-swap on its descriptor
//! (`descriptor::lending`), not under the arena's lock, so a tenant that sleeps or is dead holds
//! nothing up. Each node has one frame at most that is being filled; no claim can have that one.
//!
//! The search tree means *claimable*: free or rented. Tenants do not change it. What a tenant is
//! filling stands in its node's [`FillNode`], and a claim takes it out of the tree before it
//! searches ([`Arena::mask_filling`]). The idle bitmap says which frames are free and resident. It
//! is a hint: its readers look at the descriptor, and a wrong bit costs a choice, never a frame.
//!
//! Why the reserve is safe: the tenant takes a frame, makes a SeqCst fence, and looks at the
//! arena's lock and at what is left. The claim takes the lock, makes a SeqCst fence, and looks at
//! what is being filled. So either the claim counts the tenant's frame as gone, or the tenant sees
//! the lock held and gives the frame back.
//!
//! Only frames that somebody had before (generation above 0) are lent: they have their memory. They
//! are lent from the highest address down, while claims take the lowest.

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

/// Victims that the cache's policy names ahead, a node.
pub(crate) const VICTIMS: usize = 64;
/// Classes of the claims' times: four to an octave, from 64 ns on.
pub(crate) const TIMES: usize = 64;
/// Words of the idle bitmap that a claim looks through for a run that costs nobody anything (4,096
/// frames, under a microsecond). Behind them it takes what the tree finds.
const IDLE_WORDS: u32 = 64;
/// Candidates that a tenant tries in vain before it does without a frame.
const TRIES: usize = 16;

/// How an arena lends its idle frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LendingOptions {
    /// Records that the cache's index has entries for, 1 to 2^32; 8 bytes each, and 1.15 times as
    /// many are made. About the bytes to lend over the mean size of a record with its key and 24
    /// bytes.
    pub records: u64,
    /// Frames that are lent at most. Lent memory is resident: `u32::MAX` lets the process grow to
    /// the arena's whole capacity.
    pub max_frames: u32,
}

/// Bytes that a record takes about, where nothing is known of its size.
const MEAN_RECORD: u64 = 256;

impl LendingOptions {
    /// At most so many bytes of an arena of `capacity` bytes, to records of about 256.
    #[must_use]
    pub fn of_bytes(bytes: u64, capacity: u64) -> LendingOptions {
        LendingOptions {
            records: (bytes.min(capacity) / MEAN_RECORD).clamp(1, 1 << 32),
            max_frames: u32::try_from(bytes.div_ceil(FRAME_BYTES)).unwrap_or(u32::MAX),
        }
    }

    /// Bytes of the index.
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

/// What all nodes share.
#[repr(C, align(128))]
pub(crate) struct LendingHeader {
    /// Secret of the index and of the records' checksums.
    pub seed: AtomicU64,
    pub max_frames: AtomicU32,
    /// Frames that are lent, about: a death in between makes it wrong until the next sweep.
    pub lent: AtomicU32,
    /// Number of the last frame that was sealed; frames are numbered as they are.
    pub born: AtomicU64,
    /// Rented frames that claims took. Under the arena's lock.
    pub discards: AtomicU64,
    /// Lookups that found a copy, and that did not, as far as openings have added them.
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    _line: [AtomicU64; 10],
    /// Claims by the time they took. Under the arena's lock.
    pub times: [AtomicU64; TIMES],
}

/// The frame of a node that is being filled, and who fills it.
#[repr(C, align(128))]
pub(crate) struct FillNode {
    /// Guards all but `masked` and `victims`. Nobody waits for it.
    pub lock: RobustLock,
    /// The frame that is, or is about to be, in state `Filling`; 0: none.
    pub frame: AtomicU64,
    /// Bytes of it in use. [`NOT_BEGUN`] while it is not certain that the frame is kept.
    pub used: AtomicU64,
    /// Number of the frame that the policy looked at last.
    pub hand: AtomicU64,
    /// The frame that the search tree leaves out. Under the arena's lock.
    pub masked: AtomicU64,
    _line: [AtomicU64; 11],
    /// What the policy gives up first: frame and generation. Taken by swapping with 0.
    pub victims: [AtomicU64; VICTIMS],
}

/// [`FillNode::used`] of a frame that nothing may be written to.
pub(crate) const NOT_BEGUN: u64 = u64::MAX;

/// What the policy knows about a frame.
#[repr(C)]
pub(crate) struct FrameUse {
    /// Its number among the frames that were sealed.
    pub born: AtomicU64,
    /// Hits, sampled.
    pub hits: AtomicU64,
}

const _: () = {
    assert!(size_of::<LendingHeader>() == 640);
    assert!(size_of::<FillNode>() == 640);
    assert!(size_of::<FrameUse>() == 16);
};

impl LendingHeader {
    /// All but the times is zero before.
    pub fn begin(&self, seed: u64, max_frames: u32) {
        self.seed.store(seed, Relaxed);
        self.max_frames.store(max_frames, Relaxed);
    }
}

/// What an arena has that lends.
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

    /// Whether the search tree has this frame, which is being filled: its node names it, and no
    /// claim has left it out since. Under the arena's lock.
    pub fn is_in_tree(&self, frame: u32) -> bool {
        self.nodes.iter().any(|node| {
            // SYNC: pairs with the Release store in `rent`.
            node.frame.load(Acquire) == u64::from(frame)
                && node.masked.load(Relaxed) != u64::from(frame)
        })
    }

    /// Notes frames as idle, or not. A hint: Relaxed.
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

    /// Adds to the number of frames that are lent.
    pub fn count_lent(&self, more: i32) {
        // Relaxed: a number that stands for itself. It never goes below 0, whatever a death left.
        let _ = self.header.lent.fetch_update(Relaxed, Relaxed, |lent| {
            Some(lent.saturating_add_signed(more))
        });
    }

    /// Notes a claim that took so long and discarded so many frames. Under the arena's lock.
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

/// The class of a time: two bits below the highest one.
pub(crate) fn time_class(nanoseconds: u64) -> usize {
    let scaled = (nanoseconds >> 4).max(4);
    let octave = scaled.ilog2() - 2;
    ((octave as usize) << 2 | (scaled >> octave & 3) as usize).min(TIMES - 1)
}

/// The longest time of a class, in nanoseconds.
pub(crate) fn class_end(class: usize) -> u64 {
    ((((class as u64 & 3) + 5) << (class >> 2)) << 4) - 1
}

/// A frame with its generation, as victims are named.
pub(crate) fn pack_victim(frame: u32, generation: u32) -> u64 {
    u64::from(frame) | u64::from(generation) << 32
}

impl Arena {
    /// What only an arena has that lends.
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

    /// Changes how many frames are lent at most. It takes effect for frames that are lent
    /// afterwards. Nothing in an arena that does not lend.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn set_max_lent(&self, frames: u32) -> Result<(), RegionError> {
        self.may_write()?;
        if let Some(lending) = self.lending()? {
            // Relaxed: the number stands for itself.
            lending.header.max_frames.store(frames, Relaxed);
        }
        Ok(())
    }

    /// Takes what is being filled out of the search tree, and puts back what no longer is. Lock
    /// holder only. Whether the tree has changed.
    pub(crate) fn mask_filling(&self) -> Result<bool, RegionError> {
        let Some(lending) = self.lending()? else {
            return Ok(false);
        };
        // SYNC: pairs with the fence in `begin_filling`: see the head of this file.
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
            // The tree may have it again: derived when the frame was sealed, before it was filled
            // anew.
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

    /// A run on the node that costs as little as possible: idle frames; for a single frame, what
    /// the cache's policy gives up first. `None`: what the tree finds is as good.
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
            // What is idle is claimable: no run of idle frames lies before this one.
            if let Some(start) = summary.find(range.clone(), frames, align_log2)
                && let Some(run) = idle.scan(start..range.end, frames, align_log2, IDLE_WORDS)
            {
                let mut is_idle = true;
                for frame in (run..run + frames).filter(|frame| !summary.is_free(*frame)) {
                    // The hint of a tenant that slept before it gave it. It is forgotten.
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

    /// The frames that are being filled for the second class at this moment, by address. No claim
    /// gets one of these, nor a run across it.
    #[must_use]
    pub fn being_filled(&self) -> Vec<Frame> {
        let named = self.named_by_tenants().into_iter();
        named
            .filter(|(_, is_claimable)| !is_claimable)
            .map(|(frame, _)| Frame(frame))
            .collect()
    }

    /// The frames that the search tree may be wrong about, by address, and whether a claim may take
    /// them: those being filled, which the tree has until a claim looks, and those filled since a
    /// claim took them out.
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
    fn a_time_is_in_the_class_whose_end_is_next() {
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
