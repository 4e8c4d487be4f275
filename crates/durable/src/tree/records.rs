//! All records of one commit, for a store that is rebuilt and for backups.

use std::ops::Bound;

use mneme_log::Expiry;
use mneme_log::feed::Item;
use mneme_tree::{Snapshot, Store};

use super::layout::{self, BINDINGS, Bindings, Stamp};
use crate::DurableError;

/// The store as one commit has it, while later ones are made.
pub(crate) struct Records {
    snapshot: Snapshot,
    stamp: Stamp,
    bindings: Bindings,
    /// The roots that are still to be visited, the present one first.
    roots: Vec<u64>,
    /// The last key of the present one that was visited.
    after: Option<Vec<u8>>,
}

/// A record and where it belongs.
pub(crate) struct Record<'r> {
    pub root: u64,
    pub key: &'r [u8],
    pub kind: u8,
    pub expiry: Expiry,
    pub value: &'r [u8],
}

impl Record<'_> {
    /// The item of a feed that says the same.
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

impl Records {
    pub fn of(store: &Store) -> Result<Self, DurableError> {
        let (snapshot, caller) = store.snapshot_and_caller()?;
        let bindings = snapshot.get(BINDINGS)?.map(Bindings::decode);
        let stamp = Stamp::decode(caller);
        let (Some(stamp), Some(bindings)) = (stamp, bindings) else {
            return Err(DurableError::ForeignTree);
        };
        Ok(Self {
            snapshot,
            stamp,
            roots: bindings.bound().collect(),
            bindings,
            after: None,
        })
    }

    /// Everything before this position is in it.
    pub fn position(&self) -> u64 {
        self.stamp.position
    }

    /// The words of all databases, as an entry of the feed has them.
    pub fn bindings(&self) -> Vec<[u8; 8]> {
        self.bindings.words()
    }

    /// The highest id that a root has had.
    pub fn highest(&self) -> u64 {
        self.bindings.highest
    }

    /// Visits about so many bytes of records from where the last call ended. False: that was all.
    pub fn visit<'s>(
        &'s mut self,
        most: usize,
        mut each: impl FnMut(Record<'s>) -> Result<(), DurableError>,
    ) -> Result<bool, DurableError> {
        let (mut visited, snapshot) = (0, &self.snapshot);
        while let Some(root) = self.roots.first().copied() {
            let tree = snapshot.tree(&layout::name(root))?;
            let after = self.after.take();
            let from = match &after {
                Some(key) => Bound::Excluded(&key[..]),
                None => Bound::Unbounded,
            };
            for pair in tree.range((from, Bound::Unbounded)) {
                let (key, record) = pair?;
                let (kind, expiry, value) =
                    layout::decode(record).ok_or(DurableError::ForeignTree)?;
                each(Record {
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
