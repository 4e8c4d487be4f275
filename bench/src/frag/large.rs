//! How much of a store large values of mixed sizes fill before it is full.

use super::pattern::key;
use crate::error::{BenchError, failed};
use crate::generate::random::Random;
use mneme_log::{LogStore, WriteError};

/// Sizes of values, each power of two as often as any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixture {
    /// In words.
    pub name: &'static str,
    /// Bytes of the smallest.
    smallest: u64,
    /// Bytes of the largest.
    largest: u64,
}

/// All.
pub const MIXTURES: [Mixture; 2] = [
    Mixture {
        name: "64 KiB to 8 MiB",
        smallest: 64 << 10,
        largest: 8 << 20,
    },
    Mixture {
        name: "100 to 800 KiB",
        smallest: 100 << 10,
        largest: 800 << 10,
    },
];

impl Mixture {
    fn draw(self, random: &mut Random) -> usize {
        let spread = self.largest as f64 / self.smallest as f64;
        (self.smallest as f64 * spread.powf(random.unit())) as usize
    }

    /// Bytes of keys and values in a store of `capacity` bytes when it refuses the next value, over
    /// its capacity.
    ///
    /// # Errors
    /// No memory; a store that refuses for another reason than being full.
    pub fn full_at(self, capacity: u64, seed: u64) -> Result<f64, BenchError> {
        let store = LogStore::builder()
            .capacity(capacity)
            .maintainer(false)
            .open_private()
            .map_err(failed)?;
        let value = vec![0x5A; self.largest as usize];
        let (mut random, mut data) = (Random::new(seed), 0);
        for id in 0.. {
            let (key, bytes) = (key(id), self.draw(&mut random));
            match store.put(&key, &value[..bytes]) {
                Ok(()) => data += key.len() + bytes,
                Err(WriteError::OutOfMemory { .. }) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(data as f64 / store.capacity() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_between_the_smallest_and_the_largest_in_every_octave() {
        for mixture in MIXTURES {
            let mut random = Random::new(1);
            let sizes: Vec<_> = (0..1000)
                .map(|_| mixture.draw(&mut random) as u64)
                .collect();
            let all = mixture.smallest..=mixture.largest;
            assert!(sizes.iter().all(|size| all.contains(size)));
            assert!(sizes.iter().any(|size| *size < 2 * mixture.smallest));
            assert!(sizes.iter().any(|size| *size > mixture.largest / 2));
        }
    }

    #[test]
    fn a_store_is_full_at_a_share_of_its_capacity() {
        let share = MIXTURES[1].full_at(64 << 20, 1).unwrap();
        assert!((0.1..1.0).contains(&share), "{share}");
    }
}
