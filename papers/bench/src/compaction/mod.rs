//! `compaction`: what moving records costs, and what it depends on (dissertation, fig. 21-26).
//!
//! - *passes*: bytes moved for a byte won, and how fast bytes are won, by live fraction, size of
//!   value and number of workers (fig. 24). How to read it: the ratio should be `u / (1 - u)`; what
//!   is above it is waste.
//! - *segments*: throughput of a log that is 90 % live by the size of its log segments (fig.
//!   21-23). A store chooses that size by its capacity, so the comparison is between two capacities
//!   that are next to each other, one below the step and one above it: the ratio is the effect of
//!   the size.
//! - *workers*: the same throughput with a maintainer that compacts ahead of need, and with writers
//!   that help themselves when they need free space.
//! - *copies*: the library's copy against the processor's string instruction by size (fig. 25). The
//!   store uses the former; end to end the dissertation found no difference (fig. 26).

mod copies;
mod passes;

use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::BenchError;
use mneme_bench::figure::Figure;
use mneme_bench::fill;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::machine::cpus;
use mneme_bench::memory::Bare;
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::table::{Table, figure, median, three};
use mneme_log::LogStore;
use mneme_sys::PagePolicy;
use passes::Pass;
use serde_json::json;

/// Live share of the log behind `segments` and `workers`.
const FILL: f64 = 0.90;

/// How much more than the least may be moved.
const WASTE: f64 = 1.10;

const MIB: u64 = 1 << 20;

