//! All records of one commit, for rebuilding a store and for backups.

use std::ops::Bound;

use mneme_log::Expiry;
use mneme_log::feed::{COLLECTIONS, Item};
use mneme_tree::{Snapshot, Store, StoreError};

use super::layout::{self, BINDINGS, Bindings, CommitStamp};
use crate::DurableError;

/// The store at one commit, while later ones are made.
pub(crate) struct TreeRecords {
    snapshot: Snapshot,
    stamp: CommitStamp,
    bindings: Bindings,
    /// The roots that remain to be visited, the current one first.
    roots: Vec<u64>,
    /// The last key of the current root that was visited.
    after: Option<Vec<u8>>,
    /// Compare all checksums, even those that were verified before.
    is_copied: bool,
}

/// A record and where it belongs.
pub(crate) struct TreeRecord<'r> {
    pub root: u64,
    pub key: &'r [u8],
    pub kind: u8,
    pub expiry: Expiry,
    pub value: &'r [u8],
}

impl TreeRecord<'_> {
    /// The feed item that stores this record.
    pub fn put(&self) -> Item<'_> {
        Item::Put {
            root: self.root,
            key: self.key,
            kind: self.kind,
            expiry: self.expiry,
            bytes: self.value,
        }
    }
}

impl TreeRecords {
    pub fn of(store: &Store) -> Result<Self, DurableError> {
        let (snapshot, caller) = store.snapshot_and_caller()?;
        let bindings = snapshot.get(BINDINGS)?.map(Bindings::decode);
        let stamp = CommitStamp::decode(caller);
        let (Some(stamp), Some(bindings)) = (stamp, bindings) else {
            return Err(DurableError::ForeignTree);
        };
        let has_collections = snapshot.tree(&layout::name(COLLECTIONS)).is_ok();
        let collections = has_collections.then_some(COLLECTIONS);
        Ok(Self {
            snapshot,
            stamp,
            // Collections come last, after the keys of all databases.
            roots: bindings.bound().chain(collections).collect(),
            bindings,
            after: None,
            is_copied: false,
        })
    }

    /// As [`of`](Self::of), but all checksums are compared: the records are copied to a file with
    /// checksums of its own, which would make damage look valid.
    pub fn to_copy(store: &Store) -> Result<Self, DurableError> {
        let is_copied = true;
        Ok(Self {
            is_copied,
            ..Self::of(store)?
        })
    }

    /// It contains every change before this position.
    pub fn position(&self) -> u64 {
        self.stamp.position
    }

    /// The words of all databases in the form of an entry of the feed.
    pub fn bindings(&self) -> Vec<[u8; 8]> {
        self.bindings.words()
    }

    /// The highest root id so far.
    pub fn highest(&self) -> u64 {
        self.bindings.highest
    }

    /// Names, in an error about a damaged value, the database of the value.
    fn damaged(&self, root: u64, error: StoreError) -> DurableError {
        let mut databases = self.bindings.roots.iter();
        match (&error, databases.position(|bound| *bound == root)) {
            (StoreError::DamagedValue { .. }, Some(database)) => DurableError::DamagedValue {
                database,
                tree: layout::name(root),
                source: Box::new(error),
            },
            _ => error.into(),
        }
    }

    /// Visits about this many bytes of records, continuing after the last call. Returns false at
    /// the end.
    pub fn visit<'s>(
        &'s mut self,
        most: usize,
        mut each: impl FnMut(TreeRecord<'s>) -> Result<(), DurableError>,
    ) -> Result<bool, DurableError> {
        let (mut visited, snapshot) = (0, &self.snapshot);
        while let Some(root) = self.roots.first().copied() {
            let tree = snapshot.tree(&layout::name(root))?;
            let after = self.after.take();
            let from = match &after {
                Some(key) => Bound::Excluded(&key[..]),
                None => Bound::Unbounded,
            };
            let mut range = tree.range((from, Bound::Unbounded));
            if self.is_copied {
                range = range.verified();
            }
            for pair in range {
                let (key, record) = pair.map_err(|error| self.damaged(root, error))?;
                let (kind, expiry, value) =
                    layout::decode(record).ok_or(DurableError::ForeignTree)?;
                each(TreeRecord {
                    root,
                    key,
                    kind,
                    expiry,
                    value,
                })?;
                visited += key.len() + record.len();
                if visited >= most {
                    self.after = Some(key.to_vec());
                    return Ok(true);
                }
            }
            self.roots.remove(0);
        }
        Ok(false)
    }
}
