//! How many heads a log has and which thread appends where (Nibble, §5.1 and fig. 8b, 8c), on the
//! store itself.
//!
//! The store takes as many heads as its topology has CPUs and starts at the head of the CPU that
//! its topology names. A topology of the benchmark's own can therefore have any number of heads,
//! and send every write to one of them at random, which is what choosing by the key's hash comes
//! to.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::random::mix;
use mneme_bench::ledger::Metric;
use mneme_bench::records::Records;
use mneme_bench::rounds::{Job, Span};
use mneme_bench::systems::BATCH;
use mneme_log::LogStore;
use mneme_sys::{CpuId, NodeId, SysfsTopology, Topology};
use std::cell::Cell;
use std::sync::Arc;

/// The system with a head a CPU.
pub const LOCAL: &str = "head of the CPU";

/// The system with so many heads.
pub fn random_of(heads: usize) -> String {
    format!("{heads} head(s), at random")
}

/// The case's name in reports.
pub fn case(reads: u64, value: usize, threads: u32) -> String {
    format!("heads: get{reads} uniform {value}B {threads}t")
}

/// A node of `cpus` CPUs, on a random one of which every call runs.
struct Scattered {
    cpus: usize,
}

thread_local! {
    static STREAM: Cell<u64> = const { Cell::new(0) };
}

impl Topology for Scattered {
    fn cpus(&self) -> usize {
        self.cpus
    }

    fn nodes(&self) -> usize {
        1
    }

    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { u32::MAX }
    }

    fn current_cpu(&self) -> CpuId {
        let step = STREAM.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        STREAM.set(step);
        CpuId((mix(step) % self.cpus as u64) as u32)
    }
}

/// A store whose records are all there.
pub struct Store {
    name: String,
    records: Records,
    value: usize,
}

impl Store {
    /// A store of `capacity` bytes, a tenth full of values of this size; one head a CPU, or so many
    /// at random.
    ///
    /// # Errors
    /// [`BenchError::Store`], also if there is no memory for so many heads.
    pub fn new(heads: Option<usize>, capacity: u64, value: usize) -> Result<Self, BenchError> {
        let topology: Arc<dyn Topology> = match heads {
            Some(cpus) => Arc::new(Scattered { cpus }),
            None => Arc::new(SysfsTopology::detect()),
        };
        let store = LogStore::builder()
            .capacity(capacity)
            .topology(topology)
            .open_private()
            .map_err(failed)?;
        let count = capacity / 10 / value as u64;
        let mut records = Records::new(store, value);
        records.fill(count).map_err(failed)?;
        // Once through the whole log, so that no memory is touched for the first time later.
        for first in (0..10 * count).step_by(BATCH) {
            let batch = (first..first + BATCH as u64).map(|place| place % count);
            records.put_batch(batch).map_err(failed)?;
        }
        Ok(Self {
            name: heads.map_or_else(|| LOCAL.to_owned(), random_of),
            records,
            value,
        })
    }

    /// A job that reads `reads` times of a hundred and else writes.
    pub fn job(&self, reads: u64, threads: u32, span: Span, seed: u64) -> Job<'_> {
        let case = case(reads, self.value, threads);
        Job::new(&self.name, case, Metric::Throughput, move |round| {
            let rate = self.records.rate(reads, threads, span, seed ^ round as u64);
            self.records.check()?;
            Ok(rate / 1e6)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_scattered_over_all_heads() {
        let topology = Scattered { cpus: 4 };
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[topology.current_cpu().0 as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count > 800), "{counts:?}");
    }
}
