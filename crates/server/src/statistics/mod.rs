//! Statistics by command: **each thread counts for itself**, so that no two threads write to one
//! cache line. The sums are made on request.

mod distribution;
mod finished;
mod latency;
mod pages;
mod rate;
mod slowlog;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use distribution::Counts;
use distribution::Distribution;
pub(crate) use finished::Finished;
pub(crate) use latency::{Latency, Series};
pub(crate) use pages::Pages;
pub(crate) use rate::Rate;
pub(crate) use slowlog::{Slowlog, is_secret};

use crate::command::{Command, CommandTable};
use crate::counters::Count;

/// The counts of one thread since the start.
pub(crate) struct Statistics {
    table: &'static CommandTable,
    /// Indexed by the command's position in the table.
    commands: Box<[Commands]>,
    /// Error replies by their first word. They are few, and other threads take the lock only to
    /// read.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// One thread's counts of one command.
#[derive(Default)]
#[repr(align(64))]
struct Commands {
    calls: Count,
    nanoseconds: Count,
    rejected: Count,
    failed: Count,
    /// The duration of the calls in the distribution, in nanoseconds.
    spread_nanoseconds: Count,
    /// Allocated at the first call of the command.
    distribution: OnceLock<Distribution>,
}

/// All threads' counts of one command.
#[derive(Debug, Default, Clone)]
pub(crate) struct Totals {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Their total duration in nanoseconds.
    pub nanoseconds: u64,
    /// Calls that were refused before they began.
    pub rejected: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// The distribution of their durations, if it is [kept](crate::settings::Key::LatencyTracking).
    pub distribution: Counts,
    /// The total duration of the calls in the distribution.
    pub spread_nanoseconds: u64,
}

impl Totals {
    /// The sums of the counts of `command` over all `threads`.
    pub fn of<'a>(
        threads: impl Iterator<Item = &'a Statistics>,
        command: &'static Command,
    ) -> Self {
        let mut totals = Self::default();
        for counts in threads.filter_map(|thread| thread.of(command)) {
            totals.calls += counts.calls.get();
            totals.nanoseconds += counts.nanoseconds.get();
            totals.rejected += counts.rejected.get();
            totals.failed += counts.failed.get();
            if let Some(distribution) = counts.distribution.get() {
                totals.distribution.take(distribution);
                totals.spread_nanoseconds += counts.spread_nanoseconds.get();
            }
        }
        totals
    }

    /// The growth of each count since `earlier`.
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(earlier.calls),
            nanoseconds: self.nanoseconds.wrapping_sub(earlier.nanoseconds),
            rejected: self.rejected.wrapping_sub(earlier.rejected),
            failed: self.failed.wrapping_sub(earlier.failed),
            distribution: self.distribution.since(&earlier.distribution),
            spread_nanoseconds: self
                .spread_nanoseconds
                .wrapping_sub(earlier.spread_nanoseconds),
        }
    }
}

impl Statistics {
    /// Counts of zero for all commands in `table`.
    pub fn new(table: &'static CommandTable) -> Self {
        Self {
            table,
            commands: (0..table.places()).map(|_| Commands::default()).collect(),
            errors: Mutex::default(),
        }
    }

    fn of(&self, command: &'static Command) -> Option<&Commands> {
        self.commands.get(self.table.place(command))
    }

    /// Counts calls of `command` that took `nanoseconds` together: how many have begun, and how
    /// many have ended. Only for the thread that owns the counts.
    #[inline]
    pub fn called(
        &self,
        command: &'static Command,
        (begun, ended): (u64, u64),
        nanoseconds: u64,
        spread: bool,
    ) {
        let Some(counts) = self.of(command) else {
            return;
        };
        counts.calls.add(begun);
        counts.nanoseconds.add(nanoseconds);
        if spread && ended > 0 {
            counts.spread_nanoseconds.add(nanoseconds);
            counts
                .distribution
                .get_or_init(Distribution::default)
                .add(nanoseconds / ended, ended);
        }
    }

    /// Counts a call that was refused before it began.
    pub fn rejected(&self, command: &'static Command) {
        if let Some(counts) = self.of(command) {
            counts.rejected.add(1);
        }
    }

    /// Counts `calls` calls that ended in an error and have been counted as calls already.
    pub fn failed(&self, command: &'static Command, calls: u64) {
        if let Some(counts) = self.of(command) {
            counts.failed.add(calls);
        }
    }

    /// Counts an error reply by its first word.
    pub fn error(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or(text);
        let mut errors = self.errors();
        match errors.get_mut(code) {
            Some(count) => *count += 1,
            None => {
                errors.insert(code.to_owned(), 1);
            }
        }
    }

    fn errors(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the error replies so far. Can be called from any thread.
    pub fn forget_errors(&self) {
        self.errors().clear();
    }

    /// The error replies of all `threads`, by their first word.
    pub fn all_errors<'a>(threads: impl Iterator<Item = &'a Statistics>) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for thread in threads {
            for (code, count) in thread.errors().iter() {
                *all.entry(code.clone()).or_default() += count;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::TABLE;

    #[test]
    fn totals_are_sums_over_threads_since_a_reset() {
        let threads = [Statistics::new(&TABLE), Statistics::new(&TABLE)];
        let get = TABLE.find(b"get").unwrap();
        threads[0].called(get, (2, 2), 3_000, true);
        threads[1].called(get, (1, 0), 400, true);
        threads[1].called(get, (0, 1), 600, true);
        threads[1].failed(get, 1);
        threads[0].error("ERR something");
        threads[1].error("ERR else");
        let totals = Totals::of(threads.iter(), get);
        assert_eq!(
            (totals.calls, totals.nanoseconds, totals.failed),
            (3, 4_000, 1)
        );
        assert_eq!(totals.distribution.calls(), 3);
        assert_eq!(Statistics::all_errors(threads.iter())["ERR"], 2);
        let before = totals;
        threads[1].called(get, (1, 1), 500, true);
        threads.iter().for_each(Statistics::forget_errors);
        let totals = Totals::of(threads.iter(), get).since(&before);
        assert_eq!(
            (totals.calls, totals.nanoseconds, totals.failed),
            (1, 500, 0)
        );
        assert_eq!(totals.distribution.calls(), 1);
        assert!(Statistics::all_errors(threads.iter()).is_empty());
    }
}
