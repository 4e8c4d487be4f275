//! Random numbers, for random elements.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Random numbers: SplitMix64, with a seed that no client knows. Not for secrets.
#[derive(Clone, Debug)]
pub struct Lot(u64);

impl Default for Lot {
    fn default() -> Self {
        Self::new()
    }
}

impl Lot {
    /// A generator with its own seed. O(1).
    #[must_use]
    pub fn new() -> Lot {
        Lot(RandomState::new().build_hasher().finish())
    }

    /// A uniformly random number below `bound`, up to a bias of 2^-32 or so; 0 if `bound` is 0.
    /// O(1).
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * bound as u128) >> 64) as usize
    }
}
