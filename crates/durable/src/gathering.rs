//! [`Gathering`]: how long a group of changes waits for more, so that one sync serves all writers.
//!
//! A sync that begins as soon as something is there splits writers into two halves where it takes
//! longer than they need to write again: one half's sync runs while the other half writes, and
//! begins anew a moment before the first half is back. So a group waits until almost as much has
//! been written again as the last sync made durable. It waits for three quarters of that sync's
//! time at most. If they were not back by then, the next groups begin at once, more of them each
//! time. A writer that is alone never waits.

use std::time::Duration;

/// Syncs that take less, in nanoseconds, are followed by no wait: writing again takes as long,
/// and larger groups were no faster in a measurement.
const SHORT: u64 = 1_000_000;
/// The longest wait, in nanoseconds: a sync that hung once is not repeated.
const LONGEST: u64 = 5_000_000;
/// Groups at most that begin at once after waiting was in vain.
const SKIPPED: u32 = 63;

/// How long the next group waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gathering {
    /// Until when; `None`: it begins at once.
    until: Option<u64>,
    /// Where the feed ends when almost as much has been written again.
    refilled: u64,
    /// Groups that begin at once, before waiting is tried again.
    skips: u32,
    /// How many those were the last time.
    backoff: u32,
    /// What had been asked for when the last sync ended.
    asked: u64,
}

/// A sync that has ended, before anybody knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedSync {
    /// When, in nanoseconds.
    pub at: u64,
    /// How long it took, in nanoseconds.
    pub took: u64,
    /// Bytes that it made durable.
    pub bytes: u64,
    /// Where the feed ends.
    pub tail: u64,
    /// How often somebody has asked for a sync, ever.
    pub asked: u64,
}

impl Gathering {
    /// Decides whether the next group waits.
    pub fn note(&mut self, sync: EndedSync) {
        let asked = sync.asked - std::mem::replace(&mut self.asked, sync.asked);
        self.until = None;
        if asked < 2 || sync.took < SHORT {
            return;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        self.until = Some(sync.at + (sync.took / 4 * 3).min(LONGEST));
        // A few stragglers are not worth a failure.
        self.refilled = sync.tail + sync.bytes - sync.bytes / 8;
    }

    /// The position that ends the wait when somebody waits for it; 0 if none waits.
    pub fn wakes_from(&self) -> u64 {
        self.until.map_or(0, |_| self.refilled)
    }

    /// How much longer the next group waits. The feed ends at `tail`; it is `urgent` to free it.
    pub fn rest(&mut self, now: u64, tail: u64, urgent: bool) -> Option<Duration> {
        let until = self.until?;
        let is_refilled = tail >= self.refilled;
        if !is_refilled && !urgent && now < until {
            return Some(Duration::from_nanos(until - now));
        }
        let backoff = (self.backoff * 2 + 1).min(SKIPPED);
        self.backoff = if is_refilled { 0 } else { backoff };
        self.skips = self.backoff;
        self.until = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: u64 = 4 * SHORT;
    const BYTES: u64 = 100;

    /// What a model of writers came to.
    struct Outcome {
        /// Changes of the last group.
        last: usize,
        /// Changes a sync's time, over all groups.
        rate: f64,
        /// Groups that waited.
        waits: u32,
    }

    /// So many writers that write again `back` nanoseconds after they were let go; at first one
    /// half does, then the other.
    fn model(writers: u64, back: u64, gathers: bool) -> Outcome {
        let mut gathering = Gathering::default();
        // When each change is written that is not in a sync yet.
        let mut coming: Vec<u64> = (0..writers).map(|n| n % 2 * SYNC / 2).collect();
        let (mut now, mut durable, mut asked) = (0, 0, 0);
        let (mut last, mut all, mut waits) = (0, 0, 0);
        for _ in 0..1000 {
            let mut has_waited = false;
            loop {
                let written = coming.iter().filter(|at| **at <= now).count() as u64;
                let next = coming.iter().copied().filter(|at| *at > now).min();
                let rest = gathering.rest(now, durable + written * BYTES, false);
                match rest {
                    Some(rest) => {
                        has_waited = true;
                        let until = now + rest.as_nanos() as u64;
                        now = next.map_or(until, |next| next.min(until));
                    }
                    None if written == 0 => now = next.unwrap(),
                    None => break,
                }
            }
            waits += u32::from(has_waited);
            let group = coming.iter().filter(|at| **at <= now).count();
            coming.retain(|at| *at > now);
            now += SYNC;
            durable += group as u64 * BYTES;
            asked += group as u64;
            let written = coming.iter().filter(|at| **at <= now).count() as u64;
            if gathers {
                gathering.note(EndedSync {
                    at: now,
                    took: SYNC,
                    bytes: group as u64 * BYTES,
                    tail: durable + written * BYTES,
                    asked,
                });
            }
            coming.extend((0..group).map(|_| now + back));
            (last, all) = (group, all + group);
        }
        let rate = all as f64 * SYNC as f64 / now as f64;
        Outcome { last, rate, waits }
    }

    #[test]
    fn two_halves_become_one_group() {
        let halves = model(50, SYNC / 10, false);
        assert_eq!(halves.last, 25);
        let whole = model(50, SYNC / 10, true);
        assert_eq!(whole.last, 50);
        assert!(whole.rate > 1.7 * halves.rate, "{}", whole.rate);
    }

    #[test]
    fn waiting_in_vain_is_given_up() {
        for back in [SYNC * 4 / 5, SYNC, 3 * SYNC] {
            let at_once = model(50, back, false);
            let waiting = model(50, back, true);
            assert!(waiting.waits < 1000 / 32, "{}", waiting.waits);
            assert!(
                waiting.rate > 0.98 * at_once.rate,
                "{back}: {}",
                waiting.rate
            );
        }
    }

    #[test]
    fn a_writer_that_is_alone_never_waits() {
        assert_eq!(model(1, SYNC / 10, true).waits, 0);
    }

    #[test]
    fn a_feed_that_fills_ends_the_wait() {
        let mut gathering = Gathering::default();
        gathering.note(EndedSync {
            at: 0,
            took: SYNC,
            bytes: 100,
            tail: 100,
            asked: 2,
        });
        assert_eq!(gathering.wakes_from(), 188);
        assert!(gathering.rest(0, 150, false).is_some());
        assert!(gathering.rest(0, 150, true).is_none());
        assert_eq!(gathering.wakes_from(), 0);
    }

    #[test]
    fn a_short_sync_is_followed_by_no_wait() {
        let mut gathering = Gathering::default();
        for (number, took) in [SHORT - 1, SHORT].into_iter().enumerate() {
            gathering.note(EndedSync {
                at: 0,
                took,
                bytes: 100,
                tail: 100,
                asked: 2 * (number as u64 + 1),
            });
            assert_eq!(gathering.rest(0, 100, false).is_some(), took == SHORT);
        }
    }

    #[test]
    fn a_sync_that_hung_is_not_waited_for() {
        let mut gathering = Gathering::default();
        gathering.note(EndedSync {
            at: 0,
            took: 1_000_000_000,
            bytes: 100,
            tail: 100,
            asked: 2,
        });
        let rest = gathering.rest(0, 100, false);
        assert_eq!(rest, Some(Duration::from_nanos(LONGEST)));
    }
}
