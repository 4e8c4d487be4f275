//! Tables and figures of a run.

use super::plan::{Cell, Plan, Size};
use crate::figure::{Bars, Figure};
use crate::generate::operations::Distribution;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Metric, Summary};
use crate::systems::{OURS, bare};
use crate::table::{Table, figure, range};

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
    let rows = cases(size).into_iter().map(|case| (case.clone(), case));
    Table::grid("case", systems, rows, |system, case| {
        range(ledger.values(system, case), 1.0)
    })
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
            .map(|other| range(&ledger.ratios((ours, &case), (other, &case)), 1.0));
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
