//! `simulate`: updates of lists and hash tables on machines of several NUMA nodes, **simulated**
//! (Park's dissertation, figures 3.2 to 3.4 and 3.6 to 3.9).
//!
//! The mechanisms and the machine are those of [`mneme_rcu_peers::simulate`]: the real code of
//! `Rcx` and of the locks, over words that cost what a directory of caches makes them cost, with
//! transactions that commit, and that abort where they meet another access or do not fit.
//! - *rcx*: leaders are elected where an item is busy. *rcx always*: before the first try. *rcx
//!   htm*: the same, by a transaction, as in the paper. *rcx aborts*: the same, and each aborts.
//! - *items*: the items' locks alone. *lock*, *cohort*: one a list.
//! - *htm ten*, *retry*, *forgive*, *advised*: updates as transactions, by what follows an abort
//!   (the paper's RCU-HTM, RETRY, FORGIVE and HWA).
//!
//! Eight threads run on a node. A round is a seed: the same seed gives the same figures on any
//! machine, however busy.
//!
//! How to read it: rates are in simulated time, and say who gains by locking less at a time, not by
//! how much on a real machine. The last table sets what one node's simulation says beside what this
//! machine measures.

use crate::rcu::{self, SHAPES, Shape};
use mneme_bench::error::{BenchError, failed};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::table::{Table, median};
use mneme_rcu_peers::simulate::{Costs, Fallback, Mechanism, Setting, Shape as Nodes, simulate};
use mneme_rcu_peers::{MECHANISMS as IN_MEMORY, make};
use mneme_rcx::TakeLanes;
use mneme_sys::{SysfsTopology, Topology};
use serde_json::json;
use std::sync::Arc;

const MECHANISMS: [(&str, Mechanism); 11] = [
    ("rcx", Mechanism::Rcx(TakeLanes::WhenBusy)),
    ("rcx always", Mechanism::Rcx(TakeLanes::Always)),
    ("rcx htm", Mechanism::Transactions),
    ("rcx aborts", Mechanism::Aborting),
    ("items", Mechanism::Items),
    ("lock", Mechanism::Lock),
    ("cohort", Mechanism::Cohort),
    ("htm ten", Mechanism::Htm(Fallback::Ten)),
    ("htm retry", Mechanism::Htm(Fallback::Retry)),
    ("htm forgive", Mechanism::Htm(Fallback::Forgive)),
    ("htm advised", Mechanism::Htm(Fallback::Advised)),
];

/// Mechanisms that have transactions, or elect leaders.
const WITH_TRANSACTIONS: [&str; 6] = [
    "rcx htm",
    "rcx aborts",
    "htm ten",
    "htm retry",
    "htm forgive",
    "htm advised",
];

/// Two items, which all threads want all the time.
const HOT: Shape = Shape {
    name: "two items",
    buckets: 1,
    keys: 2,
};

/// Threads of a node.
const WIDTH: usize = 8;

/// Nodes, and what a line from another one costs, in hundredths of one from a cache of the node.
type Distance = (usize, u64);

