//! Ranks drawn by Zipf's law, as YCSB draws them.
//!
//! The method of Gray, Sundaresan, Englert, Baclawski and Weinberger (*Quickly generating
//! billion-record synthetic databases*, SIGMOD 1994), which YCSB's `ZipfianGenerator` uses with
//! theta 0.99: rank `i` of `n` comes with probability `1 / (i + 1)^theta / zeta(n)`. Ranks 0 and 1
//! are exact; beyond them the method inverts the integral instead of the sum, which the tests show
//! to be close.

use super::random::Random;

/// The skew YCSB uses by default.
pub const YCSB_THETA: f64 = 0.99;

/// Zipf's law over the ranks `0..items`, rank 0 the most frequent.
#[derive(Debug, Clone)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// For `items` ranks (at least 2) and a `theta` in `0.0..1.0`. Costs a sum over all items,
    /// once.
    pub fn new(items: u64, theta: f64) -> Self {
        let zeta = zeta(items, theta);
        let eta =
            (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two(theta) / zeta);
        Self {
            items,
            theta,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    /// Draws a rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta_of_two(self.theta) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

fn zeta(items: u64, theta: f64) -> f64 {
    (1..=items).map(|i| (i as f64).powf(-theta)).sum()
}

fn zeta_of_two(theta: f64) -> f64 {
    1.0 + 0.5f64.powf(theta)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: u64 = 100_000;
    const DRAWS: u64 = 2_000_000;

    fn counts() -> Vec<u64> {
        let zipfian = Zipfian::new(ITEMS, YCSB_THETA);
        let mut random = Random::new(42);
        let mut counts = vec![0; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[zipfian.draw(&mut random) as usize] += 1;
        }
        counts
    }

    /// The probability of a rank.
    fn lawful(rank: usize) -> f64 {
        ((rank + 1) as f64).powf(-YCSB_THETA) / zeta(ITEMS, YCSB_THETA)
    }

    #[test]
    fn the_two_most_frequent_ranks_are_exact() {
        let counts = counts();
        for (rank, &count) in counts.iter().enumerate().take(2) {
            let expected = lawful(rank) * DRAWS as f64;
            let deviation = (expected * (1.0 - lawful(rank))).sqrt();
            assert!(
                (count as f64 - expected).abs() < 5.0 * deviation,
                "{rank}: {count}, not {expected}"
            );
        }
    }

    #[test]
    fn the_cumulative_distribution_follows_the_law() {
        let (mut drawn, mut wanted) = (0.0, 0.0);
        let zeta = zeta(ITEMS, YCSB_THETA);
        for (rank, &count) in counts().iter().enumerate() {
            drawn += count as f64 / DRAWS as f64;
            wanted += ((rank + 1) as f64).powf(-YCSB_THETA) / zeta;
            if [9, 99, 999, 9_999, 49_999].contains(&rank) {
                assert!(
                    (drawn - wanted).abs() < 0.03,
                    "up to {rank}: {drawn:.3}, not {wanted:.3}"
                );
            }
        }
    }

    #[test]
    fn every_part_of_the_ranks_is_reached_and_none_beyond() {
        let counts = counts();
        for tenth in counts.chunks(ITEMS as usize / 10) {
            assert!(tenth.iter().sum::<u64>() > 0);
        }
        assert_eq!(counts.iter().sum::<u64>(), DRAWS);
    }
}
