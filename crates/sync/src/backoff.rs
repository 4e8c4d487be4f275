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
    rounds: u32,
    sleep: Duration,
}

impl Backoff {
    pub(crate) fn new(now: Duration, limit: Duration) -> Backoff {
        Backoff {
            began: now,
            limit,
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

    /// Whether spinning is over: time to ask dearer questions.
    pub(crate) fn has_spun(&self) -> bool {
        self.rounds > SPINS
    }

    pub(crate) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began)
    }
}
