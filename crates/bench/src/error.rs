//! What can go wrong in a run.

use mneme_sys::RegionError;
use std::path::PathBuf;

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
    /// The process that measures a footprint failed.
    #[error("measuring the footprint of {system}: {what}")]
    Footprint {
        /// Whose.
        system: String,
        /// Why.
        what: String,
    },
}
