//! What was measured, in words and pictures for people.

use super::Scale;
use super::commands;
use super::generator::away_case;
use super::memory;
use super::protocol::VERBS;
use super::servers::{OURS, REDIS, SYSTEMS, VALKEY};
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
        let rows = Case::all(scale.throughput.cpus).map(|of| (of.to_string(), case(of)));
        let cell = |system: &str, case: &String| cell(ledger, system, case, unit);
        Table::grid("case", &SYSTEMS, rows, cell)
            .print(format_args!("{what}; in brackets ours over theirs"));
    };
    print("thousand operations a second", 1e-3, &|case| {
        case.to_string()
    });
    print("server CPU, ns an operation", 1.0, &Case::server);
    print("client CPU, ns an operation", 1.0, &Case::client);
    let rows = VERBS.map(|verb| (verb.name().to_owned(), commands::case(verb)));
    let cell = |system: &str, case: &String| cell(ledger, system, case, 1.0);
    Table::grid("command", &[OURS, REDIS, VALKEY], rows, cell)
        .print("server CPU of pipelined commands, ns an operation; in brackets ours over theirs");
}

fn print_tails(ledger: &Ledger, rate: f64) {
    let head = PERCENTILES.map(|(name, _)| name);
    let head = ["system", "while"]
        .into_iter()
        .chain(head)
        .chain(["load away"]);
    let mut table = Table::new(head);
    for weather in WEATHERS {
        for system in [NOBODY, OURS, REDIS, VALKEY] {
            if system == NOBODY && weather != Weather::Idle {
                continue;
            }
            let cases = PERCENTILES.map(|(name, _)| percentile_case(weather.name(), name));
            let cases = cases.into_iter().chain([away_case(weather.name())]);
            let cells = cases.map(|case| cell(ledger, system, &case, 1e3));
            let names = [system, weather.name()].map(str::to_owned);
            table.row(names.into_iter().chain(cells));
        }
    }
    let rate = figure(rate / 1e3);
    table.print(format_args!(
        "microseconds at {rate} thousand requests a second; in brackets ours over theirs"
    ));
}

fn print_memory(scale: &Scale, ledger: &Ledger) {
    let cell = |system: &str, case: &String| cell(ledger, system, case, 1.0);
    let rows = memory::VALUES.map(|value| {
        let name = format!("{value} B, {} records", (scale.records)(value));
        (name, memory::size(value))
    });
    Table::grid("values", &SYSTEMS, rows, cell)
        .print("bytes resident a record of 16 B keys; in brackets ours over theirs");
    let patterns = scale.patterns.iter();
    let rows = patterns.map(|pattern| (pattern.name.to_owned(), memory::left(pattern)));
    Table::grid("pattern", &[OURS, REDIS, VALKEY], rows, cell).print(
        "bytes resident over keys and values after each pattern; in brackets ours over theirs",
    );
}

pub(super) fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let costs = Case::all(scale.throughput.cpus).map(|case| (case.to_string(), case.server()));
    let title = "CPU time of the server an operation";
    let costs = Bars::of(ledger, title, Metric::Cpu, &SYSTEMS, costs);
    let sizes = memory::VALUES.map(|value| (format!("{value} B"), memory::size(value)));
    let title = "Resident bytes a record";
    let sizes = Bars::of(ledger, title, Metric::Footprint, &SYSTEMS, sizes);
    vec![
        Figure::new("server-cpu.svg", costs),
        Figure::new("server-memory.svg", sizes),
    ]
}
