//! The patterns of Nibble's figure 9b: load with values of one size, remove a random 90 %, fill up
//! with another size.

use crate::generate::random::mix;

/// Bytes of a key.
pub const KEY_BYTES: usize = 8;

/// Of ten records, how many survive the removal.
const SURVIVORS_OF_TEN: u64 = 1;

/// Sizes of values, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// The paper's name.
    pub name: &'static str,
    /// Bytes of a value that is loaded.
    pub first: usize,
    /// Bytes of a value that fills up.
    pub second: usize,
}

const fn pattern(name: &'static str, first: usize, second: usize) -> Pattern {
    Pattern {
        name,
        first,
        second,
    }
}

/// All of them.
pub const PATTERNS: [Pattern; 6] = [
    pattern("P1", 60, 70),
    pattern("P2", 1000, 1024),
    pattern("P3", 1000, 1030),
    pattern("P4", 1 << 10, 10 << 10),
    pattern("P5", 10 << 10, 100 << 10),
    pattern("P6", 500 << 10, 600 << 10),
];

/// The pattern of this name.
pub fn of_name(name: &str) -> Option<Pattern> {
    let mut all = PATTERNS.into_iter();
    all.find(|pattern| pattern.name.eq_ignore_ascii_case(name))
}

/// A store that a pattern is run on.
pub trait Target {
    /// Why it refuses.
    type Error;

    /// Stores the values of these records; each value begins with its record's number.
    fn put(&mut self, ids: &[u64], bytes: usize) -> Result<(), Self::Error>;

    /// Removes these records, which are there.
    fn remove(&mut self, ids: &[u64]) -> Result<(), Self::Error>;
}

/// Records handed over at a time.
pub const BATCH: usize = 32;

/// The bytes of record `id`'s key.
#[inline]
pub fn key(id: u64) -> [u8; KEY_BYTES] {
    mix(id).to_le_bytes()
}

/// What a pattern leaves behind: record numbers and sizes, computed and not kept.
#[derive(Debug, Clone, Copy)]
pub struct Churn {
    /// Sizes.
    pub pattern: Pattern,
    /// Records of the first size.
    pub loaded: u64,
    /// Where the choice of survivors begins.
    pub seed: u64,
    /// Bytes of keys and values that there are after loading, and again in the end.
    pub data: u64,
}

impl Churn {
    /// The pattern over `data` bytes of keys and values.
    pub fn new(pattern: Pattern, data: u64, seed: u64) -> Self {
        let loaded = data / (KEY_BYTES + pattern.first) as u64;
        Self {
            pattern,
            loaded,
            seed,
            data,
        }
    }

    /// Whether a loaded record survives.
    pub fn survives(&self, id: u64) -> bool {
        mix(self.seed ^ mix(id)) % 10 < SURVIVORS_OF_TEN
    }

    /// Runs it; bytes of keys and values that are there in the end.
    ///
    /// # Errors
    /// What the target says.
    pub fn run<T: Target>(&self, target: &mut T) -> Result<u64, T::Error> {
        let (first, second) = (self.pattern.first, self.pattern.second);
        in_batches(0..self.loaded, |ids| target.put(ids, first))?;
        let dead = (0..self.loaded).filter(|&id| !self.survives(id));
        let mut removed = 0;
        in_batches(dead, |ids| {
            removed += ids.len() as u64;
            target.remove(ids)
        })?;
        let kept = (self.loaded - removed) * (KEY_BYTES + first) as u64;
        let refill = (self.data - kept) / (KEY_BYTES + second) as u64;
        in_batches(self.loaded..self.loaded + refill, |ids| {
            target.put(ids, second)
        })?;
        Ok(kept + refill * (KEY_BYTES + second) as u64)
    }
}

fn in_batches<E>(
    ids: impl Iterator<Item = u64>,
    mut work: impl FnMut(&[u64]) -> Result<(), E>,
) -> Result<(), E> {
    let mut batch = [0; BATCH];
    let mut held = 0;
    for id in ids {
        batch[held] = id;
        held += 1;
        if held == BATCH {
            work(&batch)?;
            held = 0;
        }
    }
    if held > 0 {
        work(&batch[..held])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::convert::Infallible;

    #[derive(Default)]
    struct Sizes(HashMap<u64, usize>);

    impl Target for Sizes {
        type Error = Infallible;
        fn put(&mut self, ids: &[u64], bytes: usize) -> Result<(), Infallible> {
            self.0.extend(ids.iter().map(|&id| (id, bytes)));
            Ok(())
        }
        fn remove(&mut self, ids: &[u64]) -> Result<(), Infallible> {
            for id in ids {
                assert!(self.0.remove(id).is_some(), "only what is there is removed");
            }
            Ok(())
        }
    }

    #[test]
    fn nine_in_ten_go_and_as_many_bytes_come_back() {
        for pattern in PATTERNS {
            let data = 64 << 20;
            let mut sizes = Sizes::default();
            let churn = Churn::new(pattern, data, 7);
            let left = churn.run(&mut sizes).unwrap();
            let sum: usize = sizes.0.values().map(|bytes| bytes + KEY_BYTES).sum();
            assert_eq!(left, sum as u64);
            assert!(left <= data && data - left < 2 * (pattern.second + KEY_BYTES) as u64);
            let old = sizes.0.values().filter(|&&b| b == pattern.first).count() as f64;
            let share = old / churn.loaded as f64;
            if churn.loaded > 10_000 {
                assert!((share - 0.1).abs() < 0.01, "{}: {share}", pattern.name);
            }
        }
    }

    #[test]
    fn patterns_are_known_by_name() {
        assert_eq!(of_name("p3").unwrap().second, 1030);
        assert_eq!(of_name("p7"), None);
    }
}
