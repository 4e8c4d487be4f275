//! `protect`: ranges of memory that are protected from writes and given free, by several threads,
//! each in ranges of its own (Park's dissertation, §3.3.3: a kernel's `mprotect` by range).
//!
//! - *ProtectedRegion*: takes a chunk as clean and opens it again, and says so in a `RangeMap`.
//! - *userfaultfd*: the two system calls alone.
//! - *mprotect*: which excludes all other changes, and page faults, of the process.
//!
//! An operation is a change of 64 KiB; each thread writes a byte after each second one.

use mneme_bench::error::BenchError;
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span, rate_of};
use mneme_rcx::ProtectedRegion;
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{SysfsTopology, WriteProtected};
use serde_json::json;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CHUNK: usize = 64 << 10;
/// From one thread's chunk to the next one's: what lies between stays as it is.
const APART: usize = 2 * CHUNK;

const SYSTEMS: [&str; 3] = ["ProtectedRegion", "userfaultfd", "mprotect"];

enum System {
    Region(ProtectedRegion),
    Memory(WriteProtected),
}

impl System {
    fn make(number: usize, threads: u32) -> Result<Self, BenchError> {
        let len = (threads as usize + 1) * APART;
        let failed = |error: String| BenchError::wrong(SYSTEMS[number], "setting up", error);
        let memory = |made: std::io::Result<_>| {
            let made = made.map(Self::Memory);
            made.map_err(|error| failed(error.to_string()))
        };
        match number {
            0 => {
                let participants = Participants::private(ControlOptions::new([7; 16]));
                let participants = participants.map_err(|error| failed(error.to_string()))?;
                let topology = Arc::new(SysfsTopology::detect());
                let made = ProtectedRegion::new(&participants, topology, len, CHUNK);
                let open = made.and_then(|region| region.open(0..len).map(|()| region));
                open.map(Self::Region)
                    .map_err(|error| failed(error.to_string()))
            }
            1 => memory(WriteProtected::new(len)),
            _ => memory(WriteProtected::by_mprotect(len)),
        }
    }

    /// Protects a chunk, gives it free and writes to it; whether that went well.
    fn turn(&self, chunk: Range<usize>) -> bool {
        let (base, done) = match self {
            Self::Region(region) => {
                let taken = region.take(chunk.clone());
                let is_it = taken.is_ok_and(|taken| taken == [chunk.clone()]);
                let again = region.open(chunk.clone()).is_ok();
                (region.base(), is_it && again)
            }
            Self::Memory(memory) => {
                let protected = memory.protect(chunk.clone()).is_ok();
                let free = memory.unprotect(chunk.clone()).is_ok();
                (memory.base(), protected && free)
            }
        };
        if done {
            // SAFETY: within the memory, in a chunk that is this thread's alone and free.
            unsafe { base.add(chunk.start).write_volatile(1) };
        }
        done
    }
}

fn case(threads: u32) -> String {
    format!("{threads}t")
}

/// How long a measurement is.
pub fn scale(options: &Common) -> Span {
    Span::of(options.pick(60, 600), 5)
}

/// Measures and reports.
///
/// # Errors
/// A system that answers wrongly, or does not exist here; a file that cannot be written.
pub fn run(span: &Span, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for &threads in &options.threads {
        for (number, name) in SYSTEMS.iter().enumerate() {
            let system = System::make(number, threads)?;
            jobs.push(Job::new(
                *name,
                case(threads),
                Metric::Throughput,
                move |_| changes(&system, threads, *span, name),
            ));
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    let cases = || options.threads.iter().map(|threads| case(*threads));
    ledger
        .compared("threads", &SYSTEMS, cases(), 1.0)
        .print("millions of changes a second; in brackets ours over it, round by round");
    let most = case(options.threads.iter().copied().max().unwrap_or(1));
    let ratios = ledger.ratios((SYSTEMS[0], &most), (SYSTEMS[2], &most));
    let text = format!("{most}: changes a second, ours over mprotect's");
    let pairs = cases().map(|case| (case.clone(), case));
    let title = "Ranges protected from writes";
    let bars = Bars::of(&ledger, title, Metric::Throughput, &SYSTEMS, pairs);
    Ok(Report {
        figures: vec![Figure::new("protect.svg", bars)],
        params: json!({ "threads": options.threads, "seconds": span.timed.as_secs_f64() }),
        goals: vec![Goal::at_least(text, 2.0, ratios)],
        ledger,
        notes: vec!["a change protects 64 KiB from writes, or gives them free".to_owned()],
    })
}

fn changes(system: &System, threads: u32, span: Span, name: &str) -> Result<f64, BenchError> {
    let is_good = &AtomicBool::new(true);
    let rate = rate_of(threads, span, 8, |thread| {
        let start = (thread as usize + 1) * APART - CHUNK;
        move || {
            if !system.turn(start..start + CHUNK) {
                is_good.store(false, Ordering::Relaxed);
            }
            2
        }
    });
    match is_good.load(Ordering::Relaxed) {
        true => Ok(rate / 1e6),
        false => Err(BenchError::wrong(
            name,
            case(threads),
            "a thread's own chunk was not as it left it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn every_system_protects_what_it_is_asked_to() {
        if let Err(why) = WriteProtected::new(1) {
            eprintln!("skipped: {why}");
            return;
        }
        let mut options = common();
        options.threads = vec![2];
        let report = run(&Span::of(1, 1), &options).unwrap();
        assert_well_formed(&report, &["2t"]);
        assert_eq!(report.goals.len(), 1);
    }
}
