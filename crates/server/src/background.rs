//! Work that takes too long for a thread that serves clients: **one thread does it, one piece after
//! the other, and a client that asks is answered at once with the latest result**.
//!
//! The pages behind the store are counted again when a client asks and the last count is older than
//! a second, and every ten seconds while clients send commands, but never for more than a
//! two-hundredth of the time. The store is checked on `MNEME CHECK`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{Report, Stats};

use crate::shared::Shared;

/// Nanoseconds after which a count of the pages is made again when a client asks.
const YOUNG_NS: u64 = 1_000_000_000;

/// The shortest time between two counts of the pages while no client asks.
const PERIOD: Duration = Duration::from_secs(10);

/// The part of the time that counting them may take then.
const SHARE: u64 = 200;

/// What the thread has to do.
#[derive(Default)]
pub(crate) struct Background {
    todo: Mutex<Todo>,
    more: Condvar,
}

#[derive(Default)]
struct Todo {
    /// Whether a client wants a newer count of the pages.
    pages: bool,
    check: Check,
}

/// The last check of the store, or the one that goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Check {
    /// Counted from 1; 0: there was none.
    pub number: u64,
    pub state: CheckState,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum CheckState {
    #[default]
    None,
    /// It has not begun, or goes on.
    Running,
    Done(Report),
    /// It could not be made, for this reason.
    Failed(String),
}

impl Background {
    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread's wait.
    pub fn wake(&self) {
        // The waiting thread has checked its condition before it released the lock.
        drop(self.todo());
        self.more.notify_all();
    }

    fn want_pages(&self) {
        self.todo().pages = true;
        self.more.notify_all();
    }

    /// Has the store checked, unless that goes on already; the check's number.
    pub fn check(&self) -> u64 {
        let mut todo = self.todo();
        if !matches!(todo.check.state, CheckState::Running) {
            todo.check = Check {
                number: todo.check.number + 1,
                state: CheckState::Running,
                took_ms: 0,
            };
        }
        self.more.notify_all();
        todo.check.number
    }

    /// The last check.
    pub fn last_check(&self) -> Check {
        self.todo().check.clone()
    }
}

impl Shared {
    /// The store's accounts, with a count of the pages that may be [older](Shared::pages_age_ms).
    /// Does not wait for the system.
    pub fn stats(&self) -> Stats {
        let (report, age_ns) = self.pages.last(self.now_ns());
        if age_ns >= YOUNG_NS {
            self.background.want_pages();
        }
        self.store.stats_with(report)
    }

    /// Milliseconds since the pages were counted.
    pub fn pages_age_ms(&self) -> u64 {
        self.pages.last(self.now_ns()).1 / 1_000_000
    }

    /// Does what is to be done, until the server stops.
    pub fn work_in_background(&self) {
        let mut commands = 0;
        let mut todo = self.background.todo();
        while !self.stopping() {
            if std::mem::take(&mut todo.pages) {
                drop(todo);
                self.pages.refresh(&self.store, YOUNG_NS, || self.now_ns());
                todo = self.background.todo();
            } else if matches!(todo.check.state, CheckState::Running) {
                drop(todo);
                let (state, took_ms) = self.check_store();
                todo = self.background.todo();
                todo.check.state = state;
                todo.check.took_ms = took_ms;
            } else {
                let rest = PERIOD.max(Duration::from_nanos(
                    self.pages.cost_ns().saturating_mul(SHARE),
                ));
                let waited = self.background.more.wait_timeout(todo, rest);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                todo = woken;
                let now = self.totals().commands;
                if timeout.timed_out() && std::mem::replace(&mut commands, now) != now {
                    todo.pages = true;
                }
            }
        }
    }

    fn check_store(&self) -> (CheckState, u64) {
        let begun_ms = self.now_ms();
        // A server that is stopping must not keep its segment, and its successor, waiting for this.
        let state = match self.store.check_while(&|| !self.stopping()) {
            Ok(Some(report)) => CheckState::Done(report),
            Ok(None) => CheckState::Failed("the server is stopping".to_owned()),
            Err(error) => CheckState::Failed(error.to_string()),
        };
        (state, self.now_ms().saturating_sub(begun_ms))
    }
}
