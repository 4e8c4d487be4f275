//! How often the last starts of a server on a segment failed, noted beside the segment.
//!
//! A start is noted before the store is touched and forgotten once the server has settled: who dies in between leaves
//! the note. Only the serving process writes it, and what it says decides about a check, never about data alone.

use mneme_space::{NoteError, Registry};

/// Failed starts after which a store is checked before it is served again.
pub(crate) const CHECKED_AFTER: u32 = 3;

/// Failed starts after which a store is set aside that no check has come to the end of: as many again, for a supervisor
/// may have lost its patience with the first.
pub(crate) const GIVEN_UP_AFTER: u32 = 6;

/// The note of one segment.
#[derive(Debug, Clone)]
pub(crate) struct Starts {
    registry: Registry,
    segment: String,
}

const NOTE: &str = "starts";

impl Starts {
    pub(crate) fn of(registry: &Registry, segment: &str) -> Self {
        Self {
            registry: registry.clone(),
            segment: segment.to_owned(),
        }
    }

    /// Starts that failed in a row. What cannot be read as a number counts as none.
    pub(crate) fn failed(&self) -> Result<u32, NoteError> {
        let text = self.registry.note(&self.segment, NOTE)?;
        Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// Notes so many.
    pub(crate) fn note(&self, failed: u32) -> Result<(), NoteError> {
        let text = (failed > 0).then(|| format!("{failed}\n"));
        self.registry.set_note(&self.segment, NOTE, text.as_deref())
    }
}
