//! The developer's errands: `cargo xtask --help` lists them.

use clap::Parser;
use std::process::ExitCode;
use xtask::workspace::Workspace;
use xtask::{
    api, book, check_c, ci, clients, container, deb, errors, go_ycsb, install_c, kernel, ladder,
    layering, lines, numa, package, power_cut, prose, python,
};

/// The developer's errands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Errand {
    /// Everything that must hold before a change lands
    Ci(ci::Options),
    /// The long forms of the proofs
    Ladder(ladder::Options),
    /// The layering check alone
    Layering {
        /// Print the largest circle of files of each crate, too
        #[arg(long)]
        circles: bool,
    },
    /// Lines of crates/*/src without comments, by crate
    Lines {
        /// Print those at a revision, too
        revision: Option<String>,
    },
    /// Forms that prose does not have
    Prose {
        /// Below this path alone
        #[arg(long)]
        below: Option<std::path::PathBuf>,
    },
    /// Other people's applications on `mneme serve` (needs pip or npm)
    Clients,
    /// Its workloads on strings or hashes, on `mneme serve` and on Redis
    GoYcsb(go_ycsb::Options),
    /// The tests that need NUMA nodes, in guests with 1, 2 and 4 (needs QEMU)
    Numa {
        /// In a guest with so many alone
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=8))]
        nodes: Option<u64>,
    },
    /// A durable server in a guest whose power is cut, and twins that lose (needs QEMU)
    PowerCut(power_cut::Options),
    /// A kernel module of papers/kernel, built and tried in a guest (needs QEMU)
    Kernel {
        /// Which one
        #[arg(value_enum)]
        module: kernel::Module,
        /// For which of Debian's kernels
        #[arg(long, value_enum, default_value = "6.1")]
        release: kernel::Release,
    },
    /// libmneme, mneme.h and mneme.pc below a prefix
    InstallC(install_c::Options),
    /// Checks of pointers in C programs, in target/check, and their tests (needs clang-19)
    CheckC(check_c::Options),
    /// The public interface of each published crate, as listed
    Api {
        /// List it anew
        #[arg(long)]
        write: bool,
    },
    /// docs/errors.md lists the public errors as the sources have them
    Errors {
        /// Write it anew
        #[arg(long)]
        write: bool,
    },
    /// The published crates can be
    Package {
        /// Build each from its package, too
        #[arg(long)]
        verify: bool,
    },
    /// docs/ as a book in target/book (needs mdbook)
    Book {
        /// Its pages and links alone
        #[arg(long)]
        check: bool,
    },
    /// Packages for Debian, in target/packages (needs cargo-deb)
    Deb {
        /// Try them in a chroot
        #[arg(long = "try")]
        tries: bool,
    },
    /// The container's root file system, in target/container
    Container {
        /// Try it in a chroot
        #[arg(long = "try")]
        tries: bool,
    },
    /// The module for Python, built and tested (needs python3)
    Python,
    /// Its wheel, in target/wheels; tried in a virtual environment
    Wheel,
    /// The module beside redis-py, lmdb, pickles and shared memory
    PythonBench {
        /// What the benchmark understands, such as `--rounds N`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let errand = Errand::parse();
    let outcome = Workspace::load().map_err(Into::into).and_then(|workspace| {
        let workspace = &workspace;
        match &errand {
            Errand::Ci(options) => ci::run_all(workspace, options),
            Errand::Ladder(options) => ladder::run_all(workspace, options),
            Errand::Layering { circles } => layering::run(workspace, *circles),
            Errand::Lines { revision } => lines::run(workspace, revision.as_deref()),
            Errand::Prose { below } => prose::run(workspace, below.as_deref()),
            Errand::Clients => clients::check(workspace),
            Errand::GoYcsb(options) => go_ycsb::run(workspace, options),
            Errand::Numa { nodes } => numa::run_all(workspace, *nodes),
            Errand::PowerCut(options) => power_cut::run_all(workspace, options),
            Errand::Kernel { module, release } => kernel::run_one(workspace, *module, *release),
            Errand::InstallC(options) => install_c::run(workspace, options, &[]),
            Errand::CheckC(options) => check_c::run_all(workspace, options),
            Errand::Api { write: false } => api::check(workspace),
            Errand::Api { write: true } => api::write(workspace),
            Errand::Errors { write: false } => errors::check(workspace),
            Errand::Errors { write: true } => errors::write(workspace),
            Errand::Package { verify: false } => package::check(workspace),
            Errand::Package { verify: true } => package::verify(workspace),
            Errand::Book { check: false } => book::build(workspace),
            Errand::Book { check: true } => book::check(workspace),
            Errand::Deb { tries: false } => deb::build(workspace).map(drop),
            Errand::Deb { tries: true } => deb::try_packages(workspace),
            Errand::Container { tries: false } => container::lay_out(workspace).map(drop),
            Errand::Container { tries: true } => container::try_image(workspace),
            Errand::Python => python::check(workspace),
            Errand::Wheel => python::check_wheel(workspace),
            Errand::PythonBench { arguments } => python::bench(workspace, arguments),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("xtask: {trouble}");
            ExitCode::FAILURE
        }
    }
}
