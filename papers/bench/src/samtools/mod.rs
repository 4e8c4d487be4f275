//! `samtools`: questions about alignments that stay in memory, against samtools, which reads a file
//! for each (SpaceJMP, §5.4, fig. 11 and 12).
//!
//! What is timed is what a user waits for, as there: a process of its own for each operation, from
//! before it is made until it has ended, with its output in `/dev/null`; and, of ours, the work
//! alone, between entering the segment and leaving it. samtools reads SAM and BAM from tmpfs (to
//! index and to view by region, SAM that bgzip compressed, for it must be). Ours has the alignments
//! loaded, once, into a segment in shared memory, and into one that is a file on a disk's file
//! system, which each process maps anew: the paper's `mmap`, but with the same program and
//! structures in both.
//!
//! samtools sorts into a new BAM (or SAM) file; ours reorders what is there. What writing costs
//! samtools is seen beside it, where it writes BAM without compressing. Neither has more than one
//! thread. Before anything is timed, the outputs are compared, byte for byte. The reads are
//! synthetic: see `genomics synthetic --help`.

mod scene;
mod tools;

use crate::options::Samtools;
use mneme_bench::error::BenchError;
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric, Summary};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job};
use mneme_bench::table::{Table, figure, median, three};
use scene::Scene;
use serde_json::json;
use std::time::Duration;
use tools::{Run, Tools};

/// The systems. The last two are ours.
const SAM: &str = "samtools, SAM";
const BAM: &str = "samtools, BAM";
const PLAIN: &str = "samtools, BAM, written uncompressed";
const FILE: &str = "mapped file";
const SEGMENT: &str = "segment";
const SYSTEMS: [&str; 5] = [SAM, BAM, PLAIN, FILE, SEGMENT];

/// How often a process of ours that takes milliseconds is run in a round.
const REPEATS: u32 = 10;

/// An operation of the paper's figures, or a view of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Flagstat,
    ByName,
    ByCoordinate,
    Index,
    View,
}

use Operation::{ByCoordinate, ByName, Flagstat, Index, View};

impl Operation {
    const ALL: [Self; 5] = [Flagstat, ByName, ByCoordinate, Index, View];

    fn case(self) -> &'static str {
        match self {
            Flagstat => "flagstat",
            ByName => "sort -n",
            ByCoordinate => "sort",
            Index => "index",
            View => "view REGION",
        }
    }

    /// The case of our work without the process around it.
    fn alone(self) -> String {
        format!("{}, the work alone", self.case())
    }

    /// The arguments of samtools, if this system can do it.
    fn samtools(self, system: &str, scene: &Scene) -> Option<Vec<String>> {
        let temporary = scene.path("temporary");
        let (input, sorted) = match system {
            SAM => (scene.path("reads.sam"), scene.path("sorted.sam.gz")),
            _ => (scene.path("reads.bam"), scene.path("sorted.bam")),
        };
        let format = if system == SAM { "sam" } else { "bam" };
        // All of it in memory, and what that spills would be in memory, too.
        let mut words = vec!["sort", "-m", "4G", "-T", &temporary, "-o", "/dev/null"];
        match self {
            ByName | ByCoordinate => {
                words.extend(["-O", format]);
                if system == PLAIN {
                    words.push("-u");
                }
                if self == ByName {
                    words.push("-n");
                }
                words.push(&input);
            }
            _ if system == PLAIN => return None,
            Flagstat => words = vec!["flagstat", &input],
            Index if system == SAM => words = vec!["index", "-c", "-o", "/dev/null", &sorted],
            Index => words = vec!["index", "-o", "/dev/null", &sorted],
            View => words = vec!["view", "-o", "/dev/null", &sorted, &scene.region],
        }
        Some(words.into_iter().map(str::to_owned).collect())
    }

    /// The arguments of ours; each list is a run, and the last one is timed.
    fn ours(self, scene: &Scene) -> Vec<Vec<&str>> {
        match self {
            Flagstat => vec![vec!["flagstat"]],
            ByName => vec![vec!["sort", "--as-read"], vec!["sort", "-n"]],
            ByCoordinate => vec![vec!["sort", "--as-read"], vec!["sort"]],
            Index => vec![vec!["sort"], vec!["index"]],
            View => vec![
                vec!["sort"],
                vec!["index"],
                vec!["view", "-o", "/dev/null", &scene.region],
            ],
        }
    }

    /// How often ours is run in a round: what changes nothing, often.
    fn repeats(self) -> u32 {
        match self {
            Flagstat | View => REPEATS,
            _ => 1,
        }
    }
}

