//! Transactions: exclusive, and kept in memory until they commit.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::commit::Writer;
use crate::layout::MAIN;
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::snapshot::View;
use crate::{StoreError, Tree, Version};

/// The only writer of a store until it is committed or dropped. Dropping it changes nothing.
///
/// ```
/// use mneme_tree::Store;
/// # let path = std::env::temp_dir().join(format!("mneme-doc-tx-{}", std::process::id()));
/// let db = Store::builder().open(&path)?;
/// let mut tx = db.write();
/// let count = tx.get(b"count")?.map_or(0, |bytes| bytes[0]);
/// tx.put(b"count", &[count + 1])?;
/// tx.commit()?;
/// assert_eq!(db.get(b"count")?, Some(vec![1]));
/// # drop(db);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transaction<'s> {
    core: &'s Core,
    writer: MutexGuard<'s, Writer>,
    /// By tree and key.
    changes: BTreeMap<u32, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(core: &'s Core) -> Self {
        Self {
            core,
            writer: core.writer(),
            changes: BTreeMap::new(),
        }
    }

    /// The value of a key, including the changes of this transaction.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_of(MAIN, key)
    }

    /// As [`get`](Self::get), in a named tree.
    ///
    /// # Errors
    /// [`StoreError::OtherStore`], [`StoreError::TreeDropped`], [`StoreError::Damaged`].
    pub fn get_in(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_of(tree.number_in(self.core)?, key)
    }

    fn get_of(&self, tree: u32, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.changes.get(&tree).and_then(|of| of.get(key)) {
            return Ok(value.clone());
        }
        let roots = &self.core.published(&self.writer).roots;
        let view = View::of(self.core, roots, self.writer.record.version, tree)?;
        Ok(view.get(key)?.map(<[u8]>::to_vec))
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`], [`StoreError::ValueTooLong`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.change(MAIN, key, Some(value))
    }

    /// As [`put`](Self::put), in a named tree.
    ///
    /// # Errors
    /// [`StoreError::OtherStore`]; otherwise as for [`put`](Self::put). If the tree has been
    /// dropped, the commit fails.
    pub fn put_in(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.change(tree.number_in(self.core)?, key, Some(value))
    }

    fn change(&mut self, tree: u32, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        PlannedChange { tree, key, value }.admit()?;
        let of = self.changes.entry(tree).or_default();
        of.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`].
    pub fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.change(MAIN, key, None)
    }

    /// As [`remove`](Self::remove), in a named tree.
    ///
    /// # Errors
    /// As [`put_in`](Self::put_in).
    pub fn remove_in(&mut self, tree: &Tree, key: &[u8]) -> Result<(), StoreError> {
        self.change(tree.number_in(self.core)?, key, None)
    }

    /// Commits all changes at once. Durable on return.
    ///
    /// # Errors
    /// As [`Store::apply`](crate::Store::apply).
    pub fn commit(mut self) -> Result<Version, StoreError> {
        let changes = self.changes.iter().flat_map(|(tree, of)| {
            of.iter().map(|(key, value)| PlannedChange {
                tree: *tree,
                key,
                value: value.as_deref(),
            })
        });
        let changes: Vec<_> = changes.collect();
        self.writer.commit(self.core, &changes, None)
    }

    /// Discards the changes, as dropping the transaction does.
    pub fn abort(self) {}
}
