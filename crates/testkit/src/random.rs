//! [`Random`].

use std::ops::Range;

use crate::setting;

/// A stream of numbers that its seed determines (SplitMix64: Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of that seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// One of several independent streams of the run's seed, `MNEME_LADDER_SEED`.
    pub fn of_run(stream: u64) -> Random {
        let seed = setting("MNEME_LADDER_SEED").unwrap_or(7);
        Random(mix(seed) ^ mix(stream.wrapping_add(1)))
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Whether a draw falls upon one in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An index of that range.
    pub fn among(&mut self, indices: &Range<usize>) -> usize {
        indices.start + self.below(indices.len() as u64) as usize
    }
}

/// A bijection on 64-bit numbers that spreads every bit of its argument.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_its_seeds_and_streams_differ() {
        let draw = |mut random: Random| [(); 10].map(|()| random.next());
        assert_eq!(draw(Random::new(3)), draw(Random::new(3)));
        assert_ne!(draw(Random::of_run(0)), draw(Random::of_run(1)));
        let mut random = Random::new(1);
        let mut seen = [false; 5];
        (0..100).for_each(|_| seen[random.below(5) as usize] = true);
        assert_eq!(seen, [true; 5]);
    }
}
