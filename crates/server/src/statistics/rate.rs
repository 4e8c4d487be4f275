//! Rates a second: **the mean over the last 1.6 seconds, however often it is read**, as in Redis.
//!
//! A sample is due every 100 ms. The first I/O thread that notices takes it, and so does a reader.
//! No thread wakes up for it: while all threads are idle no sample is taken, and the next one
//! covers the whole time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::counters::CounterTotals;

/// The minimum duration of a sample in nanoseconds.
const SAMPLE_NS: u64 = 100_000_000;

/// The nanoseconds that the mean covers, once that much time has passed.
const WINDOW_NS: u64 = 16 * SAMPLE_NS;

/// The latest samples.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// When the next sample is due.
    due_ns: AtomicU64,
    samples: Mutex<Samples>,
}

#[derive(Debug, Default)]
struct Samples {
    /// When the last sample was taken, and the totals at that time.
    at_ns: u64,
    totals: CounterTotals,
    /// The samples, newest last; together they cover the window and at most one sample more.
    latest: VecDeque<Sample>,
}

/// The work done in one period.
#[derive(Debug, Clone, Copy)]
struct Sample {
    passed_ns: u64,
    done: Rates,
}

/// The rates a second.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    /// Commands.
    pub commands: u64,
    /// Bytes received.
    pub input: u64,
    /// Bytes sent.
    pub output: u64,
}

impl Rate {
    /// Takes a sample if one is due. Only then is `totals` called, which returns the totals since
    /// the start.
    #[inline]
    pub fn sample(&self, now_ns: u64, totals: impl FnOnce() -> CounterTotals) {
        // SYNC: pairs with nothing: if two threads find a sample due, a lock makes them take theirs
        // one after the other.
        if now_ns >= self.due_ns.load(Ordering::Relaxed) {
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            if samples.take(now_ns, totals()) {
                self.due_ns.store(now_ns + SAMPLE_NS, Ordering::Relaxed);
            }
        }
    }

    /// The current rates. Takes a sample first if one is due.
    pub fn now(&self, now_ns: u64, totals: impl FnOnce() -> CounterTotals) -> Rates {
        self.sample(now_ns, totals);
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.mean()
    }
}

impl Samples {
    /// Takes a sample. Returns whether enough time had passed for one.
    fn take(&mut self, now_ns: u64, totals: CounterTotals) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        if passed_ns < SAMPLE_NS {
            return false;
        }
        let since = totals.since(&self.totals);
        let done = Rates {
            commands: since.commands,
            input: since.input,
            output: since.output,
        };
        (self.at_ns, self.totals) = (now_ns, totals);
        self.latest.push_back(Sample { passed_ns, done });
        let mut covered_ns: u64 = self.latest.iter().map(|sample| sample.passed_ns).sum();
        while let Some(first) = self.latest.front()
            && covered_ns - first.passed_ns >= WINDOW_NS
        {
            covered_ns -= first.passed_ns;
            self.latest.pop_front();
        }
        true
    }

    fn mean(&self) -> Rates {
        let passed_ns: u64 = self.latest.iter().map(|sample| sample.passed_ns).sum();
        let a_second = |count: fn(&Rates) -> u64| {
            let done: u64 = self.latest.iter().map(|sample| count(&sample.done)).sum();
            (u128::from(done) * 1_000_000_000 / u128::from(passed_ns.max(1))) as u64
        };
        Rates {
            commands: a_second(|done| done.commands),
            input: a_second(|done| done.input),
            output: a_second(|done| done.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(commands: u64) -> impl FnOnce() -> CounterTotals {
        move || CounterTotals {
            commands,
            ..CounterTotals::default()
        }
    }

    #[test]
    fn a_rate_is_the_mean_of_the_window_however_often_it_is_asked_for() {
        let rate = Rate::default();
        // A hundred commands in each tenth of a second; the rate is read after each.
        let mut at_ns = 0;
        for sample in 1..=100 {
            at_ns += SAMPLE_NS;
            rate.sample(at_ns, commands(100 * sample));
            let asked = rate.now(at_ns + 1, || panic!("no sample is due"));
            assert_eq!(asked.commands, 1000);
        }
        // Half of the window without commands.
        for _ in 0..8 {
            at_ns += SAMPLE_NS;
            rate.sample(at_ns, commands(10_000));
        }
        assert_eq!(rate.now(at_ns, commands(10_000)).commands, 500);
        // All threads were idle for long.
        at_ns += 5 * WINDOW_NS;
        assert_eq!(rate.now(at_ns, commands(10_000)).commands, 0);
    }
}
