//! Latencies in a histogram of constant relative error, and the percentiles that are reported of
//! it.

use crate::ledger::{Ledger, Metric};
use hdrhistogram::Histogram;
use std::time::Duration;

/// The highest latency that is distinguished; whatever takes longer counts as this.
const MOST: Duration = Duration::from_secs(100);

/// The percentiles that are reported, with their names.
pub const PERCENTILES: [(&str, f64); 5] = [
    ("p50", 50.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("max", 100.0),
];

/// Nanoseconds of operations, to three significant figures.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    /// None yet.
    fn default() -> Self {
        match Histogram::new_with_bounds(1, MOST.as_nanos() as u64, 3) {
            Ok(histogram) => Self(histogram),
            // The bounds are constants that the crate's documentation allows, which a test
            // confirms.
            Err(error) => unreachable!("a histogram of constant bounds: {error}"),
        }
    }
}

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos() as u64);
    }

    /// Adds all of another thread's.
    pub fn merge(&mut self, other: &Self) {
        // It fails only for values beyond the bounds, and both have the same.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of a hundred do not exceed, in nanoseconds.
    pub fn at(&self, percent: f64) -> f64 {
        if percent >= 100.0 {
            self.0.max() as f64
        } else {
            self.0.value_at_percentile(percent) as f64
        }
    }

    /// Adds a round's percentiles to the ledger, each as a case of its own.
    pub fn report(&self, ledger: &mut Ledger, system: &str, case: &str) {
        for (name, percent) in PERCENTILES {
            ledger.add(
                system,
                &percentile_case(case, name),
                Metric::Latency,
                self.at(percent),
            );
        }
    }
}

/// The name of a percentile's case.
pub fn percentile_case(case: &str, percentile: &str) -> String {
    format!("{case} {percentile}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::default();
        for nanoseconds in 1..=1000 {
            latencies.record(Duration::from_nanos(nanoseconds));
        }
        latencies.record(Duration::from_millis(3));
        assert!((latencies.at(50.0) - 500.0).abs() <= 1.0);
        assert!((latencies.at(99.0) - 990.0).abs() <= 2.0);
        assert!((latencies.at(100.0) - 3e6).abs() < 3e3);
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_the_highest() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(1000));
        assert!(latencies.at(100.0) >= MOST.as_nanos() as f64 * 0.99);
    }
}
