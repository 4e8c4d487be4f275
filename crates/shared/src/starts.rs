//! Counts in a file beside the segment how many of the last starts of a server on it failed.
//!
//! A start is recorded before the store is touched, and the record is removed once the server has
//! settled, so a death in between leaves it. **Only its holder writes the record, from before it
//! touches the store until it stops serving it**: a start beside a healthy server, whatever happens
//! to it, does not count as failed. Nor does one that is [withdrawn](Withdrawal), that is, asked to
//! end before it had settled. The record leads to a check; it never decides about data by itself.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mneme_space::{NoteHold, Registry, RegistryError};

/// The number of failed starts after which a store is checked before it is served again.
pub(crate) const CHECKED_AFTER: u32 = 3;

/// The number of failed starts after which a store is set aside if no check has finished: twice as
/// many, because a supervisor may have ended the first checks too early.
pub(crate) const GIVEN_UP_AFTER: u32 = 6;

/// Withdraws a start, from another thread than the one that opens the store, for instance from one
/// that handles signals. A clone is another handle to the same start.
#[derive(Debug, Clone, Default)]
pub struct Withdrawal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    withdrawn: bool,
    /// The start that has been recorded, and how many had failed before it.
    started: Option<(Weak<Starts>, u32)>,
}

impl Withdrawal {
    /// From now on, the start that is in progress, or is about to begin, does not count as failed,
    /// however it ends. This does not stop it.
    ///
    /// # Errors
    /// The record cannot be changed.
    pub fn withdraw(&self) -> Result<(), RegistryError> {
        let mut state = self.lock();
        state.withdrawn = true;
        let started = state.started.take();
        match started.and_then(|(starts, failed)| Some((starts.upgrade()?, failed))) {
            Some((starts, failed)) => starts.note(failed),
            None => Ok(()),
        }
    }

    /// Called when the start has settled: there is nothing left to withdraw.
    pub(crate) fn over(&self) {
        self.lock().started = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex is used as it is: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of one segment, held by this opening as long as it exists.
#[derive(Debug)]
pub(crate) struct Starts {
    registry: Registry,
    segment: String,
    _hold: NoteHold,
}

const NOTE: &str = "starts";

impl Starts {
    /// Takes the record; `None` if another process has it, which serves the segment or is about to.
    pub(crate) fn take(registry: &Registry, segment: &str) -> Result<Option<Self>, RegistryError> {
        let hold = registry.hold_note(segment, NOTE)?;
        Ok(hold.map(|_hold| Self {
            registry: registry.clone(),
            segment: segment.to_owned(),
            _hold,
        }))
    }

    /// The process that has the record, or had it last.
    pub(crate) fn holder(registry: &Registry, segment: &str) -> Option<u32> {
        registry.note_holder(segment, NOTE)
    }

    /// The number of starts that failed in succession. Content that is no number counts as none.
    pub(crate) fn failed(&self) -> Result<u32, RegistryError> {
        let text = match self.registry.note(&self.segment, NOTE) {
            Err(RegistryError::File(error)) if error.source.kind() == ErrorKind::InvalidData => {
                None
            }
            read => read?,
        };
        Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// Records this number.
    pub(crate) fn note(&self, failed: u32) -> Result<(), RegistryError> {
        let text = (failed > 0).then(|| format!("{failed}\n"));
        self.registry.set_note(&self.segment, NOTE, text.as_deref())
    }

    /// Records this number, plus this start unless it has been withdrawn.
    pub(crate) fn begin(
        self: &Arc<Self>,
        withdrawal: &Withdrawal,
        failed: u32,
    ) -> Result<(), RegistryError> {
        let mut state = withdrawal.lock();
        state.started = Some((Arc::downgrade(self), failed));
        self.note(match state.withdrawn {
            true => failed,
            false => failed.saturating_add(1),
        })
    }

    /// Resets the count of a segment that has been set aside under another name.
    pub(crate) fn forget(registry: &Registry, aside: &str) -> Result<(), RegistryError> {
        registry.set_note(aside, NOTE, None)
    }
}
