//! Mneme beside its peers and beside what the memory can do:
//! `cargo run --release -p mneme-bench -- <workload>`.
//!
//! A claim without a command is not a claim. Every run prints the machine, its parameters, a table
//! with ratios against peers measured in the same run, in turn, medians with minima and maxima, and
//! ends with its goals: target, measured, met. A missed goal does not fail the run; it shows.
//! Absolute figures are shown, never asserted.
//!
//! What is measured here is what a user asks. A word that answers a paper's figure is run by the
//! program `mneme-paper-bench` (`papers/bench`), which measures and reports with this library;
//! `mneme-bench WORD` finds it. The library also serves binaries that differ in their allocator.

pub mod client;
mod collections;
pub mod curves;
mod durable;
pub mod error;
pub mod figure;
pub mod fill;
mod frag;
pub mod generate;
pub mod goals;
mod growth;
pub mod latency;
pub mod ledger;
mod limits;
pub mod machine;
pub mod memory;
pub mod options;
mod paper;
pub mod processes;
pub mod progress;
pub mod records;
pub mod report;
pub mod restart;
pub mod rounds;
pub mod scratch;
pub mod served;
mod server;
mod steady;
pub mod systems;
pub mod table;
pub mod testing;
pub mod tree;
mod ycsb;

use clap::Parser;
use durable::{checkpoint, recover};
use error::BenchError;
use machine::Machine;
use options::{Common, Options, Workload};
use processes::say;
use report::Report;
use std::process::ExitCode;

/// The program: reads the command line, runs the workload, prints.
pub fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mneme-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Options { common, workload }: &Options) -> Result<(), BenchError> {
    match workload {
        Workload::Limits => measure("limits", common, limits::Scale::of, limits::run),
        Workload::Ycsb(o) => measure("ycsb", common, |c| ycsb::Plan::of(c, o), ycsb::run),
        Workload::Frag(o) => measure("frag", common, |c| frag::Scale::of(c, o), frag::run),
        Workload::Fill => measure("fill", common, fill::Scale::of, fill::run),
        Workload::Growth(o) => measure("growth", common, |c| growth::Scale::of(c, o), growth::run),
        Workload::Restart => measure("restart", common, restart::Scale::of, restart::run),
        Workload::Durable(o) => measure(
            "durable",
            common,
            |c| durable::Scale::of(c, o),
            durable::run,
        ),
        Workload::Recover(o) => measure(
            "recover",
            common,
            |c| recover::Scale::of(c, o),
            recover::run,
        ),
        Workload::Checkpoint(o) => measure(
            "checkpoint",
            common,
            |c| checkpoint::Scale::of(c, o),
            checkpoint::run,
        ),
        Workload::Tree(o) => measure("tree", common, |c| tree::Scale::of(c, o), tree::run),
        Workload::Server => measure("server", common, server::Scale::of, server::run),
        Workload::Collections => measure(
            "collections",
            common,
            collections::Scale::of,
            collections::run,
        ),
        Workload::Steady(steady) => measure(
            "steady",
            common,
            |common| steady::Scale::of(common, steady),
            steady::run,
        ),
        Workload::Attach(o) => say(restart::attach_here(o)),
        Workload::Served(o) => served::serve_here(o),
        Workload::Footprint(o) => say(ycsb::footprint::measure_here(o)),
        Workload::Paper(words) => paper::run(words),
        Workload::Resident(o) => say(frag::resident::measure_here(o, common.seed)),
    }
}

/// Runs a workload at its scale and reports. What cannot be written is refused before anything
/// takes time.
///
/// # Errors
/// The workload's, or a file cannot be written.
pub fn measure<S>(
    bench: &str,
    common: &Common,
    scale: impl FnOnce(&Common) -> S,
    run: impl FnOnce(&S, &Common) -> Result<Report, BenchError>,
) -> Result<(), BenchError> {
    if let Some(path) = &common.svg {
        std::fs::create_dir_all(path).map_err(error::file_failed(path))?;
    }
    if let Some(path) = &common.json {
        std::fs::write(path, "").map_err(error::file_failed(path))?;
    }
    if cfg!(debug_assertions) {
        println!("a debug build: these figures say nothing; use cargo run --release\n");
    }
    let machine = Machine::here();
    println!("{machine}\n");
    let report = run(&scale(common), common)?;
    if let Some(directory) = &common.svg {
        report
            .figures
            .iter()
            .try_for_each(|figure| figure.write(directory))?;
    }
    println!("{}", report.closing(&machine));
    if let Some(path) = &common.json {
        let text = format!("{:#}\n", report.to_json(bench, &machine, common));
        std::fs::write(path, text).map_err(error::file_failed(path))?;
    }
    Ok(())
}
