//! Figures of the papers behind Mneme, measured on this machine:
//! `cargo run --release -p mneme-bench -- WORD`, which runs this program.
//!
//! It measures and reports with the library of `mneme-bench`, in the same form. Nothing of the
//! product is tuned to these workloads.

mod compaction;
mod contig;
mod cr3;
#[cfg(test)]
mod figures;
mod flush;
mod gups;
mod heat;
mod hugepages;
mod options;
mod parts;
mod postmark;
mod protect;
mod rangemap;
mod rcu;
mod redisjmp;
mod reside;
mod samtools;
mod simulate;
mod switch;
mod tenant;
mod versioning;
mod wear;

use clap::Parser;
use flush::files;
use mneme_bench::error::BenchError;
use mneme_bench::processes::say;
use mneme_bench::{measure, served};
use options::{Options, Workload};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mneme-paper-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Options { common, workload }: &Options) -> Result<(), BenchError> {
    match workload {
        Workload::Compaction => {
            measure("compaction", common, compaction::Scale::of, compaction::run)
        }
        Workload::Contig(o) => measure("contig", common, |c| contig::Scale::of(c, o), contig::run),
        Workload::Hugepages => measure("hugepages", common, hugepages::Scale::of, hugepages::run),
        Workload::Tenant(o) => measure("tenant", common, |c| tenant::Scale::of(c, o), tenant::run),
        Workload::Rcu => measure("rcu", common, rcu::scale, rcu::run),
        Workload::Simulate => measure("simulate", common, simulate::Scale::of, simulate::run),
        Workload::Protect => measure("protect", common, protect::scale, protect::run),
        Workload::Rangemap => measure("rangemap", common, rangemap::scale, rangemap::run),
        Workload::Cr3 => measure("cr3", common, cr3::scale, cr3::run),
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
        Workload::Wear => measure("wear", common, wear::Scale::of, wear::run),
        Workload::Versioning => {
            measure("versioning", common, versioning::Scale::of, versioning::run)
        }
        Workload::Flush => measure("flush", common, flush::Scale::of, flush::run),
        Workload::FileOverhead => measure("file-overhead", common, files::scale, files::run),
        Workload::Samtools(o) => {
            measure("samtools", common, |c| samtools::pairs(c, o), samtools::run)
        }
        Workload::Fragmenter(o) => hugepages::fragmenter::fragment_here(o),
        Workload::Reader(o) => say(tenant::reader::read(o, common.seed)),
        Workload::Reside(o) => reside::live_here(o),
        Workload::Client(o) => redisjmp::crew::live_here(o),
        Workload::Served(o) => served::serve_here(o),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_bench::processes::words_of_test;

    /// No test by itself: what a process of a test runs, and nothing unless one does.
    #[test]
    fn another_process() {
        if let Some(words) = words_of_test() {
            let words = ["mneme-paper-bench".to_owned()].into_iter().chain(words);
            run(&Options::parse_from(words)).unwrap();
        }
    }
}
