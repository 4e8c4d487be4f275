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
use crate::generate::keys::{key, stamp};
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::options::Common;
use crate::progress;
use crate::report::Report;
use crate::rounds::{Job, Span, interleave, rate};
use crate::systems::mneme::{APPEND, IN_PLACE, INDEX_BYTES, POLICIES};
use crate::systems::{BATCH, bare, take};
use crate::table::{Table, figure, median, three};
use mneme_log::{LogStore, MIN_CAPACITY, Stats, UpdatePolicy};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a value.
const VALUE: usize = 1024;

/// The level that all others are compared with.
const LOW: f64 = 0.20;

/// Operations between two looks at the clock.
const CHUNK: u64 = 128;

struct Scale {
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
    fn of(options: &Common, cpus: usize) -> Self {
        let timed = Duration::from_millis(options.pick(120, 1000));
        Self {
            data: options.pick(160 << 20, 512 << 20),
            levels: options.pick(
                &[0.20, 0.50, 0.70, 0.80, 0.90],
                &[0.20, 0.30, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90, 0.95],
            ),
            span: Span::new(timed / 2, timed),
            turns: options.pick(1.0, 2.0),
            threads: cpus as u32,
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that loses records, a file that cannot be written.
pub fn run(options: &Common) -> Result<Report, BenchError> {
    run_at(&Scale::of(options, cpus()), options)
}

fn run_at(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let bar = progress::bar(POLICIES.len() * scale.levels.len() * (1 + options.rounds));
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    // The levels of one policy are compared with one another, and fill the memory there is.
    for &(policy, update) in POLICIES {
        let mut levels = Vec::new();
        for &fill in scale.levels {
            bar.set_message(format!("{policy}: filling to {fill:.2}"));
            let setup = Setup {
                system: policy,
                update,
                fill,
                capacity: capacity_for(scale.data, fill)?,
                maintainer: true,
                turns: scale.turns,
                seed: options.seed,
            };
            levels.push(Level::new(&setup)?);
            bar.inc(1);
        }
        let jobs: Vec<Job> = levels
            .iter()
            .map(|level| {
                Job::new(
                    level.system.clone(),
                    case(level.fill),
                    Metric::Throughput,
                    |round| {
                        let seed = mix(options.seed) ^ round as u64;
                        Ok(level.rate(scale.threads, scale.span, seed))
                    },
                )
            })
            .collect();
        interleave(jobs, options.rounds, &bar, &mut ledger)?;
        for level in &levels {
            let found = level.found();
            ledger.add(&level.system, &found_case(level.fill), Metric::Fill, found);
            notes.extend(level.complaint());
        }
    }
    bar.finish_and_clear();
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

/// How a store at one level is made.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Its name in reports.
    pub system: &'a str,
    /// How records are updated.
    pub update: UpdatePolicy,
    /// Live share of its log.
    pub fill: f64,
    /// Its bytes.
    pub capacity: u64,
    /// Whether it compacts ahead of need.
    pub maintainer: bool,
    /// Times the log is written over before the first round.
    pub turns: f64,
    /// Where the random streams begin.
    pub seed: u64,
}

/// A store at one level.
pub struct Level {
    system: String,
    fill: f64,
    records: u64,
    store: LogStore,
    refused: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Level {
    /// Makes it, fills it and churns it.
    ///
    /// # Errors
    /// No memory, or a store that refuses.
    pub fn new(setup: &Setup<'_>) -> Result<Self, BenchError> {
        let store = LogStore::builder()
            .capacity(setup.capacity)
            .update_policy(setup.update)
            .maintainer(setup.maintainer)
            .open_private()
            .map_err(failed)?;
        let fill = setup.fill;
        let reserve = store.stats().reserve_bytes;
        let record = bare::stride(VALUE) as f64;
        let mut level = Self {
            system: setup.system.to_owned(),
            fill,
            records: 0,
            store,
            refused: AtomicU64::new(0),
            trouble: Mutex::new(None),
        };
        // The index is as large as it is only once the records are there.
        for share in [0.95, 1.0] {
            let log = log_bytes(&level.store.stats(), reserve);
            let wanted = (fill * share * log / record) as u64;
            while level.records < wanted {
                let last = wanted.min(level.records + BATCH as u64);
                level.put_all((level.records..last).map(|id| id as u32))?;
                level.records = last;
            }
        }
        let log = log_bytes(&level.store.stats(), reserve);
        let mut random = Random::new(setup.seed);
        for _ in 0..(setup.turns * log / record) as usize / BATCH {
            let drawn: [u32; BATCH] = std::array::from_fn(|_| random.below(level.records) as u32);
            level.put_all(drawn.into_iter())?;
        }
        Ok(level)
    }

    fn put_all(&self, ids: impl Iterator<Item = u32>) -> Result<(), BenchError> {
        let mut values = vec![0x5A; VALUE * BATCH];
        let pairs: Vec<_> = ids
            .zip(values.chunks_exact_mut(VALUE))
            .map(|(id, value)| {
                stamp(value, id);
                (key(id), &*value)
            })
            .collect();
        let put = self.store.put_many(&pairs);
        put.map_err(|error| {
            BenchError::wrong(self.system.clone(), case(self.fill), error.to_string())
        })
    }

    /// Millions of operations a second.
    pub fn rate(&self, threads: u32, span: Span, seed: u64) -> f64 {
        let refused = AtomicU64::new(0);
        let rate = rate(threads, span, |thread, until| {
            let mut random = Random::new(mix(seed ^ u64::from(thread) << 32));
            let mut value = vec![0x5A; VALUE];
            let mut done = 0;
            while Instant::now() < until {
                for _ in 0..CHUNK {
                    let drawn = random.below(2 * self.records);
                    if !self.one((drawn / 2) as u32, drawn.is_multiple_of(2), &mut value) {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                done += CHUNK;
            }
            done
        });
        self.refused
            .fetch_add(refused.into_inner(), Ordering::Relaxed);
        rate / 1e6
    }

    #[inline]
    fn one(&self, id: u32, read: bool, value: &mut [u8]) -> bool {
        if read {
            match self.store.get(&key(id)) {
                Ok(Some(found)) => take(&found, id, value),
                Ok(None) => self.complain(&"a record is missing"),
                Err(error) => self.complain(&error),
            }
        } else {
            stamp(value, id);
            match self.store.put(&key(id), value) {
                Ok(()) => true,
                Err(error) => self.complain(&error),
            }
        }
    }

    #[cold]
    fn complain(&self, why: &dyn std::fmt::Display) -> bool {
        if let Ok(mut trouble) = self.trouble.lock() {
            trouble.get_or_insert_with(|| why.to_string());
        }
        false
    }

    /// Whether operations were refused, and why the first was.
    pub fn complaint(&self) -> Option<String> {
        let refused = self.refused.load(Ordering::Relaxed);
        let why = self.trouble.lock().ok()?.clone().unwrap_or_default();
        (refused > 0).then(|| {
            format!(
                "{} at {:.2}: {refused} operations were refused: {why}",
                self.system, self.fill
            )
        })
    }

    /// Live bytes over the frames that the log has now.
    fn found(&self) -> f64 {
        let stats = self.store.stats();
        let log = stats.live_bytes + stats.stale_bytes + stats.head_bytes;
        stats.live_bytes as f64 / log.max(1) as f64
    }
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
    use crate::options::tests::common;
    use crate::report::tests::assert_well_formed;

    #[test]
    fn a_tiny_run_answers_for_both_of_its_levels() {
        let scale = Scale {
            data: 48 << 20,
            levels: &[0.20, 0.80],
            span: Span::new(Duration::ZERO, Duration::from_millis(5)),
            turns: 0.5,
            threads: 2,
        };
        let report = run_at(&scale, &common()).unwrap();
        assert_well_formed(&report, &[&case(0.20), &case(0.80), &found_case(0.80)]);
        let found = report.ledger.values(APPEND, &found_case(0.80))[0];
        assert!((0.6..1.0).contains(&found), "{found}");
        assert!(report.notes.iter().all(|note| !note.contains("refused")));
    }

    #[test]
    fn the_goals_levels_are_measured_by_every_scale() {
        for quick in [true, false] {
            let scale = Scale::of(&Common { quick, ..common() }, 2);
            assert!(scale.levels.contains(&LOW) && scale.levels.contains(&0.90));
            // A policy's stores are there at once.
            let touched = scale.levels.iter().map(|fill| 1.0 / fill);
            let bytes = (touched.sum::<f64>() * 1.05 * scale.data as f64) as u64;
            assert!(bytes <= if quick { 2 << 30 } else { 12 << 30 }, "{bytes}");
        }
    }
}
