//! The table of commands with their cost, since the previous sample or since the start.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::view::{Sample, count, percentage};
use crate::command::client::part;

/// The number of commands shown, the most expensive first.
const COMMANDS: usize = 12;

/// The cost of one command.
struct Cost<'a> {
    name: &'a str,
    calls: u64,
    usec: u64,
}

fn costs<'a>(now: &'a Sample, before: Option<&Sample>) -> Vec<Cost<'a>> {
    let number = |list: &str, name: &str| part(list, name).parse::<u64>().unwrap_or(0);
    let mut costs: Vec<_> = now
        .info
        .beginning("cmdstat_")
        .map(|(name, list)| {
            let old = before.map_or("", |look| look.info.text(&format!("cmdstat_{name}")));
            // A counter that was reset has begun at 0 again.
            let more = |name| {
                let count = number(list, name);
                count.checked_sub(number(old, name)).unwrap_or(count)
            };
            Cost {
                name,
                calls: more("calls"),
                usec: more("usec"),
            }
        })
        .filter(|cost| cost.calls > 0)
        .collect();
    costs.sort_by_key(|cost| (Reverse(cost.usec), cost.name));
    costs
}

/// Appends the table to a page.
pub fn table(page: &mut String, now: &Sample, before: Option<&Sample>) {
    let costs = costs(now, before);
    if costs.is_empty() {
        return;
    }
    let all: u64 = costs.iter().map(|cost| cost.usec).sum();
    let calls = if before.is_some() { "calls/s" } else { "calls" };
    let seconds = before.map_or(1.0, |before| now.seconds_since(before));
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "\n{:<20}{calls:>12}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "command", "time", "mean us", "p50", "p99", "p99.9"
    );
    for Cost { name, calls, usec } in costs.into_iter().take(COMMANDS) {
        let [p50, p99, p999] = percentiles(name, now, before);
        let _ = writeln!(
            page,
            "{name:<20}{:>12}{:>8}{:>10.2}{p50:>10}{p99:>10}{p999:>10}",
            count(calls as f64 / seconds),
            percentage(usec as f64, all as f64),
            usec as f64 / calls as f64,
        );
    }
}

/// Percentiles in microseconds. Between two samples they are known to a power of two.
fn percentiles(name: &str, now: &Sample, before: Option<&Sample>) -> [String; 3] {
    match before {
        Some(before) => now.spreads.since(name, &before.spreads).percentiles(),
        None => {
            let times = now.info.text(&format!("latency_percentiles_usec_{name}"));
            ["p50", "p99", "p99.9"].map(|name| part(times, name).to_owned())
        }
    }
}
