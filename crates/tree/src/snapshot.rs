//! Snapshots and ranges of them.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use mneme_sync::MAX_HELD;

use crate::catalogue_entry::TreeKind;
use crate::follow::index_of;
use crate::index::Node;
use crate::layout::{CommitRecord, MAIN};
use crate::open_store::Core;
use crate::range::{Keys, Range};
use crate::roots::Roots;
use crate::{StoreError, Version, recovery};

/// One version of a store, which does not change for as long as the snapshot lives.
///
/// It prevents the leaves of its version from being reused, so a store that is written grows by the
/// changes made meanwhile. `Send` and `Sync`.
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
    pub(crate) roots: Roots,
    pub(crate) version: u64,
    /// The number of its registration.
    number: u32,
}

impl Snapshot {
    pub(crate) fn new(core: &Arc<Core>) -> Result<Self, StoreError> {
        core.read(|roots, version| Self::hold(core, roots.clone(), version))?
    }

    /// Registered under the pin under which the version was found: the writer looks for held
    /// versions once no older pin is left.
    fn hold(core: &Arc<Core>, roots: Roots, version: u64) -> Result<Self, StoreError> {
        let number = core.shared.held.hold(version);
        Ok(Self {
            core: core.clone(),
            roots,
            version,
            number: number.ok_or(StoreError::TooManySnapshots { max: MAX_HELD })?,
        })
    }

    /// A snapshot of the newest version, and its commit record.
    pub(crate) fn with_record(core: &Arc<Core>) -> Result<(Self, CommitRecord), StoreError> {
        if core.follower.is_none() {
            let writer = core.writer();
            return Ok((Self::new(core)?, writer.record));
        }
        loop {
            let snapshot = Self::new(core)?;
            let record =
                recovery::record_of(&core.pages, core.seed, &core.committed, snapshot.version);
            // The writer may have gone once around the ring meanwhile.
            if let Some(record) = record {
                return Ok((snapshot, record));
            }
        }
    }

    /// A snapshot of the version named `name`.
    pub(crate) fn named(core: &Arc<Core>, name: &str) -> Result<Self, StoreError> {
        if core.follower.is_none() {
            return core.names.with(name, |named| {
                Self::hold(core, named.roots.clone(), named.version)
            })?;
        }
        core.read(|_, durable| {
            let version = core.name_of(name, durable)?;
            Self::hold(core, index_of(core, version)?, version)
        })?
    }

    /// The version of the snapshot.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// The value of a key, in place.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.main().get(key)
    }

    /// Calls `f` with the index of each key in `keys` and its value, in order; see
    /// [`Store::get_many`](crate::Store::get_many).
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; `f` may have been called for some keys.
    pub fn get_many<'s, K: AsRef<[u8]>>(
        &'s self,
        keys: &[K],
        f: impl FnMut(usize, Option<&'s [u8]>),
    ) -> Result<(), StoreError> {
        self.main().get_many(keys, f)
    }

    /// Keys and values in key order; double-ended. Ends at the first error.
    #[must_use]
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        self.main().range(keys)
    }

    /// The keys of a range in order; double-ended. Reads no values. Ends at the first error.
    #[must_use]
    pub fn keys<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Keys<'_> {
        self.main().keys(keys)
    }

    fn main(&self) -> View<'_> {
        View {
            core: &self.core,
            root: self.roots.of(MAIN),
            version: self.version,
        }
    }

    /// The tree with this name in this version.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTree`], [`StoreError::OtherKind`], [`StoreError::Damaged`].
    pub fn tree(&self, name: &str) -> Result<View<'_>, StoreError> {
        self.tree_of(name, TreeKind::Ordered)
    }

    pub(crate) fn tree_of(&self, name: &str, kind: TreeKind) -> Result<View<'_>, StoreError> {
        let found = self.core.catalogue(&self.roots, self.version).find(name)?;
        let (tree, found) = found.ok_or_else(|| crate::catalogue_changes::none(name))?;
        if found != kind {
            let name = name.to_owned();
            return Err(StoreError::OtherKind { name });
        }
        Ok(View {
            core: &self.core,
            root: self.roots.of(tree),
            version: self.version,
        })
    }

    /// The names of the trees and hash tables of this version, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn trees(&self) -> Result<Vec<String>, StoreError> {
        let listing = self.core.catalogue(&self.roots, self.version).list()?;
        let mut names: Vec<_> = listing.live.into_values().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }
}

/// One tree of a [`Snapshot`].
#[derive(Debug, Clone, Copy)]
pub struct View<'s> {
    pub(crate) core: &'s Core,
    /// `None`: the tree is empty.
    pub(crate) root: Option<&'s Arc<Node>>,
    pub(crate) version: u64,
}

impl<'s> View<'s> {
    /// The tree with a number, in roots that the caller reads.
    pub(crate) fn of(
        core: &'s Core,
        roots: &'s Roots,
        version: u64,
        tree: u32,
    ) -> Result<Self, StoreError> {
        let root = roots.of(tree);
        if root.is_none() && !core.catalogue(roots, version).has(tree)? {
            return Err(StoreError::TreeDropped { tree });
        }
        Ok(Self {
            core,
            root,
            version,
        })
    }

    /// As [`Snapshot::get`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<&'s [u8]>, StoreError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let (pages, leaf) = (&self.core.pages, root.find(key));
        leaf.load(pages, &self.core.committed)?;
        match leaf.find(pages, key, self.version) {
            Some(entry) => leaf.value_of(pages, &entry),
            None => Ok(None),
        }
    }

    /// As [`Snapshot::get_many`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; `f` may have been called for some keys.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&'s [u8]>),
    ) -> Result<(), StoreError> {
        let Some(root) = self.root else {
            (0..keys.len()).for_each(|i| f(i, None));
            return Ok(());
        };
        crate::lookup::many(self.core, root, self.version, keys, f)
    }

    /// As [`Snapshot::range`].
    #[must_use]
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Range<'s> {
        let owned = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Range::new(*self, owned(keys.start_bound()), owned(keys.end_bound()))
    }

    /// As [`Snapshot::keys`].
    #[must_use]
    pub fn keys<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Keys<'s> {
        self.range(keys).keys()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.core.shared.held.release(self.number);
    }
}
