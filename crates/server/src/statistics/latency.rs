//! Events that took longer than `latency-monitor-threshold`, by their kind: the longest of each
//! second, for the last 160 seconds that had one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seconds remembered of a kind of event, as in Redis.
const REMEMBERED: usize = 160;

/// The events of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Latency(Mutex<BTreeMap<&'static str, Series>>);

/// The events of one kind.
#[derive(Debug, Default, Clone)]
pub(crate) struct Series {
    /// Second since 1970 and milliseconds, the oldest first; never empty.
    pub samples: VecDeque<(u64, u64)>,
    /// The duration of the longest one ever, in milliseconds.
    pub worst: u64,
}

impl Latency {
    fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an event.
    pub fn add(&self, event: &'static str, second: u64, milliseconds: u64) {
        let mut events = self.events();
        let series = events.entry(event).or_default();
        series.worst = series.worst.max(milliseconds);
        match series.samples.back_mut() {
            Some((last, worst)) if *last == second => *worst = (*worst).max(milliseconds),
            _ => series.samples.push_back((second, milliseconds)),
        }
        if series.samples.len() > REMEMBERED {
            series.samples.pop_front();
        }
    }

    /// All remembered events.
    pub fn all(&self) -> BTreeMap<&'static str, Series> {
        self.events().clone()
    }

    /// The remembered events of one kind.
    pub fn of(&self, event: &[u8]) -> Option<Series> {
        let events = self.events();
        events
            .iter()
            .find(|(name, _)| name.as_bytes() == event)
            .map(|(_, series)| series.clone())
    }

    /// Forgets the kinds for which `which` is true; returns their number.
    pub fn forget(&self, which: impl Fn(&[u8]) -> bool) -> usize {
        let mut events = self.events();
        let before = events.len();
        events.retain(|name, _| !which(name.as_bytes()));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_each_second_is_remembered() {
        let latency = Latency::default();
        for (second, milliseconds) in [(1, 5), (1, 9), (1, 7), (2, 4)] {
            latency.add("command", second, milliseconds);
        }
        let series = latency.of(b"command").unwrap();
        assert_eq!(series.samples, [(1, 9), (2, 4)]);
        assert_eq!(series.worst, 9);
        for second in 0..1000 {
            latency.add("command", second, 1);
        }
        assert_eq!(latency.of(b"command").unwrap().samples.len(), REMEMBERED);
        assert_eq!(latency.forget(|event| event == b"other"), 0);
        assert_eq!(latency.forget(|_| true), 1);
        assert!(latency.all().is_empty());
    }
}
