//! Which frames the cache evicts first: SIEVE (Zhang et al., NSDI 2024), applied to frames.
//!
//! Frames are numbered in the order in which they are sealed. A hand moves from the oldest to the
//! youngest and starts again. A frame that had more hits than the mean since the hand last passed
//! it stays, and half of its hits are forgotten; any other becomes a victim. Hits are sampled, one
//! in [`SAMPLE`], so that readers seldom write. Evicting costs O(1), because the records are not
//! examined.
//!
//! Victims are chosen [`VICTIMS`] at a time, because finding the oldest frames takes a pass over
//! all.

use super::Discardable;
use crate::lending::{Lending, VICTIMS, pack_victim};
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::Ordering::Relaxed;

/// One in this many hits is counted for its frame; a power of two.
const SAMPLE: u64 = 8;

/// Whether the hit with this number is counted. The numbers are scrambled, so that periodic access
/// patterns are counted evenly.
pub(super) fn is_sampled(number: u64) -> bool {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (SAMPLE - 1) == 0
}

impl Discardable {
    /// Chooses the frames of the node that are evicted next. Only for the holder of its fill lock.
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
                // Relaxed here and below: these are only preferences.
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
