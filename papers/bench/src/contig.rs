//! `contig`: how long a claim of contiguous memory takes while a second class of clients uses what
//! is idle, and what that costs the first class (Park's dissertation, §2.6, figures 2.5 to 2.7).
//!
//! - *reservation*: the first class has the arena to itself. What a claim costs at least.
//! - *lent, full*: every frame holds a record of the second class, of a MiB, so every claim
//!   discards as many frames as it takes.
//! - *lent, busy*: a tenant looks up and puts all the time, while claims come and go.
//! - *moved away*: what the kernel's CMA does. The second class' data can be moved, so a claim
//!   copies it to other frames first. Only the copy is counted; finding the frames, telling their
//!   owners and waiting for pinned pages, which the paper found to take up to seconds, is not.
//! - *buddy*: a buddy allocator over as many frames, of which the second class has every fourth at
//!   random and cannot be asked to give it back. Its claims are fast, and refused.
//!
//! A claim is refused in the arena only if the first class' total would exceed what it was
//! promised, and no round asks for that: each refusal counts as a failure.
//!
//! `--svg` draws the time of a claim by its size (figure 2.5) and by percentile (figure 2.6), and
//! the throughput of a store beside a tenant ([`beside`], figure 2.7).

mod beside;
mod buddy;
mod measured_arena;

use crate::options;
use buddy::Buddy;
use measured_arena::{Count, MeasuredArena};
use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::BenchError;
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::generate::random::Random;
use mneme_bench::goals::Goal;
use mneme_bench::latency::{Latencies, PERCENTILES, percentile_case};
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::memory::Bare;
use mneme_bench::options::Common;
use mneme_bench::progress;
use mneme_bench::report::Report;
use mneme_bench::table::{Table, median};
use mneme_sys::PagePolicy;
use serde_json::json;
use std::time::Instant;

const RESERVATION: &str = "reservation";
const FULL: &str = "lent, full";
const BUSY: &str = "lent, busy";
const MOVED: &str = "moved away";
const BUDDY: &str = "buddy";

const MIB: usize = 1 << 20;
/// Value of the tenant's records.
const VALUE: usize = 1024;

/// How many times as long as a claim the copy should take, by frames.
const FASTER: [(u32, f64); 2] = [(1, 150.0), (16, 1000.0)];
/// What 999 of 1,000 claims should not exceed, in nanoseconds.
const TAIL_NS: f64 = 20_000.0;

/// How much is done.
pub struct Scale {
    /// Frames of an arena, its own apart.
    frames: u32,
    /// Frames a claim, and claims a round: alone and beside a busy tenant, out of full frames, and
    /// with the data moved away.
    cases: Vec<(u32, u32, u32, u32)>,
    beside: beside::Scale,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &options::Contig) -> Scale {
        let mut cases = match common.quick {
            true => vec![(1, 20_000, 1_000, 200), (16, 5_000, 40, 40)],
            false => vec![
                (1, 220_000, 10_000, 2_000),
                (2, 20_000, 1_000, 500),
                (4, 20_000, 500, 500),
                (8, 20_000, 250, 250),
                (16, 20_000, 400, 200),
                (32, 10_000, 64, 100),
                (64, 5_000, 32, 50),
            ],
        };
        if let Some(claims) = options.claims {
            cases[0].2 = claims.div_ceil(common.rounds as u32);
        }
        Scale {
            frames: common.pick(128, 512),
            cases,
            beside: beside::Scale::of(common),
        }
    }
}

fn case(frames: u32) -> String {
    format!("claim of {frames} frame(s)")
}

/// Measures and reports.
///
/// # Errors
/// No memory, a cache that answers wrongly, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut count = Count::default();
    let reservation = MeasuredArena::new(scale.frames, false)?;
    let lent = MeasuredArena::new(scale.frames, true)?;
    let memory = Bare::new(scale.frames as usize * 2 * MIB, PagePolicy::Thp)?;
    for round in 0..options.rounds {
        for &(frames, claims, of_full, moves) in &scale.cases {
            progress::show(case(frames));
            let mut report = |system: &str, latencies: Latencies| {
                latencies.report(&mut ledger, system, &case(frames));
            };
            report(RESERVATION, reservation.claims(frames, claims, &mut count)?);
            report(FULL, lent.claims_of_full(frames, of_full, &mut count)?);
            let seed = options.seed + round as u64;
            report(BUSY, lent.claims_beside(frames, claims, seed, &mut count)?);
            report(MOVED, moved_away(&memory, frames, moves));
            report(
                BUDDY,
                of_buddy(scale.frames, frames, claims, seed, &mut count),
            );
        }
    }
    progress::clear();
    drop((reservation, lent, memory));
    print_table(scale, &ledger);
    let tenants = beside::run(&scale.beside, options.rounds, options.seed, &mut ledger)?;
    let goals = goals(&ledger, &count);
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({ "frames": scale.frames, "value_bytes": VALUE }),
        goals,
        ledger,
        notes: vec![
            format!(
                "{} claims in arenas, {} refused; {} discards by claims out of full frames, of {} \
                 frames claimed",
                count.claims, count.refused, count.discards, count.frames_of_full
            ),
            format!(
                "buddy: {} of {} claims of more than one frame were refused, beside a second class \
                 with a quarter of the frames",
                count.buddy_refused, count.buddy_claims
            ),
            format!(
                "busy tenant: {} lookups, hit rate {:.2}, puts taken {}, dropped {}",
                count.lookups,
                count.hits as f64 / (count.lookups as f64).max(1.0),
                count.kept,
                count.dropped
            ),
            tenants,
        ],
    })
}

