//! Which versions are held, and by what.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use mneme_sys::{Clock as _, SystemClock};

use crate::Version;

/// What keeps a version from being reclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// The version was [kept](crate::Store::keep) under this name.
    Name(String),
    /// A snapshot.
    Snapshot {
        /// The thread that began it: its name, or else its number.
        thread: String,
        /// For how long it has lived.
        held: Duration,
    },
}

#[derive(Debug)]
enum Hold {
    Name(String),
    /// The thread that began it, and when, in nanoseconds.
    Snapshot(Thread, u64),
}

/// The versions that snapshots and names hold.
#[derive(Debug, Default)]
pub(crate) struct Registered(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By version, and a number for each.
    holds: BTreeMap<(u64, u64), Hold>,
    snapshots: usize,
    next: u64,
    /// So many have gone.
    released: u64,
}

impl Counts {
    fn add(&mut self, version: u64, hold: Hold) -> u64 {
        self.next += 1;
        self.holds.insert((version, self.next), hold);
        self.next
    }
}

impl Registered {
    /// Registers a snapshot of the calling thread; gives its number.
    pub(crate) fn add(&self, version: u64) -> u64 {
        let mut counts = self.lock();
        counts.snapshots += 1;
        counts.add(
            version,
            Hold::Snapshot(std::thread::current(), SystemClock.now_ns()),
        )
    }

    pub(crate) fn remove(&self, version: u64, number: u64) {
        let mut counts = self.lock();
        counts.holds.remove(&(version, number));
        counts.snapshots -= 1;
        counts.released += 1;
    }

    pub(crate) fn add_name(&self, version: u64, name: &str) {
        self.lock().add(version, Hold::Name(name.to_owned()));
    }

    pub(crate) fn remove_name(&self, version: u64, name: &str) {
        let mut counts = self.lock();
        let is_it = |hold: &Hold| matches!(hold, Hold::Name(other) if other == name);
        counts
            .holds
            .retain(|(of, _), hold| *of != version || !is_it(hold));
        counts.released += 1;
    }

    /// The versions that are held, ascending.
    pub(crate) fn versions(&self) -> Vec<u64> {
        let counts = self.lock();
        counts.holds.keys().map(|(version, _)| *version).collect()
    }

    /// Changes whenever something has let a version go.
    pub(crate) fn released(&self) -> u64 {
        self.lock().released
    }

    /// How many snapshots there are, the oldest version that is held, and by what.
    pub(crate) fn summary(&self) -> (usize, Option<(Version, Holder)>) {
        let counts = self.lock();
        let oldest = counts.holds.first_key_value();
        let oldest = oldest.map(|(&(version, _), hold)| (Version(version), hold.describe()));
        (counts.snapshots, oldest)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    fn describe(&self) -> Holder {
        match self {
            Self::Name(name) => Holder::Name(name.clone()),
            Self::Snapshot(thread, since) => Holder::Snapshot {
                thread: thread
                    .name()
                    .map_or_else(|| format!("{:?}", thread.id()), str::to_owned),
                held: Duration::from_nanos(SystemClock.now_ns().saturating_sub(*since)),
            },
        }
    }
}
