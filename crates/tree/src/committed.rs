//! Which versions were committed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::layout::NUMBERS;

/// The committed versions: in a process that writes, those at the time when it opened the store; in
/// a process that follows the writer, those up to now.
#[derive(Debug)]
pub(crate) struct Committed {
    version: AtomicU64,
    /// The first of each row of numbers that were never committed, ascending.
    dead: RwLock<Vec<u64>>,
    /// How many numbers are in a row.
    row: u64,
    follows: bool,
    extending: Mutex<()>,
}

/// [`Committed`] at one moment.
#[derive(Debug)]
pub(crate) struct CommittedLook<'c> {
    version: u64,
    dead: RwLockReadGuard<'c, Vec<u64>>,
    row: u64,
}

impl Committed {
    /// All versions up to `version` except the rows of [`NUMBERS`] that begin with a number in
    /// `dead`, which ascend.
    pub(crate) fn new(version: u64, dead: Vec<u64>) -> Self {
        Self {
            version: version.into(),
            dead: dead.into(),
            row: NUMBERS,
            follows: false,
            extending: Mutex::default(),
        }
    }

    /// As [`new`](Self::new), of a file of which each dead number stands for itself.
    pub(crate) fn one_by_one(version: u64, dead: Vec<u64>) -> Self {
        Self {
            row: 1,
            ..Self::new(version, dead)
        }
    }

    /// As [`new`](Self::new), in a process that follows the writer.
    pub(crate) fn following(version: u64, dead: Vec<u64>) -> Self {
        Self {
            follows: true,
            ..Self::new(version, dead)
        }
    }

    /// The versions committed up to an older version.
    pub(crate) fn at(&self, version: u64) -> Self {
        Self {
            row: self.row,
            ..Self::new(version, self.dead())
        }
    }

    /// Whether more versions will be added.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// The newest committed version.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // SYNC: pairs with the maximum in `advance`: the version implies its entries.
        self.version.load(Ordering::Acquire)
    }

    /// The first of each row of version numbers that were never committed: below the newest
    /// version, and maybe above.
    pub(crate) fn dead(&self) -> Vec<u64> {
        self.look().dead.clone()
    }

    pub(crate) fn is_dead(&self, version: u64) -> bool {
        self.look().is_dead(version)
    }

    pub(crate) fn contains(&self, version: u64) -> bool {
        self.look().contains(version)
    }

    pub(crate) fn look(&self) -> CommittedLook<'_> {
        // The version is read first: then the dead numbers below it are complete.
        let version = self.version();
        CommittedLook {
            version,
            dead: self.dead.read().unwrap_or_else(PoisonError::into_inner),
            row: self.row,
        }
    }

    /// Advances to a version, given all dead numbers below it.
    pub(crate) fn advance(&self, version: u64, dead: &[u64]) {
        let known = self.dead();
        let is_new = |number: &&u64| known.binary_search(number).is_err();
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

    /// A lock for adding entries to the in-memory state of a leaf.
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
        version <= self.version && !self.is_dead(version)
    }

    /// Whether a version is of a row that was never committed, but for entries that are alone.
    pub(crate) fn is_dead(&self, version: u64) -> bool {
        let below = self.dead.partition_point(|dead| *dead <= version);
        let row = below.checked_sub(1).map(|row| self.dead[row]);
        row.is_some_and(|first| version - first < self.row)
    }
}
