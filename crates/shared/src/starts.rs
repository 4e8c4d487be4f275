//! How often the last starts of a server on a segment failed, kept in the segment's directory.
//!
//! A start is noted before the store is touched and forgotten once the server has settled: who dies in between leaves
//! the note. Only the serving process writes it, and what it says decides about a check, never about data alone.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use mneme_space::Registry;

use crate::error::ServeError;

/// Failed starts after which a store is checked before it is served again.
pub(crate) const CHECKED_AFTER: u32 = 3;

/// The note of one segment.
#[derive(Debug, Clone)]
pub(crate) struct Starts(PathBuf);

impl Starts {
    pub(crate) fn of(registry: &Registry, segment: &str) -> Self {
        Self(
            registry
                .root()
                .join("segments")
                .join(segment)
                .join("starts"),
        )
    }

    /// Starts that failed in a row. What cannot be read as a number counts as none.
    pub(crate) fn failed(&self) -> Result<u32, ServeError> {
        match fs::read_to_string(&self.0) {
            Ok(text) => Ok(text.trim().parse().unwrap_or(0)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
            Err(source) => Err(self.error("read", source)),
        }
    }

    /// Notes so many, whole or not at all.
    pub(crate) fn note(&self, failed: u32) -> Result<(), ServeError> {
        if failed == 0 {
            return match fs::remove_file(&self.0) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(self.error("remove", e)),
                _ => Ok(()),
            };
        }
        let aside = self.0.with_extension("new");
        fs::write(&aside, format!("{failed}\n"))
            .and_then(|()| fs::rename(&aside, &self.0))
            .map_err(|source| self.error("write", source))
    }

    fn error(&self, what: &'static str, source: io::Error) -> ServeError {
        ServeError::File {
            what,
            path: self.0.clone(),
            source,
        }
    }
}
