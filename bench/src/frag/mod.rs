//! `frag`: what a byte of data costs after a destructive change of sizes (Nibble, fig. 1 and 9).
//!
//! Each pattern loads values of one size, removes a random 90 % and fills up with another size,
//! keys of 8 bytes. Two questions are asked of it:
//! - *the smallest capacity in which it completes*, over keys and values: index, log, reserve and
//!   tables included. It is our store's own question, for only a store that has a bound and moves
//!   its records can answer it. `log` is the same without the index's frames, the counterpart of
//!   the paper's figure for P1.
//! - *resident memory in the end*, over keys and values, beside Redis, Valkey and DashMap on three
//!   allocators, each in a process of its own. Ours is shown a few percent above the smallest
//!   capacity, and in twice the data, where it has no reason to be thrifty: frames are touched as
//!   they are first used, so a store that is roomy spreads.
//!
//! Then, of *large values*, how much of a store's capacity those of mixed sizes fill before it
//! refuses the next one.
//!
//! How to read it: 1.00 would be keys and values alone. One round: nothing here depends on time.
//! The scale is smaller than the paper's 8 GiB; a log segment is a larger share of a smaller store,
//! so small scales flatter nobody, least of all P5 and P6.

pub mod capacity;
mod large;
pub mod pattern;
pub mod resident;
pub mod store;

use crate::error::BenchError;
use crate::figure::{Bars, Figure};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric, Summary};
use crate::options::{Common, Frag, chosen};
use crate::progress;
use crate::report::Report;
use crate::systems::redis::{Peer, introduce};
use crate::table::{NONE, Table, figure};
use capacity::Found;
use large::{MIXTURES, Mixture};
use pattern::{Churn, PATTERNS, Pattern, of_name};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const OURS: &str = "mneme";
const SPACIOUS: &str = "mneme, 2x free space";

/// How large a run is.
pub struct Scale {
    /// Whether a store is so small that its reserve and its open log segments weigh.
    small: bool,
    /// Bytes of data for the search, by pattern.
    search: fn(&Pattern) -> u64,
    /// Bytes of data for resident memory, by pattern.
    resident: fn(&Pattern) -> u64,
    /// Capacity of a store for large values.
    large: u64,
    /// A probe that takes longer counts as too small.
    limit: Duration,
    /// After two thirds of this no search is begun, after all of it nothing.
    budget: Duration,
    /// Whether other processes are measured.
    apart: bool,
    peers: Vec<String>,
    patterns: Vec<Pattern>,
}

impl Scale {
    /// For these options. A full run is as large as the time allows: records by the million take it
    /// for P1, log segments of full size need 4 GiB for P5, P6.
    pub fn of(common: &Common, options: &Frag) -> Self {
        let search: [fn(&Pattern) -> u64; 2] = [
            |pattern| match pattern.first {
                ..100 => 64 << 20,
                100..2000 => 128 << 20,
                2000..20_000 => 384 << 20,
                _ => 1100 << 20,
            },
            |pattern| match pattern.first {
                ..100 => 384 << 20,
                100..2000 => 1 << 30,
                _ => 4 << 30,
            },
        ];
        let resident: [fn(&Pattern) -> u64; 2] = [
            |pattern| {
                if pattern.first < 100 {
                    32 << 20
                } else {
                    64 << 20
                }
            },
            |pattern| {
                if pattern.first < 100 {
                    256 << 20
                } else {
                    1 << 30
                }
            },
        ];
        Self {
            small: common.quick,
            search: common.pick(search[0], search[1]),
            resident: common.pick(resident[0], resident[1]),
            large: common.pick(256 << 20, 1 << 30),
            limit: Duration::from_secs(common.pick(4, 40)),
            budget: Duration::from_secs(common.pick(24, 540)),
            apart: true,
            peers: chosen(&options.peers),
            patterns: options
                .patterns
                .iter()
                .flat_map(|name| of_name(name))
                .collect(),
        }
    }
}

