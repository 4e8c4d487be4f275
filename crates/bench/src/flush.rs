//! `flush`: what it costs to write cache lines back, by instruction (CDDS thesis, fig. 5.1).
//!
//! An object is stored to, each of its lines is flushed, and one SFENCE waits for all. Objects lie
//! one after another in 64 MiB of memory, so that each is cold again when its turn comes. An
//! instruction that the CPU does not have is left out. Beside it the stores alone.

pub mod files;

use crate::error::{BenchError, failed};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::report::Report;
use crate::rounds::{self, Job};
use crate::table::{Table, median};
use mneme_sys::WriteBack;
use mneme_sys::medium::{Medium, MemoryMedium};
use serde_json::json;
use std::time::{Duration, Instant};

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

/// Measures and reports.
///
/// # Errors
/// No memory.
pub fn run(options: &Common) -> Result<Report, BenchError> {
    let span = Duration::from_millis(options.pick(50, 500));
    run_at(span, 64 << 20, options)
}

fn run_at(span: Duration, bytes: u64, options: &Common) -> Result<Report, BenchError> {
    let memory = MemoryMedium::new(bytes).map_err(failed)?;
    memory.grow(bytes).map_err(failed)?;
    let mut ledger = Ledger::default();
    let mut jobs = Vec::new();
    for size in SIZES {
        for instruction in instructions() {
            let memory = &memory;
            jobs.push(Job::new(
                name(instruction),
                case(size),
                Metric::Latency,
                move |round| Ok(each(memory, instruction, size, span, round)),
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

/// Nanoseconds of an object.
fn each(
    memory: &MemoryMedium,
    instruction: Instruction,
    size: usize,
    span: Duration,
    round: usize,
) -> f64 {
    let object = vec![round as u8; size];
    let (mut at, mut count) = (0, 0_u64);
    let begun = Instant::now();
    loop {
        for _ in 0..64 {
            memory.store(at, &object);
            // SAFETY: the store above has seen that it lies inside; nobody else stores there.
            let stored = unsafe {
                std::slice::from_raw_parts(memory.base().as_ptr().add(at as usize), size)
            };
            if let Some(instruction) = instruction {
                instruction.write_back(stored);
                WriteBack::fence();
            }
            at = (at + 4096) % memory.len();
            count += 1;
        }
        let took = begun.elapsed();
        if took >= span {
            return took.as_nanos() as f64 / count as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_of_this_cpu_is_measured_for_every_size() {
        let options = Common {
            rounds: 1,
            ..crate::options::tests::common()
        };
        let report = run_at(Duration::ZERO, 1 << 20, &options).unwrap();
        for size in SIZES {
            for instruction in instructions() {
                let values = report.ledger.values(name(instruction), &case(size));
                assert_eq!(values.len(), 1, "{instruction:?}, {size}");
            }
        }
    }
}
