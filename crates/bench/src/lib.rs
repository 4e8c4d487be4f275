//! Mneme beside its peers and beside what the memory can do:
//! `cargo run --release -p mneme-bench -- <workload>`.
//!
//! A claim without a command is not a claim. Every run prints the machine, its parameters, a table
//! with ratios against peers measured in the same run, in turn, medians with minima and maxima, and
//! ends with its goals: target, measured, met. A missed goal does not fail the run; it shows.
//! Absolute figures are shown, never asserted.
//!
//! This is a library only so that several binaries, each with an allocator of its own, can be the
//! same program.

mod client;
mod compaction;
mod contig;
mod curves;
mod durable;
mod error;
mod figure;
mod fill;
mod flush;
mod frag;
mod generate;
mod goals;
mod growth;
mod heat;
mod hugepages;
mod latency;
mod ledger;
mod limits;
mod machine;
mod memory;
mod options;
mod papers;
mod parts;
mod processes;
mod progress;
mod rangemap;
mod rcu;
mod records;
mod report;
mod restart;
mod rounds;
mod scratch;
mod served;
mod server;
mod steady;
mod systems;
mod table;
mod tenant;
mod tree;
mod ycsb;

use clap::Parser;
use durable::{checkpoint, recover};
use error::BenchError;
use flush::files;
use machine::Machine;
use options::{Common, Options, Workload};
use papers::{gups, postmark, redisjmp, reside, samtools, switch};
use processes::say;
use report::Report;
use std::process::ExitCode;
use tree::{versioning, wear};

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
        Workload::Parts => measure("parts", common, parts::Scale::of, parts::run),
        Workload::Postmark(o) => measure(
            "postmark",
            common,
            |c| postmark::Scale::of(c, o),
            postmark::run,
        ),
        Workload::Gups => measure("gups", common, gups::Scale::of, gups::run),
        Workload::Switch => measure("switch", common, switch::Scale::of, switch::run),
        Workload::Redisjmp => measure("redisjmp", common, redisjmp::Scale::of, redisjmp::run),
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
        Workload::Wear => measure("wear", common, wear::Scale::of, wear::run),
        Workload::Versioning => {
            measure("versioning", common, versioning::Scale::of, versioning::run)
        }
        Workload::Flush => measure("flush", common, flush::Scale::of, flush::run),
        Workload::FileOverhead => measure("file-overhead", common, files::scale, files::run),
        Workload::Server => measure("server", common, server::Scale::of, server::run),
        Workload::Steady => measure("steady", common, steady::Scale::of, steady::run),
        Workload::Compaction => {
            measure("compaction", common, compaction::Scale::of, compaction::run)
        }
        Workload::Rangemap => measure("rangemap", common, rangemap::scale, rangemap::run),
        Workload::Rcu => measure("rcu", common, rcu::scale, rcu::run),
        Workload::Contig(o) => measure("contig", common, |c| contig::Scale::of(c, o), contig::run),
        Workload::Hugepages => measure("hugepages", common, hugepages::Scale::of, hugepages::run),
        Workload::Tenant(o) => measure("tenant", common, |c| tenant::Scale::of(c, o), tenant::run),
        Workload::Samtools(o) => {
            measure("samtools", common, |c| samtools::pairs(c, o), samtools::run)
        }
        Workload::Attach(o) => say(restart::attach_here(o)),
        Workload::Client(o) => client::live_here(o),
        Workload::Served(o) => served::serve_here(o),
        Workload::Reside(o) => reside::live_here(o),
        Workload::Footprint(o) => say(ycsb::footprint::measure_here(o)),
        Workload::Fragmenter(o) => hugepages::fragmenter::fragment_here(o),
        Workload::Reader(o) => say(tenant::reader::read(o, common.seed)),
        Workload::Resident(o) => say(frag::resident::measure_here(o, common.seed)),
    }
}

/// Runs a workload at its scale and reports. What cannot be written is refused before anything
/// takes time.
fn measure<S>(
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
