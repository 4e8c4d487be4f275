//! `MEMORY PURGE` is executed by a background thread, so that **no client waits for it**.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whether a client has requested a purge.
#[derive(Debug, Default)]
pub(crate) struct Purge {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Asked,
    Ended,
}

impl Purge {
    /// Requests a run. Requests made before that run begins share it.
    pub fn ask(&self) {
        self.change(|state| {
            if *state == State::Idle {
                *state = State::Asked;
            }
        });
    }

    /// Makes the thread end.
    pub fn end(&self) {
        self.change(|state| *state = State::Ended);
    }

    /// Calls `work` after each request, until the end.
    pub fn serve(&self, mut work: impl FnMut()) {
        loop {
            let mut state = self.state();
            while *state == State::Idle {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if *state == State::Ended {
                return;
            }
            *state = State::Idle;
            drop(state);
            work();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_a_run_causes_another_run() {
        let purge = Purge::default();
        purge.ask();
        purge.ask();
        let mut done = 0;
        purge.serve(|| {
            done += 1;
            match done {
                1 => purge.ask(),
                _ => purge.end(),
            }
            purge.ask();
        });
        assert_eq!(done, 2);
    }
}
