//! The smallest store in which a pattern completes, found by halving the interval.
//!
//! One thread writes and there is no maintainer, so a run has one outcome; a store so small that
//! its writer compacts for ever is given up after a while, and the report says so.

use super::pattern::Churn;
use super::store::{Ours, Refusal, verify};
use crate::error::{BenchError, failed};
use mneme_log::{LogStore, MIN_CAPACITY, Stats};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Steps of the search: capacities are multiples of this share of the data.
pub const STEPS: u64 = 200;

/// No capacity beyond this many times the data is tried.
const MOST: u64 = 4;

/// What a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Bytes of keys and values in the end.
    pub data: u64,
    /// The smallest capacity that was enough.
    pub capacity: u64,
    /// Where its bytes were in the end.
    pub stats: Stats,
    /// Probes that were given up because they took too long, and counted as too small.
    pub given_up: u32,
}

impl Found {
    /// Everything over the data.
    pub fn overhead(&self) -> f64 {
        self.capacity as f64 / self.data as f64
    }

    /// Everything but the index over the data: the log with its heads and its reserve, and all
    /// tables.
    pub fn log_overhead(&self) -> f64 {
        (self.capacity - self.stats.index_bytes) as f64 / self.data as f64
    }

    /// The index over the data.
    pub fn index_overhead(&self) -> f64 {
        self.stats.index_bytes as f64 / self.data as f64
    }
}

/// Searches, first around `guess` times the data. None: not even a roomy store completes within
/// `limit`.
///
/// # Errors
/// No memory; a store that loses records, or that refuses for another reason than being full.
pub fn search(churn: &Churn, guess: f64, limit: Duration) -> Result<Option<Found>, BenchError> {
    let capacity_of = |step: u64| {
        (churn.data / STEPS * step)
            .next_multiple_of(2 << 20)
            .max(MIN_CAPACITY)
    };
    let given_up = Cell::new(0);
    let mut found = None;
    let mut attempt = |step: u64| -> Result<bool, BenchError> {
        let capacity = capacity_of(step);
        match probe(churn, capacity, limit)? {
            Ok((data, stats)) => {
                found = Some((data, capacity, stats));
                Ok(true)
            }
            Err(late) => {
                given_up.set(given_up.get() + u32::from(late));
                Ok(false)
            }
        }
    };
    // Below the data nothing can complete.
    let (mut small, mut enough) = (STEPS, (guess * STEPS as f64) as u64);
    let mut jump = STEPS / 20;
    while !attempt(enough)? {
        small = enough;
        enough += jump;
        jump *= 2;
        if enough > MOST * STEPS && given_up.get() > 0 {
            return Ok(None);
        }
        if enough > MOST * STEPS {
            return Err(BenchError::Store(format!(
                "{} does not complete in {MOST} times its data",
                churn.pattern.name
            )));
        }
    }
    while enough - small > 1 {
        let middle = small.midpoint(enough);
        if capacity_of(middle) == capacity_of(enough) || attempt(middle)? {
            enough = middle;
        } else {
            small = middle;
        }
    }
    match found {
        Some((data, capacity, stats)) => Ok(Some(Found {
            data,
            capacity,
            stats,
            given_up: given_up.get(),
        })),
        None => unreachable!("the search ends with a capacity that was enough"),
    }
}

type Outcome = Result<(u64, Stats), bool>;

/// Runs the pattern in a store of `capacity` bytes; whether it was late if it did not complete.
fn probe(churn: &Churn, capacity: u64, limit: Duration) -> Result<Outcome, BenchError> {
    let store = LogStore::builder()
        .capacity(capacity)
        .maintainer(false)
        .entropy([7; 24])
        .open_private()
        .map_err(failed)?;
    let longest = churn.pattern.first.max(churn.pattern.second);
    let mut ours = Ours::new(&store, longest, Instant::now() + limit);
    match churn.run(&mut ours) {
        Ok(data) => {
            verify(&store, churn)?;
            Ok(Ok((data, store.stats())))
        }
        Err(Refusal::Full) => Ok(Err(false)),
        Err(Refusal::Late) => Ok(Err(true)),
        Err(Refusal::Other(what)) => Err(BenchError::Store(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::of_name;
    use super::*;

    /// The answer of the search: what it found was enough, and one step less is not.
    #[test]
    fn the_smallest_capacity_is_enough_and_no_smaller_one_is() {
        let churn = Churn::new(of_name("P4").unwrap(), 72 << 20, 1);
        let limit = Duration::from_secs(100);
        let found = search(&churn, 1.2, limit).unwrap().unwrap();
        assert!(probe(&churn, found.capacity, limit).unwrap().is_ok());
        let less = found.capacity - (2 << 20);
        assert!(probe(&churn, less, limit).unwrap().is_err());
        assert!(found.overhead() > 1.0 && found.log_overhead() <= found.overhead());
    }
}