/// What is simulated.
pub struct Scale {
    /// Operations of each thread.
    operations: u64,
    /// Updates in 100 operations.
    updates: &'static [u64],
    distances: &'static [Distance],
    /// How long a measurement in memory is.
    span: Span,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            operations: options.pick(20, 60),
            updates: options.pick(&[40], &[2, 20, 40]),
            distances: options.pick(
                &[(1, 200), (2, 300), (4, 300)],
                &[(1, 200), (2, 200), (2, 300), (2, 500), (4, 300), (4, 500)],
            ),
            span: Span::of(options.pick(20, 100), 5),
        }
    }

    fn cases(&self) -> Vec<Case> {
        let shapes = SHAPES.map(|shape| (shape, self.updates));
        let shapes = shapes.into_iter().chain([(HOT, &[100][..])]);
        let updates =
            shapes.flat_map(|(shape, updates)| updates.iter().map(move |it| (shape, *it)));
        updates
            .flat_map(|(shape, updates)| {
                self.distances.iter().map(move |&distance| Case {
                    shape,
                    updates,
                    distance,
                })
            })
            .collect()
    }

    fn setting(&self, case: Case, threads: usize, seed: u64) -> Setting {
        let (nodes, remote_percent) = case.distance;
        Setting {
            shape: Nodes {
                nodes,
                threads_a_node: WIDTH,
                threads,
            },
            costs: Costs {
                remote_percent,
                ..Costs::PLAUSIBLE
            },
            buckets: case.shape.buckets,
            keys: case.shape.keys as usize / case.shape.buckets,
            updates: case.updates,
            operations: self.operations,
            work: 15,
            update_work: 60,
            seed,
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    shape: Shape,
    updates: u64,
    distance: Distance,
}

impl Case {
    fn name(self) -> String {
        let Case {
            shape,
            updates,
            distance: (nodes, remote),
        } = self;
        format!("{} {updates}% {nodes}n x{remote}", shape.name)
    }

    /// Transactions that want the same two items abort each other for minutes.
    fn is_simulated(self, mechanism: Mechanism) -> bool {
        !(matches!(mechanism, Mechanism::Htm(_)) && self.shape.name == HOT.name)
    }
}

fn aborts_of(case: &str) -> String {
    format!("aborts, {case}")
}

fn elections_of(case: &str) -> String {
    format!("elections, {case}")
}

/// Simulates and reports.
///
/// # Errors
/// Sets in memory cannot be made.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for case in scale.cases() {
        for (name, mechanism) in MECHANISMS {
            if !case.is_simulated(mechanism) {
                continue;
            }
            let seed = options.seed;
            jobs.push(Job::of(
                format!("{name} {}", case.name()),
                move |round, ledger: &mut Ledger| {
                    let threads = case.distance.0 * WIDTH;
                    let setting = scale.setting(case, threads, seed + round as u64);
                    let outcome = simulate(mechanism, setting);
                    let case = case.name();
                    ledger.add(name, &case, Metric::Throughput, outcome.rate);
                    ledger.add(name, &aborts_of(&case), Metric::InHundred, outcome.aborts);
                    let elections = outcome.elections;
                    ledger.add(name, &elections_of(&case), Metric::InHundred, elections);
                    Ok(())
                },
            ));
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print(scale, &ledger);
    validate(scale, options, &mut ledger)?;
    Ok(Report {
        figures: Vec::new(),
        params: json!({
            "operations": scale.operations,
            "threads_a_node": WIDTH,
            "costs": format!("{:?}", Costs::PLAUSIBLE),
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes: vec![
            "a simulation: rates are in simulated time".to_owned(),
            format!(
                "{:?}, in ns; xN: a line from another node in % of a local one",
                Costs::PLAUSIBLE
            ),
        ],
    })
}

fn print(scale: &Scale, ledger: &Ledger) {
    let names = MECHANISMS.map(|(name, _)| name);
    let cases = || scale.cases().into_iter().map(Case::name);
    Table::by_case("case", &names, cases(), |system, case| {
        median(ledger.values(system, case), 1.0)
    })
    .print("operations a microsecond, simulated");
    Table::by_case("case", &WITH_TRANSACTIONS, cases(), |system, case| {
        median(ledger.values(system, &aborts_of(case)), 1.0)
    })
    .print("aborted transactions in 100 updates");
    Table::by_case("case", &names[..4], cases(), |system, case| {
        median(ledger.values(system, &elections_of(case)), 1.0)
    })
    .print("elections in 100 updates");
}

/// Simulated and measured here, as ratios to a lock a list.
fn validate(scale: &Scale, options: &Common, ledger: &mut Ledger) -> Result<(), BenchError> {
    let topology: Arc<dyn Topology> = Arc::new(SysfsTopology::detect());
    let known = [
        ("rcu", Mechanism::Lock),
        ("rcx", Mechanism::Rcx(TakeLanes::WhenBusy)),
        ("cohort", Mechanism::Cohort),
    ];
    let (simulated, here) = (
        |name| format!("{name}, simulated"),
        |name| format!("{name}, here"),
    );
    let mut jobs = Vec::new();
    let mut cases = Vec::new();
    for shape in [SHAPES[0], SHAPES[2]] {
        for threads in [1, 2] {
            let story = format!("{} 40% {threads}t", shape.name);
            cases.push(story.clone());
            let case = Case {
                shape,
                updates: 40,
                distance: (1, 200),
            };
            for (name, mechanism) in known {
                let number = IN_MEMORY.iter().position(|other| *other == name);
                let number = number.ok_or_else(|| failed("no such mechanism in memory"))?;
                let set = make(number, shape.buckets, 2, &topology).map_err(failed)?;
                rcu::fill(&*set, shape, options.seed);
                jobs.push(Job::new(
                    simulated(name),
                    story.clone(),
                    Metric::Throughput,
                    {
                        move |round| {
                            let seed = options.seed + round as u64;
                            let setting = Setting {
                                operations: 10 * scale.operations,
                                ..scale.setting(case, threads, seed)
                            };
                            Ok(simulate(mechanism, setting).rate)
                        }
                    },
                ));
                jobs.push(Job::new(here(name), story.clone(), Metric::Throughput, {
                    move |round| {
                        let (threads, seed) = (threads as u32, options.seed + round as u64);
                        Ok(rcu::measure(&*set, shape, 40, threads, scale.span, seed) / 1e6)
                    }
                }));
            }
        }
    }
    rounds::run(jobs, options.rounds, ledger)?;
    let mut table = Table::new([
        "over a lock a list",
        "mechanism",
        "simulated",
        "measured here",
    ]);
    for case in &cases {
        for (name, _) in &known[1..] {
            let over = |of: &dyn Fn(&'static str) -> String| {
                ledger.ratios((&of(name), case), (&of(known[0].0), case))
            };
            table.row([
                case.clone(),
                (*name).to_owned(),
                median(&over(&simulated), 1.0),
                median(&over(&here), 1.0),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

/// What the paper says of several nodes, and the design of its simulation.
fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let farthest = scale.cases().into_iter().filter(|case| {
        case.shape.name != HOT.name && case.updates == 40 && case.distance == (4, 300)
    });
    farthest
        .flat_map(|case| {
            let case = case.name();
            let ratios = |over, under| ledger.ratios((over, &case), (under, &case));
            let aborts = aborts_of(&case);
            [
                Goal::at_least(
                    format!("{case}: rcx htm over htm ten"),
                    1.0,
                    ratios("rcx htm", "htm ten"),
                ),
                Goal::at_most(
                    format!("{case}: aborts of rcx htm in 100 updates (the paper: 10)"),
                    10.0,
                    ledger.values("rcx htm", &aborts).to_vec(),
                ),
                Goal::at_least(
                    format!("{case}: all transactions abort over none"),
                    0.9,
                    ratios("rcx aborts", "rcx always"),
                ),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn every_case_has_a_rate_and_aborts() {
        let scale = Scale {
            operations: 2,
            updates: &[40],
            distances: &[(1, 200), (4, 300)],
            span: Span::of(1, 1),
        };
        let report = run(&scale, &common()).unwrap();
        let cases = scale.cases().into_iter().flat_map(|case| {
            let case = case.name();
            [aborts_of(&case), elections_of(&case), case]
        });
        let cases: Vec<_> = cases.collect();
        let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
        assert_well_formed(&report, &cases);
        assert_eq!(report.goals.len(), 9);
    }
}
