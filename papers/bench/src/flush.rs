//! `flush`: what it costs to write cache lines back, by instruction (CDDS thesis, fig. 5.1).
//!
//! An object is stored to, each of its lines is flushed, and one SFENCE waits for all. Objects lie
//! one after another in 64 MiB of memory, so that each is cold again when its turn comes. An
//! instruction that the CPU does not have is left out. Beside it the stores alone.

pub mod files;

use mneme_bench::error::{BenchError, failed};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, nanoseconds};
use mneme_bench::table::{Table, median};
use mneme_sys::WriteBack;
use mneme_sys::medium::{Medium, MemoryMedium};
use serde_json::json;
use std::time::Duration;

/// Bytes of an object.
const SIZES: [usize; 4] = [64, 256, 1024, 4096];

/// How lines are written back; none: they are not.
type Instruction = Option<WriteBack>;

fn name(instruction: Instruction) -> &'static str {
    instruction.map_or("stores alone", WriteBack::name)
}

/// Those of this CPU.
fn instructions() -> Vec<Instruction> {
    let here = WriteBack::available().into_iter().map(Some);
    std::iter::once(None).chain(here).collect()
}

fn case(size: usize) -> String {
    format!("object of {size} B")
}

/// How much is done.
pub struct Scale {
    /// How long a measurement is.
    timed: Duration,
    /// Bytes of the memory.
    bytes: u64,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            timed: Duration::from_millis(options.pick(50, 500)),
            bytes: 64 << 20,
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let bytes = scale.bytes;
    let memory = MemoryMedium::new(bytes).map_err(failed)?;
    memory.grow(bytes).map_err(failed)?;
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for size in SIZES {
        for how in instructions() {
            let memory = &memory;
            jobs.push(Job::new(
                name(how),
                case(size),
                Metric::Latency,
                move |round| {
                    let (object, mut at) = (vec![round as u8; size], 0);
                    nanoseconds(scale.timed, 64, || {
                        store(memory, how, at, &object);
                        at = (at + 4096) % memory.len();
                        Ok(())
                    })
                },
            ));
        }
    }
    rounds::run(jobs, options.rounds, &mut ledger)?;
    let mut table = Table::new(["object", "how", "ns", "over CLFLUSH"]);
    for size in SIZES {
        for instruction in instructions() {
            let how = name(instruction);
            let case = case(size);
            let ratios = ledger.ratios((WriteBack::Clflush.name(), &case), (how, &case));
            table.row([
                format!("{size} B"),
                how.to_owned(),
                median(ledger.values(how, &case), 1.0),
                median(&ratios, 1.0),
            ]);
        }
    }
    println!("{table}");
    let case = case(256);
    let ratios = ledger.ratios(
        (WriteBack::Clflush.name(), &case),
        (WriteBack::Clwb.name(), &case),
    );
    let goals = vec![Goal::at_least(
        "CLWB against CLFLUSH, four lines",
        1.0,
        ratios,
    )];
    Ok(Report {
        figures: Vec::new(),
        params: json!({ "bytes": bytes }),
        goals,
        ledger,
        notes: Vec::new(),
    })
}

/// Stores an object and writes its lines back.
fn store(memory: &MemoryMedium, how: Instruction, at: u64, object: &[u8]) {
    memory.store(at, object);
    let Some(instruction) = how else { return };
    let place = memory.base().as_ptr();
    // SAFETY: the store above has seen that it lies inside; nobody else stores there.
    let stored = unsafe { std::slice::from_raw_parts(place.add(at as usize), object.len()) };
    instruction.write_back(stored);
    WriteBack::fence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_of_this_cpu_is_measured_for_every_size() {
        let scale = Scale {
            timed: Duration::ZERO,
            bytes: 1 << 20,
        };
        let report = run(&scale, &crate::options::tests::common()).unwrap();
        for size in SIZES {
            for instruction in instructions() {
                let values = report.ledger.values(name(instruction), &case(size));
                assert_eq!(values.len(), 1, "{instruction:?}, {size}");
            }
        }
    }
}
