//! Running: jobs in turn, round after round, and work on several threads for a given time.

use crate::error::BenchError;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Something that is measured once a round.
pub struct Job<'a> {
    name: String,
    measure: Box<Measure<'a>>,
}

type Measure<'a> = dyn FnMut(usize, &mut Ledger) -> Result<(), BenchError> + 'a;

impl<'a> Job<'a> {
    /// One system in one case: what `measure` measures, given the round.
    pub fn new(
        system: impl Into<String>,
        case: impl Into<String>,
        metric: Metric,
        mut measure: impl FnMut(usize) -> Result<f64, BenchError> + 'a,
    ) -> Self {
        let (system, case) = (system.into(), case.into());
        Self::of(format!("{system} {case}"), move |round, ledger| {
            ledger.add(&system, &case, metric, measure(round)?);
            Ok(())
        })
    }

    /// What `measure` adds to the ledger, given the round: the same values in each.
    pub fn of(
        name: impl Display,
        measure: impl FnMut(usize, &mut Ledger) -> Result<(), BenchError> + 'a,
    ) -> Self {
        Self {
            name: name.to_string(),
            measure: Box::new(measure),
        }
    }
}

/// Runs all jobs once, then again, `rounds` times: neighbours in the list are neighbours in time.
/// Every second round goes backwards, so that nobody always follows the same one.
///
/// # Errors
/// The first that a job reports.
pub fn run(mut jobs: Vec<Job<'_>>, rounds: usize, ledger: &mut Ledger) -> Result<(), BenchError> {
    for round in 0..rounds {
        for job in &mut jobs {
            progress::show(format_args!(
                "round {} of {rounds}: {}",
                round + 1,
                job.name
            ));
            (job.measure)(round, ledger)?;
        }
        jobs.reverse();
    }
    progress::clear();
    Ok(())
}

/// What one thread did, and in what time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// How long they took.
    pub took: Duration,
}

impl Done {
    /// Operations a second.
    pub fn rate(self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}

/// How long to run: untimed first, so that caches and TLB are the system's own, then timed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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

    /// A timed round of this many milliseconds, after an untimed one of one in `part` of them.
    pub fn of(milliseconds: u64, part: u32) -> Self {
        let timed = Duration::from_millis(milliseconds);
        Self::new(timed / part, timed)
    }
}

/// What a thread has returned. Its panic goes on in this one.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let returned = thread.join();
    returned.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work(thread, until)` on `threads` threads at once and adds up their rates, in operations a
/// second. `work` goes on until the instant it is given, does one operation at least, and says how
/// many it did; it is called for the warm-up, if there is one, then again.
pub fn rate(threads: u32, span: Span, work: impl Fn(u32, Instant) -> u64 + Sync) -> f64 {
    let one = |thread: u32| {
        if !span.warm_up.is_zero() {
            work(thread, Instant::now() + span.warm_up);
        }
        let start = Instant::now();
        let operations = work(thread, start + span.timed);
        Done {
            operations,
            took: start.elapsed(),
        }
    };
    if threads == 1 {
        return one(0).rate();
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
        runs.into_iter().map(|run| joined(run).rate()).sum()
    })
}

/// As [`rate`], of what each thread's worker does again and again, as many times between two looks
/// at the clock as `chunk` says. A call says how many operations it was. A worker is made for the
/// warm-up, and another for the time that counts.
pub fn rate_of<W: FnMut() -> u64>(
    threads: u32,
    span: Span,
    chunk: u32,
    worker: impl Fn(u32) -> W + Sync,
) -> f64 {
    rate(threads, span, |thread, until| {
        let mut work = worker(thread);
        let mut operations = 0;
        loop {
            for _ in 0..chunk {
                operations += work();
            }
            if Instant::now() >= until {
                return operations;
            }
        }
    })
}

/// Nanoseconds of one of what `work` does again and again for so long, in this thread: `chunk`
/// times between two looks at the clock.
///
/// # Errors
/// What `work` reports.
pub fn nanoseconds(
    timed: Duration,
    chunk: u32,
    mut work: impl FnMut() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let (begin, mut count) = (Instant::now(), 0.0);
    loop {
        for _ in 0..chunk {
            work()?;
        }
        count += f64::from(chunk);
        let took = begin.elapsed();
        if took >= timed {
            return Ok(took.as_nanos() as f64 / count);
        }
    }
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
        run(vec![job("a"), job("b")], 3, &mut ledger).unwrap();
        assert_eq!(*log.borrow(), ["a0", "b0", "b1", "a1", "a2", "b2"]);
        assert_eq!(ledger.values("b", "c"), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn every_thread_works_in_both_phases_and_only_the_second_counts() {
        let calls = AtomicU64::new(0);
        let span = Span::new(Duration::from_nanos(1), Duration::ZERO);
        let rate = rate(3, span, |thread, _| {
            calls.fetch_add(1 << (8 * thread), Ordering::Relaxed);
            0
        });
        assert_eq!(calls.into_inner(), 0x02_0202);
        assert_eq!(rate, 0.0);
    }
}
