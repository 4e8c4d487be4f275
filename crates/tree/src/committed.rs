//! Which versions were committed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// Which versions were committed: when the store was opened, in the process that writes it; so far,
/// in one that follows the writer.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    version: AtomicU64,
    dead: RwLock<Vec<u64>>,
    follows: bool,
    extending: Mutex<()>,
}

/// [`Committed`] as it is at one moment.
#[derive(Debug)]
pub(crate) struct CommittedLook<'c> {
    version: u64,
    dead: RwLockReadGuard<'c, Vec<u64>>,
}

impl Committed {
    /// All versions up to one but those that are `dead`, which ascend.
    pub(crate) fn new(version: u64, dead: Vec<u64>) -> Self {
        Self {
            version: version.into(),
            dead: dead.into(),
            ..Self::default()
        }
    }

    /// As [`new`](Self::new), in a process that follows the writer.
    pub(crate) fn following(version: u64, dead: Vec<u64>) -> Self {
        Self {
            follows: true,
            ..Self::new(version, dead)
        }
    }

    /// What was committed up to an older version.
    pub(crate) fn at(&self, version: u64) -> Self {
        Self::new(version, self.dead())
    }

    /// Whether there will be more.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// The newest.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // SYNC: pairs with the maximum in `advance`: the version implies its entries.
        self.version.load(Ordering::Acquire)
    }

    /// Versions that never were, below the newest and maybe above.
    pub(crate) fn dead(&self) -> Vec<u64> {
        self.look().dead.clone()
    }

    pub(crate) fn is_dead(&self, version: u64) -> bool {
        self.look().dead.binary_search(&version).is_ok()
    }

    pub(crate) fn contains(&self, version: u64) -> bool {
        self.look().contains(version)
    }

    pub(crate) fn look(&self) -> CommittedLook<'_> {
        // The version first: the numbers that died below it are there by then.
        let version = self.version();
        CommittedLook {
            version,
            dead: self.dead.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Moves on to a version, given all numbers that died below it.
    pub(crate) fn advance(&self, version: u64, dead: &[u64]) {
        let is_new = |number: &&u64| !self.is_dead(**number);
        let new: Vec<u64> = dead.iter().filter(is_new).copied().collect();
        if !new.is_empty() {
            let mut known = self.dead.write().unwrap_or_else(PoisonError::into_inner);
            known.extend(new);
            known.sort_unstable();
            known.dedup();
        }
        // SYNC: pairs with the Acquire load in `version`.
        self.version.fetch_max(version, Ordering::AcqRel);
    }

    /// Held by a thread that adds to what is known of leaves.
    pub(crate) fn extending(&self) -> MutexGuard<'_, ()> {
        self.extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommittedLook<'_> {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn contains(&self, version: u64) -> bool {
        version <= self.version && self.dead.binary_search(&version).is_err()
    }
}
