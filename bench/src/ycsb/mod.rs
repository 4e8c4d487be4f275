//! `ycsb`: the Yahoo cloud serving benchmark's A, B, C, D and F, and the papers' mixes (Nibble,
//! fig. 13), beside concurrent maps and beside bare memory; our store with both update policies
//! (dissertation, fig. 30 and 31).
//!
//! A is `get50 zipfian`, B is `get95 zipfian`, C is `get100 zipfian`; E scans in key order and
//! waits for ordered data. All systems are loaded with the same records and stay loaded; each cell
//! (mix, distribution, size, batch, threads) is measured on all of them in turn, and that again for
//! each round. Some cells are then run once more with every call timed, for the percentiles: the
//! clock costs some 30 ns a call there, so their means are not compared with the rates.

mod drive;
pub mod footprint;
mod goals;
mod pin;
mod plan;
mod show;

use crate::error::BenchError;
use crate::generate::operations::{Kind, Mix, Operation, Source, stream};
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::progress;
use crate::report::Report;
use crate::rounds::{self, Job};
use crate::systems::{self, Load, System, Visitor, bare};
use drive::{Lane, Order, Subject};
pub use plan::Plan;
use plan::{Cell, Group};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Measures and reports.
///
/// # Errors
/// No memory, a system that loses records, a file that cannot be written.
pub fn run(plan: &Plan, options: &Common) -> Result<Report, BenchError> {
    println!("{plan}");
    let mut ledger = Ledger::default();
    let mut notes = plan.notes();
    rounds::run(vec![pin::job(plan.span)?], plan.rounds, &mut ledger)?;
    for size in &plan.sizes {
        let load = Load {
            records: size.records,
            value: size.value,
        };
        for name in plan.stores() {
            progress::show(format_args!("footprint of {name}"));
            let bytes = footprint::measure_apart(name, load)?;
            ledger.add(name, &size.case(), Metric::Footprint, bytes);
        }
        let subjects = load_all(plan, load)?;
        for group in &size.groups {
            measure(plan, group, load, &subjects, &mut ledger)?;
        }
        notes.extend(subjects.iter().filter_map(|(_, subject)| subject.trouble()));
    }
    show::tables(plan, &ledger);
    Ok(Report {
        figures: show::figures(plan, &ledger),
        params: plan.params(options),
        goals: goals::of(&ledger),
        ledger,
        notes,
    })
}

type Subjects = Vec<(String, Box<dyn Subject>)>;

struct Boxed;

impl Visitor for Boxed {
    type Result = Box<dyn Subject>;
    fn visit<S: System + 'static>(self, system: S) -> Self::Result {
        Box::new(system)
    }
}

/// Makes and fills every system, and writes every record a second time: a log then has used all of
/// its memory once, and is measured at compacting, not at first touching; a map has its records
/// where a while of updates leaves them.
fn load_all(plan: &Plan, load: Load) -> Result<Subjects, BenchError> {
    let mut subjects = Subjects::new();
    for name in plan.systems() {
        progress::show(format_args!("loading {name} with {} B", load.value));
        let subject = systems::with(name, load, Boxed)?;
        for order in [Order::Numbered, Order::Scattered] {
            subject
                .load(load, order)
                .map_err(|what| BenchError::wrong(name, "loading", what))?;
        }
        subjects.push((name.to_owned(), subject));
    }
    Ok(subjects)
}

/// Measures the cells of a group on all systems, in turn.
fn measure(
    plan: &Plan,
    group: &Group,
    load: Load,
    subjects: &Subjects,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let mut streams: HashMap<Cell, Vec<Vec<Operation>>> = HashMap::new();
    for cell in &group.cells {
        // Single and batched calls do the same operations.
        streams.entry(cell.unbatched()).or_insert_with(|| {
            let stream = |thread| {
                let source = Source {
                    seed: plan.seed,
                    thread,
                    threads: cell.threads,
                };
                stream(
                    group.mix,
                    cell.distribution,
                    load.records,
                    plan.operations,
                    source,
                )
            };
            (0..cell.threads).map(stream).collect()
        });
    }
    // Bare memory has none for a record that was not there.
    let subjects = subjects
        .iter()
        .filter(|(name, _)| name != bare::NAME || group.mix != Mix::D);
    let mut jobs = Vec::new();
    for cell in &group.cells {
        let streams = &streams[&cell.unbatched()];
        for (name, subject) in subjects.clone() {
            let case = group.case(cell);
            jobs.push(Job::new(name, &case, Metric::Throughput, move |round| {
                let rate =
                    |lanes: &[Lane<'_>]| subject.rate(lanes, cell.batch, load.value, plan.span);
                let rate = on_lanes(plan, group, streams, subject.as_ref(), round, rate)
                    .map_err(|what| BenchError::wrong(name, group.case(cell), what))?;
                Ok(rate / 1e6)
            }));
        }
    }
    rounds::run(jobs, plan.rounds, ledger)?;
    let mut jobs = Vec::new();
    for cell in &group.timed {
        let streams = &streams[&cell.unbatched()];
        for (name, subject) in subjects.clone() {
            let case = group.case(cell);
            jobs.push(Job::of(
                format!("{name} {case}, timed"),
                move |round, ledger| {
                    let timed =
                        |lanes: &[Lane<'_>]| subject.latencies(lanes, load.value, plan.span);
                    let latencies = on_lanes(plan, group, streams, subject.as_ref(), round, timed)
                        .map_err(|what| BenchError::wrong(name, &case, what))?;
                    latencies.report(ledger, name, &case);
                    Ok(())
                },
            ));
        }
    }
    rounds::run(jobs, plan.rounds, ledger)
}

/// Does `work` on the round's part of the streams, and checks and clears up after it.
fn on_lanes<T>(
    plan: &Plan,
    group: &Group,
    streams: &[Vec<Operation>],
    subject: &dyn Subject,
    round: usize,
    work: impl FnOnce(&[Lane<'_>]) -> T,
) -> Result<T, String> {
    // Each round reads another part of its stream; inserts must begin at its beginning.
    let inserts = group.mix == Mix::D;
    let start = if inserts {
        0
    } else {
        plan.operations / plan.rounds * round
    };
    let lanes: Vec<Lane> = streams
        .iter()
        .map(|stream| Lane::new(stream, start, !inserts))
        .collect();
    let result = work(&lanes);
    for lane in &lanes {
        let why = || subject.trouble().map(|why| format!(": {why}"));
        lane.verdict()
            .map_err(|what| what + &why().unwrap_or_default())?;
    }
    if inserts {
        for lane in &lanes {
            let inserted = lane.executed().iter().filter(|o| o.kind() == Kind::Insert);
            for operation in inserted {
                subject.forget(operation.record());
            }
        }
    }
    Ok(result)
}

impl Plan {
    fn params(&self, options: &Common) -> Value {
        let sizes = self.sizes.iter();
        let sizes = sizes.map(|size| json!({ "value": size.value, "records": size.records }));
        json!({
            "sizes": Value::from_iter(sizes),
            "threads": options.threads,
            "batch": systems::BATCH,
            "seconds": self.span.timed.as_secs_f64(),
            "key_bytes": crate::generate::keys::KEY_BYTES,
            "theta": crate::generate::zipfian::YCSB_THETA,
        })
    }
}
