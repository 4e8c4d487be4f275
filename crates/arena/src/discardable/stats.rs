//! Statistics of the second class.

use super::Discardable;
use crate::frame::FRAME_BYTES;
use crate::lending::{TIMES, class_end};
use mneme_sys::RegionError;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Statistics of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiscardableStats {
    /// The approximate number of frames that are lent.
    pub frames: u32,
    /// The maximum number of frames that are lent.
    pub max_frames: u32,
    /// The number of entries that the index has space for.
    pub capacity: u64,
    /// The number of this opening's lookups that found a copy.
    pub hits: u64,
    /// The number of this opening's lookups that did not.
    pub misses: u64,
    /// The number of lookups of all openings that found a copy, since the arena was created. Each
    /// thread adds 64 at a time; threads that may only read add none.
    pub all_hits: u64,
    /// The number of lookups of all openings that did not.
    pub all_misses: u64,
    /// The number of records that this opening put and the cache accepted.
    pub kept: u64,
    /// The number of records that this opening put and the cache did not accept.
    pub dropped: u64,
    /// The number of rented frames that claims of all openings took, since the arena was created.
    pub discards: u64,
    /// The durations of all claims in this arena.
    pub claims: ClaimTimes,
}

/// The durations of successful claims, each rounded up to a quarter of an octave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClaimTimes {
    /// The number of successful claims.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// The maximum in nanoseconds, up to 4 ms.
    pub max_ns: u64,
}

impl DiscardableStats {
    /// The number of bytes that are lent.
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }

    /// The proportion of hits among this opening's lookups; 0 if there were none.
    pub fn hit_rate(&self) -> f64 {
        let lookups = self.hits + self.misses;
        if lookups == 0 {
            return 0.0;
        }
        self.hits as f64 / lookups as f64
    }
}

/// The number of lookups that a thread adds to the shared counter at a time.
const SHARED: u64 = 64;

/// Counters on separate cache lines, so that threads that look up do not write to the same line.
#[derive(Default)]
pub(super) struct StripedCounters([CounterStripe; 16]);

#[derive(Default)]
#[repr(align(128))]
pub(super) struct CounterStripe {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub kept: AtomicU64,
    pub dropped: AtomicU64,
}

impl StripedCounters {
    /// The calling thread's counters, which it shares with few others.
    pub fn mine(&self) -> &CounterStripe {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static MINE: Cell<Option<u64>> = const { Cell::new(None) };
        }
        // A thread that is ending has lost its number; any number will do.
        let number = MINE.try_with(|mine| {
            mine.get().unwrap_or_else(|| {
                let number = NEXT.fetch_add(1, Relaxed);
                mine.set(Some(number));
                number
            })
        });
        &self.0[number.unwrap_or(0) as usize % self.0.len()]
    }

    /// Counts one lookup; returns its number. The last one of each [`SHARED`] adds them to `all`.
    pub fn count(mine: &AtomicU64, all: Option<&AtomicU64>) -> u64 {
        let number = mine.fetch_add(1, Relaxed);
        if let Some(all) = all
            && number % SHARED == SHARED - 1
        {
            all.fetch_add(SHARED, Relaxed);
        }
        number
    }

    fn sum(&self, of: impl Fn(&CounterStripe) -> &AtomicU64) -> u64 {
        self.0.iter().map(|shard| of(shard).load(Relaxed)).sum()
    }
}

impl Discardable {
    /// Statistics of the cache. Lock-free; each number belongs to a different moment.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn stats(&self) -> Result<DiscardableStats, RegionError> {
        let lending = self.lending()?;
        let header = lending.header();
        let times: [u64; TIMES] = std::array::from_fn(|class| header.times[class].load(Relaxed));
        Ok(DiscardableStats {
            frames: header.lent.load(Relaxed),
            max_frames: header.max_frames.load(Relaxed),
            capacity: lending.index().len() as u64 * super::index::ENTRIES as u64,
            hits: self.counters.sum(|shard| &shard.hits),
            misses: self.counters.sum(|shard| &shard.misses),
            all_hits: header.hits.load(Relaxed),
            all_misses: header.misses.load(Relaxed),
            kept: self.counters.sum(|shard| &shard.kept),
            dropped: self.counters.sum(|shard| &shard.dropped),
            discards: header.discards.load(Relaxed),
            claims: claim_times(&times),
        })
    }
}

fn claim_times(times: &[u64; TIMES]) -> ClaimTimes {
    let count = times
        .iter()
        .fold(0u64, |sum, more| sum.saturating_add(*more));
    let within = |share: f64| {
        let wanted = ((count as f64 * share).ceil() as u64).max(1);
        let mut sum = 0u64;
        times
            .iter()
            .position(|more| {
                sum = sum.saturating_add(*more);
                sum >= wanted
            })
            .map_or(0, class_end)
    };
    if count == 0 {
        return ClaimTimes::default();
    }
    ClaimTimes {
        count,
        p50_ns: within(0.5),
        p999_ns: within(0.999),
        max_ns: within(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lending::time_class;

    #[test]
    fn a_duration_is_reported_as_the_end_of_its_class() {
        let mut times = [0; TIMES];
        assert_eq!(claim_times(&times), ClaimTimes::default());
        times[time_class(1000)] = 998;
        times[time_class(5000)] = 1;
        times[time_class(90_000)] = 1;
        let given = claim_times(&times);
        assert_eq!(given.count, 1000);
        assert!((1000..1280).contains(&given.p50_ns), "{given:?}");
        assert!((5000..6400).contains(&given.p999_ns), "{given:?}");
        assert!((90_000..115_000).contains(&given.max_ns), "{given:?}");
    }
}