/// Copies of as much as a claim takes, from one half of the memory to the other, and on.
fn moved_away(memory: &Bare, frames: u32, moves: u32) -> Latencies {
    let mut latencies = Latencies::default();
    let bytes = frames as usize * 2 * MIB;
    let places = (memory.bytes() / 2 / bytes).max(1);
    for number in 0..moves as usize {
        let from = number % places * bytes;
        let began = Instant::now();
        // SAFETY: nobody else has the memory, its halves are apart, and `copy` does what is asked.
        unsafe { memory.copy_within(from, memory.bytes() / 2 + from, bytes, copy) };
        latencies.record(began.elapsed());
    }
    latencies
}

/// # Safety
/// As `copy_nonoverlapping`.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// Claims from a buddy allocator of which a second class has a quarter.
fn of_buddy(total: u32, frames: u32, claims: u32, seed: u64, count: &mut Count) -> Latencies {
    let mut random = Random::new(seed);
    let mut buddy = Buddy::new(total);
    let mut tenants: Vec<u32> = std::iter::from_fn(|| buddy.claim(0)).collect();
    while tenants.len() as u32 > total / 4 {
        let one = random.below(tenants.len() as u64) as usize;
        buddy.release(tenants.swap_remove(one), 0);
    }
    let order = frames.next_power_of_two().trailing_zeros();
    let mut latencies = Latencies::default();
    for _ in 0..claims {
        let began = Instant::now();
        let claimed = buddy.claim(order);
        latencies.record(began.elapsed());
        if frames > 1 {
            count.buddy_claims += 1;
            count.buddy_refused += u64::from(claimed.is_none());
        }
        if let Some(start) = claimed {
            buddy.release(start, order);
        }
    }
    latencies
}

fn goals(ledger: &Ledger, count: &Count) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (frames, target) in FASTER {
        let case = percentile_case(&case(frames), "p50");
        goals.push(Goal::at_least(
            format!("moving {frames} frame(s) away over claiming them full, p50"),
            target,
            ledger.ratios((MOVED, &case), (FULL, &case)),
        ));
    }
    for (frames, _) in FASTER {
        let case = percentile_case(&case(frames), "p99.9");
        goals.push(Goal::at_most(
            format!("claim of {frames} full frame(s), p99.9, ns"),
            TAIL_NS,
            ledger.values(FULL, &case).to_vec(),
        ));
    }
    goals.push(Goal::at_most(
        format!("claims refused, of {}", count.claims),
        0.0,
        vec![count.refused as f64],
    ));
    goals.extend(beside::goals(ledger));
    goals
}

/// The paper's figures 2.5 to 2.7.
fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let sizes = scale.cases.iter().map(|&(frames, ..)| {
        let case = percentile_case(&case(frames), "p50");
        (f64::from(frames) * 2.0, case)
    });
    let by_size = Curves::of(
        ledger,
        "A claim, p50, by size",
        (Axis::log("MiB"), Axis::log("microseconds").of(1000.0)),
        &[MOVED, FULL, BUSY, RESERVATION],
        &sizes.collect::<Vec<_>>(),
    );
    let percentiles = PERCENTILES.iter().filter(|(_, percent)| *percent < 100.0);
    let percentiles = percentiles.map(|(name, percent)| {
        let slower = 1.0 - percent / 100.0;
        (1.0 / slower, percentile_case(&case(1), name))
    });
    let by_percentile = Curves::of(
        ledger,
        "A claim of 2 MiB that is slower than all but one in so many",
        (Axis::log("claims"), Axis::log("microseconds").of(1000.0)),
        &[MOVED, FULL, BUSY, RESERVATION],
        &percentiles.collect::<Vec<_>>(),
    );
    let bars = Bars::of(
        ledger,
        "A store beside a tenant",
        Metric::Throughput,
        &beside::SYSTEMS,
        beside::CASES.map(|case| (case.to_owned(), case.to_owned())),
    );
    vec![
        Figure::new("contig-size.svg", by_size),
        Figure::new("contig-tail.svg", by_percentile),
        Figure::new("contig-beside.svg", bars),
    ]
}

fn print_table(scale: &Scale, ledger: &Ledger) {
    let mut table = Table::new([
        "frames",
        "system",
        "p50",
        "p99",
        "p99.9",
        "max",
        "p50 over full",
    ]);
    for &(frames, ..) in &scale.cases {
        for system in [RESERVATION, FULL, BUSY, MOVED, BUDDY] {
            let at = |percentile| percentile_case(&case(frames), percentile);
            let cells = ["p50", "p99", "p99.9", "max"]
                .map(|percentile| median(ledger.values(system, &at(percentile)), 1.0));
            let p50 = at("p50");
            let over = median(&ledger.ratios((system, &p50), (FULL, &p50)), 1.0);
            let head = [frames.to_string(), system.to_owned()].into_iter();
            table.row(head.chain(cells).chain([over]));
        }
    }
    table.print("nanoseconds a claim, medians of rounds");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_part() {
        let scale = Scale {
            frames: 40,
            cases: vec![(1, 50, 20, 2), (16, 10, 2, 2)],
            beside: beside::Scale::tiny(),
        };
        let report = run(&scale, &common()).unwrap();
        let cases = [1, 16].map(|frames| percentile_case(&case(frames), "p50"));
        assert_well_formed(&report, &[&cases[0], &cases[1], beside::CASES[0]]);
        let mut goals = report.goals.iter();
        let refused = goals.find(|goal| goal.text.contains("refused")).unwrap();
        assert_eq!(refused.measured(), Some(0.0), "{:?}", report.notes);
    }
}
