//! `rangemap`: an address space's ranges under faults, `mprotect` and `mmap` of several threads
//! (Park's dissertation, §3.4.3, figures 3.10 and 3.11), beside an ordered map behind one lock and
//! behind a reader-writer lock.
//!
//! - *metis*: a map-reduce's arenas. Each thread has reserved a range. It uses 64 pages of it after
//!   32 each (a `protect` that moves a boundary), and between two of these faults on pages that it
//!   uses (32 lookups). When all is used it begins anew.
//! - *ebizzy*: a web server's requests. Each maps a chunk in a gap of the thread's, faults on its 8
//!   pages and on 8 of a shared range, and unmaps the chunk.
//! - *faults*: lookups alone, over the ranges of all threads.
//!
//! How to read it: the paper's SPF (lookups beside one lock for updates) is near the reader-writer
//! lock, its RCXVM is ours. Its gains (2.1 times SPF for Metis on 144 threads) need the threads. A
//! lock that nobody wants costs little: with one thread the ordered map is expected to win.

mod systems;

use mneme_bench::error::BenchError;
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span, rate_of};
use serde_json::json;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use systems::{Ranges, SYSTEMS, make};

const PAGE: u64 = 4096;
/// From one thread's addresses to the next one's. Between them lies a range that is always mapped.
const APART: u64 = 1 << 32;
/// Pages of an arena.
const ARENA: u64 = 64 * 64;
/// Pages that are used more at a time.
const STEP: u64 = 64;
/// Faults between two steps.
const FAULTS: u64 = 32;
/// Pages of a chunk, and as many of the shared range are looked up.
const CHUNK: u64 = 8;
/// Where the shared range begins.
const SHARED: u64 = 1 << 60;

const RESERVED: u32 = 1;
const USED: u32 = 2;

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    Faults,
    Metis,
    Ebizzy,
}

impl Mix {
    const ALL: [Mix; 3] = [Mix::Faults, Mix::Metis, Mix::Ebizzy];

    fn case(self, threads: u32) -> String {
        let name = match self {
            Mix::Faults => "faults",
            Mix::Metis => "metis",
            Mix::Ebizzy => "ebizzy",
        };
        format!("{name} {threads}t")
    }
}

/// How long a measurement is.
pub fn scale(options: &Common) -> Span {
    Span::of(options.pick(60, 600), 5)
}

