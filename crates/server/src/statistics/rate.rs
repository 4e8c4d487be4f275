//! How much was done a second lately: since somebody asked last, but at least over a tenth of a second. Nobody has to wake
//! up to keep it.

use std::sync::{Mutex, PoisonError};

use crate::counters::Totals;

/// Nanoseconds that a rate is taken over at least.
const LEAST_NS: u64 = 100_000_000;

/// The last time somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    at_ns: u64,
    totals: Totals,
    rates: Rates,
}

/// What was done a second.
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
    /// The rates up to now, when so much has been done in all.
    pub fn now(&self, now_ns: u64, totals: Totals) -> Rates {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_ns = now_ns.saturating_sub(last.at_ns);
        if passed_ns >= LEAST_NS {
            let done = totals.since(&last.totals);
            // Begun anew meanwhile, there is less than before: the difference is negative then.
            let a_second = |count: u64| {
                let count = if count > u64::MAX / 2 { 0 } else { count };
                (u128::from(count) * 1_000_000_000 / u128::from(passed_ns)) as u64
            };
            *last = Last {
                at_ns: now_ns,
                totals,
                rates: Rates {
                    commands: a_second(done.commands),
                    input: a_second(done.input),
                    output: a_second(done.output),
                },
            };
        }
        last.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_was_done_since_the_last_question() {
        let rate = Rate::default();
        let commands = |commands| Totals {
            commands,
            ..Totals::default()
        };
        rate.now(1_000_000_000, commands(100));
        assert_eq!(rate.now(3_000_000_000, commands(300)).commands, 100);
        // Too soon to say anything else.
        assert_eq!(rate.now(3_000_000_001, commands(900)).commands, 100);
        assert_eq!(rate.now(4_000_000_000, commands(0)).commands, 0);
    }
}
