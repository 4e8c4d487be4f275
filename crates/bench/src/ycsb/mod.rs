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
use crate::options::Ycsb;
use crate::progress;
use crate::report::Report;
use crate::rounds::{Job, interleave};
use crate::systems::{self, Load, System, Visitor, bare};
use drive::{Lane, Order, Subject};
use indicatif::ProgressBar;
use plan::{Cell, Group, Plan};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Measures and reports.
///
/// # Errors
/// No memory, a system that loses records, a file that cannot be written.
pub fn run(options: &Ycsb) -> Result<Report, BenchError> {
    options.validate()?;
    let plan = Plan::of(options)?;
    println!("{plan}");
    let mut ledger = Ledger::default();
    let bar = progress::bar(plan.steps());
    let mut notes = plan.notes();
    interleave(vec![pin::job(plan.span)?], plan.rounds, &bar, &mut ledger)?;
    for size in &plan.sizes {
        let load = Load {
            records: size.records,
            value: size.value,
        };
        for name in plan.stores() {
            bar.set_message(format!("footprint of {name}"));
            let bytes = footprint::measure_apart(name, load)?;
            ledger.add(name, &size.case(), Metric::Footprint, bytes);
            bar.inc(1);
        }
        let subjects = load_all(&plan, load, &bar)?;
        for group in &size.groups {
            measure(&plan, group, load, &subjects, &bar, &mut ledger)?;
        }
        notes.extend(subjects.iter().filter_map(|(_, subject)| subject.trouble()));
    }
    bar.finish_and_clear();
    show::tables(&plan, &ledger);
    let goals = goals::of(&plan, &ledger);
    Ok(Report {
        figures: show::figures(&plan, &ledger),
        params: plan.params(options),
        ledger,
        goals,
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
fn load_all(plan: &Plan, load: Load, bar: &ProgressBar) -> Result<Subjects, BenchError> {
    let mut subjects = Subjects::new();
    for name in plan.systems() {
        bar.set_message(format!("loading {name} with {} B", load.value));
        let subject = systems::with(name, load, Boxed)?;
        for order in [Order::Numbered, Order::Scattered] {
            subject
                .load(load, order)
                .map_err(|what| BenchError::wrong(name, "loading", what))?;
        }
        subjects.push((name.to_owned(), subject));
        bar.inc(1);
    }
    Ok(subjects)
}

/// Measures the cells of a group on all systems, in turn.
fn measure(
    plan: &Plan,
    group: &Group,
    load: Load,
    subjects: &Subjects,
    bar: &ProgressBar,
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
    let mut jobs = Vec::new();
    for cell in &group.cells {
        let streams = &streams[&cell.unbatched()];
        for (name, subject) in subjects {
            if name == bare::NAME && group.mix == Mix::D {
                // It has no memory for a record that was not there.
                continue;
            }
            jobs.push(Job::new(
                name.clone(),
                group.case(cell),
                Metric::Throughput,
                |round| {
                    one(plan, group, cell, load, streams, subject.as_ref(), round)
                        .map_err(|what| BenchError::wrong(name.clone(), group.case(cell), what))
                },
            ));
        }
    }
    interleave(jobs, plan.rounds, bar, ledger)?;
    for round in 0..plan.rounds {
        for cell in &group.timed {
            let streams = &streams[&cell.unbatched()];
            for (name, subject) in subjects {
                if name == bare::NAME && group.mix == Mix::D {
                    continue;
                }
                let timed = |lanes: &[Lane<'_>]| subject.latencies(lanes, load.value, plan.span);
                let latencies = on_lanes(plan, group, streams, subject.as_ref(), round, timed);
                let latencies = latencies
                    .map_err(|what| BenchError::wrong(name.clone(), group.case(cell), what))?;
                latencies.report(ledger, name, &group.case(cell));
                bar.inc(1);
            }
        }
    }
    Ok(())
}

/// One system, one cell, one round: millions of operations a second.
fn one(
    plan: &Plan,
    group: &Group,
    cell: &Cell,
    load: Load,
    streams: &[Vec<Operation>],
    subject: &dyn Subject,
    round: usize,
) -> Result<f64, String> {
    let rate = |lanes: &[Lane<'_>]| subject.rate(lanes, cell.batch, load.value, plan.span);
    Ok(on_lanes(plan, group, streams, subject, round, rate)? / 1e6)
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
    fn params(&self, options: &Ycsb) -> Value {
        let sizes = self.sizes.iter();
        let sizes = sizes.map(|size| json!({ "value": size.value, "records": size.records }));
        json!({
            "sizes": Value::from_iter(sizes),
            "threads": options.common.threads,
            "batch": systems::BATCH,
            "seconds": self.span.timed.as_secs_f64(),
            "key_bytes": crate::generate::keys::KEY_BYTES,
            "theta": crate::generate::zipfian::YCSB_THETA,
        })
    }
}
