//! Why the command fails: a sentence and an exit status, by what has to be done about it.

use mneme_genomics::{IndexError, LoadError, OutOfMemory, SortError};
use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why.
#[derive(Debug)]
pub enum Failure {
    /// What was asked cannot be read or answered.
    Asked(Box<dyn Error>),
    /// The segment cannot be had.
    Segment {
        /// Its name.
        name: String,
        /// Why.
        source: Box<dyn Error>,
        /// What can be done, if that is known.
        advice: &'static str,
    },
    /// The segment's memory is exhausted.
    Full {
        /// Its name.
        name: String,
        /// Whether it has grown to its greatest size; else what it lies on is full.
        grown: bool,
    },
    /// The segment was left half changed.
    Poisoned {
        /// Its name.
        name: String,
    },
}

impl Failure {
    /// The exit status.
    pub fn status(&self) -> ExitCode {
        match self {
            Failure::Asked(_) => ExitCode::FAILURE,
            Failure::Segment { .. } | Failure::Full { .. } => ExitCode::from(3),
            Failure::Poisoned { .. } => ExitCode::from(4),
        }
    }

    /// Whether no process reads the output any more.
    pub fn is_broken_pipe(&self) -> bool {
        let Failure::Asked(error) = self else {
            return false;
        };
        let error = error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Whether an operation's error is that the store's memory is exhausted.
pub fn is_out_of_memory(error: &(dyn Error + 'static)) -> bool {
    let of = |error: &(dyn Error + 'static)| {
        error.is::<OutOfMemory>()
            || matches!(error.downcast_ref(), Some(LoadError::OutOfMemory(_)))
            || matches!(error.downcast_ref(), Some(SortError::OutOfMemory(_)))
            || matches!(error.downcast_ref(), Some(IndexError::OutOfMemory(_)))
    };
    of(error)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Asked(error) => chain(&**error, f),
            Failure::Segment {
                name,
                source,
                advice,
            } => {
                if !source.to_string().contains(&format!("{name:?}")) {
                    write!(f, "segment {name:?}: ")?;
                }
                chain(&**source, f)?;
                match *advice {
                    "" => Ok(()),
                    advice => write!(f, "; {advice}"),
                }
            }
            Failure::Full { name, grown: true } => write!(
                f,
                "segment {name:?} is full: it has grown to its greatest size; load with a larger --max-size"
            ),
            Failure::Full { name, grown: false } => write!(
                f,
                "segment {name:?} cannot grow: the memory or the medium that it lies on is full"
            ),
            Failure::Poisoned { name } => write!(
                f,
                "segment {name:?} is poisoned: a process died or panicked while it loaded, sorted or indexed; load it anew \
                 with --replace"
            ),
        }
    }
}

/// An error and what caused it, where its own text does not say that already.
fn chain(error: &(dyn Error + 'static), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut said = error.to_string();
    f.write_str(&said)?;
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            write!(f, ": {text}")?;
            said = text;
        }
        cause = error.source();
    }
    Ok(())
}
