//! How often the last starts of a server on a segment failed, noted beside the segment.
//!
//! A start is noted before the store is touched and forgotten once the server has settled: a death
//! in between leaves the note. **Only its holder writes the note, from before it touches the store
//! until it stops serving it**: a start beside a healthy server, whatever becomes of that start, is
//! none that failed. Nor is one that is [withdrawn](Withdrawal): asked to end before it had
//! settled. What the note says decides about a check, never about data alone.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mneme_space::{NoteError, NoteHold, Registry};

/// Failed starts after which a store is checked before it is served again.
pub(crate) const CHECKED_AFTER: u32 = 3;

/// Failed starts after which a store is set aside that no check has come to the end of: as many
/// again, for a supervisor may have given up the first too early.
pub(crate) const GIVEN_UP_AFTER: u32 = 6;

/// Takes a start back, from another thread than the one that opens the store: one that handles
/// signals, for instance. A clone is another handle to the same.
#[derive(Debug, Clone, Default)]
pub struct Withdrawal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    withdrawn: bool,
    /// The start that has been noted, and how many had failed before it.
    started: Option<(Weak<Starts>, u32)>,
}

impl Withdrawal {
    /// The start that is under way, or is to come, does not count as one that failed, whatever ends
    /// it from here on. It is not stopped by this.
    ///
    /// # Errors
    /// The note cannot be changed.
    pub fn withdraw(&self) -> Result<(), NoteError> {
        let mut state = self.lock();
        state.withdrawn = true;
        let started = state.started.take();
        match started.and_then(|(starts, failed)| Some((starts.upgrade()?, failed))) {
            Some((starts, failed)) => starts.note(failed),
            None => Ok(()),
        }
    }

    /// The start has settled: there is nothing to take back.
    pub(crate) fn over(&self) {
        self.lock().started = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever a panicking thread left is as good: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The note of one segment, this opening's as long as it lives.
#[derive(Debug)]
pub(crate) struct Starts {
    registry: Registry,
    segment: String,
    _hold: NoteHold,
}

const NOTE: &str = "starts";

impl Starts {
    /// Takes the note; `None`: another process has it, which serves the segment or begins to.
    pub(crate) fn take(registry: &Registry, segment: &str) -> Result<Option<Self>, NoteError> {
        let hold = registry.hold_note(segment, NOTE)?;
        Ok(hold.map(|_hold| Self {
            registry: registry.clone(),
            segment: segment.to_owned(),
            _hold,
        }))
    }

    /// The process that has the note, or had it last.
    pub(crate) fn holder(registry: &Registry, segment: &str) -> Option<u32> {
        registry.note_holder(segment, NOTE)
    }

    /// Starts that failed in a row. What cannot be read as a number counts as none.
    pub(crate) fn failed(&self) -> Result<u32, NoteError> {
        let text = match self.registry.note(&self.segment, NOTE) {
            Err(NoteError::File(error)) if error.source.kind() == ErrorKind::InvalidData => None,
            read => read?,
        };
        Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// Notes so many.
    pub(crate) fn note(&self, failed: u32) -> Result<(), NoteError> {
        let text = (failed > 0).then(|| format!("{failed}\n"));
        self.registry.set_note(&self.segment, NOTE, text.as_deref())
    }

    /// Notes so many, with this start if that has not been withdrawn.
    pub(crate) fn begin(
        self: &Arc<Self>,
        withdrawal: &Withdrawal,
        failed: u32,
    ) -> Result<(), NoteError> {
        let mut state = withdrawal.lock();
        state.started = Some((Arc::downgrade(self), failed));
        self.note(match state.withdrawn {
            true => failed,
            false => failed.saturating_add(1),
        })
    }

    /// The segment has been set aside under another name, where its next start is the first.
    pub(crate) fn forget(registry: &Registry, aside: &str) -> Result<(), NoteError> {
        registry.set_note(aside, NOTE, None)
    }
}
