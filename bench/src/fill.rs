//! `fill`: throughput as the log fills with live records (Nibble, fig. 14; dissertation, fig. 29).
//!
//! The same records of 1 KiB lie in stores of less and less memory, so that they are a given share
//! of the log; the log is what is left of the capacity without tables, index and the reserve that
//! only compaction may use. As many threads as CPUs do half GET, half PUT to records that exist,
//! chosen evenly; every PUT of an `Append` store makes a record stale that compaction must win
//! back, on the same CPUs. Each store is first churned through its whole log, so that what is
//! measured is its steady state. It is the memory that varies and not the records, for more records
//! alone miss the caches more often.
//!
//! How to read it: the column `/ 0.20` is throughput over the same policy's at a fifth, round by
//! round. `found` is live bytes over the log's frames in use when the rounds were over: what an
//! `Append` store keeps free ahead of need makes it a little higher than asked for, and an
//! `InPlace` store uses no more frames than its records fill. Nibble lost more than half at 0.8;
//! Nibble-2 (`InPlace`) lost nothing.

use crate::curves::{Axis, Curves};
use crate::error::{BenchError, failed};
use crate::figure::Figure;
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::options::Common;
use crate::progress;
use crate::records::Records;
use crate::report::Report;
use crate::rounds::{self, Job, Span};
use crate::systems::mneme::{APPEND, IN_PLACE, INDEX_BYTES, POLICIES};
use crate::systems::{BATCH, bare};
use crate::table::{Table, figure, median, three};
use mneme_log::{Builder, LogStore, MIN_CAPACITY, Stats};
use serde_json::json;

/// Bytes of a value.
const VALUE: usize = 1024;

/// The level that all others are compared with.
const LOW: f64 = 0.20;

