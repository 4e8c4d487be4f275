//! Work that takes too long for a thread that serves clients: **one thread does it, one task after
//! another, and a client that asks gets the latest result at once**.
//!
//! The pages behind the store are counted again when a client asks and the last count is older than
//! a second, and every ten seconds while clients send commands, but never for more than a
//! two-hundredth of the time. `MNEME CHECK` starts a check of the store. Once clients have ended
//! tracking, their entries go from the table of tracked keys. Every ten seconds the thread checks
//! what keeps the store's memory from shrinking with its data.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{CompactionWait, LogStore, Report};

use crate::memory_watch::MemoryWatch;
use crate::statistics::Pages;

/// The age in nanoseconds from which a count of the pages is renewed when a client asks.
const YOUNG_NS: u64 = 1_000_000_000;

/// The shortest time between two counts of the pages while no client asks.
const PERIOD: Duration = Duration::from_secs(10);

/// Counting takes at most one part in this many of the thread's time.
const SHARE: u64 = 200;

/// The thread's tasks.
#[derive(Default)]
pub(crate) struct Background {
    todo: Mutex<Todo>,
    more: Condvar,
}

#[derive(Default)]
struct Todo {
    /// Whether a client wants a newer count of the pages.
    pages: bool,
    /// Whether clients have ended tracking.
    tracked: bool,
    check: Check,
}

/// The last or the current check of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Check {
    /// Counted from 1; 0 if there was none.
    pub number: u64,
    pub state: TaskState<Report>,
    /// Its duration in milliseconds.
    pub took_ms: u64,
}

/// The state of the last task of a kind that a client requested.
#[derive(Debug, Clone, Default)]
pub(crate) enum TaskState<R> {
    /// There was none.
    #[default]
    None,
    /// It has not begun, or is running.
    Running,
    Done(R),
    /// It failed, for this reason.
    Failed(String),
}

impl<R> TaskState<R> {
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }

    /// The state as a word, and the reason if it failed.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Self::None => ("none", ""),
            Self::Running => ("running", ""),
            Self::Done(_) => ("done", ""),
            Self::Failed(reason) => ("failed", reason),
        }
    }
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

    /// Requests a new count of the pages, whose last count is `age_ns` old, unless that is recent.
    pub fn want_pages(&self, age_ns: u64) {
        if age_ns >= YOUNG_NS {
            self.todo().pages = true;
            self.more.notify_all();
        }
    }

    /// Requests that the entries go of clients that have ended tracking.
    pub fn forget_tracked(&self) {
        self.todo().tracked = true;
        self.more.notify_all();
    }

    /// Requests a check of the store, unless one is running; returns the check's number.
    pub fn check(&self) -> u64 {
        let mut todo = self.todo();
        if !todo.check.state.is_running() {
            todo.check = Check {
                number: todo.check.number + 1,
                state: TaskState::Running,
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

    /// Performs the tasks with `store` and the counts of its `pages`, until the server stops.
    /// `commands` returns how many commands clients have sent, and `wait` what compaction waits
    /// for; `forget` removes the entries of clients that have ended tracking.
    pub fn work(
        &self,
        store: &LogStore,
        pages: &Pages,
        now_ns: impl Fn() -> u64,
        is_stopping: impl Fn() -> bool,
        commands: impl Fn() -> u64,
        wait: impl Fn() -> Option<CompactionWait>,
        forget: impl Fn(),
    ) {
        let mut commands_before = 0;
        let mut watch = MemoryWatch::default();
        let mut todo = self.todo();
        while !is_stopping() {
            if std::mem::take(&mut todo.pages) {
                drop(todo);
                pages.refresh(store, YOUNG_NS, &now_ns);
                todo = self.todo();
            } else if std::mem::take(&mut todo.tracked) {
                drop(todo);
                forget();
                todo = self.todo();
            } else if todo.check.state.is_running() {
                drop(todo);
                let begun_ms = now_ns() / 1_000_000;
                let state = check(store, &is_stopping);
                let took_ms = (now_ns() / 1_000_000).saturating_sub(begun_ms);
                todo = self.todo();
                todo.check.state = state;
                todo.check.took_ms = took_ms;
            } else {
                let rest = Duration::from_nanos(pages.cost_ns().saturating_mul(SHARE));
                let waited = self.more.wait_timeout(todo, rest.max(PERIOD));
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                todo = woken;
                if timeout.timed_out() && !is_stopping() {
                    drop(todo);
                    if let Some(line) = watch.look(now_ns() / 1_000_000, wait()) {
                        line.log();
                    }
                    let now = commands();
                    todo = self.todo();
                    todo.pages |= std::mem::replace(&mut commands_before, now) != now;
                }
            }
        }
    }
}

/// Checks the store. A server that is stopping must not keep its segment, and its successor,
/// waiting for this.
fn check(store: &LogStore, is_stopping: impl Fn() -> bool) -> TaskState<Report> {
    match store.check_while(&|| !is_stopping()) {
        Ok(Some(mut report)) => match mneme_collections::check_while(store, &|| !is_stopping()) {
            Ok(problems) => {
                report.problems.extend(problems);
                TaskState::Done(report)
            }
            Err(error) => TaskState::Failed(error.to_string()),
        },
        Ok(None) => TaskState::Failed("the server is stopping".to_owned()),
        Err(error) => TaskState::Failed(error.to_string()),
    }
}
