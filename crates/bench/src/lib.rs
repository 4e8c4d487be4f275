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
mod half_full;
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
mod report;
mod restart;
mod rounds;
mod scratch;
mod served;
mod server;
mod systems;
mod table;
mod tenant;
mod tree;
mod ycsb;

use clap::Parser;
use durable::{checkpoint, recover};
use error::BenchError;
use machine::Machine;
use options::{Common, Options, Workload};
use papers::{gups, postmark, redisjmp, reside, samtools, switch};
use report::Report;
use std::process::ExitCode;

/// The program: reads the command line, runs the workload, prints.
pub fn main() -> ExitCode {
    match run(&Options::parse().workload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mneme-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(workload: &Workload) -> Result<(), BenchError> {
    match workload {
        Workload::Limits(o) => measure("limits", o, || limits::run(o)),
        Workload::Ycsb(o) => measure("ycsb", &o.common, || ycsb::run(o)),
        Workload::Frag(o) => measure("frag", &o.common, || frag::run(o)),
        Workload::Fill(o) => measure("fill", o, || fill::run(o)),
        Workload::Growth(o) => measure("growth", &o.common, || growth::run(o)),
        Workload::Parts(o) => measure("parts", o, || parts::run(o)),
        Workload::Postmark(o) => measure("postmark", &o.common, || postmark::run(o)),
        Workload::Gups(o) => measure("gups", o, || gups::run(o)),
        Workload::Switch(o) => measure("switch", o, || switch::run(o)),
        Workload::Redisjmp(o) => measure("redisjmp", o, || redisjmp::run(o)),
        Workload::Restart(o) => measure("restart", o, || restart::run(o)),
        Workload::Durable(o) => measure("durable", &o.common, || durable::run(o)),
        Workload::Recover(o) => measure("recover", &o.common, || recover::run(o)),
        Workload::Checkpoint(o) => measure("checkpoint", &o.common, || checkpoint::run(o)),
        Workload::Tree(o) => measure("tree", &o.common, || tree::run(o)),
        Workload::Wear(o) => measure("wear", o, || tree::wear::run(o)),
        Workload::Versioning(o) => measure("versioning", o, || tree::versioning::run(o)),
        Workload::Flush(o) => measure("flush", o, || flush::run(o)),
        Workload::FileOverhead(o) => measure("file-overhead", o, || flush::files::run(o)),
        Workload::Server(o) => measure("server", o, || server::run(o)),
        Workload::Compaction(o) => measure("compaction", o, || compaction::run(o)),
        Workload::Rangemap(o) => measure("rangemap", o, || rangemap::run(o)),
        Workload::Rcu(o) => measure("rcu", o, || rcu::run(o)),
        Workload::Contig(o) => measure("contig", &o.common, || contig::run(o)),
        Workload::Hugepages(o) => measure("hugepages", o, || hugepages::run(o)),
        Workload::Tenant(o) => measure("tenant", &o.common, || tenant::run(o)),
        Workload::Samtools(o) => measure("samtools", &o.common, || samtools::run(o)),
        Workload::Attach(o) => restart::attach_here(o),
        Workload::Client(o) => client::live_here(o),
        Workload::Served(o) => served::serve_here(o),
        Workload::Reside(o) => reside::live_here(o),
        Workload::Footprint(o) => ycsb::footprint::measure_here(o),
        Workload::Fragmenter(o) => hugepages::fragmenter::fragment_here(o),
        Workload::Reader(o) => tenant::reader::read_here(o),
        Workload::Resident(o) => frag::resident::measure_here(o),
    }
}

/// Runs a workload and reports. What cannot be measured or written is refused before anything
/// takes time.
fn measure(
    bench: &str,
    common: &Common,
    run: impl FnOnce() -> Result<Report, BenchError>,
) -> Result<(), BenchError> {
    common.validate()?;
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
    let report = run()?;
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
