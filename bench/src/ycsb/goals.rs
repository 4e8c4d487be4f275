//! What the store should reach, each goal a ratio within this run.

use super::pin;
use super::plan::{Cell, case};
use crate::generate::operations::{Distribution, Mix};
use crate::goals::Goal;
use crate::ledger::Ledger;
use crate::systems::mneme::NAME as OURS;
use crate::systems::{BATCH, bare};

/// The goals, with what this run says to them.
pub fn of(ledger: &Ledger) -> Vec<Goal> {
    let get = |value, batch, threads| name(100, Distribution::Uniform, value, batch, threads);
    let put = |value, batch, threads| name(0, Distribution::Uniform, value, batch, threads);
    let against = |system: &str, case: String| ledger.ratios((OURS, &case), (system, &case));
    let over_single =
        |batched: String, single: String| ledger.ratios((OURS, &batched), (OURS, &single));
    let scaling = |one: String, two: String| {
        let gain = |system| ledger.ratios((system, &two), (system, &one));
        gain(OURS)
            .iter()
            .zip(gain(bare::NAME))
            .map(|(ours, bare)| ours / bare)
            .collect()
    };
    let half = |distribution| name(50, distribution, 1024, 1, 1);
    let mut goals = vec![
        Goal::at_least(
            "GET 1 KiB, 1 thread: against a bare copy",
            0.22,
            against(bare::NAME, get(1024, 1, 1)),
        ),
        Goal::at_least(
            "GET 1 KiB, 1 thread: against DashMap",
            1.5,
            against("dashmap", get(1024, 1, 1)),
        ),
    ];
    for (value, of_bare, of_single) in [(1024, 0.80, 3.3), (100, 0.38, 6.0)] {
        let batched = || get(value, BATCH, 1);
        let what = format!("GET {value} B batched by {BATCH}");
        goals.extend([
            Goal::at_least(
                format!("{what}: against a bare copy"),
                of_bare,
                against(bare::NAME, batched()),
            ),
            Goal::at_least(
                format!("{what}: against single GET"),
                of_single,
                over_single(batched(), get(value, 1, 1)),
            ),
            Goal::at_least(
                format!("{what}: against DashMap"),
                5.0,
                against("dashmap", batched()),
            ),
        ]);
    }
    goals.extend([
        Goal::at_least(
            "PUT 1 KiB, 1 thread: against DashMap",
            1.5,
            against("dashmap", put(1024, 1, 1)),
        ),
        Goal::at_least(
            "PUT 1 KiB, 1 thread: against papaya",
            3.0,
            against("papaya", put(1024, 1, 1)),
        ),
        Goal::at_least(
            format!("PUT 1 KiB batched by {BATCH}: against single PUT"),
            3.0,
            over_single(put(1024, BATCH, 1), put(1024, 1, 1)),
        ),
        Goal::at_least(
            "GET, 2 threads / 1: against a bare copy's",
            0.95,
            scaling(get(1024, 1, 1), get(1024, 1, 2)),
        ),
        Goal::at_least(
            "PUT, 2 threads / 1: against a bare copy's",
            0.95,
            scaling(put(1024, 1, 1), put(1024, 1, 2)),
        ),
        Goal::at_least(
            "50/50 zipfian: against 50/50 uniform",
            0.95,
            ledger.ratios(
                (OURS, &half(Distribution::Zipfian)),
                (OURS, &half(Distribution::Uniform)),
            ),
        ),
        Goal::at_most(
            "pin and unpin, nanoseconds",
            3.0,
            ledger.values(pin::SYSTEM, pin::CASE).to_vec(),
        ),
    ]);
    goals
}

fn name(share: u8, distribution: Distribution, value: usize, batch: usize, threads: u32) -> String {
    case(
        Mix::Get(share),
        value,
        &Cell {
            distribution,
            batch,
            threads,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Metric;
    use crate::ycsb::plan::tests::plan;

    /// Every cell a goal refers to is measured, in quick and in full runs: a goal that can never be
    /// judged is no goal.
    #[test]
    fn every_goal_is_measured_by_every_plan() {
        for words in ["--quick", ""] {
            let plan = plan(words);
            let mut ledger = Ledger::default();
            ledger.add(pin::SYSTEM, pin::CASE, Metric::Latency, 1.0);
            for system in plan.systems() {
                for group in plan.sizes.iter().flat_map(|size| &size.groups) {
                    for cell in &group.cells {
                        ledger.add(system, &group.case(cell), Metric::Throughput, 1.0);
                    }
                }
            }
            for goal in of(&ledger) {
                assert!(goal.measured().is_some(), "{words}: {}", goal.text);
            }
        }
    }

    #[test]
    fn scaling_is_ours_over_the_bare_copys() {
        let mut ledger = Ledger::default();
        for (system, threads, rate) in [
            (OURS, 1, 1.0),
            (OURS, 2, 1.8),
            (bare::NAME, 1, 10.0),
            (bare::NAME, 2, 12.0),
        ] {
            ledger.add(
                system,
                &name(100, Distribution::Uniform, 1024, 1, threads),
                Metric::Throughput,
                rate,
            );
        }
        let mut goals = of(&ledger).into_iter();
        let scaling = goals.find(|goal| goal.text.starts_with("GET, 2 threads"));
        let scaling = scaling.unwrap();
        assert!((scaling.measured().unwrap() - 1.5).abs() < 1e-9);
    }
}
