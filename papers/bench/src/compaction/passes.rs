//! Whole passes of compaction over a store at rest: what is moved for what is won.
//!
//! A store without a maintainer is filled, a random part of its records removed, and then compacted
//! from one or more threads until nothing is left to win. What was won is the growth of its free
//! frames; what was moved is the log segments that were emptied, less that, whatever was moved
//! twice included. At a live fraction `u` of every segment the ratio is `u / (1 - u)` at best.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::keys::key;
use mneme_bench::generate::random::mix;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::records::Records;
use mneme_bench::rounds::joined;
use mneme_bench::systems::BATCH;
use mneme_log::{LogStore, WriteError};
use std::time::{Duration, Instant};

/// Bytes of a log segment of a store below [`CAPACITY_LIMIT`].
const SEGMENT: usize = mneme_sys::FRAME;

/// Stores of this size and above have longer log segments.
pub const CAPACITY_LIMIT: u64 = 1 << 30;

/// What is compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Bytes of a value.
    pub value: usize,
    /// Live part of every log segment.
    pub live: f64,
    /// Threads that compact.
    pub workers: u32,
}

/// The result of the passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Bytes of survivors copied for a byte of frames won.
    pub moved: f64,
    /// Bytes of frames won.
    pub won: f64,
    /// How long it took.
    pub took: Duration,
}

impl Pass {
    /// The case's name in reports.
    pub fn case(&self) -> String {
        let Pass {
            value,
            live,
            workers,
        } = self;
        format!("compact {value}B, {live:.2} live, {workers} worker(s)")
    }

    /// The case of the bytes moved.
    pub fn moved_case(&self) -> String {
        self.case() + ", moved"
    }

    /// Adds a round.
    pub fn report(&self, ledger: &mut Ledger, outcome: &Outcome) {
        let gigabytes = outcome.won / outcome.took.as_secs_f64() / 1e9;
        ledger.add("mneme", &self.case(), Metric::Bandwidth, gigabytes);
        ledger.add("mneme", &self.moved_case(), Metric::Moved, outcome.moved);
    }

    /// Fills a store of `capacity` bytes, thins it out and compacts it.
    ///
    /// # Errors
    /// No memory; a store that loses records.
    pub fn run(&self, capacity: u64, seed: u64) -> Result<Outcome, BenchError> {
        let store = LogStore::builder()
            .capacity(capacity)
            .maintainer(false)
            .open_private()
            .map_err(failed)?;
        let mut records = Records::new(store, self.value);
        // Until the store is full.
        match records.fill(u64::from(u32::MAX)) {
            Err(error) if matches!(error.source, WriteError::OutOfMemory { .. }) => {}
            other => other.map_err(failed)?,
        }
        let Records { store, count, .. } = records;
        let dead = |id: &u32| mix(seed ^ u64::from(*id)) as f64 / u64::MAX as f64 > self.live;
        let ids: Vec<u32> = (0..count as u32).filter(dead).collect();
        for ids in ids.chunks(BATCH) {
            let keys: Vec<_> = ids.iter().map(|&id| key(id)).collect();
            store.remove_many(&keys).map_err(failed)?;
        }
        let before = store.stats();
        let start = Instant::now();
        let emptied = self.compact(&store)?;
        let took = start.elapsed();
        let after = store.stats();
        let left = count - ids.len() as u64;
        if after.records != left {
            return Err(BenchError::wrong(
                "mneme",
                self.case(),
                format!("{} of {left} records are there", after.records),
            ));
        }
        let won = after.free_bytes.saturating_sub(before.free_bytes) as f64;
        Ok(Outcome {
            moved: ((emptied * SEGMENT) as f64 - won) / won.max(1.0),
            won,
            took,
        })
    }

    /// Compacts until nothing is left to win; how many log segments were emptied.
    fn compact(&self, store: &LogStore) -> Result<usize, BenchError> {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers)
                .map(|_| scope.spawn(|| store.compact().map_err(failed)))
                .collect();
            let mut emptied = 0;
            for worker in workers {
                emptied += joined(worker)?;
            }
            Ok(emptied)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_frees_the_dead_bytes() {
        let pass = Pass {
            value: 1024,
            live: 0.5,
            workers: 1,
        };
        let outcome = pass.run(64 << 20, 1).unwrap();
        // Half of a log of some 50 MiB, less what the open log segments keep.
        assert!(outcome.won > (16 << 20) as f64, "{outcome:?}");
        assert!((0.5..2.0).contains(&outcome.moved), "{outcome:?}");
    }
}
