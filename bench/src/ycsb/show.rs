//! Tables and figures of a run.

use super::plan::{Cell, Plan, Size};
use crate::figure::{Bars, Figure};
use crate::generate::operations::Distribution;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Metric};
use crate::systems::{OURS, bare};
use crate::table::{Table, beside, median, range};

/// Prints what was measured, then what it means: ours against everybody, round by round.
pub fn tables(plan: &Plan, ledger: &Ledger) {
    let systems = plan.systems();
    for size in &plan.sizes {
        throughput(size, &systems, ledger).print(format_args!(
            "\nmillions of operations a second, median (min-max), values of {} B",
            size.value
        ));
        for ours in OURS {
            ratios(ours, size, &systems, ledger).print(format_args!(
                "{ours} against the others in the same round, median (min-max)"
            ));
        }
    }
    latencies(plan, &systems, ledger)
        .print("nanoseconds a call: p50 / p99 / p99.9 / max, each the median of the rounds");
    footprints(plan, ledger).print("bytes of resident memory a record, and over its key and value");
}

fn throughput(size: &Size, systems: &[&str], ledger: &Ledger) -> Table {
    Table::by_case("case", systems, cases(size), |system, case| {
        range(ledger.values(system, case), 1.0)
    })
}

fn ratios(ours: &str, size: &Size, systems: &[&str], ledger: &Ledger) -> Table {
    let others = systems.iter().filter(|system| **system != ours);
    let heads: Vec<_> = others.map(|other| format!("/ {other}")).collect();
    Table::by_case("case", &heads, cases(size), |head, case| {
        range(&ledger.ratios((ours, case), (&head[2..], case)), 1.0)
    })
}

fn latencies(plan: &Plan, systems: &[&str], ledger: &Ledger) -> Table {
    let groups = plan.sizes.iter().flat_map(|size| &size.groups);
    let cases = groups.flat_map(|group| group.timed.iter().map(|cell| group.case(cell)));
    Table::by_case("case", systems, cases, |system, case| {
        let shown = ["p50", "p99", "p99.9", "max"];
        let shown = shown.map(|name| percentile_case(case, name));
        shown
            .map(|case| median(ledger.values(system, &case), 1.0))
            .join(" / ")
    })
}

fn footprints(plan: &Plan, ledger: &Ledger) -> Table {
    let rows = plan.sizes.iter().map(|size| (size.case(), size));
    Table::grid("values of", &plan.stores(), rows, |store, size| {
        let payload = (crate::generate::keys::KEY_BYTES + size.value) as f64;
        let bytes = ledger.values(store, &size.case());
        let over: Vec<_> = bytes.iter().map(|bytes| bytes / payload).collect();
        beside(bytes, 1.0, &over)
    })
}

fn cases(size: &Size) -> Vec<String> {
    let groups = size.groups.iter();
    groups
        .flat_map(|group| group.cells.iter().map(|cell| group.case(cell)))
        .collect()
}

/// Draws a figure for each value size, distribution and number of threads, in the form of the
/// paper's figure 13: groups by share of GET, single and batched, bars by system.
///
/// # Errors
/// [`BenchError::Figure`].
pub fn figures(plan: &Plan, ledger: &Ledger) -> Vec<Figure> {
    let systems: Vec<&str> = plan.systems();
    let mut figures = Vec::new();
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
                    figures.push(Figure::new(name, figure));
                }
            }
        }
    }
    figures
}

fn bars(
    size: &Size,
    distribution: Distribution,
    threads: u32,
    systems: &[&str],
    ledger: &Ledger,
) -> Bars {
    let wanted = |cell: &&Cell| cell.distribution == distribution && cell.threads == threads;
    let cases = size.groups.iter().flat_map(|group| {
        let cells = group.cells.iter().filter(wanted);
        cells.map(|cell| (format!("{} x{}", group.mix, cell.batch), group.case(cell)))
    });
    let title = format!(
        "YCSB, {distribution}, values of {} B, {threads} thread(s)",
        size.value
    );
    let mut bars = Bars::of(ledger, title, Metric::Throughput, systems, cases);
    for system in bars
        .systems
        .iter_mut()
        .filter(|system| *system == bare::NAME)
    {
        *system = "bare copy".to_owned();
    }
    bars
}
