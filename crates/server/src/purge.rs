//! What `MEMORY PURGE` asks for is done by a thread of its own: **no client waits for it**.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whether somebody has asked.
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
    /// Has it done soon; several who ask before it begins are served by one.
    pub fn ask(&self) {
        self.change(|state| {
            if *state == State::Idle {
                *state = State::Asked;
            }
        });
    }

    /// Has the thread end.
    pub fn end(&self) {
        self.change(|state| *state = State::Ended);
    }

    /// Does `work` whenever somebody has asked, until the end.
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
    fn who_asks_while_it_is_done_is_served_once_more() {
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
