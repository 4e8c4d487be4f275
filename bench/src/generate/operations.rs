//! Streams of operations, made before the clock starts.
//!
//! An operation is one 32-bit word: two bits of kind, 30 bits of record. Reading it costs nothing
//! beside the operation, and every system of a comparison gets the same words.

use super::random::Random;
use super::zipfian::{YCSB_THETA, Zipfian};
use std::fmt;

/// One more than the highest record number.
pub const RECORDS_LIMIT: u64 = 1 << 30;

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Copy its value out.
    Read,
    /// Replace its value by one as long.
    Update,
    /// Store it for the first time.
    Insert,
    /// Read it, change it, store it: one atomic step.
    Modify,
}

/// A kind and a record in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation(u32);

impl Operation {
    /// `record` is below [`RECORDS_LIMIT`].
    pub fn new(kind: Kind, record: u64) -> Self {
        debug_assert!(record < RECORDS_LIMIT);
        Self((kind as u32) << 30 | record as u32)
    }

    /// What to do.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 >> 30 {
            0 => Kind::Read,
            1 => Kind::Update,
            2 => Kind::Insert,
            _ => Kind::Modify,
        }
    }

    /// With which record.
    #[inline]
    pub fn record(self) -> u32 {
        self.0 & (RECORDS_LIMIT - 1) as u32
    }
}

/// How records are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// By Zipf's law with theta 0.99, the frequent ones scattered over the set.
    Zipfian,
    /// By Zipf's law, the newest most often.
    Latest,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        })
    }
}

/// Which kinds come how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mix {
    /// The papers' mixes: this many of a hundred are GET, the others PUT to records that exist.
    Get(u8),
    /// YCSB's D: 95 % reads of the latest, 5 % inserts.
    D,
    /// YCSB's F: half reads, half read-modify-writes.
    F,
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Get(share) => write!(f, "get{share}"),
            Mix::D => f.write_str("d"),
            Mix::F => f.write_str("f"),
        }
    }
}

impl Mix {
    /// Draws what to do.
    fn draw(self, random: &mut Random) -> Kind {
        let (reads, other) = match self {
            Mix::Get(share) => (u64::from(share), Kind::Update),
            Mix::D => (95, Kind::Insert),
            Mix::F => (50, Kind::Modify),
        };
        if random.below(100) < reads {
            Kind::Read
        } else {
            other
        }
    }
}

/// The drawing thread: thread `thread` of `threads`, from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Where the stream begins.
    pub seed: u64,
    /// This thread.
    pub thread: u32,
    /// Of how many; inserts of different threads never meet.
    pub threads: u32,
}

/// Draws `count` operations on a set of `records` records (at least 2).
///
/// An inserted record has a number of its own, from `records` on; a read of the latest reaches only
/// what was loaded or what the same stream has inserted before, so that no read misses.
pub fn stream(
    mix: Mix,
    distribution: Distribution,
    records: u64,
    count: usize,
    source: Source,
) -> Vec<Operation> {
    let lane = u64::from(source.thread) + (u64::from(source.threads) << 32);
    let mut random = Random::new(source.seed ^ super::random::mix(lane + 1));
    let law = (distribution != Distribution::Uniform).then(|| Zipfian::new(records, YCSB_THETA));
    let mut inserted = 0u64;
    let nth_insert = |n: u64| records + u64::from(source.thread) + n * u64::from(source.threads);
    let one = |_| {
        let kind = mix.draw(&mut random);
        if kind == Kind::Insert {
            inserted += 1;
            return Operation::new(kind, nth_insert(inserted - 1));
        }
        let record = match (distribution, &law) {
            (Distribution::Zipfian, Some(law)) => scatter(law.draw(&mut random), records),
            (Distribution::Latest, Some(law)) => {
                let age = law.draw(&mut random);
                if age < inserted {
                    nth_insert(inserted - 1 - age)
                } else {
                    records - 1 - (age - inserted)
                }
            }
            _ => random.below(records),
        };
        Operation::new(kind, record)
    };
    (0..count).map(one).collect()
}

/// Sends neighbouring ranks far apart: a bijection on `0..records`, since the multiplier is a prime
/// above it.
#[inline]
pub fn scatter(rank: u64, records: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    const { assert!(PRIME > RECORDS_LIMIT) };
    (rank * PRIME + 12_345) % records
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const RECORDS: u64 = 10_000;

    fn drawn(mix: Mix, distribution: Distribution, thread: u32) -> Vec<Operation> {
        let source = Source {
            seed: 5,
            thread,
            threads: 2,
        };
        stream(mix, distribution, RECORDS, 200_000, source)
    }

    fn share(operations: &[Operation], kind: Kind) -> f64 {
        operations.iter().filter(|o| o.kind() == kind).count() as f64 / operations.len() as f64
    }

    #[test]
    fn an_operation_is_what_it_was_made_of() {
        for kind in [Kind::Read, Kind::Update, Kind::Insert, Kind::Modify] {
            for record in [0, 1, RECORDS_LIMIT - 1] {
                let operation = Operation::new(kind, record);
                assert_eq!(
                    (operation.kind(), u64::from(operation.record())),
                    (kind, record)
                );
            }
        }
    }

    #[test]
    fn mixes_keep_their_shares() {
        for (mix, kind, wanted) in [
            (Mix::Get(100), Kind::Read, 1.0),
            (Mix::Get(95), Kind::Update, 0.05),
            (Mix::Get(0), Kind::Update, 1.0),
            (Mix::D, Kind::Insert, 0.05),
            (Mix::F, Kind::Modify, 0.5),
        ] {
            let found = share(&drawn(mix, Distribution::Uniform, 0), kind);
            assert!((found - wanted).abs() < 0.01, "{mix} {kind:?}: {found}");
        }
    }

    #[test]
    fn records_stay_in_the_set_and_zipfian_hot_ones_are_apart() {
        let operations = drawn(Mix::Get(100), Distribution::Zipfian, 0);
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for operation in &operations {
            assert!(u64::from(operation.record()) < RECORDS);
            *counts.entry(operation.record()).or_default() += 1;
        }
        let mut hottest: Vec<_> = counts.into_iter().collect();
        hottest.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        assert!(
            hottest[0].1 > 15_000,
            "the first rank comes with one in ten"
        );
        assert!(hottest[0].0.abs_diff(hottest[1].0) > 100);
    }

    #[test]
    fn scattering_is_a_bijection() {
        let places: HashSet<u64> = (0..RECORDS).map(|rank| scatter(rank, RECORDS)).collect();
        assert_eq!(places.len() as u64, RECORDS);
    }

    #[test]
    fn latest_reads_only_what_its_own_stream_has_stored() {
        let mut there: HashSet<u32> = (0..RECORDS as u32).collect();
        let mut young = 0;
        for operation in drawn(Mix::D, Distribution::Latest, 1) {
            match operation.kind() {
                Kind::Insert => assert!(there.insert(operation.record())),
                _ => {
                    assert!(there.contains(&operation.record()));
                    young += usize::from(u64::from(operation.record()) >= RECORDS);
                }
            }
        }
        assert!(young > 50_000, "{young}");
    }

    #[test]
    fn threads_insert_different_records() {
        let inserts = |thread| -> HashSet<u32> {
            let operations = drawn(Mix::D, Distribution::Latest, thread);
            let inserts = operations.iter().filter(|o| o.kind() == Kind::Insert);
            inserts.map(|o| o.record()).collect()
        };
        assert!(inserts(0).is_disjoint(&inserts(1)));
    }
}
