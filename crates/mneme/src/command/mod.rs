//! The command line and its errors.

// All printing goes through `output`, which handles a closed pipe.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backup;
mod banner;
mod check;
mod client;
mod doctor;
mod flags;
mod journal;
mod logging;
mod manual;
mod output;
mod progress;
mod registry;
mod segment;
mod segment_store;
mod serve;
mod signals;
mod size;
mod space;
mod stat;
mod successor;
mod supervisor;
mod tree;
mod unstick;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::filter::Targets;

/// A memory-centric storage engine that speaks Redis' protocol.
#[derive(Debug, Parser)]
#[command(name = "mneme", version, propagate_version = true)]
struct Arguments {
    /// What to log to stderr: off, error, warn, info, debug or trace, also by module as in
    /// `warn,mneme_server=debug`.
    #[arg(
        long,
        global = true,
        env = "MNEME_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    log: Targets,
    /// How to write the log: as text for people, or a JSON object a line.
    #[arg(
        long,
        global = true,
        env = "MNEME_LOG_FORMAT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    log_format: logging::Format,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Serve Redis clients from memory until SIGTERM or Ctrl-C.
    Serve(serve::Arguments),
    /// Show what a running server does and holds, once or live.
    Stat(stat::Arguments),
    /// Have a running server check its whole store beside its clients, and print what is wrong.
    Check(check::Arguments),
    /// Look for what about this machine, and about a running server, costs memory, speed or data,
    /// and say what to do about it.
    Doctor(doctor::Arguments),
    /// Make, look at, change and remove named segments of memory.
    Segment(segment::Arguments),
    /// Make, look at, fill and remove spaces: named sets of segments that are attached together.
    Space(space::Arguments),
    /// Make, read, change, copy and check durable stores in files.
    Tree(tree::Arguments),
    /// Have a server that keeps its data on disk write all records to one file.
    Backup(backup::Backup),
    /// Make a directory for `serve --data` of a backup.
    Restore(backup::Restore),
    /// Check and repair the directory of a server that keeps its data on disk (`serve --data`).
    Journal(journal::Arguments),
    /// Print a shell's completions: `source <(mneme completions bash)`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write it and one for each command to a directory.
    Man {
        /// The directory, made if there is none: `mneme man --to /usr/local/share/man/man1`.
        #[arg(long, value_name = "DIRECTORY")]
        to: Option<std::path::PathBuf>,
    },
}

/// Executes the command line. The exit code is 0 for success, 1 for failure, 2 for an invalid
/// command line, and 141 if the reader of the output has gone.
pub fn run() -> ExitCode {
    let Arguments {
        log,
        log_format,
        action,
    } = Arguments::parse();
    log_format.begin(log);
    let done: Result<(), Box<dyn Error>> = match action {
        Action::Serve(arguments) => serve::run(arguments),
        Action::Stat(arguments) => stat::run(&arguments),
        Action::Check(arguments) => check::run(&arguments),
        Action::Doctor(arguments) => doctor::run(&arguments),
        Action::Segment(arguments) => segment::run(arguments),
        Action::Space(arguments) => space::run(arguments),
        Action::Tree(arguments) => tree::run(arguments),
        Action::Backup(arguments) => backup::backup(&arguments),
        Action::Restore(arguments) => backup::restore(arguments),
        Action::Journal(arguments) => journal::run(arguments),
        Action::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "mneme", &mut script);
            output::print(String::from_utf8_lossy(&script))
        }
        Action::Man { to } => manual::write(Arguments::command(), to.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(unheard) if unheard.is::<output::Unheard>() => output::UNHEARD.into(),
        Err(error) => {
            // If the caller has closed standard error, it gets only the exit code.
            let _ = writeln!(
                std::io::stderr(),
                "mneme: {}",
                output::plain(&output::with_causes(error.as_ref()))
            );
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_and_command_has_a_help_text() {
        fn explained(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            for inner in command.get_subcommands() {
                assert!(inner.get_about().is_some(), "{}", inner.get_name());
                explained(inner);
            }
        }
        explained(&Arguments::command());
    }
}
