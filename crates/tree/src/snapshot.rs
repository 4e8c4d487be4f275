//! Snapshots and ranges of them.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use mneme_sync::MAX_HELD;

use crate::core::Core;
use crate::follow::index_of;
use crate::index::Node;
use crate::layout::Record;
use crate::range::Range;
use crate::{StoreError, Version};

/// One version of a store, for as long as it lives. What it reads does not change.
///
/// It keeps the leaves of its version from being reused: a store that is written grows by what
/// changes meanwhile. `Send` and `Sync`.
///
/// ```
/// use mneme_tree::Store;
/// # let path = std::env::temp_dir().join(format!("mneme-doc-snap-{}", std::process::id()));
/// let db = Store::builder().open(&path)?;
/// for fruit in ["apple", "banana", "cherry"] {
///     db.put(fruit.as_bytes(), b"")?;
/// }
/// let snapshot = db.snapshot()?;
/// let keys: Result<Vec<_>, _> = snapshot.range(&b"b"[..]..).rev().map(|r| r.map(|(k, _)| k)).collect();
/// assert_eq!(keys?, [&b"cherry"[..], b"banana"]);
/// # drop((snapshot, db));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) core: Arc<Core>,
    pub(crate) root: Arc<Node>,
    pub(crate) version: u64,
    /// What it is registered as.
    number: u32,
}

impl Snapshot {
    pub(crate) fn new(core: &Arc<Core>) -> Result<Self, StoreError> {
        core.read(|root, version| Self::hold(core, root.clone(), version))?
    }

    /// Held under the pin under which the version was found: the writer asks what is held when no
    /// older pin is left.
    fn hold(core: &Arc<Core>, root: Arc<Node>, version: u64) -> Result<Self, StoreError> {
        let number = core.shared.held.hold(version);
        Ok(Self {
            core: core.clone(),
            root,
            version,
            number: number.ok_or(StoreError::TooManySnapshots { max: MAX_HELD })?,
        })
    }

    /// A snapshot of the newest version, and its commit record.
    pub(crate) fn with_record(core: &Arc<Core>) -> Result<(Self, Record), StoreError> {
        if core.follower.is_none() {
            let writer = core.writer();
            return Ok((Self::new(core)?, writer.record));
        }
        loop {
            let snapshot = Self::new(core)?;
            let record = core.record()?;
            // The writer may have gone once around the ring meanwhile.
            if record.version == snapshot.version {
                return Ok((snapshot, record));
            }
        }
    }

    /// A snapshot of the version that was kept as `name`.
    pub(crate) fn named(core: &Arc<Core>, name: &str) -> Result<Self, StoreError> {
        if core.follower.is_none() {
            return core.names.with(name, |named| {
                Self::hold(core, named.root.clone(), named.version)
            })?;
        }
        core.read(|_, durable| {
            let version = core.name_of(name, durable)?;
            Self::hold(core, index_of(core, version)?, version)
        })?
    }

    /// The version that it shows.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// The value of a key, where it lies.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        let leaf = self.root.find(key);
        leaf.load(&self.core.pages, &self.core.committed)?;
        let entry = leaf.find(&self.core.pages, key, self.version);
        Ok(entry.and_then(|entry| entry.value(&self.core.pages)))
    }

    /// Calls `f` with the place of each key in `keys` and its value, in order; see
    /// [`Store::get_many`](crate::Store::get_many).
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; `f` may have been called for some keys.
    pub fn get_many<'s, K: AsRef<[u8]>>(
        &'s self,
        keys: &[K],
        f: impl FnMut(usize, Option<&'s [u8]>),
    ) -> Result<(), StoreError> {
        crate::lookup::many(&self.core, &self.root, self.version, keys, f)
    }

    /// Keys and values in order of the keys, from both ends. Ends at the first error.
    #[must_use]
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        let owned = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Range::new(self, owned(keys.start_bound()), owned(keys.end_bound()))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.core.shared.held.release(self.number);
    }
}