impl Scale {
    /// Peers that are servers.
    fn servers(&self) -> Vec<Peer> {
        let names = self.peers.iter();
        names.filter_map(|name| Peer::named(name)).collect()
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that loses records, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let patterns = &scale.patterns;
    let mut run = Run {
        scale,
        seed: options.seed,
        began: Instant::now(),
        ledger: Ledger::default(),
        notes: introduce(&scale.servers()),
    };
    for mixture in MIXTURES {
        progress::show(format_args!("large values, {}", mixture.name));
        let share = mixture.full_at(scale.large, options.seed)?;
        run.ledger.add(OURS, &full_at(mixture), Metric::Fill, share);
    }
    let mut searched = Vec::new();
    for pattern in patterns {
        progress::show(format_args!("{}: smallest capacity", pattern.name));
        searched.push(run.search(pattern)?);
    }
    for (pattern, found) in patterns.iter().zip(&searched).filter(|_| scale.apart) {
        progress::show(format_args!("{}: resident memory", pattern.name));
        run.resident(pattern, found.as_ref())?;
    }
    progress::clear();
    let Run {
        ledger, mut notes, ..
    } = run;
    if scale.small {
        notes.push(
            "quick: in so small a store the reserve and the open log segments weigh most"
                .to_owned(),
        );
    }
    print_tables(patterns, &searched, &ledger);
    let data = patterns.iter().map(|pattern| {
        json!({
            "pattern": pattern.name, "first": pattern.first, "second": pattern.second,
            "search_bytes": (scale.search)(pattern), "resident_bytes": (scale.resident)(pattern),
        })
    });
    Ok(Report {
        figures: figures(patterns, &ledger),
        params: json!({ "patterns": Value::from_iter(data), "key_bytes": pattern::KEY_BYTES }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

struct Run<'a> {
    scale: &'a Scale,
    seed: u64,
    began: Instant,
    ledger: Ledger,
    notes: Vec<String>,
}

impl Run<'_> {
    fn search(&mut self, pattern: &Pattern) -> Result<Option<Found>, BenchError> {
        let name = pattern.name;
        if self.began.elapsed() > self.scale.budget * 2 / 3 {
            let note = format!("{name}: no time left for the search");
            self.notes.push(note);
            return Ok(None);
        }
        let churn = Churn::new(*pattern, (self.scale.search)(pattern), self.seed);
        let limit = self.scale.limit;
        let seconds = limit.as_secs();
        let Some(found) = capacity::search(&churn, target(pattern), limit)? else {
            let note = format!("{name}: the machine is too busy for runs of {seconds} s");
            self.notes.push(note);
            return Ok(None);
        };
        if found.given_up > 0 {
            self.notes.push(format!(
                "{name}: {} capacities were counted as too small because they took more than \
                 {seconds} s",
                found.given_up
            ));
        }
        for (case, value) in [
            (everything(pattern), found.overhead()),
            (log_alone(pattern), found.log_overhead()),
            (index_alone(pattern), found.index_overhead()),
        ] {
            self.ledger.add(OURS, &case, Metric::Overhead, value);
        }
        Ok(Some(found))
    }

    fn resident(&mut self, pattern: &Pattern, found: Option<&Found>) -> Result<(), BenchError> {
        let peers = &self.scale.peers;
        let churn = Churn::new(*pattern, (self.scale.resident)(pattern), self.seed);
        let roomy = 2 * churn.data;
        let here = resident::program("glibc");
        let mut systems = vec![(SPACIOUS, "mneme", here.clone(), vec![roomy.max(128 << 20)])];
        if let Some(found) = found {
            // A store of another size wants a little more or less: a log segment is another share
            // of it.
            let tight = [0.02, 0.05, 0.10, 0.20].map(|more| {
                let bytes = churn.data as f64 * (found.overhead() + more);
                (bytes as u64).max(mneme_log::MIN_CAPACITY)
            });
            systems.insert(0, (OURS, "mneme", here, tight.to_vec()));
        }
        for peer in peers {
            if let Some(allocator) = peer.strip_prefix("dashmap-") {
                systems.push((peer, "dashmap", resident::program(allocator), vec![0]));
            }
        }
        for (name, system, program, capacities) in systems {
            if self.began.elapsed() > self.scale.budget {
                self.note_once("no time left for all resident memories".to_owned());
                return Ok(());
            }
            let Some(program) = program else {
                self.note_once(format!(
                    "{name} is missing: cargo build --release -p mneme-bench --features allocators"
                ));
                continue;
            };
            for (at, capacity) in capacities.iter().enumerate() {
                match resident::measure_apart(&program, system, &churn, *capacity) {
                    Ok(residence) => {
                        self.add(name, pattern, residence);
                        break;
                    }
                    Err(error) if at + 1 == capacities.len() => {
                        self.note_once(format!("{}, {name}: {error}", pattern.name));
                    }
                    Err(_) => {}
                }
            }
        }
        for peer in self.scale.servers() {
            if peer.is_there() {
                self.add(peer.name(), pattern, resident::server(peer, &churn)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, system: &str, pattern: &Pattern, residence: resident::Residence) {
        let (case, overhead) = (rss(pattern), residence.overhead());
        self.ledger.add(system, &case, Metric::Overhead, overhead);
    }

    fn note_once(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn everything(pattern: &Pattern) -> String {
    format!("{} smallest capacity", pattern.name)
}

fn log_alone(pattern: &Pattern) -> String {
    format!("{} of it log", pattern.name)
}

fn index_alone(pattern: &Pattern) -> String {
    format!("{} of it index", pattern.name)
}

fn rss(pattern: &Pattern) -> String {
    format!("{} resident", pattern.name)
}

fn full_at(mixture: Mixture) -> String {
    format!("large values of {}, full at", mixture.name)
}

/// The goal for everything.
fn target(pattern: &Pattern) -> f64 {
    if pattern.name == "P1" { 1.35 } else { 1.10 }
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let measured = |case: String| ledger.values(OURS, &case).to_vec();
    let mut goals: Vec<Goal> = PATTERNS
        .iter()
        .map(|pattern| {
            Goal::at_most(
                format!("{}: smallest capacity over keys and values", pattern.name),
                target(pattern),
                measured(everything(pattern)),
            )
        })
        .collect();
    goals.push(Goal::at_most(
        "P1: log alone over keys and values",
        1.21,
        measured(log_alone(&PATTERNS[0])),
    ));
    for mixture in MIXTURES {
        let case = full_at(mixture);
        let text = format!("{case}, over the capacity");
        goals.push(Goal::at_least(text, 0.85, measured(case)));
    }
    goals
}

fn systems() -> impl Iterator<Item = &'static str> {
    [OURS, SPACIOUS].into_iter().chain(Frag::PEERS)
}

fn print_tables(patterns: &[Pattern], searched: &[Option<Found>], ledger: &Ledger) {
    let cell = |system: &str, case: &str| {
        let summary = Summary::of(ledger.values(system, case));
        summary.map_or(NONE.to_owned(), |s| format!("{:.3}", s.median))
    };
    let mut table = Table::new([
        "pattern",
        "bytes",
        "data MiB",
        "all",
        "log",
        "index",
        "live log B/record",
    ]);
    for (pattern, found) in patterns.iter().zip(searched) {
        let [data, live] = found
            .as_ref()
            .map_or([NONE; 2].map(str::to_owned), |found| {
                let live = found.stats.live_bytes as f64 / found.stats.records.max(1) as f64;
                [(found.data >> 20).to_string(), figure(live)]
            });
        table.row([
            pattern.name.to_owned(),
            format!("{} -> {}", pattern.first, pattern.second),
            data,
            cell(OURS, &everything(pattern)),
            cell(OURS, &log_alone(pattern)),
            cell(OURS, &index_alone(pattern)),
            live,
        ]);
    }
    table.print("smallest capacity in which the pattern completes, over keys and values");
    let systems: Vec<_> = systems().collect();
    let rows = patterns.iter();
    let rows = rows.map(|pattern| (pattern.name.to_owned(), rss(pattern)));
    Table::grid("pattern", &systems, rows, |system, case| cell(system, case))
        .print("resident memory afterwards, over keys and values");
    let mixtures = MIXTURES.iter();
    let rows = mixtures.map(|mixture| (mixture.name.to_owned(), full_at(*mixture)));
    Table::grid("large values", &[OURS], rows, |system, case| {
        cell(system, case)
    })
    .print("keys and values in a full store, over its capacity");
}

fn figures(patterns: &[Pattern], ledger: &Ledger) -> Vec<Figure> {
    let bars = |title: &str, file: &str, systems: &[&str], case: fn(&Pattern) -> String| {
        let cases = patterns.iter();
        let cases = cases.map(|pattern| (pattern.name.to_owned(), case(pattern)));
        let bars = Bars::of(ledger, title, Metric::Overhead, systems, cases);
        Figure::new(file, bars)
    };
    let all: Vec<&str> = systems().collect();
    let [resident, capacity] =
        ["Resident memory", "Smallest capacity"].map(|what| format!("{what} over keys and values"));
    vec![
        bars(&resident, "frag-resident.svg", &all, rss),
        bars(&capacity, "frag-capacity.svg", &[OURS], everything),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_answers_for_its_patterns() {
        let scale = Scale {
            small: true,
            search: |_| 64 << 20,
            resident: |_| 0,
            large: 64 << 20,
            limit: Duration::from_secs(100),
            budget: Duration::from_secs(1000),
            apart: false,
            peers: Vec::new(),
            patterns: vec![of_name("P4").unwrap()],
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(
            &report,
            &[
                "P4 smallest capacity",
                "P4 of it log",
                &full_at(MIXTURES[0]),
            ],
        );
        assert!(report.goals[3].measured().unwrap() > 1.0);
    }
}
