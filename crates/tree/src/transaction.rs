//! Transactions: exclusive, and kept in memory until they commit.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::commit::Writer;
use crate::core::Core;
use crate::plan::Change;
use crate::{StoreError, Version};

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
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(core: &'s Core) -> Self {
        Self {
            core,
            writer: core.writer(),
            changes: BTreeMap::new(),
        }
    }

    /// The value of a key, with the changes of this transaction.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.changes.get(key) {
            return Ok(value.clone());
        }
        let root = &self.core.published(&self.writer).root;
        let leaf = root.find(key);
        leaf.load(&self.core.pages, &self.core.committed)?;
        let entry = leaf.find(&self.core.pages, key, self.writer.record.version);
        Ok(entry
            .and_then(|entry| entry.value(&self.core.pages))
            .map(<[u8]>::to_vec))
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`], [`StoreError::ValueTooLong`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let change = Change {
            key,
            value: Some(value),
        };
        change.admit()?;
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`].
    pub fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        Change { key, value: None }.admit()?;
        self.changes.insert(key.to_vec(), None);
        Ok(())
    }

    /// Makes all changes at once. Durable on return.
    ///
    /// # Errors
    /// As [`Store::apply`](crate::Store::apply).
    pub fn commit(mut self) -> Result<Version, StoreError> {
        let changes = self.changes.iter().map(|(key, value)| Change {
            key,
            value: value.as_deref(),
        });
        let changes: Vec<_> = changes.collect();
        self.writer.commit(self.core, &changes, None)
    }

    /// Changes nothing, as dropping it does.
    pub fn abort(self) {}
}
