//! Running: jobs in turn, round after round, and work on several threads for a given time.

use crate::error::BenchError;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use indicatif::ProgressBar;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// One system in one case: measured once a round.
pub struct Job<'a> {
    system: String,
    /// What is measured.
    pub case: String,
    metric: Metric,
    measure: Box<dyn FnMut(usize) -> Result<f64, BenchError> + 'a>,
}

impl<'a> Job<'a> {
    /// What `measure` measures, given the round.
    pub fn new(
        system: impl Into<String>,
        case: impl Into<String>,
        metric: Metric,
        measure: impl FnMut(usize) -> Result<f64, BenchError> + 'a,
    ) -> Self {
        Self {
            system: system.into(),
            case: case.into(),
            metric,
            measure: Box::new(measure),
        }
    }
}

/// Runs all jobs once, then again, `rounds` times: neighbours in the list are neighbours in time.
/// Every second round goes backwards, so that nobody always follows the same one.
///
/// # Errors
/// The first that a job reports.
pub fn interleave(
    mut jobs: Vec<Job<'_>>,
    rounds: usize,
    bar: &ProgressBar,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let mut values = vec![Vec::with_capacity(rounds); jobs.len()];
    for round in 0..rounds {
        for &index in &order {
            let job = &mut jobs[index];
            bar.set_message(format!("{} {}", job.system, job.case));
            values[index].push((job.measure)(round)?);
            bar.inc(1);
        }
        order.reverse();
    }
    for (job, values) in jobs.iter().zip(values) {
        for value in values {
            ledger.add(&job.system, &job.case, job.metric, value);
        }
    }
    Ok(())
}

/// Rounds of measurements that are all there is to show progress of.
///
/// # Errors
/// As [`interleave`].
pub fn run(jobs: Vec<Job<'_>>, rounds: usize, ledger: &mut Ledger) -> Result<(), BenchError> {
    let bar = progress::bar(jobs.len() * rounds);
    interleave(jobs, rounds, &bar, ledger)?;
    bar.finish_and_clear();
    Ok(())
}

/// What one thread did, and in what time.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// How long they took.
    pub took: Duration,
}

/// How long to run: untimed first, so that caches and TLB are the system's own, then timed.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Untimed.
    pub warm_up: Duration,
    /// Timed.
    pub timed: Duration,
}

impl Span {
    /// So long untimed, and so long timed.
    pub fn new(warm_up: Duration, timed: Duration) -> Self {
        Self { warm_up, timed }
    }
}

/// What a thread has returned. Its panic goes on in this one.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let returned = thread.join();
    returned.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work(thread, until)` on `threads` threads at once and adds up their rates, in operations a
/// second. `work` goes on until the instant it is given and says how many operations it did; it is
/// called for the warm-up, then again.
pub fn rate(threads: u32, span: Span, work: impl Fn(u32, Instant) -> u64 + Sync) -> f64 {
    let one = |thread: u32| {
        work(thread, Instant::now() + span.warm_up);
        let start = Instant::now();
        let operations = work(thread, start + span.timed);
        Done {
            operations,
            took: start.elapsed(),
        }
    };
    let rate_of = |done: Done| done.operations as f64 / done.took.as_secs_f64();
    if threads == 1 {
        return rate_of(one(0));
    }
    let together = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let (together, one) = (&together, &one);
                scope.spawn(move || {
                    together.wait();
                    one(thread)
                })
            })
            .collect();
        runs.into_iter().map(|run| rate_of(joined(run))).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn jobs_take_turns() {
        let log = RefCell::new(Vec::new());
        let job = |name: &'static str| {
            let log = &log;
            Job::new(name, "c", Metric::Latency, move |round| {
                log.borrow_mut().push(format!("{name}{round}"));
                Ok(round as f64)
            })
        };
        let mut ledger = Ledger::default();
        let jobs = vec![job("a"), job("b")];
        interleave(jobs, 3, &ProgressBar::hidden(), &mut ledger).unwrap();
        assert_eq!(*log.borrow(), ["a0", "b0", "b1", "a1", "a2", "b2"]);
        assert_eq!(ledger.values("b", "c"), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn every_thread_works_in_both_phases_and_only_the_second_counts() {
        let calls = AtomicU64::new(0);
        let span = Span {
            warm_up: Duration::ZERO,
            timed: Duration::ZERO,
        };
        let rate = rate(3, span, |thread, _| {
            calls.fetch_add(1 << (8 * thread), Ordering::Relaxed);
            0
        });
        assert_eq!(calls.into_inner(), 0x02_0202);
        assert_eq!(rate, 0.0);
    }
}
