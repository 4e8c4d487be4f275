//! A bounded wait: spin, then yield, then sleep.

use std::time::Duration;

/// Rounds of spinning before the first yield: about as long as an uncontended critical section.
const SPINS: u32 = 64;
/// Yields before the first sleep: the holder may only have been preempted.
const YIELDS: u32 = 16;
/// The longest sleep: how late a hand-over may be noticed.
const LONGEST: Duration = Duration::from_millis(1);

/// One wait for one thing.
pub(crate) struct Backoff {
    began: Duration,
    limit: Duration,
    /// The last value of what it waits for.
    seen: u64,
    rounds: u32,
    sleep: Duration,
}

impl Backoff {
    pub(crate) fn new(now: Duration, limit: Duration) -> Backoff {
        Backoff {
            began: now,
            limit,
            seen: 0,
            rounds: 0,
            sleep: Duration::from_micros(20),
        }
    }

    /// Waits a little; `false` if the limit is reached.
    pub(crate) fn wait(&mut self, now: impl Fn() -> Duration) -> bool {
        self.rounds += 1;
        if self.rounds <= SPINS {
            std::hint::spin_loop();
            return true;
        }
        if self.elapsed(now()) >= self.limit {
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

    /// As [`wait`](Self::wait), for a word that is changed whenever what the caller waits for gets
    /// another holder: the limit counts from when the *present* value was first seen. A waiter that
    /// loses to a series of holders never reaches it.
    pub(crate) fn wait_for(&mut self, word: u64, now: impl Fn() -> Duration) -> bool {
        if word != self.seen {
            self.seen = word;
            self.began = now();
        }
        self.wait(now)
    }

    /// Whether spinning is over: time to ask dearer questions.
    pub(crate) fn has_spun(&self) -> bool {
        self.rounds > SPINS
    }

    pub(crate) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// How many of `looks` looks at a word, a second apart, a wait of three seconds goes on for.
    fn goes_on(looks: u64, word: impl Fn(u64) -> u64) -> u64 {
        let seconds = Cell::new(0);
        let now = || Duration::from_secs(seconds.get());
        let mut backoff = Backoff::new(now(), Duration::from_secs(3));
        backoff.rounds = SPINS;
        let looks = (0..looks).take_while(|&look| {
            seconds.set(look);
            backoff.wait_for(word(look), now)
        });
        looks.count() as u64
    }

    #[test]
    fn the_limit_is_that_of_one_holder() {
        assert_eq!(goes_on(20, |_| 7), 3);
        // It changes hands every second, and then at the sixth look for the last time.
        assert_eq!(goes_on(20, |look| look), 20);
        assert_eq!(goes_on(20, |look| look.min(6)), 9);
    }
}
