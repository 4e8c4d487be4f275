//! What was measured, in words and pictures for people.

use super::Scale;
use super::memory;
use super::servers::{OURS, REDIS, SYSTEMS};
use super::tails::{NOBODY, WEATHERS, Weather};
use super::throughput::Case;
use crate::figure::{Bars, Figure};
use crate::latency::{PERCENTILES, percentile_case};
use crate::ledger::{Ledger, Metric};
use crate::table::{Table, beside, figure};

/// Prints all; `rate` is that of the latencies, in requests a second.
pub(super) fn print(scale: &Scale, rate: f64, ledger: &Ledger) {
    print_throughput(scale, ledger);
    print_tails(ledger, rate);
    print_memory(scale, ledger);
}

fn cell(ledger: &Ledger, system: &str, case: &str, unit: f64) -> String {
    let ratios = match system {
        OURS => Vec::new(),
        _ => ledger.ratios((OURS, case), (system, case)),
    };
    beside(ledger.values(system, case), unit, &ratios)
}

fn print_throughput(scale: &Scale, ledger: &Ledger) {
    let print = |what: &str, unit: f64, case: &dyn Fn(Case) -> String| {
        println!("{what}; in brackets ours over theirs");
        let rows = Case::all(scale.throughput.cpus).map(|of| (of.to_string(), case(of)));
        let cell = |system: &str, case: &String| cell(ledger, system, case, unit);
        println!("{}", Table::grid("case", &SYSTEMS, rows, cell));
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
    let cell = |system: &str, case: &String| cell(ledger, system, case, 1.0);
    let rows = memory::VALUES.map(|value| {
        let name = format!("{value} B, {} records", (scale.records)(value));
        (name, memory::size(value))
    });
    println!("{}", Table::grid("values", &SYSTEMS, rows, cell));
    println!(
        "bytes resident over keys and values after each pattern; in brackets ours over theirs"
    );
    let patterns = scale.patterns.iter();
    let rows = patterns.map(|pattern| (pattern.name.to_owned(), memory::left(pattern)));
    println!("{}", Table::grid("pattern", &[OURS, REDIS], rows, cell));
}

pub(super) fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let bars = |file: &str, title: &str, metric: Metric, cases: Vec<(String, String)>| {
        Figure::new(file, Bars::of(ledger, title, metric, &SYSTEMS, cases))
    };
    let costs = Case::all(scale.throughput.cpus).map(|case| (case.to_string(), case.server()));
    let sizes = memory::VALUES.map(|value| (format!("{value} B"), memory::size(value)));
    let cpu = "CPU time of the server an operation";
    vec![
        bars("server-cpu.svg", cpu, Metric::Cpu, costs.collect()),
        bars(
            "server-memory.svg",
            "Resident bytes a record",
            Metric::Footprint,
            sizes.into(),
        ),
    ]
}
