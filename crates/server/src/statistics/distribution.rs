//! The distribution of durations, as counts in cells whose width is at most an eighth of the
//! durations in them.

use crate::counters::Count;

/// The number of cells for one doubling of the duration.
const PER_DOUBLING: usize = 8;

/// The number of cells: durations up to 2^42 ns, more than an hour. Longer ones are counted in the
/// last cell.
const CELLS: usize = (42 - 2) * PER_DOUBLING;

/// One thread's counts.
pub(crate) struct Distribution(Box<[Count]>);

/// The sum of several threads'.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts(Vec<u64>);

impl Default for Distribution {
    fn default() -> Self {
        Self((0..CELLS).map(|_| Count::default()).collect())
    }
}

/// The cell of a duration. Each number below 8 has a cell of its own; above that, the highest bit
/// and the three bits after it determine the cell.
fn cell(nanoseconds: u64) -> usize {
    if nanoseconds < PER_DOUBLING as u64 {
        return nanoseconds as usize;
    }
    let doubling = nanoseconds.ilog2() as usize;
    let within = (nanoseconds >> (doubling - 3)) as usize & (PER_DOUBLING - 1);
    ((doubling - 2) * PER_DOUBLING + within).min(CELLS - 1)
}

/// The longest duration of a cell.
fn longest(cell: usize) -> u64 {
    if cell < PER_DOUBLING {
        return cell as u64;
    }
    let doubling = cell / PER_DOUBLING + 2;
    let within = cell % PER_DOUBLING;
    (((PER_DOUBLING + within + 1) as u64) << (doubling - 3)) - 1
}

impl Distribution {
    /// Counts `calls` calls, each with this duration. Only for the thread that owns the counts.
    #[inline]
    pub fn add(&self, nanoseconds: u64, calls: u64) {
        if let Some(count) = self.0.get(cell(nanoseconds)) {
            count.add(calls);
        }
    }
}

impl Counts {
    /// Adds a thread's counts.
    pub fn take(&mut self, thread: &Distribution) {
        self.0.resize(CELLS, 0);
        for (sum, count) in self.0.iter_mut().zip(&thread.0) {
            *sum += count.get();
        }
    }

    /// The growth of each count since `earlier`.
    pub fn since(mut self, earlier: &Counts) -> Self {
        for (count, before) in self.0.iter_mut().zip(&earlier.0) {
            *count = count.wrapping_sub(*before);
        }
        self
    }

    /// How many there are.
    pub fn calls(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The duration in nanoseconds that the fraction `part` of all calls did not exceed: 0.99 for
    /// the 99th percentile.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = ((self.calls() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (cell, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return longest(cell);
            }
        }
        0
    }

    /// For each power of two of nanoseconds from `first` to `last`, the number of calls that took
    /// less.
    pub fn below(&self, first: u32, last: u32) -> impl Iterator<Item = (u64, u64)> {
        (first..=last).map(|doubling| {
            let end = ((doubling as usize - 2) * PER_DOUBLING).min(self.0.len());
            (1 << doubling, self.0[..end].iter().sum())
        })
    }

    /// A cumulative histogram for each power of two of 1.024 microseconds in which calls ended:
    /// whole microseconds, and the number of calls that took no longer.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let all = self.calls();
        let mut rows = Vec::new();
        let mut before = 0;
        for doubling in 10..42 {
            let end = ((doubling - 2) * PER_DOUBLING).min(self.0.len());
            let seen: u64 = self.0[..end].iter().sum();
            if seen > before {
                // Redis rounds up to whole microseconds.
                rows.push(((1u64 << doubling).div_ceil(1000).max(1), seen));
                before = seen;
            }
            if seen == all {
                break;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_join_and_are_narrow() {
        for cell_of in 1..CELLS - 1 {
            let (first, last) = (longest(cell_of - 1) + 1, longest(cell_of));
            assert_eq!((cell(first), cell(last)), (cell_of, cell_of));
            assert!((last - first) * 8 <= first.max(8), "{first}..={last}");
        }
        assert_eq!(cell(u64::MAX), CELLS - 1);
    }

    #[test]
    fn quantiles_are_of_the_counts() {
        let thread = Distribution::default();
        thread.add(1_000, 98);
        thread.add(1_000_000, 1);
        thread.add(9_000_000, 1);
        let mut counts = Counts::default();
        counts.take(&thread);
        let near = |time: u64, expected: u64| (expected..expected + expected / 8).contains(&time);
        assert!(near(counts.quantile(0.5), 1_000));
        assert!(near(counts.quantile(0.99), 1_000_000));
        assert!(near(counts.quantile(1.0), 9_000_000));
        let below: Vec<_> = counts.below(9, 24).map(|(_, count)| count).collect();
        assert_eq!(
            (below[0], below[1], below[10], below[11], below[15]),
            (0, 98, 98, 99, 100)
        );
        let rows = counts.doublings();
        assert_eq!(rows.first().map(|row| row.1), Some(98));
        assert_eq!(rows.last().map(|row| row.1), Some(100));
        assert!(Counts::default().doublings().is_empty());
    }
}
