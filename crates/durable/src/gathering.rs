//! [`Gathering`]: how long a group of changes waits for more, so that one sync serves all writers.
//!
//! If a sync takes longer than writers need to write again, and begins as soon as there is anything
//! to sync, it splits the writers into two halves: one half's sync runs while the other half
//! writes, and the next sync begins a moment before the first half has written again. So a group
//! waits until almost as much has been written again as the last sync made durable, but at most for
//! three quarters of that sync's time. If the writers were not back by then, the next groups begin
//! at once, and each failed wait increases their number. A single writer never waits.

use std::time::Duration;

/// After a sync shorter than this, in nanoseconds, no group waits: writing again takes as long, and
/// larger groups were no faster when measured.
const SHORT: u64 = 1_000_000;
/// The longest wait, in nanoseconds, so that one sync that hung does not cause a long wait.
const LONGEST: u64 = 5_000_000;
/// The maximum number of groups that begin at once after a wait that had no effect.
const SKIPPED: u32 = 63;

/// How long the next group waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gathering {
    /// When the wait ends; `None`: the group begins at once.
    until: Option<u64>,
    /// The feed's tail at which almost as much has been written again.
    refilled: u64,
    /// Groups that begin at once before the next wait.
    skips: u32,
    /// The previous value of `skips`.
    backoff: u32,
    /// The count of requests when the last sync ended.
    asked: u64,
}

/// A sync that has ended, before waiters are notified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedSync {
    /// When it ended, in nanoseconds.
    pub at: u64,
    /// How long it took, in nanoseconds.
    pub took: u64,
    /// Bytes that it made durable.
    pub bytes: u64,
    /// The feed's tail.
    pub tail: u64,
    /// How many syncs have been requested since the start.
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
        // A few stragglers do not count as a failed wait.
        self.refilled = sync.tail + sync.bytes - sync.bytes / 8;
    }

    /// The position at which a request ends the wait; 0 if no group waits.
    pub fn wakes_from(&self) -> u64 {
        self.until.map_or(0, |_| self.refilled)
    }

    /// How much longer the next group waits. The feed ends at `tail`; `urgent`: its space must be
    /// freed.
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

    /// The result of a model of writers.
    struct Outcome {
        /// The number of changes in the last group.
        last: usize,
        /// Changes per duration of a sync, over all groups.
        rate: f64,
        /// The number of groups that waited.
        waits: u32,
    }

    /// Models `writers` writers that write again `back` nanoseconds after they were released; at
    /// first in two halves, one after the other.
    fn model(writers: u64, back: u64, gathers: bool) -> Outcome {
        let mut gathering = Gathering::default();
        // The times at which the changes that no sync includes yet are written.
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
