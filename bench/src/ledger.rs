//! What was measured: one value a round for each system, case and metric, and what follows from
//! them.
//!
//! Systems are measured in turn within a round, so that a slow minute of the machine slows all of
//! them. Ratios are therefore taken within a round first; their median says more than the ratio of
//! two medians.

use crate::table::{Table, beside};

/// The middle and the ends of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median; of an even number of rounds the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Summary {
    /// Of no rounds there is none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self {
            median: (lower + upper) / 2.0,
            min,
            max,
            rounds: sorted.len(),
        })
    }

    /// In another unit.
    pub fn over(self, unit: f64) -> Self {
        Self {
            median: self.median / unit,
            min: self.min / unit,
            max: self.max / unit,
            rounds: self.rounds,
        }
    }
}

/// What a series measures, and which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Millions of operations a second.
    Throughput,
    /// Billions of bytes a second.
    Bandwidth,
    /// Nanoseconds an operation.
    Latency,
    /// Nanoseconds of CPU time an operation.
    Cpu,
    /// Bytes a record.
    Footprint,
    /// Seconds a GiB.
    FirstTouch,
    /// Bytes taken over bytes of keys and values.
    Overhead,
    /// Live bytes over the bytes of the log that holds them.
    Fill,
    /// Seconds.
    Duration,
    /// Bytes copied for a byte won.
    Moved,
    /// Bytes moved for a byte written.
    Rewritten,
    /// Bytes stored an operation.
    Stored,
    /// Pages that a sync writes, an operation.
    Pages,
    /// Times that one page was written.
    Wear,
    /// Waits for the disk, an operation.
    Misses,
    /// How often something happened in a hundred operations.
    InHundred,
    /// How often something happened.
    Times,
    /// MiB.
    Memory,
    /// Of the CPU's time stamp counter, an operation.
    Cycles,
}

impl Metric {
    /// Its name and the unit of its values.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Metric::Throughput => ("throughput", "Mops/s"),
            Metric::Bandwidth => ("bandwidth", "GB/s"),
            Metric::Latency => ("latency", "ns"),
            Metric::Cpu => ("CPU time", "ns"),
            Metric::Footprint => ("footprint", "B/record"),
            Metric::FirstTouch => ("first touch", "s/GiB"),
            Metric::Overhead => ("memory over data", "B/B of data"),
            Metric::Fill => ("fill", "B/B of log"),
            Metric::Duration => ("duration", "s"),
            Metric::Moved => ("bytes moved", "B/B won"),
            Metric::Rewritten => ("bytes moved", "B/B written"),
            Metric::Stored => ("bytes stored", "B/operation"),
            Metric::Pages => ("pages written", "pages/operation"),
            Metric::Wear => ("writes of a page", "writes"),
            Metric::Misses => ("misses", "misses/operation"),
            Metric::InHundred => ("share", "in 100"),
            Metric::Times => ("times", "times"),
            Metric::Memory => ("memory", "MiB"),
            Metric::Cycles => ("cycles", "cycles"),
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        self.words().1
    }
}

/// One system's rounds in one case.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name.
    pub system: String,
    /// Doing what.
    pub case: String,
    /// Measured how.
    pub metric: Metric,
    /// One value a round.
    pub values: Vec<f64>,
}

/// All series of a run, in the order in which they first appeared.
#[derive(Debug, Default)]
pub struct Ledger {
    series: Vec<Series>,
}

impl Ledger {
    /// Adds a round's value to its series.
    pub fn add(&mut self, system: &str, case: &str, metric: Metric, value: f64) {
        let known = self
            .series
            .iter_mut()
            .find(|s| s.system == system && s.case == case && s.metric == metric);
        match known {
            Some(series) => series.values.push(value),
            None => self.series.push(Series {
                system: system.to_owned(),
                case: case.to_owned(),
                metric,
                values: vec![value],
            }),
        }
    }

    /// All series.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The rounds of one system in one case; empty if it was not measured.
    pub fn values(&self, system: &str, case: &str) -> &[f64] {
        self.series
            .iter()
            .find(|s| s.system == system && s.case == case)
            .map_or(&[], |s| &s.values)
    }

    /// Round by round, one system's value in one case over another's in another.
    pub fn ratios(&self, over: (&str, &str), under: (&str, &str)) -> Vec<f64> {
        let over = self.values(over.0, over.1).iter();
        over.zip(self.values(under.0, under.1))
            .map(|(a, b)| a / b)
            .collect()
    }

    /// A table of systems by case: the median of each, and in brackets that of the first one over
    /// it, round by round.
    pub fn compared(
        &self,
        head: &str,
        systems: &[&str],
        cases: impl IntoIterator<Item = String>,
        unit: f64,
    ) -> Table {
        Table::by_case(head, systems, cases, |system, case| {
            let ratios = self.ratios((systems[0], case), (system, case));
            beside(self.values(system, case), unit, &ratios)
        })
    }

    /// A curve's points: what one system reached, over `unit`, in the cases that were measured.
    pub fn points(&self, system: &str, unit: f64, cases: &[(f64, String)]) -> Vec<(f64, Summary)> {
        let points = cases.iter().filter_map(|(at, case)| {
            let summary = Summary::of(self.values(system, case))?;
            Some((*at, summary.over(unit)))
        });
        points.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let odd = Summary::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!(
            (odd.median, odd.min, odd.max, odd.rounds),
            (3.0, 1.0, 5.0, 3)
        );
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[7.0]).unwrap().median, 7.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut ledger = Ledger::default();
        // The machine was half as fast in the second round: the ratio does not care.
        for (ours, theirs) in [(4.0, 2.0), (2.0, 1.0), (4.4, 2.0)] {
            ledger.add("ours", "get", Metric::Throughput, ours);
            ledger.add("theirs", "get", Metric::Throughput, theirs);
        }
        let ratios = ledger.ratios(("ours", "get"), ("theirs", "get"));
        assert_eq!(ratios, [2.0, 2.0, 2.2]);
        assert!(ledger.ratios(("ours", "get"), ("absent", "get")).is_empty());
    }
}
