//! `rcu`: sorted lists and hash tables that are read without locks, by how their updates are kept
//! apart (Park's dissertation, §3.4.2, figures 3.2 to 3.9).
//!
//! The mechanisms are those of `mneme-rcu-peers`:
//! - *rcx*: [`mneme_rcx::Rcx`] on the nodes that change.
//! - *rcu*: a lock a list, which is what most users of read-copy-update do.
//! - *cohort*: a lock a list that is handed over within a NUMA node first.
//! - *rlu*: read-log-update.
//!
//! A list of 256, hash tables of 128 buckets of 8 and of 32; keys are drawn from twice as many
//! numbers as there are to begin with; 0, 2, 20 and 40 % of the operations are updates, half of
//! them insertions. RCU-HTM is not here: it needs hardware transactions.
//!
//! How to read it: the cases with one thread say what a mechanism costs that meets nobody. With as
//! many threads as CPUs of one node, locks are met by chance; the paper's differences begin with
//! the second node.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span, rate_of};
use mneme_rcu_peers::{MECHANISMS, Set, make};
use mneme_sys::{SysfsTopology, Topology};
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;

/// A structure of the paper's.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// Lists.
    pub buckets: usize,
    /// Keys to begin with, in all lists together.
    pub keys: u64,
}

/// Those of the figures.
pub const SHAPES: [Shape; 3] = [
    Shape {
        name: "list 256",
        buckets: 1,
        keys: 256,
    },
    Shape {
        name: "hash 128x8",
        buckets: 128,
        keys: 1024,
    },
    Shape {
        name: "hash 128x32",
        buckets: 128,
        keys: 4096,
    },
];

/// Updates in 100 operations.
const UPDATES: [u64; 4] = [0, 2, 20, 40];

fn case(shape: Shape, updates: u64, threads: u32) -> String {
    format!("{} {updates}% {threads}t", shape.name)
}

fn cases(options: &Common) -> impl Iterator<Item = (Shape, u64, u32)> {
    let shapes = SHAPES.into_iter();
    let updates = shapes.flat_map(|shape| UPDATES.map(|updates| (shape, updates)));
    let threads = options.threads.iter();
    updates.flat_map(move |(shape, updates)| {
        let threads = threads.clone();
        threads.map(move |&threads| (shape, updates, threads))
    })
}

/// How long a measurement is.
pub fn scale(options: &Common) -> Span {
    Span::of(options.pick(30, 300), 5)
}

/// Measures and reports.
///
/// # Errors
/// A file that cannot be written.
pub fn run(span: &Span, options: &Common) -> Result<Report, BenchError> {
    let topology: Arc<dyn Topology> = Arc::new(SysfsTopology::detect());
    let most = options.threads.iter().copied().max().unwrap_or(1);
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for (shape, updates, threads) in cases(options) {
        for (number, name) in MECHANISMS.iter().enumerate() {
            let set = make(number, shape.buckets, most as usize, &topology).map_err(failed)?;
            let (case, seed) = (case(shape, updates, threads), options.seed);
            fill(&*set, shape, seed);
            jobs.push(Job::new(*name, case, Metric::Throughput, move |round| {
                let seed = seed ^ round as u64;
                Ok(measure(&*set, shape, updates, threads, *span, seed) / 1e6)
            }));
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print_table(options, &ledger);
    let mut notes = Vec::new();
    if topology.nodes() == 1 {
        notes.push("one node: no lanes are taken, and cohorts have nobody beyond".to_owned());
    }
    Ok(Report {
        figures: SHAPES.map(|shape| bars(shape, most, &ledger)).into(),
        params: json!({ "threads": options.threads, "seconds": span.timed.as_secs_f64() }),
        goals: goals(options, &ledger),
        ledger,
        notes,
    })
}

/// Different keys, in the number of the shape, drawn from twice that number.
pub fn fill(set: &dyn Set, shape: Shape, seed: u64) {
    let mut random = Random::new(seed);
    let mut left = shape.keys;
    while left > 0 {
        left -= u64::from(set.insert(0, 1 + random.below(2 * shape.keys)));
    }
}

/// Operations a second of so many threads, of which so many in 100 are updates.
pub fn measure(
    set: &dyn Set,
    shape: Shape,
    updates: u64,
    threads: u32,
    span: Span,
    seed: u64,
) -> f64 {
    rate_of(threads, span, 64, |thread| {
        let mut random = Random::new(mix(seed ^ u64::from(thread) << 32));
        let number = thread as usize;
        move || {
            let key = 1 + random.below(2 * shape.keys);
            let drawn = random.below(200);
            black_box(match drawn {
                _ if drawn >= 2 * updates => set.contains(number, key),
                _ if drawn < updates => set.insert(number, key),
                _ => set.remove(number, key),
            });
            1
        }
    })
}

/// The goals: with many updates, ours is at most 5 % below the best of the others.
fn goals(options: &Common, ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    for shape in [SHAPES[0], SHAPES[2]] {
        for &threads in &options.threads {
            let case = case(shape, 40, threads);
            let others = MECHANISMS[1..]
                .iter()
                .map(|other| ledger.ratios((MECHANISMS[0], &case), (other, &case)));
            let worst = others.reduce(|one, other| {
                let pairs = one.into_iter().zip(other);
                pairs.map(|(a, b)| a.min(b)).collect()
            });
            goals.push(Goal::at_least(
                format!("{case}: rcx over the best other"),
                0.95,
                worst.unwrap_or_default(),
            ));
        }
    }
    goals
}

fn print_table(options: &Common, ledger: &Ledger) {
    let cases = cases(options).map(|(shape, updates, threads)| case(shape, updates, threads));
    ledger
        .compared("case", &MECHANISMS, cases, 1.0)
        .print("millions of operations a second; in brackets rcx over it, round by round");
}

fn bars(shape: Shape, threads: u32, ledger: &Ledger) -> Figure {
    let cases = UPDATES.map(|updates| {
        let case = case(shape, updates, threads);
        (format!("{updates}% updates"), case)
    });
    let title = format!("{}, {threads} thread(s)", shape.name);
    let bars = Bars::of(ledger, title, Metric::Throughput, &MECHANISMS, cases);
    Figure::new(format!("rcu-{}.svg", shape.name.replace(' ', "-")), bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn every_cell_of_the_grid_is_measured() {
        let options = common();
        let report = run(&Span::of(1, 1), &options).unwrap();
        let cases = cases(&options).map(|(shape, updates, threads)| case(shape, updates, threads));
        let cases: Vec<_> = cases.collect();
        let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
        assert_well_formed(&report, &cases);
        assert_eq!(report.goals.len(), 2);
    }
}
