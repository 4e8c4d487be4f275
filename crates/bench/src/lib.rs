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
use error::BenchError;
use options::{Common, Options, Workload};
use std::path::Path;
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
    let (common, report) = match workload {
        Workload::Limits(common) => {
            prepare(common)?;
            (common, limits::run(common)?)
        }
        Workload::Ycsb(options) => {
            options.validate()?;
            prepare(&options.common)?;
            (&options.common, ycsb::run(options)?)
        }
        Workload::Frag(options) => {
            prepare(&options.common)?;
            (&options.common, frag::run(options)?)
        }
        Workload::Fill(common) => {
            prepare(common)?;
            (common, fill::run(common)?)
        }
        Workload::Growth(options) => {
            prepare(&options.common)?;
            (&options.common, growth::run(options)?)
        }
        Workload::Parts(common) => {
            prepare(common)?;
            (common, parts::run(common)?)
        }
        Workload::Postmark(options) => {
            prepare(&options.common)?;
            (&options.common, papers::postmark::run(options)?)
        }
        Workload::Gups(common) => {
            prepare(common)?;
            (common, papers::gups::run(common)?)
        }
        Workload::Switch(common) => {
            prepare(common)?;
            (common, papers::switch::run(common)?)
        }
        Workload::Redisjmp(common) => {
            prepare(common)?;
            (common, papers::redisjmp::run(common)?)
        }
        Workload::Restart(common) => {
            prepare(common)?;
            (common, restart::run(common)?)
        }
        Workload::Durable(options) => {
            prepare(&options.common)?;
            (&options.common, durable::run(options)?)
        }
        Workload::Recover(options) => {
            prepare(&options.common)?;
            (&options.common, durable::recover::run(options)?)
        }
        Workload::Checkpoint(options) => {
            prepare(&options.common)?;
            (&options.common, durable::checkpoint::run(options)?)
        }
        Workload::Tree(common) => {
            prepare(common)?;
            (common, tree::run(common)?)
        }
        Workload::Wear(common) => {
            prepare(common)?;
            (common, tree::wear::run(common)?)
        }
        Workload::Versioning(common) => {
            prepare(common)?;
            (common, tree::versioning::run(common)?)
        }
        Workload::Flush(common) => {
            prepare(common)?;
            (common, flush::run(common)?)
        }
        Workload::FileOverhead(common) => {
            prepare(common)?;
            (common, flush::files::run(common)?)
        }
        Workload::Server(common) => {
            prepare(common)?;
            (common, server::run(common)?)
        }
        Workload::Compaction(common) => {
            prepare(common)?;
            (common, compaction::run(common)?)
        }
        Workload::Rangemap(common) => {
            prepare(common)?;
            (common, rangemap::run(common)?)
        }
        Workload::Rcu(common) => {
            prepare(common)?;
            (common, rcu::run(common)?)
        }
        Workload::Contig(common) => {
            prepare(common)?;
            (common, contig::run(common)?)
        }
        Workload::Tenant(common) => {
            prepare(common)?;
            (common, tenant::run(common)?)
        }
        Workload::Samtools(options) => {
            options.validate()?;
            prepare(&options.common)?;
            (&options.common, papers::samtools::run(options)?)
        }
        Workload::Attach(options) => return restart::attach_here(options),
        Workload::Client(options) => return client::live_here(options),
        Workload::Served(options) => return served::serve_here(options),
        Workload::ServedMemory(options) => return served::serve_memory_here(options),
        Workload::Reside(options) => return papers::reside::live_here(options),
        Workload::Footprint(options) => return ycsb::footprint::measure_here(options),
        Workload::Reader(options) => return tenant::reader::read_here(options),
        Workload::Resident(options) => return frag::resident::measure_here(options),
    };
    println!("{}", report.closing());
    if let Some(path) = &common.json {
        write(path, &format!("{:#}\n", report.to_json()))?;
    }
    Ok(())
}
/// Refuses what cannot be measured or written, before anything takes time.
fn prepare(common: &Common) -> Result<(), BenchError> {
    common.validate()?;
    if let Some(path) = &common.svg {
        std::fs::create_dir_all(path).map_err(|source| BenchError::File {
            path: path.clone(),
            source,
        })?;
    }
    if let Some(path) = &common.json {
        write(path, "")?;
    }
    if cfg!(debug_assertions) {
        println!("a debug build: these figures say nothing; use cargo run --release\n");
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(|source| BenchError::File {
        path: path.to_path_buf(),
        source,
    })
}
