//! A small, fast, seeded generator (SplitMix64: Steele, Lea, Flood 2014).

/// A stream of 64-bit numbers determined by its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream that begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `limit`, which is not 0; the bias is below `limit / 2^64`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `0.0..1.0` with 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// A bijection on 64-bit numbers that spreads every bit of its argument.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream() {
        let (mut a, mut b, mut c) = (Random::new(7), Random::new(7), Random::new(8));
        let stream = |r: &mut Random| (0..100).map(|_| r.next_u64()).collect::<Vec<_>>();
        assert_eq!(stream(&mut a), stream(&mut b));
        assert_ne!(stream(&mut a), stream(&mut c));
    }

    #[test]
    fn numbers_stay_below_their_limit_and_fill_it_evenly() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        // Five standard deviations of a binomial with p = 0.1.
        for count in counts {
            assert!((10_000 - 475..10_000 + 475).contains(&count), "{counts:?}");
        }
    }
}
