//! Choices that a seed repeats.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed << 1 | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of a range of names.
    pub fn among(&mut self, names: &std::ops::Range<usize>) -> usize {
        names.start + self.below(names.len() as u64) as usize
    }
}
