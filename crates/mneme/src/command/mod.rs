//! The command line: what it accepts, and what it says when it cannot do what was asked.

// By `output` alone, which knows of readers that leave.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod banner;
mod descriptors;
mod doctor;
mod output;
mod registry;
mod segment;
mod serve;
mod signals;
mod size;
mod space;
mod store;
mod successor;
mod unstick;

use std::error::Error;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

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
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Serve Redis clients from memory until SIGTERM or Ctrl-C.
    Serve(serve::Arguments),
    /// Look for what about this machine costs memory, speed or data, and say what to do about it.
    Doctor(doctor::Arguments),
    /// Make, look at, change and remove named segments of memory.
    Segment(segment::Arguments),
    /// Make, look at, fill and remove spaces: named sets of segments that are attached together.
    Space(space::Arguments),
    /// Print a shell's completions: `source <(mneme completions bash)`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Does what the command line says. Exits with 0 when it has been done, 1 when it could not be, 2 when it makes no
/// sense, 141 when nobody reads what it prints.
pub fn run() -> ExitCode {
    let Arguments { log, action } = Arguments::parse();
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        // It would say so on standard error, which is what is closed then.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(log)
        .init();
    let done: Result<(), Box<dyn Error>> = match action {
        Action::Serve(arguments) => serve::run(arguments).map_err(Into::into),
        Action::Doctor(arguments) => doctor::run(&arguments),
        Action::Segment(arguments) => segment::run(arguments),
        Action::Space(arguments) => space::run(arguments),
        Action::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "mneme", &mut script);
            output::print(String::from_utf8_lossy(&script))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(unheard) if unheard.is::<output::Unheard>() => output::UNHEARD.into(),
        Err(error) => {
            // Who has closed standard error is left the exit code.
            let _ = writeln!(std::io::stderr(), "mneme: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error and what led to it, outermost first; what an error repeats of its cause stands once.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
