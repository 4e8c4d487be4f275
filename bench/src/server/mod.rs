//! `server`: ours beside Redis, Valkey and memcached, over unix sockets: throughput and what it
//! costs in CPU time, latencies while something goes on, memory, and what fragmentation leaves.
//!
//! All servers keep their data in memory of their own and write nothing to disk; ours serves as
//! `mneme serve --private` does. Keys have 16 bytes. The load is one thread of this program, kept
//! on the last CPU; servers are kept on the first, or the first two with a thread more (Redis
//! executes on one thread anyway). What is missing is said to be.
//!
//! - *throughput* (see `throughput.rs`): GET and SET of 100 B values, uniform over all records, by
//!   32 connections with one request under way each (*plain*) or 32 (*pipelined*). Read *server
//!   CPU* first: nanoseconds of CPU time an operation costs the server, which is what a server on
//!   its own CPU is bounded by. The rate is bounded by the load as well, whose CPU time stands
//!   beside it: where that is the larger one, the rates say how fast the load is. With two CPUs of
//!   a machine that has two, server and load share them; the goal for two CPUs is therefore judged
//!   by CPU time, as what the server would do with both.
//! - *commands* (see `commands.rs`): what other commands cost the server, pipelined.
//! - *latencies* (see `tails.rs`): nanoseconds from when a request was due until its reply was
//!   read, at half of what the slower server does at most, while the data set rests, is filled,
//!   expires, is overwritten in a full store. *Load away* is the longest that the load itself did
//!   not run: a maximum of no more than that is the machine's. So is one of no more than *nobody*
//!   has, a thread on the server's CPU that only looks at the clock.
//! - *memory* (see `memory.rs`): bytes resident a record, by size of its value; and over keys and
//!   values after the patterns of `frag`. A sensible operator gives a store what its data need at
//!   0.85 live, and so do we: record and index entry take 40 B beside key and value; for the
//!   patterns it has 1.5 times their keys and values. Redis and memcached have no bound that
//!   matters.
//!
//! `go-ycsb` is another's load with the same peers; this program says whether it is there and
//! leaves it to you.

mod commands;
pub mod generator;
mod memory;
pub mod protocol;
pub mod servers;
mod tables;
mod tails;
pub mod throughput;

use crate::error::BenchError;
use crate::frag::pattern::{PATTERNS, Pattern};
use crate::goals::Goal;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Summary};
use crate::machine::cpus;
use crate::options::Common;
use crate::processes::{is_on_path, keep_this_thread_on};
use crate::progress;
use crate::report::Report;
use crate::rounds::{Span, joined};
use crate::systems::redis::{PEERS, introduce};
use mneme_log::MIN_CAPACITY;
use protocol::VERBS;
use serde_json::json;
use servers::{MEMCACHED, OURS, REDIS, VALKEY, present};
use std::time::Duration;
use tails::{WEATHERS, Weather};
use throughput::{CONNECTIONS, Case, DEPTH, VALUE};

/// Bytes that a record takes beside key and value, its index entry included.
pub const RECORD: u64 = 40;

/// Memory for so many records of ours, as a sensible operator would give it: 0.85 of it live.
pub fn memory_for(records: u64, value: u64) -> u64 {
    let each = protocol::KEY_BYTES as u64 + value + RECORD;
    (records * each * 100 / 85).max(MIN_CAPACITY)
}

/// The patterns of a quick run: Redis' worst, and those with the largest changes of size but the
/// last, which needs 1 GiB.
const QUICK_PATTERNS: [Pattern; 3] = [PATTERNS[0], PATTERNS[3], PATTERNS[4]];

/// How much is done.
pub struct Scale {
    throughput: throughput::Scale,
    commands: commands::Scale,
    tails: tails::Scale,
    /// Records by size of their values.
    records: fn(usize) -> u32,
    patterns: &'static [Pattern],
    /// Bytes of keys and values of a pattern.
    data: fn(&Pattern) -> u64,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        let records: [fn(usize) -> u32; 2] = [
            |value| if value == VALUE { 400_000 } else { 100_000 },
            |value| {
                if value == VALUE {
                    20_000_000
                } else {
                    2_000_000
                }
            },
        ];
        let data: [fn(&Pattern) -> u64; 2] = [
            |_| 64 << 20,
            |pattern| {
                if pattern.first < 100 {
                    256 << 20
                } else {
                    1 << 30
                }
            },
        ];
        Self {
            throughput: throughput::Scale {
                records: options.pick(100_000, 1_000_000),
                span: options.pick(Span::of(20, 4), Span::of(500, 5)),
                cpus: cpus().min(2),
            },
            commands: commands::Scale {
                records: options.pick(50_000, 1_000_000),
                span: options.pick(Span::of(10, 4), Span::of(400, 4)),
            },
            tails: tails::Scale {
                // Fewer would not fill the smallest store.
                records: options.pick(400_000, 1_000_000),
                overwritten: options.pick(1, 2),
                span: Duration::from_millis(options.pick(60, 4000)),
            },
            records: options.pick(records[0], records[1]),
            patterns: options.pick(&QUICK_PATTERNS, &PATTERNS),
            data: options.pick(data[0], data[1]),
        }
    }
}

