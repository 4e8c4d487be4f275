//! **A thread that walks the index part by part leaves the shards' locks free for part of the
//! time**, so that other threads can change the shape of the index meanwhile.
//!
//! Without a pause it would take the next part's lock within nanoseconds of releasing the last one.
//! The parts of a small store lie in one shard, and the threads that wait for its lock are asleep.

use std::time::Duration;

use mneme_sys::Clock;

/// How long it works without a pause.
const WORK_NS: u64 = 4_000_000;
/// Longer than a waiting thread sleeps between two looks at the lock.
const PAUSE: Duration = Duration::from_micros(1500);

/// How long a thread has walked the index without a pause.
pub(crate) struct Pace<'c> {
    clock: &'c dyn Clock,
    since_ns: u64,
}

impl Pace<'_> {
    pub fn new(clock: &dyn Clock) -> Pace<'_> {
        Pace {
            clock,
            since_ns: clock.now_ns(),
        }
    }

    /// To be called between two parts, without a lock and without a pin.
    pub fn step(&mut self) {
        if self.clock.now_ns().saturating_sub(self.since_ns) >= WORK_NS {
            self.clock.sleep(PAUSE);
            self.since_ns = self.clock.now_ns();
        }
    }
}
