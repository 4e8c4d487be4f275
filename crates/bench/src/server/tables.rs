//! What was measured, in words and pictures for people.

use super::Scale;
use super::memory;
use super::servers::{OURS, REDIS, SYSTEMS};
use super::tails::{NOBODY, WEATHERS, Weather};
use super::throughput::Case;
use crate::error::BenchError;
use crate::figure::Bars;
use crate::latency::{PERCENTILES, percentile_case};
use crate::ledger::{Ledger, Metric, Summary};
use crate::table::{Table, figure};
use std::path::Path;

/// Prints all; `rate` is that of the latencies, in requests a second.
pub(super) fn print(scale: &Scale, rate: f64, ledger: &Ledger) {
    print_throughput(scale, ledger);
    print_tails(ledger, rate);
    print_memory(scale, ledger);
}

/// The median of a case, and in brackets ours over a peer's.
fn cell(ledger: &Ledger, system: &str, case: &str, unit: f64) -> String {
    let Some(value) = Summary::of(ledger.values(system, case)) else {
        return "-".to_owned();
    };
    let value = figure(value.median / unit);
    match Summary::of(&ledger.ratios((OURS, case), (system, case))) {
        Some(ratio) if system != OURS => format!("{value} ({})", figure(ratio.median)),
        _ => value,
    }
}

fn print_throughput(scale: &Scale, ledger: &Ledger) {
    let print = |what: &str, unit: f64, case: &dyn Fn(Case) -> String| {
        println!("{what}; in brackets ours over theirs");
        let mut table = Table::new(["case"].into_iter().chain(SYSTEMS));
        for of in Case::all(scale.throughput.cpus) {
            let cells = SYSTEMS.map(|system| cell(ledger, system, &case(of), unit));
            table.row([of.to_string()].into_iter().chain(cells));
        }
        println!("{table}");
    };
    print("thousand operations a second", 1e-3, &|case| {
        case.to_string()
    });
    print("server CPU, ns an operation", 1.0, &Case::server);
    print("client CPU, ns an operation", 1.0, &Case::client);
}

fn print_tails(ledger: &Ledger, rate: f64) {
    let rate = figure(rate / 1e3);
    println!("microseconds at {rate} thousand requests a second; in brackets ours over theirs");
    let head = PERCENTILES.map(|(name, _)| name);
    let head = ["system", "while"]
        .into_iter()
        .chain(head)
        .chain(["load away"]);
    let mut table = Table::new(head);
    for weather in WEATHERS {
        for system in [NOBODY, OURS, REDIS] {
            if system == NOBODY && weather != Weather::Idle {
                continue;
            }
            let cases = PERCENTILES.map(|(name, _)| percentile_case(weather.name(), name));
            let cases = cases.into_iter().chain([weather.away()]);
            let cells = cases.map(|case| cell(ledger, system, &case, 1e3));
            let names = [system, weather.name()].map(str::to_owned);
            table.row(names.into_iter().chain(cells));
        }
    }
    println!("{table}");
}

fn print_memory(scale: &Scale, ledger: &Ledger) {
    println!("bytes resident a record of 16 B keys; in brackets ours over theirs");
    let mut table = Table::new(["values"].into_iter().chain(SYSTEMS));
    for value in memory::VALUES {
        let cells = SYSTEMS.map(|system| cell(ledger, system, &memory::size(value), 1.0));
        let name = format!("{value} B, {} records", (scale.records)(value));
        table.row([name].into_iter().chain(cells));
    }
    println!("{table}");
    println!(
        "bytes resident over keys and values after each pattern; in brackets ours over theirs"
    );
    let mut table = Table::new(["pattern", OURS, REDIS]);
    for pattern in scale.patterns {
        let cells = [OURS, REDIS].map(|system| cell(ledger, system, &memory::left(pattern), 1.0));
        table.row([pattern.name.to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}

/// Draws them into a directory.
pub(super) fn draw(scale: &Scale, ledger: &Ledger, directory: &Path) -> Result<(), BenchError> {
    let bars = |title: &str, metric: Metric, cases: Vec<(String, String)>| Bars {
        title: title.to_owned(),
        unit: metric.unit().to_owned(),
        systems: SYSTEMS.map(str::to_owned).to_vec(),
        groups: cases
            .into_iter()
            .map(|(name, case)| {
                let bars = SYSTEMS.map(|system| Summary::of(ledger.values(system, &case)));
                (name, bars.to_vec())
            })
            .collect(),
    };
    let cases = Case::all(scale.throughput.cpus);
    let costs = cases
        .map(|case| (case.to_string(), case.server()))
        .collect();
    bars("CPU time of the server an operation", Metric::Cpu, costs)
        .write(&directory.join("server-cpu.svg"))?;
    let sizes = memory::VALUES.map(|value| (format!("{value} B"), memory::size(value)));
    bars("Resident bytes a record", Metric::Footprint, sizes.to_vec())
        .write(&directory.join("server-memory.svg"))
}