/// How much is done.
pub struct Scale {
    /// Bytes of the records in each store.
    data: u64,
    /// Live shares of the log.
    levels: &'static [f64],
    /// Of one measurement.
    span: Span,
    /// Times the log is written over before the first round.
    turns: f64,
    threads: u32,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            data: options.pick(160 << 20, 512 << 20),
            levels: options.pick(
                &[0.20, 0.50, 0.70, 0.80, 0.90],
                &[0.20, 0.30, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90, 0.95],
            ),
            span: Span::of(options.pick(120, 1000), 2),
            turns: options.pick(1.0, 2.0),
            threads: cpus() as u32,
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that loses records, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    // The levels of one policy are compared with one another, and fill the memory there is.
    for &(policy, update) in POLICIES {
        let mut levels = Vec::new();
        for &fill in scale.levels {
            progress::show(format_args!("{policy}: filling to {fill:.2}"));
            let builder = LogStore::builder()
                .capacity(capacity_for(scale.data, fill)?)
                .update_policy(update);
            let records = filled(builder, fill, scale.turns, options.seed)?;
            levels.push((fill, records));
        }
        let jobs = levels.iter().map(|(fill, records)| {
            job(
                policy,
                *fill,
                records,
                scale.threads,
                scale.span,
                options.seed,
            )
        });
        rounds::run(jobs.collect(), options.rounds, &mut ledger)?;
        for (fill, records) in &levels {
            let found = found(&records.store.stats());
            ledger.add(policy, &found_case(*fill), Metric::Fill, found);
            let complaint = records.complaint();
            notes.extend(complaint.map(|what| format!("{policy} at {fill:.2}: {what}")));
        }
    }
    print_table(scale, &ledger);
    Ok(Report {
        figures: vec![curves(scale, &ledger)],
        params: json!({
            "data_bytes": scale.data,
            "value": VALUE,
            "threads": scale.threads,
            "seconds": scale.span.timed.as_secs_f64(),
        }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

/// The throughput of a store that is so full.
pub fn job<'a>(
    system: &str,
    fill: f64,
    records: &'a Records,
    threads: u32,
    span: Span,
    seed: u64,
) -> Job<'a> {
    Job::new(system, case(fill), Metric::Throughput, move |round| {
        let seed = mix(seed) ^ round as u64;
        Ok(records.rate(50, threads, span, seed) / 1e6)
    })
}

/// A store whose records have this live share of its log, filled and churned: its log was written
/// over `turns` times.
///
/// # Errors
/// No memory, or a store that refuses.
pub fn filled(builder: Builder, fill: f64, turns: f64, seed: u64) -> Result<Records, BenchError> {
    let store = builder.open_private().map_err(failed)?;
    let reserve = store.stats().reserve_bytes;
    let record = bare::stride(VALUE) as f64;
    let mut records = Records::new(store, VALUE);
    // The index is as large as it is only once the records are there.
    for share in [0.95, 1.0] {
        let log = log_bytes(&records.store.stats(), reserve);
        let filled = records.fill((fill * share * log / record) as u64);
        filled.map_err(failed)?;
    }
    let log = log_bytes(&records.store.stats(), reserve);
    let mut random = Random::new(seed);
    for _ in 0..(turns * log / record) as usize / BATCH {
        let drawn = (0..BATCH).map(|_| random.below(records.count));
        records.put_batch(drawn).map_err(failed)?;
    }
    Ok(records)
}

/// Live bytes over the frames that the log has now.
fn found(stats: &Stats) -> f64 {
    let log = stats.live_bytes + stats.stale_bytes + stats.head_bytes;
    stats.live_bytes as f64 / log.max(1) as f64
}

/// The capacity at which `data` bytes of records are this share of the log.
fn capacity_for(data: u64, fill: f64) -> Result<u64, BenchError> {
    let index = (data / bare::stride(VALUE) as u64 * INDEX_BYTES) as f64;
    let wanted = data as f64 / fill + index;
    let mut capacity = wanted as u64;
    // What the store takes for itself depends on its capacity, and hardly changes in the last step.
    for _ in 0..3 {
        let capacity_now = capacity.max(MIN_CAPACITY);
        let store = LogStore::builder()
            .capacity(capacity_now)
            .maintainer(false)
            .open_private()
            .map_err(failed)?;
        let stats = store.stats();
        capacity = (capacity_now as f64 + wanted - log_bytes(&stats, stats.reserve_bytes)) as u64;
    }
    Ok(capacity.max(MIN_CAPACITY))
}

/// What records may fill.
fn log_bytes(stats: &Stats, reserve: u64) -> f64 {
    (stats.capacity - stats.overhead_bytes - stats.index_bytes - reserve) as f64
}

/// The case of a level.
pub fn case(fill: f64) -> String {
    format!("get50 uniform {VALUE}B, fill {fill:.2}")
}

fn found_case(fill: f64) -> String {
    format!("fill found, asked {fill:.2}")
}

fn over_low(ledger: &Ledger, policy: &str, fill: f64) -> Vec<f64> {
    ledger.ratios((policy, &case(fill)), (policy, &case(LOW)))
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    [(APPEND, 0.50), (IN_PLACE, 0.90)]
        .map(|(policy, target)| {
            Goal::at_least(
                format!("{policy}: throughput at 0.90 live over that at {LOW:.2}"),
                target,
                over_low(ledger, policy, 0.90),
            )
        })
        .to_vec()
}

fn print_table(scale: &Scale, ledger: &Ledger) {
    let mut table = Table::new([
        "policy", "fill", "found", "Mops/s", "min", "max", "/ 0.20", "min", "max",
    ]);
    for &(policy, _) in POLICIES {
        for &fill in scale.levels {
            let found = median(ledger.values(policy, &found_case(fill)), 1.0);
            let head = [policy.to_owned(), figure(fill), found];
            let rate = three(ledger.values(policy, &case(fill)));
            let ratio = three(&over_low(ledger, policy, fill));
            table.row(head.into_iter().chain(rate).chain(ratio));
        }
    }
    println!("{table}");
}

/// The form of Nibble's figure 14 and the dissertation's figure 29.
fn curves(scale: &Scale, ledger: &Ledger) -> Figure {
    let axes = (
        Axis::linear("live bytes / bytes of the log"),
        Axis::linear(Metric::Throughput.unit()),
    );
    let title = format!("50/50 uniform {VALUE} B, {} thread(s)", scale.threads);
    let policies = [POLICIES[0].0, POLICIES[1].0];
    let levels: Vec<_> = scale
        .levels
        .iter()
        .map(|&fill| (fill, case(fill)))
        .collect();
    Figure::new(
        "fill.svg",
        Curves::of(ledger, title, axes, &policies, &levels),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_answers_for_both_of_its_levels() {
        let scale = Scale {
            data: 48 << 20,
            levels: &[0.20, 0.80],
            span: Span::of(5, 5),
            turns: 0.5,
            threads: 2,
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &[&case(0.20), &case(0.80), &found_case(0.80)]);
        let found = report.ledger.values(APPEND, &found_case(0.80))[0];
        assert!((0.6..1.0).contains(&found), "{found}");
        assert!(report.notes.iter().all(|note| !note.contains("refused")));
    }

    #[test]
    fn the_goals_levels_are_measured_by_every_scale() {
        for quick in [true, false] {
            let scale = Scale::of(&Common { quick, ..common() });
            assert!(scale.levels.contains(&LOW) && scale.levels.contains(&0.90));
            // A policy's stores are there at once.
            let touched = scale.levels.iter().map(|fill| 1.0 / fill);
            let bytes = (touched.sum::<f64>() * 1.05 * scale.data as f64) as u64;
            assert!(bytes <= if quick { 2 << 30 } else { 12 << 30 }, "{bytes}");
        }
    }
}