/// Measures and reports.
///
/// # Errors
/// A system that answers wrongly, a file that cannot be written.
pub fn run(span: &Span, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for what in Mix::ALL {
        for &threads in &options.threads {
            for (number, name) in SYSTEMS.iter().enumerate() {
                let system = make(number)?;
                prepare(&*system, threads);
                let (case, seed) = (what.case(threads), options.seed);
                jobs.push(Job::new(*name, case, Metric::Throughput, move |round| {
                    let work = Work {
                        system: &*system,
                        what,
                        threads,
                        seed: seed ^ round as u64,
                    };
                    work.rate(*span, name)
                }));
            }
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print_table(options, &ledger);
    Ok(Report {
        figures: vec![bars(options, &ledger)],
        params: json!({ "threads": options.threads, "seconds": span.timed.as_secs_f64() }),
        goals: goals(options, &ledger),
        ledger,
        notes: vec!["an operation is a lookup or an update".to_owned()],
    })
}

/// The guards between the threads' addresses, their arenas, and what they share.
fn prepare(system: &dyn Ranges, threads: u32) {
    system.map(SHARED..SHARED + 1024 * PAGE, USED);
    for thread in 0..u64::from(threads) {
        let start = (thread + 1) * APART;
        system.map(start..start + PAGE, RESERVED);
        let arena = arena(thread);
        system.map(arena..arena + ARENA * PAGE, RESERVED);
    }
}

fn arena(thread: u64) -> u64 {
    (thread + 1) * APART + (1 << 20)
}

/// Where a thread maps chunks: beside nothing of another's.
fn chunk(thread: u64, number: u64) -> u64 {
    (thread + 1) * APART + (1 << 31) + number % 64 * 4 * CHUNK * PAGE
}

struct Work<'a> {
    system: &'a dyn Ranges,
    what: Mix,
    threads: u32,
    seed: u64,
}

impl Work<'_> {
    fn rate(&self, span: Span, name: &str) -> Result<f64, BenchError> {
        let is_good = &AtomicBool::new(true);
        let rate = rate_of(self.threads, span, 8, |thread| {
            let thread = u64::from(thread);
            let mut random = Random::new(mix(self.seed ^ thread << 32));
            let (mut used, mut number) = (ARENA, 0);
            move || {
                let mut good = true;
                let done = match self.what {
                    Mix::Faults => self.faults(&mut random),
                    Mix::Metis => self.metis(thread, &mut used, &mut random, &mut good),
                    Mix::Ebizzy => self.ebizzy(thread, number % 8, &mut random, &mut good),
                };
                number += 1;
                if !good {
                    is_good.store(false, Ordering::Relaxed);
                }
                done
            }
        });
        match is_good.load(Ordering::Relaxed) {
            true => Ok(rate / 1e6),
            false => Err(BenchError::wrong(
                name,
                self.what.case(self.threads),
                "answered otherwise than one thread's own addresses must",
            )),
        }
    }

    fn faults(&self, random: &mut Random) -> u64 {
        for _ in 0..FAULTS {
            let of = arena(random.below(u64::from(self.threads)));
            let page = random.below(ARENA);
            black_box(self.system.find(of + page * PAGE));
        }
        FAULTS
    }

    fn metis(&self, thread: u64, used: &mut u64, random: &mut Random, good: &mut bool) -> u64 {
        let start = arena(thread);
        if *used == ARENA {
            *good &= self.system.protect(start..start + ARENA * PAGE, RESERVED);
            *used = 0;
        }
        let more = start + *used * PAGE;
        *good &= self.system.protect(more..more + STEP * PAGE, USED);
        *used += STEP;
        for _ in 0..FAULTS {
            let at = start + random.below(*used) * PAGE;
            *good &= self.system.find(at) == USED;
        }
        1 + FAULTS
    }

    fn ebizzy(&self, thread: u64, number: u64, random: &mut Random, good: &mut bool) -> u64 {
        let start = chunk(thread, number);
        let range = start..start + CHUNK * PAGE;
        *good &= self.system.map(range.clone(), USED);
        for page in 0..CHUNK {
            *good &= self.system.find(start + page * PAGE) == USED;
            let shared = SHARED + random.below(1024) * PAGE;
            *good &= self.system.find(shared) == USED;
        }
        *good &= self.system.unmap(range);
        2 + 2 * CHUNK
    }
}

fn goals(options: &Common, ledger: &Ledger) -> Vec<Goal> {
    let most = options.threads.iter().copied().max().unwrap_or(1);
    let mut goals = Vec::new();
    for what in Mix::ALL {
        let case = what.case(most);
        for other in &SYSTEMS[1..] {
            goals.push(Goal::at_least(
                format!("{case}: ours over {other}"),
                1.0,
                ledger.ratios((SYSTEMS[0], &case), (other, &case)),
            ));
        }
    }
    goals
}

fn cases(options: &Common) -> impl Iterator<Item = String> {
    let threads = &options.threads;
    let cases = Mix::ALL.into_iter();
    cases.flat_map(|what| threads.iter().map(move |threads| what.case(*threads)))
}

fn print_table(options: &Common, ledger: &Ledger) {
    ledger
        .compared("case", &SYSTEMS, cases(options), 1.0)
        .print("millions of operations a second; in brackets ours over it, round by round");
}

fn bars(options: &Common, ledger: &Ledger) -> Figure {
    let cases = cases(options).map(|case| (case.clone(), case));
    let title = "Ranges of an address space";
    let bars = Bars::of(ledger, title, Metric::Throughput, &SYSTEMS, cases);
    Figure::new("rangemap.svg", bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn every_system_does_every_mix_right() {
        let mut options = common();
        options.threads = vec![2];
        let report = run(&Span::of(1, 1), &options).unwrap();
        assert_well_formed(&report, &["faults 2t", "metis 2t", "ebizzy 2t"]);
        assert_eq!(report.goals.len(), 6);
    }
}
