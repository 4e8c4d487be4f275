//! Work that takes too long for a thread that serves clients: **one thread does it, one task after
//! another, and a client that asks gets the latest result at once**.
//!
//! The pages behind the store are counted again when a client asks and the last count is older than
//! a second, and every ten seconds while clients send commands, but never for more than a
//! two-hundredth of the time. `MNEME CHECK` starts a check of the store. After clients have ended
//! tracking, their entries are removed from the table of tracked keys. Every ten seconds the thread
//! checks what keeps the store's memory from shrinking with its data, and logs which local programs
//! have attached the store.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{CompactionWait, LogStore, Report};

use crate::local_programs::AttachmentLog;
use crate::memory_watch::MemoryWatch;
use crate::statistics::Pages;

/// The age in nanoseconds from which a count of the pages is renewed when a client asks.
const YOUNG_NS: u64 = 1_000_000_000;

/// The shortest time between two counts of the pages while no client asks.
const PERIOD: Duration = Duration::from_secs(10);

/// Counting takes at most one part in this many of the thread's time.
const SHARE: u64 = 200;

/// The removal of entries makes other threads wait a little: after each part, the thread pauses
/// this many times as long as the part took.
const FORGET_SHARE: u64 = 10;

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

    /// Requests a new count of the pages, unless the last one, `age_ns` old, is recent.
    pub fn want_pages(&self, age_ns: u64) {
        if age_ns >= YOUNG_NS {
            self.todo().pages = true;
            self.more.notify_all();
        }
    }

    /// Requests the removal of the entries of clients that have ended tracking.
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
    #[expect(
        clippy::too_many_arguments,
        reason = "each is one thing that the thread asks or does"
    )]
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
        let mut attachments = AttachmentLog::default();
        let mut looks_ns = now_ns() + PERIOD.as_nanos() as u64;
        let mut forgets_ns = 0;
        let mut todo = self.todo();
        while !is_stopping() {
            if std::mem::take(&mut todo.pages) {
                drop(todo);
                pages.refresh(store, YOUNG_NS, &now_ns);
                todo = self.todo();
            } else if todo.check.state.is_running() {
                drop(todo);
                let begun_ms = now_ns() / 1_000_000;
                let state = check(store, &is_stopping);
                let took_ms = (now_ns() / 1_000_000).saturating_sub(begun_ms);
                todo = self.todo();
                todo.check.state = state;
                todo.check.took_ms = took_ms;
            } else if todo.tracked && now_ns() >= forgets_ns {
                todo.tracked = false;
                drop(todo);
                let begun_ns = now_ns();
                forget();
                let now_ns = now_ns();
                forgets_ns = now_ns + now_ns.saturating_sub(begun_ns).saturating_mul(FORGET_SHARE);
                todo = self.todo();
            } else if now_ns() >= looks_ns {
                drop(todo);
                if let Some(line) = watch.look(now_ns() / 1_000_000, wait()) {
                    line.log();
                }
                attachments.look(store);
                let now = commands();
                let rest = Duration::from_nanos(pages.cost_ns().saturating_mul(SHARE)).max(PERIOD);
                looks_ns = now_ns().saturating_add(rest.as_nanos() as u64);
                todo = self.todo();
                todo.pages |= std::mem::replace(&mut commands_before, now) != now;
            } else {
                let next_ns = if todo.tracked {
                    forgets_ns.min(looks_ns)
                } else {
                    looks_ns
                };
                let rest = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
                let waited = self.more.wait_timeout(todo, rest);
                (todo, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(todo);
        attachments.look(store);
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
