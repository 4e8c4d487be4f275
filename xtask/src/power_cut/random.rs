//! [`Random`]. That of `mneme-testkit` is for tests alone.

/// A stream of numbers that its seed determines (SplitMix64: Steele, Lea, Flood 2014).
pub struct Random(u64);

impl Random {
    /// The stream of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }
}
