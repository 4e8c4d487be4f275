//! Which frames the cache gives up first: SIEVE (Zhang et al., NSDI 2024), frame by frame.
//!
//! Frames are numbered as they are sealed. A hand goes from the oldest to the youngest and begins
//! again. A frame that was hit more than the mean since the hand came past it last stays where it
//! is, and half of its hits are forgotten; another is a victim. Hits are sampled, one in
//! [`SAMPLE`], so that readers seldom write. A victim costs O(1): its records are not looked at.
//!
//! Victims are named [`VICTIMS`] at a time, since finding the oldest frames takes a pass over all.

use super::Discardable;
use crate::lending::{Lending, VICTIMS, pack_victim};
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::Ordering::Relaxed;

/// One hit in so many is counted for its frame; a power of two.
const SAMPLE: u64 = 8;

/// Whether the hit of this number is counted. The numbers are scattered, so that what is read in
/// turns is counted evenly.
pub(super) fn is_sampled(number: u64) -> bool {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (SAMPLE - 1) == 0
}

impl Discardable {
    /// Names the frames of the node that are given up next. Holder of its fill lock only.
    pub(super) fn name_victims(
        &self,
        lending: &Lending<'_>,
        node: NodeId,
    ) -> Result<(), RegionError> {
        let Some(fill) = lending.node(node.0) else {
            return Ok(());
        };
        let mut rented: Vec<(u64, u64, u32, u32)> = Vec::new();
        for (frame, generation) in self.arena.rented_on(node)? {
            if let Some(uses) = lending.uses(frame) {
                // Relaxed here and below: preferences.
                let (born, hits) = (uses.born.load(Relaxed), uses.hits.load(Relaxed));
                rented.push((born, hits, frame, generation));
            }
        }
        rented.sort_unstable();
        let hits: u64 = rented
            .iter()
            .fold(0, |sum, frame| sum.saturating_add(frame.1));
        let mean = hits / (rented.len() as u64).max(1);
        let hand = fill.hand.load(Relaxed);
        let passed = rented.partition_point(|frame| frame.0 <= hand);
        rented.rotate_left(passed);
        let mut victims = fill.victims.iter();
        for (born, hits, frame, generation) in rented {
            if hits > mean {
                if let Some(uses) = lending.uses(frame) {
                    uses.hits.store(hits / 2, Relaxed);
                }
            } else {
                let Some(victim) = victims.next() else {
                    break;
                };
                victim.store(pack_victim(frame, generation), Relaxed);
            }
            fill.hand.store(born, Relaxed);
        }
        debug_assert!(fill.victims.len() == VICTIMS);
        Ok(())
    }
}
