//! Which versions are held, and by what.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_sync::HeldVersion;
use mneme_sys::{Clock as _, SystemClock};

use crate::control_region::SharedControl;
use crate::open_store::Core;
use crate::{StoreError, Version};

/// What keeps a version from being reclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// The version was [kept](crate::Store::keep) under this name.
    Name(String),
    /// A snapshot.
    Snapshot {
        /// The id of the process in its own namespace.
        process: u32,
        /// The name of the thread that took it, or else its number.
        thread: String,
        /// How long it has lived.
        held: Duration,
    },
}

/// The versions that names hold, in the writing process. Those of snapshots are in
/// [`SharedControl::held`].
#[derive(Debug, Default)]
pub(crate) struct Registered {
    names: Mutex<BTreeSet<(u64, String)>>,
    dropped: AtomicU64,
}

impl Registered {
    pub(crate) fn add_name(&self, version: u64, name: &str) {
        self.lock().insert((version, name.to_owned()));
    }

    pub(crate) fn remove_name(&self, version: u64, name: &str) {
        self.lock().remove(&(version, name.to_owned()));
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The held versions, ascending.
    pub(crate) fn versions(&self, shared: &SharedControl) -> Vec<u64> {
        let mut versions = shared.held.versions();
        versions.extend(self.lock().iter().map(|(version, _)| *version));
        versions.sort_unstable();
        versions
    }

    /// A number that changes whenever a version has been released.
    pub(crate) fn released(&self, shared: &SharedControl) -> u64 {
        shared.held.releases() + self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(u64, String)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holders of versions, in the order of the versions.
pub(crate) fn holders(core: &Core) -> Result<Vec<(Version, Holder)>, StoreError> {
    let names = core.all_names()?.into_iter();
    let mut holders = snapshots(&core.shared);
    holders.extend(names.map(|(name, version)| (version, Holder::Name(name))));
    holders.sort_by_key(|(version, _)| *version);
    Ok(holders)
}

/// The snapshots that hold versions, in the order of the versions.
fn snapshots(shared: &SharedControl) -> Vec<(Version, Holder)> {
    shared.held.reap();
    let now = SystemClock.now_ns();
    let describe = |held: HeldVersion| {
        let holder = Holder::Snapshot {
            process: held.pid,
            thread: held.thread,
            held: Duration::from_nanos(now.saturating_sub(held.since_ns)),
        };
        (Version(held.version), holder)
    };
    shared.held.list().into_iter().map(describe).collect()
}
