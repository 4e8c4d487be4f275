//! `hugepages`: what a machine whose memory is in shreds costs a store (Park's dissertation, §2.6.3
//! and figure 2.10).
//!
//! A store's GET throughput, on 4 KiB pages, on transparent huge pages, and on pages that were
//! *reserved*: taken at once, when there were huge ones. On a *fresh* machine, and *fragmented*
//! (see [`fragmenter`]). Stores on the first two kinds of pages start when the machine is in that
//! state; that is what a start on a fragmented machine costs. The reserved memory was taken before,
//! and is filled now: what a reservation promises.
//!
//! How to read it: the notes say in how many MiB of huge pages each store lay, and how many free
//! pieces of 2 MiB and more the machine had. A run with `--quick` fragments too little memory to
//! show anything but that it works. **The fragmenter takes nearly all memory for some seconds**, so
//! nothing else should be at work.

pub mod fragmenter;

use mneme_bench::error::{BenchError, failed};
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::generate::random::mix;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::machine::available_bytes;
use mneme_bench::options::Common;
use mneme_bench::processes::Helper;
use mneme_bench::progress;
use mneme_bench::records::Records;
use mneme_bench::report::Report;
use mneme_bench::rounds::Span;
use mneme_bench::table::{Table, median};
use mneme_log::{LogStore, control_bytes};
use mneme_sys::{PagePolicy, Region, ScriptedLiveness};
use serde_json::json;
use std::sync::Arc;

const SMALL: &str = "4 KiB";
const THP: &str = "THP";
const RESERVED: &str = "reserved";
const SYSTEMS: [&str; 3] = [SMALL, THP, RESERVED];
const FRESH: &str = "fresh";
const FRAGMENTED: &str = "fragmented";
const STATES: [&str; 2] = [FRESH, FRAGMENTED];

/// Throughput on reserved pages of a fragmented machine over that of a fresh one.
const GOAL: f64 = 0.95;
/// Memory that the fragmenter leaves alone.
const LEFT: u64 = 1 << 30;
/// Bytes of a value.
const VALUE: usize = 256;

/// How much is done.
pub struct Scale {
    /// Bytes of a store, of which its records take half.
    capacity: usize,
    /// Bytes that are fragmented at most.
    fragmented: u64,
    span: Span,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            capacity: options.pick(256 << 20, 4 << 30),
            fragmented: options.pick(512 << 20, u64::MAX),
            span: Span::of(options.pick(200, 2000), 2),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a fragmenter that ended, a store that loses records.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    for round in 0..options.rounds {
        let seed = mix(options.seed) ^ round as u64;
        let mut measure = |system: &str, state: &str, memory: Region, notes: &mut Vec<String>| {
            progress::show(format_args!("{state}, {system}"));
            let records = Records::half_full(store_in(memory)?, VALUE)?;
            let gets = records.rate(100, 1, scale.span, seed);
            records.check()?;
            ledger.add(system, state, Metric::Throughput, gets / 1e6);
            if round == 0 {
                let pages = records.store.pages();
                let (huge, all) = (pages.huge_bytes >> 20, pages.resident_bytes >> 20);
                notes.push(format!(
                    "{state}, {system}: {huge} of {all} MiB in huge pages"
                ));
            }
            Ok::<_, BenchError>(())
        };
        let memory = |system: &str| memory_for(system, scale.capacity);
        for system in SYSTEMS {
            measure(system, FRESH, memory(system)?, &mut notes)?;
        }
        let reserved = memory(RESERVED)?;
        let before = free_huge();
        let bytes = available_bytes().saturating_sub(LEFT).min(scale.fragmented);
        let mut fragmenter = Helper::start(&[&"fragmenter", &bytes.to_string()])?;
        let taken: u64 = fragmenter.answer()?;
        if round == 0 {
            notes.push(format!(
                "free pieces of 2 MiB: {before} before, {} after {} MiB were fragmented; {taken} \
                 MiB could be had whole even so, and were taken",
                free_huge(),
                bytes >> 20
            ));
        }
        measure(RESERVED, FRAGMENTED, reserved, &mut notes)?;
        for system in [THP, SMALL] {
            measure(system, FRAGMENTED, memory(system)?, &mut notes)?;
        }
        drop(fragmenter);
    }
    progress::clear();
    let mut table = Table::new(["pages", FRESH, FRAGMENTED, "fragmented / fresh"]);
    for system in SYSTEMS {
        let cells = STATES.map(|state| median(ledger.values(system, state), 1.0));
        let ratio = ledger.ratios((system, FRAGMENTED), (system, FRESH));
        let cells = cells.into_iter().chain([median(&ratio, 1.0)]);
        table.row([system.to_owned()].into_iter().chain(cells));
    }
    table.print("millions of GETs a second, medians of rounds");
    let title = "GETs on a machine whose memory is in shreds";
    let cases = STATES.map(|state| (state.to_owned(), state.to_owned()));
    let bars = Bars::of(&ledger, title, Metric::Throughput, &SYSTEMS, cases);
    Ok(Report {
        figures: vec![Figure::new("hugepages.svg", bars)],
        params: json!({
            "capacity_bytes": scale.capacity,
            "value_bytes": VALUE,
            "seconds": scale.span.timed.as_secs_f64(),
        }),
        goals: vec![Goal::at_least(
            "GETs on reserved pages, fragmented over fresh",
            GOAL,
            ledger.ratios((RESERVED, FRAGMENTED), (RESERVED, FRESH)),
        )],
        ledger,
        notes,
    })
}

fn memory_for(system: &str, bytes: usize) -> Result<Region, BenchError> {
    let policy = match system {
        SMALL => PagePolicy::Small,
        THP => PagePolicy::Thp,
        _ => PagePolicy::Huge,
    };
    let region = Region::private(bytes, bytes, policy)?;
    if system == RESERVED {
        region.prefault(0..bytes)?;
    }
    Ok(region)
}

/// Free pieces of 2 MiB, in whole pieces that are at least as large.
fn free_huge() -> u64 {
    let text = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    let of_zone = |line: &str| {
        let counts = line.split_whitespace().skip(4);
        let counts = counts.enumerate().skip(9);
        let pieces = counts.filter_map(|(order, n)| Some(n.parse::<u64>().ok()? << (order - 9)));
        pieces.sum::<u64>()
    };
    text.lines().map(of_zone).sum()
}

/// A store in this memory.
fn store_in(memory: Region) -> Result<LogStore, BenchError> {
    let bytes = control_bytes();
    let control = Region::private(bytes, bytes, PagePolicy::Small)?;
    let liveness = Arc::new(ScriptedLiveness::new().process(0));
    let store = LogStore::builder().create_in(memory, control, liveness);
    store.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_part() {
        let scale = Scale {
            capacity: 64 << 20,
            fragmented: 8 << 20,
            span: Span::of(2, 2),
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &STATES);
        assert_eq!(report.notes.len(), 7, "{:?}", report.notes);
    }
}