/// How many pairs of reads there are.
pub fn pairs(common: &Common, options: &Samtools) -> u64 {
    let usual = common.pick(40_000, 500_000);
    options.pairs.unwrap_or(usual)
}

/// Measures and reports.
///
/// # Errors
/// A program of ours that is missing or fails, outputs that differ, a file that cannot be written.
pub fn run(pairs: &u64, options: &Common) -> Result<Report, BenchError> {
    run_with(*pairs, options, &Tools::find()?)
}

fn run_with(pairs: u64, options: &Common, tools: &Tools) -> Result<Report, BenchError> {
    let scene = Scene::new(tools, pairs)?;
    let mut notes = vec![
        "synthetic reads of wgsim: their qualities are all alike, so that BAM is smaller and read faster than a \
         sequencer's"
            .to_owned(),
        format!(
            "loading SAM into the segment took {} s, once",
            figure(scene.load.as_secs_f64())
        ),
    ];
    if tools.samtools.is_some() {
        for segment in [scene::SEGMENT, scene::FILE] {
            scene.verify(segment)?;
        }
    } else {
        notes.push("samtools is missing: no samtools on the PATH".to_owned());
    }
    let mut jobs = Vec::new();
    for operation in Operation::ALL {
        for system in SYSTEMS {
            jobs.extend(job(operation, system, &scene, tools));
        }
    }
    let mut ledger = Ledger::default();
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print_tables(&ledger);
    println!(
        "{} alignments; SAM {} MB, BAM {} MB, segment {} MB; {}\n",
        2 * pairs,
        scene.sam_bytes / 1_000_000,
        scene.bam_bytes / 1_000_000,
        scene.segment_bytes() / 1_000_000,
        tools.samtools.as_deref().unwrap_or("no samtools"),
    );
    Ok(Report {
        figures: figures(&ledger),
        params: json!({
            "pairs": pairs,
            "sam_bytes": scene.sam_bytes,
            "bam_bytes": scene.bam_bytes,
            "segment_bytes": scene.segment_bytes(),
            "samtools": tools.samtools,
            "region": scene.region,
        }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

/// One system's operation; none if the system does not do it or is not there.
fn job<'a>(
    operation: Operation,
    system: &'static str,
    scene: &'a Scene,
    tools: &'a Tools,
) -> Option<Job<'a>> {
    let case = operation.case();
    let segment = match system {
        FILE => scene::FILE,
        SEGMENT => scene::SEGMENT,
        _ => {
            tools.samtools.as_ref()?;
            let words = operation.samtools(system, scene)?;
            return Some(Job::new(system, case, Metric::Duration, move |_| {
                let run = tools.samtools(words.iter().map(String::as_str));
                Ok(run.time()?.whole.as_secs_f64())
            }));
        }
    };
    Some(Job::of(
        format_args!("{system}, {case}"),
        move |_, ledger| {
            let (whole, work) = ours(operation, segment, scene)?;
            for (case, took) in [(case, whole), (&operation.alone(), work)] {
                ledger.add(system, case, Metric::Duration, took.as_secs_f64());
            }
            Ok(())
        },
    ))
}

/// The time of a process, and of its work alone.
fn ours(
    operation: Operation,
    segment: &str,
    scene: &Scene,
) -> Result<(Duration, Duration), BenchError> {
    let run = |words: &[&str]| -> Run {
        let named = ["--segment", segment];
        scene.ours(named.into_iter().chain(words.iter().copied()))
    };
    let runs = operation.ours(scene);
    let (mut whole, mut work) = (Duration::ZERO, Duration::ZERO);
    if let Some((timed, before)) = runs.split_last() {
        for words in before {
            run(words).output()?;
        }
        for _ in 0..operation.repeats() {
            let took = run(timed).time()?;
            whole += took.whole;
            work += took.work.unwrap_or_default();
        }
    }
    let repeats = operation.repeats();
    Ok((whole / repeats, work / repeats))
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let over = |operation: Operation, target: f64| {
        let case = operation.case();
        Goal::at_least(
            format!("{case}: time of samtools on BAM over ours"),
            target,
            ledger.ratios((BAM, case), (SEGMENT, case)),
        )
    };
    vec![
        over(Flagstat, 10.0),
        over(ByName, 5.0),
        over(ByCoordinate, 5.0),
        over(Index, 5.0),
    ]
}

fn print_tables(ledger: &Ledger) {
    for operation in Operation::ALL {
        println!("{}", operation.case());
        let mut table = Table::new([
            "system",
            "ms a process",
            "min",
            "max",
            "samtools' time on BAM over it",
            "min",
            "max",
            "the work alone, ms",
        ]);
        for system in SYSTEMS {
            let case = operation.case();
            let Some(time) = Summary::of(ledger.values(system, case)) else {
                continue;
            };
            let times = [time.median, time.min, time.max].map(milliseconds);
            let over = three(&ledger.ratios((BAM, case), (system, case)));
            let alone = median(ledger.values(system, &operation.alone()), 1e-3);
            let head = [system.to_owned()].into_iter().chain(times);
            table.row(head.chain(over).chain([alone]));
        }
        println!("{table}");
    }
}

fn milliseconds(seconds: f64) -> String {
    figure(seconds * 1e3)
}

/// The paper's figures: times over those of SAM (11), and over those of a mapped file (12).
fn figures(ledger: &Ledger) -> Vec<Figure> {
    let paper = &Operation::ALL[..4];
    let normalised = |systems: &[&str], label: &dyn Fn(&str) -> String| Bars {
        title: String::new(),
        unit: format!("time over that of {}", systems[0]),
        systems: systems.iter().map(|system| (*system).to_owned()).collect(),
        groups: paper
            .iter()
            .map(|operation| {
                let case = operation.case();
                let bars = systems
                    .iter()
                    .map(|system| Summary::of(&ledger.ratios((system, case), (systems[0], case))));
                (label(case), bars.collect())
            })
            .collect(),
    };
    let serialised = Bars {
        title: "samtools against alignments that stay in a segment".to_owned(),
        ..normalised(&[SAM, BAM, SEGMENT], &str::to_owned)
    };
    let seconds = |case: &str| {
        let of = |system| Summary::of(ledger.values(system, case));
        match (of(FILE), of(SEGMENT)) {
            (Some(file), Some(segment)) => {
                let [file, segment] = [file, segment].map(|s| milliseconds(s.median));
                format!("{case} ({file}, {segment} ms)")
            }
            _ => case.to_owned(),
        }
    };
    let mapped = Bars {
        title: "A mapped file against a segment in memory".to_owned(),
        ..normalised(&[FILE, SEGMENT], &seconds)
    };
    vec![
        Figure::new("samtools-serialised.svg", serialised),
        Figure::new("samtools-mapped.svg", mapped),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::scratch::Directory;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_operation() {
        let Ok(tools) = Tools::find() else {
            return eprintln!("skipped: genomics is not built");
        };
        let report = match run_with(500, &common(), &tools) {
            Err(BenchError::Tool { what, .. }) if what.contains("wgsim") => {
                return eprintln!("skipped: {what}");
            }
            report => report.unwrap(),
        };
        let alone = Operation::ALL.map(Operation::alone);
        let cases = Operation::ALL.map(Operation::case).into_iter();
        let cases: Vec<&str> = cases.chain(alone.iter().map(|case| &**case)).collect();
        assert_well_formed(&report, &cases);
        let directory = Directory::new("samtools-test").unwrap();
        for figure in &report.figures {
            figure.write(directory.path()).unwrap();
        }
    }
}
