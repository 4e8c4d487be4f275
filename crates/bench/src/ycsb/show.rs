//! Tables and figures of a run.

use super::plan::{Cell, Plan, Size, case};
use crate::error::BenchError;
use crate::figure::Bars;
use crate::generate::operations::Distribution;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Metric, Summary};
use crate::systems::{OURS, bare};
use crate::table::{Table, figure};
use std::path::Path;

/// Prints what was measured, then what it means: ours against everybody, round by round.
pub fn tables(plan: &Plan, ledger: &Ledger) {
    let systems = plan.systems();
    for size in &plan.sizes {
        println!(
            "\nmillions of operations a second, median (min-max), values of {} B",
            size.value
        );
        println!("{}", throughput(size, &systems, ledger));
        for ours in OURS {
            println!("{ours} against the others in the same round, median (min-max)");
            println!("{}", ratios(ours, size, &systems, ledger));
        }
    }
    let latencies = latencies(plan, &systems, ledger);
    println!("nanoseconds a call: p50 / p99 / p99.9 / max, each the median of the rounds");
    println!("{latencies}");
    println!("bytes of resident memory a record, and over its key and value");
    println!("{}", footprints(plan, ledger));
}

fn throughput(size: &Size, systems: &[&str], ledger: &Ledger) -> Table {
    let mut table = Table::new(["case"].into_iter().chain(systems.iter().copied()));
    for case in cases(size) {
        let cells = systems
            .iter()
            .map(|system| span(Summary::of(ledger.values(system, &case))));
        table.row([case.clone()].into_iter().chain(cells));
    }
    table
}

fn ratios(ours: &str, size: &Size, systems: &[&str], ledger: &Ledger) -> Table {
    let others: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| *system != ours)
        .collect();
    let mut table = Table::new(
        ["case".to_owned()]
            .into_iter()
            .chain(others.iter().map(|other| format!("/ {other}"))),
    );
    for case in cases(size) {
        let cells = others
            .iter()
            .map(|other| span(Summary::of(&ledger.ratios((ours, &case), (other, &case)))));
        table.row([case.clone()].into_iter().chain(cells));
    }
    table
}

fn latencies(plan: &Plan, systems: &[&str], ledger: &Ledger) -> Table {
    let mut table = Table::new(["case"].into_iter().chain(systems.iter().copied()));
    for group in plan.sizes.iter().flat_map(|size| &size.groups) {
        for cell in &group.timed {
            let case = group.case(cell);
            let cells = systems.iter().map(|system| {
                let shown = ["p50", "p99", "p99.9", "max"].map(|percentile| {
                    let case = percentile_case(&case, percentile);
                    Summary::of(ledger.values(system, &case))
                        .map_or_else(|| "-".to_owned(), |s| format!("{:.0}", s.median))
                });
                shown.join(" / ")
            });
            table.row([case.clone()].into_iter().chain(cells));
        }
    }
    table
}

fn footprints(plan: &Plan, ledger: &Ledger) -> Table {
    let stores = plan.stores();
    let mut table = Table::new(["values of"].into_iter().chain(stores.iter().copied()));
    for size in &plan.sizes {
        let payload = (crate::generate::keys::KEY_BYTES + size.value) as f64;
        let cells =
            stores.iter().map(
                |store| match Summary::of(ledger.values(store, &size.case())) {
                    Some(bytes) => format!(
                        "{} ({})",
                        figure(bytes.median),
                        figure(bytes.median / payload)
                    ),
                    None => "-".to_owned(),
                },
            );
        table.row([size.case()].into_iter().chain(cells));
    }
    table
}

fn cases(size: &Size) -> Vec<String> {
    let groups = size.groups.iter();
    groups
        .flat_map(|group| group.cells.iter().map(|cell| group.case(cell)))
        .collect()
}

fn span(summary: Option<Summary>) -> String {
    match summary {
        Some(s) => format!("{} ({}-{})", figure(s.median), figure(s.min), figure(s.max)),
        None => "-".to_owned(),
    }
}

/// Draws a figure for each value size, distribution and number of threads, in the form of the
/// paper's figure 13: groups by share of GET, single and batched, bars by system.
///
/// # Errors
/// [`BenchError::Figure`].
pub fn figures(plan: &Plan, ledger: &Ledger, directory: &Path) -> Result<(), BenchError> {
    let systems: Vec<&str> = plan.systems();
    for size in &plan.sizes {
        for distribution in [
            Distribution::Uniform,
            Distribution::Zipfian,
            Distribution::Latest,
        ] {
            let of_size = size.groups.iter().flat_map(|group| &group.cells);
            let mut threads: Vec<u32> = of_size.map(|cell| cell.threads).collect();
            threads.sort_unstable();
            threads.dedup();
            for threads in threads {
                let figure = bars(size, distribution, threads, &systems, ledger);
                if !figure.groups.is_empty() {
                    let name = format!("ycsb-{distribution}-{}B-{threads}t.svg", size.value);
                    figure.write(&directory.join(name))?;
                }
            }
        }
    }
    Ok(())
}

fn bars(
    size: &Size,
    distribution: Distribution,
    threads: u32,
    systems: &[&str],
    ledger: &Ledger,
) -> Bars {
    let mut groups = Vec::new();
    for group in &size.groups {
        let wanted = |cell: &&Cell| cell.distribution == distribution && cell.threads == threads;
        for cell in group.cells.iter().filter(wanted) {
            let case = case(group.mix, size.value, cell);
            let bars = systems
                .iter()
                .map(|system| Summary::of(ledger.values(system, &case)));
            groups.push((format!("{} x{}", group.mix, cell.batch), bars.collect()));
        }
    }
    Bars {
        title: format!(
            "YCSB, {distribution}, values of {} B, {threads} thread(s)",
            size.value
        ),
        unit: Metric::Throughput.unit().to_owned(),
        systems: systems
            .iter()
            .map(|system| {
                if *system == bare::NAME {
                    "bare copy"
                } else {
                    system
                }
                .to_owned()
            })
            .collect(),
        groups,
    }
}
