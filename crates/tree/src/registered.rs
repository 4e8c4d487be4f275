//! Which versions have snapshots.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Version;

/// Which versions have snapshots, and how many.
#[derive(Debug, Default)]
pub(crate) struct Registered(Mutex<BTreeMap<u64, usize>>);

impl Registered {
    pub(crate) fn add(&self, version: u64) {
        *self.lock().entry(version).or_default() += 1;
    }

    pub(crate) fn remove(&self, version: u64) {
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&version);
            }
        }
    }

    /// How many snapshots there are, and the version of the oldest.
    pub(crate) fn summary(&self) -> (usize, Option<Version>) {
        let counts = self.lock();
        let oldest = counts.keys().next().map(|version| Version(*version));
        (counts.values().sum(), oldest)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
