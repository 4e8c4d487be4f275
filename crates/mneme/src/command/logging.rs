//! The log on standard error: its filter and its format.

use std::ffi::OsStr;
use std::io::IsTerminal;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line each, for people; coloured on a terminal, unless NO_COLOR is set.
    Text,
    /// A JSON object a line, for programs: `timestamp`, `level`, `target`, and `fields` with the
    /// `message` and what belongs to it.
    Json,
}

impl Format {
    /// Starts logging the messages that `filter` accepts.
    pub fn begin(self, filter: Targets) {
        // Errors in writing the log would be logged to standard error, which is what has failed
        // then.
        let lines = tracing_subscriber::fmt::layer()
            .log_internal_errors(false)
            .with_writer(std::io::stderr);
        let lines = match self {
            Format::Text => lines.with_ansi(is_coloured()).boxed(),
            Format::Json => lines.json().boxed(),
        };
        tracing_subscriber::registry()
            .with(lines)
            .with(filter)
            .init();
    }
}

fn is_coloured() -> bool {
    let is_terminal = std::io::stderr().is_terminal();
    is_terminal && !forbids_colour(std::env::var_os("NO_COLOR").as_deref())
}

/// Whether the value of NO_COLOR forbids colours: any non-empty value does
/// (<https://no-color.org>).
fn forbids_colour(said: Option<&OsStr>) -> bool {
    said.is_some_and(|said| !said.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_forbidden_by_any_word() {
        assert!(forbids_colour(Some("1".as_ref())) && forbids_colour(Some("0".as_ref())));
        assert!(!forbids_colour(Some("".as_ref())) && !forbids_colour(None));
    }
}
