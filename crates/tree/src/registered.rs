//! Which versions have snapshots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Version;

/// Which versions have snapshots, and how many.
#[derive(Debug, Default)]
pub(crate) struct Registered(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    versions: BTreeMap<u64, usize>,
    /// Versions that have lost their last snapshot.
    released: u64,
}

impl Registered {
    pub(crate) fn add(&self, version: u64) {
        *self.lock().versions.entry(version).or_default() += 1;
    }

    pub(crate) fn remove(&self, version: u64) {
        let mut counts = self.lock();
        if let Some(count) = counts.versions.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                counts.versions.remove(&version);
                counts.released += 1;
            }
        }
    }

    /// Whether one of these versions has a snapshot.
    pub(crate) fn any_in(&self, versions: Range<u64>) -> bool {
        // Nothing lies between the bounds of a range that is empty.
        !versions.is_empty() && self.lock().versions.range(versions).next().is_some()
    }

    /// Changes whenever a version has lost its last snapshot.
    pub(crate) fn released(&self) -> u64 {
        self.lock().released
    }

    /// How many snapshots there are, and the version of the oldest.
    pub(crate) fn summary(&self) -> (usize, Option<Version>) {
        let counts = self.lock();
        let oldest = counts.versions.keys().next();
        let oldest = oldest.map(|version| Version(*version));
        (counts.versions.values().sum(), oldest)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
