//! Operations of commands within a transaction of the store.

use std::ops::Range;

use mneme_collections::{HashEdit, LargeHash};
use mneme_log::{Expiry, Part, Patch, Stored, Transaction, Updated, ValueKind};

use crate::command::Failure;

/// Operations of a transaction on records: [`Transaction`] without its lifetimes.
pub(crate) trait RecordOperations {
    /// The time, which stands still, in milliseconds since the Unix epoch.
    fn wall_ms(&self) -> u64;
    /// Calls `visit` once, with the value of `key`.
    fn read(
        &mut self,
        database: usize,
        key: &[u8],
        visit: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), Failure>;
    /// When `key` expires; `None` if it does not exist. Its value is not read.
    fn expiry(&mut self, database: usize, key: &[u8]) -> Result<Option<Expiry>, Failure>;
    /// The kind of the value of `key`; `None` if it does not exist.
    fn kind(&mut self, database: usize, key: &[u8]) -> Result<Option<ValueKind>, Failure>;
    /// The number of bytes that the record of `key` occupies; `None` if it does not exist.
    fn record_bytes(&mut self, database: usize, key: &[u8]) -> Result<Option<u64>, Failure>;
    /// Stores `value` under `key`, with this kind and expiry.
    fn put(
        &mut self,
        database: usize,
        key: &[u8],
        value: &[u8],
        kind: (ValueKind, Expiry),
    ) -> Result<(), Failure>;
    /// Changes the part of the value of `key` that `range` chooses from its length, as `decide`
    /// says.
    fn update_part<'b>(
        &mut self,
        database: usize,
        key: &[u8],
        range: &dyn Fn(usize) -> Range<usize>,
        decide: &mut dyn FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, Failure>;
    /// Sets when `key` expires, if `decide` says so.
    fn update_expiry(
        &mut self,
        database: usize,
        key: &[u8],
        decide: &mut dyn FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, Failure>;
    /// Removes `key`; returns whether it existed.
    fn remove(&mut self, database: usize, key: &[u8]) -> Result<bool, Failure>;
    /// Calls `work` with the large hash that `key` leads to; whether it leads to one.
    fn with_large_hash(
        &mut self,
        database: usize,
        key: &[u8],
        work: &mut dyn FnMut(LargeHash<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure>;
    /// Lets `change` change those of `fields` that the hash under `key` has, and say whether it
    /// did. Returns what became of the key.
    fn edit_hash(
        &mut self,
        database: usize,
        key: &[u8],
        fields: &[&[u8]],
        change: &mut dyn FnMut(&mut HashEdit) -> Result<bool, Failure>,
    ) -> Result<Updated, Failure>;
    /// The id of a new collection.
    fn new_collection(&mut self) -> u64;
}

impl RecordOperations for Transaction<'_> {
    fn wall_ms(&self) -> u64 {
        Transaction::wall_ms(self)
    }

    fn read(
        &mut self,
        database: usize,
        key: &[u8],
        visit: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), Failure> {
        Ok(self.database(database)?.read(key, visit)?)
    }

    fn expiry(&mut self, database: usize, key: &[u8]) -> Result<Option<Expiry>, Failure> {
        Ok(self.database(database)?.expiry(key)?)
    }

    fn kind(&mut self, database: usize, key: &[u8]) -> Result<Option<ValueKind>, Failure> {
        Ok(self.database(database)?.kind(key)?)
    }

    fn record_bytes(&mut self, database: usize, key: &[u8]) -> Result<Option<u64>, Failure> {
        Ok(self.database(database)?.record_bytes(key)?)
    }

    fn put(
        &mut self,
        database: usize,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
    ) -> Result<(), Failure> {
        Ok(self
            .database(database)?
            .put_kind(key, value, kind, expiry)?)
    }

    fn update_part<'b>(
        &mut self,
        database: usize,
        key: &[u8],
        range: &dyn Fn(usize) -> Range<usize>,
        decide: &mut dyn FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, Failure> {
        Ok(self.database(database)?.update_part(key, range, decide)?)
    }

    fn update_expiry(
        &mut self,
        database: usize,
        key: &[u8],
        decide: &mut dyn FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, Failure> {
        Ok(self.database(database)?.update_expiry(key, decide)?)
    }

    fn remove(&mut self, database: usize, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.database(database)?.remove(key)?)
    }

    fn with_large_hash(
        &mut self,
        database: usize,
        key: &[u8],
        work: &mut dyn FnMut(LargeHash<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let worked = mneme_collections::with_large_hash(self, (database, key), work)?;
        Ok(worked.is_some())
    }

    fn edit_hash(
        &mut self,
        database: usize,
        key: &[u8],
        fields: &[&[u8]],
        change: &mut dyn FnMut(&mut HashEdit) -> Result<bool, Failure>,
    ) -> Result<Updated, Failure> {
        let change = |hash: &mut HashEdit| Ok::<_, Failure>(((), change(hash)?));
        let at = (database, key);
        let ((), updated) = mneme_collections::edit_hash(self, at, Some(fields), change)?;
        Ok(updated)
    }

    fn new_collection(&mut self) -> u64 {
        Transaction::new_collection(self)
    }
}
