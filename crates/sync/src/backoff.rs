//! A bounded wait: spin, then yield, then sleep.
//!
//! **The limit counts only time in which the waiter ran.** If the whole process or machine was
//! paused, the holder has had no more time than the waiter, whatever the clock says. So the time
//! between two checks counts only up to a bound.

use std::time::Duration;

/// Rounds of spinning before the first yield: about as long as a short critical section.
const SPINS: u32 = 64;
/// Yields before the first sleep: the holder may only have been preempted.
const YIELDS: u32 = 16;
/// The longest sleep, which bounds how late a hand-over is noticed.
const LONGEST: Duration = Duration::from_millis(1);
/// The least number of checks before a wait fails, unless its limit is short.
const LOOKS: u32 = 32;
/// A longer time between two checks counts only as this, or as the limit divided by `LOOKS` if that
/// is more.
const LOOK: Duration = Duration::from_millis(10);

/// One wait for one event.
pub struct Backoff {
    /// The time counted until the last check.
    waited: Duration,
    looked: Duration,
    limit: Duration,
    /// The last value of the word that is watched.
    seen: u64,
    rounds: u32,
    sleep: Duration,
}

impl Backoff {
    /// A wait that begins at `now`, by any clock that never goes back, and ends after `limit`.
    #[must_use]
    pub fn new(now: Duration, limit: Duration) -> Backoff {
        Backoff {
            waited: Duration::ZERO,
            looked: now,
            limit,
            seen: 0,
            rounds: 0,
            sleep: Duration::from_micros(20),
        }
    }

    /// Waits a little. Returns `false` once the limit is reached.
    pub fn wait(&mut self, now: impl Fn() -> Duration) -> bool {
        self.rounds += 1;
        if self.rounds <= SPINS {
            std::hint::spin_loop();
            return true;
        }
        let now = now();
        self.waited = self.elapsed(now);
        self.looked = now;
        if self.waited >= self.limit {
            return false;
        }
        if self.rounds <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(LONGEST);
        }
        true
    }

    /// As [`wait`](Self::wait), for a word that changes whenever the awaited thing gets another
    /// holder. The limit counts from when the *present* value was first seen, so a waiter that
    /// loses to a series of different holders never reaches it.
    pub fn wait_for(&mut self, word: u64, now: impl Fn() -> Duration) -> bool {
        if word != self.seen {
            self.seen = word;
            (self.waited, self.looked) = (Duration::ZERO, now());
        }
        self.wait(now)
    }

    /// Whether the spinning phase is over, so that expensive checks are worth their cost.
    #[must_use]
    pub fn has_spun(&self) -> bool {
        self.rounds > SPINS
    }

    /// How long the wait has lasted at `now`.
    #[must_use]
    pub fn elapsed(&self, now: Duration) -> Duration {
        let most = (self.limit / LOOKS).max(LOOK);
        self.waited + now.saturating_sub(self.looked).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Returns the number of checks that a wait lasts, of at most `looks`, at intervals of `apart`.
    fn goes_on(limit: Duration, apart: Duration, looks: u32, word: impl Fn(u32) -> u32) -> usize {
        let clock = Cell::new(Duration::ZERO);
        let mut backoff = Backoff::new(clock.get(), limit);
        backoff.rounds = SPINS;
        let looks = (0..looks).take_while(|&look| {
            clock.set(apart * look);
            backoff.wait_for(word(look).into(), || clock.get())
        });
        looks.count()
    }

    #[test]
    fn the_limit_counts_for_each_holder_separately() {
        let apart = Duration::from_millis(1);
        let goes_on = |looks, word: fn(u32) -> u32| goes_on(3 * apart, apart, looks, word);
        assert_eq!(goes_on(20, |_| 7), 3);
        // The word changes at every check, for the last time at the sixth.
        assert_eq!(goes_on(20, |look| look), 20);
        assert_eq!(goes_on(20, |look| look.min(6)), 9);
    }

    #[test]
    fn a_pause_of_the_waiter_does_not_count() {
        let hour = Duration::from_secs(3600);
        let looks = |limit| goes_on(limit, hour, 100, |_| 7);
        assert_eq!(looks(Duration::from_secs(1)), LOOKS as usize);
        assert_eq!(looks(Duration::from_millis(50)), 5);
        assert_eq!(looks(Duration::ZERO), 0);
    }
}
