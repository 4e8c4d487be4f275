//! `cr3`: reads of random pages between which the root of the page tables is switched, with and
//! without tags in the TLB (SpaceJMP, figure 6 and the register's part of table 2).
//!
//! A guest without an operating system, of `cr3/guest.c`, has two roots that show the same window.
//! Between two reads it loads the other root: *never*, *untagged*, which empties the TLB, or
//! *tagged*, which does not. It takes `/dev/kvm`, tags of the CPU (PCID) for the last, and `cc`.
//!
//! How to read it: cycles of a read and of the load before it. Up to the TLB's size *tagged* stays
//! near *never*, and *untagged* pays for a walk of the tables each time. Where KVM itself is
//! emulated, a read takes thousands of cycles, and the figures say nothing.

use mneme_bench::error::{BenchError, failed, file_failed};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::scratch::Directory;
use mneme_bench::table::{Table, median};
use serde_json::json;
use std::path::Path;
use std::process::Command;

const GUEST: &str = include_str!("cr3/guest.c");

const SYSTEMS: [&str; 3] = ["never", "untagged", "tagged"];

/// Where a read takes longer, even without switches, the guest's instructions are interpreted.
const HARDWARE: f64 = 1000.0;

/// Reads of a case.
pub fn scale(options: &Common) -> u64 {
    options.pick(2_000, 200_000)
}

fn run_program(command: &mut Command) -> Result<String, BenchError> {
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError::tool("cr3", said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A line of the guest's: how roots were switched, among how many pages, and the cycles.
fn parse(line: &str) -> Option<(&str, &str, f64)> {
    let mut words = line.split(' ');
    let (how, pages) = (words.next()?, words.next()?);
    let cycles = words.next()?.parse().ok()?;
    SYSTEMS.contains(&how).then_some((how, pages, cycles))
}

fn build(within: &Path) -> Result<std::path::PathBuf, BenchError> {
    let (source, program) = (within.join("guest.c"), within.join("guest"));
    std::fs::write(&source, GUEST).map_err(file_failed(&source))?;
    let mut compile = Command::new("cc");
    run_program(compile.arg("-O2").arg(&source).arg("-o").arg(&program))?;
    Ok(program)
}

/// Measures and reports.
///
/// # Errors
/// There is no `cc` or no `/dev/kvm` here.
pub fn run(reads: &u64, options: &Common) -> Result<Report, BenchError> {
    let directory = Directory::new("cr3")?;
    let program = build(directory.path())?;
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    for _ in 0..options.rounds {
        let said = run_program(Command::new(&program).arg(reads.to_string()))?;
        if said.starts_with("pcid 0") && notes.is_empty() {
            notes.push("no PCIDs here: nothing is tagged".to_owned());
        }
        for (how, pages, cycles) in said.lines().filter_map(parse) {
            ledger.add(how, &case(pages), Metric::Cycles, cycles);
        }
    }
    let mut table = Table::new(["pages", "never", "untagged", "tagged"]);
    for pages in ["16", "64", "256", "1024", "4096"] {
        let cells = SYSTEMS.map(|how| median(ledger.values(how, &case(pages)), 1.0));
        table.row([vec![pages.to_owned()], cells.to_vec()].concat());
    }
    println!("{table}");
    let few = case("256");
    let is_hardware = ledger
        .values(SYSTEMS[0], &few)
        .iter()
        .all(|it| *it < HARDWARE);
    let mut goals = Vec::new();
    if is_hardware {
        let ratios = ledger.ratios((SYSTEMS[2], &few), (SYSTEMS[1], &few));
        let text = "256 pages: cycles with tags over those without";
        goals.push(Goal::at_most(text, 1.0, ratios));
    } else {
        notes.push("the guest is interpreted: its cycles say nothing of hardware".to_owned());
    }
    Ok(Report {
        figures: Vec::new(),
        params: json!({ "reads": reads }),
        goals,
        ledger,
        notes,
    })
}

fn case(pages: &str) -> String {
    format!("{pages} pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_lines_are_read_and_others_are_not() {
        assert_eq!(parse("tagged 64 12.5"), Some(("tagged", "64", 12.5)));
        assert_eq!(parse("pcid 1"), None);
        assert_eq!(parse("often 64 12.5"), None);
    }

    #[test]
    fn every_way_of_switching_that_the_machine_has_is_measured() {
        let options = crate::options::tests::common();
        match run(&100, &options) {
            // No compiler, no KVM, or none for this user.
            Err(why) => eprintln!("skipped: {why}"),
            Ok(report) => {
                for how in &SYSTEMS[..2] {
                    let cycles = report.ledger.values(how, &case("4096"));
                    assert_eq!(cycles.len(), options.rounds);
                    assert!(cycles.iter().all(|cycles| *cycles > 0.0));
                }
            }
        }
    }
}