/// Runs `work` in a thread that is kept on the last CPU.
pub fn on_load_cpu<T: Send>(
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    on_cpu(cpus() - 1, work)
}

/// Runs `work` in a thread that is kept on a CPU.
fn on_cpu<T: Send>(
    cpu: usize,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    std::thread::scope(|scope| {
        joined(scope.spawn(move || {
            keep_this_thread_on(cpu)?;
            work()
        }))
    })
}

/// Measures and reports.
///
/// # Errors
/// A server that does not start, refuses, or mixes up records; a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut notes = notes();
    let (rounds, seed) = (options.rounds, options.seed);
    throughput::run(&scale.throughput, rounds, seed, &mut ledger)?;
    commands::run(&scale.commands, rounds, seed, &mut ledger)?;
    let rate = half_load(&ledger);
    tails::run(&scale.tails, rate, rounds, seed, &mut ledger)?;
    memory::sizes(scale.records, &mut ledger)?;
    let refused = memory::patterns(scale.patterns, scale.data, seed, &mut ledger)?;
    notes.extend(refused);
    progress::clear();
    tables::print(scale, rate, &ledger);
    Ok(Report {
        figures: tables::figures(scale, &ledger),
        params: json!({
            "key_bytes": protocol::KEY_BYTES,
            "value_bytes": VALUE,
            "connections": CONNECTIONS,
            "pipeline": DEPTH,
            "records": scale.throughput.records,
            "half_load": rate,
            "memory_records": (scale.records)(VALUE),
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

fn notes() -> Vec<String> {
    let here = present();
    let mut notes = introduce(&PEERS);
    if !here.contains(&MEMCACHED) {
        notes.push("memcached is missing: no memcached on the PATH".to_owned());
    }
    if cpus() < 3 {
        notes.push(
            "with so few CPUs the load takes part of the server's where that has two".to_owned(),
        );
    }
    notes.push(match is_on_path("go-ycsb") {
        true => "go-ycsb is there; it is not run from here".to_owned(),
        false => "go-ycsb is missing (go install github.com/pingcap/go-ycsb/cmd/go-ycsb@v1.0.1)"
            .to_owned(),
    });
    notes
}

/// Half of what the slower of ours and Redis does at most, plain, on one CPU, in requests a second.
fn half_load(ledger: &Ledger) -> f64 {
    let mut slowest = f64::INFINITY;
    for system in [OURS, REDIS] {
        for case in Case::all(1).filter(|case| case.depth == 1) {
            if let Some(rate) = Summary::of(ledger.values(system, &case.to_string())) {
                slowest = slowest.min(rate.median);
            }
        }
    }
    slowest * 1e6 / 2.0
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in Case::all(1) {
        let cpu = case.server();
        if case.depth == 1 {
            let ratios = ledger.ratios((OURS, &cpu), (REDIS, &cpu));
            let text = format!("{case}: server CPU an operation / redis");
            goals.push(Goal::at_most(text, 1.0, ratios));
            let ratios = ledger.ratios((OURS, &cpu), (VALKEY, &cpu));
            let text = format!("{case}: server CPU an operation / valkey");
            goals.push(Goal::at_most(text, 0.85, ratios));
            let name = case.to_string();
            let ratios = ledger.ratios((OURS, &name), (VALKEY, &name));
            let text = format!("{case}: throughput / valkey");
            goals.push(Goal::at_least(text, 1.0, ratios));
            continue;
        }
        for peer in [REDIS, MEMCACHED] {
            let ratios = ledger.ratios((peer, &cpu), (OURS, &cpu));
            let text = format!("{case}: operations a CPU second of the server / {peer}");
            goals.push(Goal::at_least(text, 2.0, ratios));
            let name = case.to_string();
            let ratios = ledger.ratios((OURS, &name), (peer, &name));
            goals.push(Goal::at_least(
                format!("{case}: throughput / {peer}"),
                2.0,
                ratios,
            ));
        }
    }
    for one in Case::all(1).filter(|case| case.depth > 1) {
        let two = Case { cpus: 2, ..one };
        let ratios = ledger.ratios((OURS, &one.server()), (OURS, &two.server()));
        let text = format!("{two}: twice the operations a CPU second / one CPU");
        let ratios = ratios.into_iter().map(|ratio| 2.0 * ratio).collect();
        goals.push(Goal::at_least(text, 1.7, ratios));
    }
    for verb in VERBS {
        let case = commands::case(verb);
        for (peer, target) in [(REDIS, 1.8), (VALKEY, 1.5)] {
            let ratios = ledger.ratios((peer, &case), (OURS, &case));
            let text = format!(
                "{} pipelined: operations a CPU second / {peer}",
                verb.name()
            );
            goals.push(Goal::at_least(text, target, ratios));
        }
    }
    let idle = percentile_case(Weather::Idle.name(), "p99.9");
    for weather in WEATHERS {
        let case = percentile_case(weather.name(), "p99.9");
        let ratios = ledger.ratios((OURS, &case), (REDIS, &idle));
        let text = format!("{case} at half load / idle redis'");
        goals.push(Goal::at_most(text, 1.5, ratios));
    }
    let case = percentile_case(Weather::Compacted.name(), "p99.9");
    goals.push(Goal::at_most(
        format!("{case} at half load / its own idle"),
        1.5,
        ledger.ratios((OURS, &case), (OURS, &idle)),
    ));
    for weather in WEATHERS {
        let case = percentile_case(weather.name(), "max");
        let longest = ledger.values(OURS, &case).iter().map(|max| max / 1e6);
        goals.push(Goal::at_most(format!("{case}, ms"), 5.0, longest.collect()));
    }
    for value in memory::VALUES {
        let case = memory::size(value);
        let ratios = ledger.ratios((OURS, &case), (REDIS, &case));
        goals.push(Goal::at_most(
            format!("{case}: resident / redis"),
            0.75,
            ratios,
        ));
    }
    goals.push(Goal::at_most(
        "resident after a pattern / redis, on redis' worst",
        0.5,
        on_worst(scale, ledger),
    ));
    goals
}

/// Our memory over Redis' after the pattern that leaves Redis the most.
fn on_worst(scale: &Scale, ledger: &Ledger) -> Vec<f64> {
    let cases = scale.patterns.iter().map(memory::left);
    let left = |case: &String| ledger.values(REDIS, case).first().copied().unwrap_or(0.0);
    let worst = cases.max_by(|a, b| left(a).total_cmp(&left(b)));
    worst.map_or_else(Vec::new, |case| {
        ledger.ratios((OURS, &case), (REDIS, &case))
    })
}

#[cfg(test)]
mod tests {
    use super::servers::SYSTEMS;
    use super::tails::NOBODY;
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_measures_everything() {
        let scale = Scale {
            throughput: throughput::Scale {
                records: 2000,
                span: Span::of(2, 2),
                cpus: cpus().min(2),
            },
            commands: commands::Scale {
                records: 1000,
                span: Span::of(1, 1),
            },
            tails: tails::Scale {
                records: 2000,
                overwritten: 1,
                span: Duration::from_millis(5),
            },
            records: |_| 2000,
            patterns: &PATTERNS[..2],
            data: |_| 4 << 20,
        };
        let options = Common {
            rounds: 2,
            ..common()
        };
        let report = run(&scale, &options).unwrap();
        let sizes = memory::VALUES.map(memory::size);
        let sizes: Vec<_> = sizes.iter().map(String::as_str).collect();
        assert_well_formed(&report, &sizes);
        let ledger = &report.ledger;
        for system in present() {
            for case in Case::all(scale.throughput.cpus) {
                let rates = ledger.values(system, &case.to_string());
                assert!(rates.len() == 2 && rates[0] > 0.0, "{system}, {case}");
                assert!(
                    ledger.values(system, &case.server())[0] > 0.0,
                    "{system}, {case}"
                );
            }
            assert!(
                ledger.values(system, &memory::size(1000))[0] > 1000.0,
                "{system}"
            );
            if system != MEMCACHED {
                for weather in WEATHERS {
                    let case = percentile_case(weather.name(), "p99.9");
                    assert_eq!(ledger.values(system, &case).len(), 2, "{system}, {case}");
                }
            }
        }
        let floor = ledger.values(NOBODY, &percentile_case(Weather::Idle.name(), "max"));
        assert!(floor.len() == 2 && floor[0] > 0.0, "{floor:?}");
        if present() == SYSTEMS {
            let unmeasured = report.goals.iter().filter(|goal| goal.met().is_none());
            let unmeasured: Vec<_> = unmeasured.map(|goal| &goal.text).collect();
            assert!(unmeasured.is_empty() || cpus() < 2, "{unmeasured:?}");
        }
    }
}
