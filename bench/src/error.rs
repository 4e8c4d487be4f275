//! What can go wrong in a run.

use mneme_sys::RegionError;
use std::path::{Path, PathBuf};

/// A run's failure. A missed goal is none.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The machine gives no memory.
    #[error("memory for the measurement: {0}")]
    Memory(#[from] RegionError),
    /// The store cannot be opened.
    #[error("mneme: {0}")]
    Store(String),
    /// A segment cannot be made or entered.
    #[error("segments: {0}")]
    Space(String),
    /// A system lost or mixed up records; its figures would be worthless.
    #[error("{system} in {case}: {what}")]
    Wrong {
        /// Which system.
        system: String,
        /// Doing what.
        case: String,
        /// What it did.
        what: String,
    },
    /// Nonsense on the command line.
    #[error("{0}")]
    Options(String),
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A figure cannot be drawn.
    #[error("figure {}: {what}", path.display())]
    Figure {
        /// Which.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// A server that was asked for does not work with us.
    #[error("{server}: {what}")]
    Server {
        /// Which.
        server: &'static str,
        /// Why.
        what: String,
    },
    /// A process of a measurement's own ended, or said what nobody asked.
    #[error("a process of this measurement: {0}")]
    Process(String),
    /// A program that is measured, or makes what is measured, is missing or failed.
    #[error("{tool}: {what}")]
    Tool {
        /// Which.
        tool: &'static str,
        /// Why.
        what: String,
    },
}

impl BenchError {
    /// What a system did in a case is not what it should have done.
    pub fn wrong(
        system: impl Into<String>,
        case: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self::Wrong {
            system: system.into(),
            case: case.into(),
            what: what.into(),
        }
    }

    /// A program failed.
    pub fn tool(tool: &'static str, what: impl ToString) -> Self {
        Self::Tool {
            tool,
            what: what.to_string(),
        }
    }

    /// A server failed.
    pub fn server(server: &'static str, what: impl ToString) -> Self {
        Self::Server {
            server,
            what: what.to_string(),
        }
    }
}

/// Ours failed.
pub fn failed(error: impl ToString) -> BenchError {
    BenchError::Store(error.to_string())
}

/// A server failed, whichever it was.
pub fn socket_failed(error: impl ToString) -> BenchError {
    BenchError::server("a server on a socket", error)
}

/// A process of this measurement failed.
pub fn process_failed(error: impl ToString) -> BenchError {
    BenchError::Process(error.to_string())
}

/// A file cannot be read or written.
pub fn file_failed(path: &Path) -> impl Fn(std::io::Error) -> BenchError + Copy {
    move |source| BenchError::File {
        path: path.to_owned(),
        source,
    }
}