/// How much is done.
pub struct Scale {
    /// Bytes of the store of a pass, below [`passes::CAPACITY_LIMIT`].
    pass: u64,
    lives: &'static [f64],
    values: &'static [usize],
    workers: &'static [u32],
    /// Capacities below which and from which on log segments have another size, with the two sizes
    /// in MiB.
    steps: &'static [(u64, u64, u64)],
    /// Bytes of the store with and without a maintainer.
    helped: u64,
    /// Bytes of the memory in which copies are made, and their sizes.
    copies: (usize, &'static [usize]),
    span: Span,
    /// Times a log is written over before the first round.
    turns: f64,
    threads: u32,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            pass: options.pick(128 * MIB, 512 * MIB),
            lives: &[0.25, 0.50, 0.75, 0.90],
            values: options.pick(&[1024], &[1024, 500, 64]),
            workers: options.pick(&[1], &[1, 2]),
            steps: options.pick(&[], &[(1024, 2, 4), (4096, 4, 8)]),
            helped: options.pick(256 * MIB, 512 * MIB),
            copies: (
                options.pick(256 << 20, 1 << 30),
                &[64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20],
            ),
            span: Span::of(options.pick(100, 1000), 2),
            turns: options.pick(1.0, 1.5),
            threads: cpus() as u32,
        }
    }

    fn passes(&self) -> impl Iterator<Item = Pass> {
        self.values.iter().flat_map(move |&value| {
            self.workers.iter().flat_map(move |&workers| {
                self.lives.iter().map(move |&live| Pass {
                    value,
                    live,
                    workers,
                })
            })
        })
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that loses records, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    debug_assert!(scale.pass < passes::CAPACITY_LIMIT);
    let mut ledger = Ledger::default();
    let mut notes = vec![
        "the copy inside the store cannot be exchanged from outside: only bare copies are compared"
            .to_owned(),
    ];
    let jobs = scale.passes().map(|pass| {
        Job::of(pass.case(), move |round, ledger| {
            let outcome = pass.run(scale.pass, options.seed + round as u64)?;
            pass.report(ledger, &outcome);
            Ok(())
        })
    });
    rounds::run(jobs.collect(), options.rounds, &mut ledger)?;
    for &(step, below, above) in scale.steps {
        let sides = [(step * MIB - 2 * MIB, below), (step * MIB, above)];
        let systems = sides.map(|(capacity, mib)| (segment_system(step, mib), capacity, true));
        notes.extend(throughput(scale, &systems, options, &mut ledger)?);
    }
    let systems = [(HELPED, true), (ALONE, false)];
    let systems = systems.map(|(name, helped)| (name.to_owned(), scale.helped, helped));
    notes.extend(throughput(scale, &systems, options, &mut ledger)?);
    let memory = Bare::new(scale.copies.0, PagePolicy::Huge)?;
    let span = Span::new(scale.span.warm_up / 10, scale.span.timed / 10);
    let sizes = scale.copies.1.iter();
    let jobs = sizes.flat_map(|&bytes| copies::jobs(&memory, bytes, span, options.seed));
    rounds::run(jobs.collect(), options.rounds, &mut ledger)?;
    print_tables(scale, &ledger);
    if scale.steps.is_empty() {
        notes.push("quick: log segments change their size at 1 GiB and 4 GiB only".to_owned());
    }
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({
            "pass_bytes": scale.pass,
            "fill": FILL,
            "threads": scale.threads,
            "seconds": scale.span.timed.as_secs_f64(),
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

const HELPED: &str = "maintainer";
const ALONE: &str = "writers alone";

fn segment_system(step: u64, mib: u64) -> String {
    format!("{mib} MiB log segments, about {step} MiB")
}

/// Throughput of stores at [`FILL`], in turn: name, capacity, whether there is a maintainer. Gives
/// what they complain about.
fn throughput(
    scale: &Scale,
    systems: &[(String, u64, bool)],
    options: &Common,
    ledger: &mut Ledger,
) -> Result<Vec<String>, BenchError> {
    let mut stores = Vec::new();
    for (system, capacity, maintainer) in systems {
        let builder = LogStore::builder()
            .capacity(*capacity)
            .maintainer(*maintainer);
        let records = fill::filled(builder, FILL, scale.turns, options.seed)?;
        stores.push((system, records));
    }
    let jobs = stores.iter().map(|(system, records)| {
        fill::job(
            system,
            FILL,
            records,
            scale.threads,
            scale.span,
            options.seed,
        )
    });
    rounds::run(jobs.collect(), options.rounds, ledger)?;
    let complaints = stores.iter().filter_map(|(system, records)| {
        let what = records.complaint()?;
        Some(format!("{system} at {FILL:.2}: {what}"))
    });
    Ok(complaints.collect())
}

/// The least that must be moved for a byte won.
fn least(live: f64) -> f64 {
    live / (1.0 - live)
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let of = |live: f64| {
        let pass = Pass {
            value: 1024,
            live,
            workers: 1,
        };
        let moved = ledger.values("mneme", &pass.moved_case()).iter();
        let waste = moved.map(|moved| moved / least(live)).collect();
        Goal::at_most(
            format!("bytes moved over the least, {live:.2} live, 1 KiB"),
            WASTE,
            waste,
        )
    };
    scale.lives.iter().copied().map(of).collect()
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let mut table = Table::new([
        "value",
        "live",
        "workers",
        "moved B/B won",
        "least",
        "won GB/s",
        "min",
        "max",
    ]);
    for pass in scale.passes() {
        let head = [
            pass.value.to_string(),
            figure(pass.live),
            pass.workers.to_string(),
            median(ledger.values("mneme", &pass.moved_case()), 1.0),
            figure(least(pass.live)),
        ];
        let won = three(ledger.values("mneme", &pass.case()));
        table.row(head.into_iter().chain(won));
    }
    table.print(format_args!(
        "passes of compaction over a {} MiB store at rest",
        scale.pass / MIB
    ));
    let mut table = Table::new(["system", "Mops/s", "over the one before", "min", "max"]);
    let case = fill::case(FILL);
    for pair in throughput_pairs(scale) {
        for (at, system) in pair.iter().enumerate() {
            let over = match at {
                0 => ["1", "", ""].map(str::to_owned),
                _ => three(&ledger.ratios((system, &case), (&pair[0], &case))),
            };
            let head = [system.clone(), median(ledger.values(system, &case), 1.0)];
            table.row(head.into_iter().chain(over));
        }
    }
    table.print(&case);
    let [library, string] = copies::SYSTEMS;
    let mut table = Table::new(["case", library, string, "over the library's", "min", "max"]);
    for &bytes in scale.copies.1 {
        let case = copies::case(bytes);
        let cells = copies::SYSTEMS.map(|system| median(ledger.values(system, &case), 1.0));
        let over = three(&ledger.ratios((string, &case), (library, &case)));
        table.row([case].into_iter().chain(cells).chain(over));
    }
    table.print("nanoseconds a copy between random places");
}

fn throughput_pairs(scale: &Scale) -> Vec<[String; 2]> {
    let steps = scale.steps.iter();
    steps
        .map(|&(step, below, above)| [below, above].map(|mib| segment_system(step, mib)))
        .chain([[HELPED, ALONE].map(str::to_owned)])
        .collect()
}

fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let curves = |title: &str, unit: &str, case: fn(&Pass) -> String| {
        let by = |value: usize, workers: u32| {
            let of = |pass: &Pass| pass.value == value && pass.workers == workers;
            let cases = scale
                .passes()
                .filter(of)
                .map(|pass| (pass.live, case(&pass)));
            let points = ledger.points("mneme", 1.0, &cases.collect::<Vec<_>>());
            (format!("{value} B, {workers}"), points)
        };
        let values = scale.values.iter();
        let workers = |value| scale.workers.iter().map(move |&workers| by(value, workers));
        Curves {
            title: title.to_owned(),
            across: Axis::linear("live fraction"),
            up: Axis::linear(unit),
            curves: values.flat_map(|&value| workers(value)).collect(),
        }
    };
    let won = "Bytes won by passes of compaction, by size and workers";
    let moved = "Bytes moved for a byte won, by size and workers";
    let sizes = scale.copies.1.iter();
    let sizes: Vec<_> = sizes
        .map(|&bytes| (bytes as f64, copies::case(bytes)))
        .collect();
    let axes = (Axis::log("bytes"), Axis::log(Metric::Latency.unit()));
    let copied = Curves::of(
        ledger,
        "Copies between random places",
        axes,
        &copies::SYSTEMS,
        &sizes,
    );
    vec![
        Figure::new("compaction-won.svg", curves(won, "GB/s won", Pass::case)),
        Figure::new(
            "compaction-moved.svg",
            curves(moved, Metric::Moved.unit(), Pass::moved_case),
        ),
        Figure::new("compaction-copies.svg", copied),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_part() {
        let scale = Scale {
            pass: 64 * MIB,
            lives: &[0.50],
            values: &[1024],
            workers: &[2],
            steps: &[],
            helped: 64 * MIB,
            copies: (4 << 20, &[64, 4096]),
            span: Span::of(20, 20),
            turns: 0.2,
            threads: 2,
        };
        let report = run(&scale, &common()).unwrap();
        let pass = scale.passes().next().unwrap();
        assert_well_formed(
            &report,
            &[
                &pass.case(),
                &pass.moved_case(),
                &fill::case(FILL),
                &copies::case(64),
            ],
        );
    }

    #[test]
    fn passes_have_log_segments_of_a_frame() {
        for quick in [true, false] {
            let scale = Scale::of(&Common { quick, ..common() });
            assert!(scale.pass < passes::CAPACITY_LIMIT);
        }
    }
}
