//! Named trees: the public type.

use std::sync::Arc;

use crate::catalogue_entry::TreeKind;
use crate::check::{self, LeafCounts};
use crate::layout::UNIT;
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::roots::{Roots, leaves_of};
use crate::snapshot::View;
use crate::{Batch, Snapshot, Store, StoreError, Version, catalogue_changes};

/// A named tree in a store: an ordered map like the store itself, with keys of its own.
///
/// Versions, snapshots, rollbacks and backups concern the whole store; a [`Batch`](crate::Batch) or
/// [`Transaction`](crate::Transaction) can change several trees at once. A tree without keys takes
/// only the space of its name. A handle may outlive its tree: after the tree has been dropped,
/// operations fail with [`StoreError::TreeDropped`], even if another tree has the name.
///
/// ```
/// use mneme_tree::{Batch, Store};
/// # let path = std::env::temp_dir().join(format!("mneme-doc-tree-{}", std::process::id()));
/// let db = Store::builder().open(&path)?;
/// let (users, by_mail) = (db.tree("users")?, db.tree("users by mail")?);
/// let mut batch = Batch::new();
/// batch.put_in(&users, b"1", b"ada@example.org").put_in(&by_mail, b"ada@example.org", b"1");
/// db.apply(&batch)?;                                // both or neither
///
/// assert_eq!(by_mail.get(b"ada@example.org")?, Some(b"1".to_vec()));
/// let snapshot = db.snapshot()?;
/// assert_eq!(snapshot.tree("users")?.range(..).count(), 1);
/// db.drop_tree("users by mail")?;
/// assert_eq!(db.trees()?, ["users"]);
/// assert_eq!(snapshot.tree("users by mail")?.get(b"ada@example.org")?, Some(&b"1"[..]));
/// # drop((snapshot, users, by_mail, db));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tree {
    core: Arc<Core>,
    number: u32,
    name: Arc<str>,
}

/// The content of a tree and the space that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// The number of keys.
    pub entries: u64,
    /// Bytes of their entries.
    pub live_bytes: u64,
    /// The number of leaves, of 16 KiB each.
    pub leaves: u64,
    /// The number of extents outside of leaves.
    pub extents: u64,
    /// Bytes of these extents.
    pub extent_bytes: u64,
}

impl Store {
    /// The tree with this name. If there is none, it is created durably; a process that only reads
    /// gets an error then.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`] for a name above [`MAX_NAME`](crate::MAX_NAME) bytes;
    /// [`StoreError::OtherKind`]; [`StoreError::NoSuchTree`] in a process that only reads;
    /// otherwise as [`apply`](Self::apply) and [`get`](Self::get).
    pub fn tree(&self, name: &str) -> Result<Tree, StoreError> {
        self.tree_of(name, TreeKind::Ordered, true)
    }

    /// The existing tree with this name.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTree`], [`StoreError::OtherKind`]; otherwise as [`get`](Self::get).
    pub fn open_tree(&self, name: &str) -> Result<Tree, StoreError> {
        self.tree_of(name, TreeKind::Ordered, false)
    }

    pub(crate) fn tree_of(
        &self,
        name: &str,
        kind: TreeKind,
        may_create: bool,
    ) -> Result<Tree, StoreError> {
        Ok(Tree {
            number: catalogue_changes::open(&self.core, name, kind, may_create)?,
            core: self.core.clone(),
            name: name.into(),
        })
    }

    /// The names of all trees and hash tables, in order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn trees(&self) -> Result<Vec<String>, StoreError> {
        let core = &*self.core;
        let listing = core.read(|roots, version| core.catalogue(roots, version).list())??;
        let mut names: Vec<_> = listing.live.into_values().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }

    /// Drops the tree or hash table with this name and all its keys. When this returns, only
    /// snapshots and named versions still show the tree. Its leaves die a few per commit, and
    /// commits of other threads can run in between. If the process dies before all leaves have
    /// died, later commits continue.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTree`]; otherwise as [`apply`](Self::apply).
    pub fn drop_tree(&self, name: &str) -> Result<Version, StoreError> {
        let version = self.begin_to_drop_tree(name)?;
        while self.bury_some()? {}
        Ok(version)
    }

    /// As [`drop_tree`](Self::drop_tree), for a thread that must not take long: the leaves die with
    /// later commits, sixteen with each, and by [`bury_some`](Self::bury_some).
    ///
    /// # Errors
    /// As [`drop_tree`](Self::drop_tree).
    pub fn begin_to_drop_tree(&self, name: &str) -> Result<Version, StoreError> {
        catalogue_changes::drop_tree(&self.core, name)
    }

    /// Commits the death of a few leaves of dropped trees, if there are any. Returns whether there
    /// were.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn bury_some(&self) -> Result<bool, StoreError> {
        self.core.may_write()?;
        self.core.writer().bury(&self.core)
    }
}

impl Batch {
    /// Sets a key of a named tree.
    pub fn put_in(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add_in(tree, key, Some(value))
    }

    /// Removes a key of a named tree.
    pub fn remove_in(&mut self, tree: &Tree, key: &[u8]) -> &mut Self {
        self.add_in(tree, key, None)
    }

    fn add_in(&mut self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.add_store(tree.core.seed);
        self.add(PlannedChange {
            tree: tree.number,
            key,
            value,
        });
        self
    }
}

impl Tree {
    /// The name of the tree.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the tree, which no other tree of the store ever has.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of the tree; an error if it belongs to another store.
    pub(crate) fn number_in(&self, core: &Core) -> Result<u32, StoreError> {
        match self.core.seed == core.seed {
            true => Ok(self.number),
            false => Err(StoreError::OtherStore),
        }
    }

    /// As [`Store::put`].
    ///
    /// # Errors
    /// [`StoreError::TreeDropped`]; otherwise as [`Store::apply`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Version, StoreError> {
        self.change(key, Some(value))
    }

    /// As [`Store::remove`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove(&self, key: &[u8]) -> Result<Version, StoreError> {
        self.change(key, None)
    }

    fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<Version, StoreError> {
        self.store().change(PlannedChange {
            tree: self.number,
            key,
            value,
        })
    }

    /// The store that the tree belongs to.
    #[must_use]
    pub fn store(&self) -> Store {
        Store {
            core: self.core.clone(),
        }
    }

    /// As [`Store::get`].
    ///
    /// # Errors
    /// [`StoreError::TreeDropped`]; otherwise as [`Store::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// As [`get`](Self::get), comparing all checksums again, even if they were verified before. Use
    /// it for a value that is changed and stored again with a new checksum.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_verified(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.core.read(|roots, version| {
            let view = self.view(roots, version)?;
            let mut range = view.range(key..=key).verified();
            let found = range.next().transpose()?;
            Ok(found.map(|(_, value)| value.to_vec()))
        })?
    }

    /// As [`Store::get_with`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with<R>(
        &self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.core.read(|roots, version| {
            let view = self.view(roots, version)?;
            match (&self.core.copies, view.root) {
                (Some(copies), Some(root)) => {
                    let (pages, leaf) = (&self.core.pages, root.find(key));
                    leaf.load(pages, &self.core.committed)?;
                    copies.get_with(pages, leaf, key, version, f)
                }
                _ => Ok(view.get(key)?.map(f)),
            }
        })?
    }

    /// As [`Store::get_many`].
    ///
    /// # Errors
    /// As [`get`](Self::get); `f` may have been called for some keys.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        self.core.read(|roots, version| {
            let view = self.view(roots, version)?;
            match (&self.core.copies, view.root) {
                (Some(copies), Some(root)) => {
                    let core = &*self.core;
                    copies.many((&core.pages, &core.committed), root, version, keys, f)
                }
                _ => view.get_many(keys, f),
            }
        })?
    }

    /// The tree in a snapshot.
    pub(crate) fn view_in<'s>(&self, snapshot: &'s Snapshot) -> Result<View<'s>, StoreError> {
        let number = self.number_in(&snapshot.core)?;
        View::of(&snapshot.core, &snapshot.roots, snapshot.version, number)
    }

    /// The tree in roots that the caller reads.
    fn view<'v>(&'v self, roots: &'v Roots, version: u64) -> Result<View<'v>, StoreError> {
        View::of(&self.core, roots, version, self.number)
    }

    /// The content of the tree and its space. Reads all its leaves.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn stats(&self) -> Result<TreeStats, StoreError> {
        self.count(check::count)
    }

    /// Reads everything in its newest version and compares checksums and order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first contradiction; otherwise as [`get`](Self::get).
    pub fn check(&self) -> Result<(), StoreError> {
        self.count(check::verify_leaf).map(drop)
    }

    fn count(&self, of: check::LeafCounter) -> Result<TreeStats, StoreError> {
        let snapshot = Snapshot::new(&self.core)?;
        self.view_in(&snapshot)?;
        let root = snapshot.roots.of(self.number);
        let leaves = root.map_or_else(Vec::new, |root| leaves_of(root));
        let mut sum = LeafCounts::default();
        for leaf in &leaves {
            sum.add(of(&self.core, leaf, snapshot.version)?);
        }
        Ok(TreeStats {
            entries: sum.entries,
            live_bytes: sum.bytes,
            leaves: sum.leaves,
            extents: sum.extents,
            extent_bytes: sum.units * UNIT,
        })
    }
}
