//! Operations of commands within a transaction of the store.

use std::ops::Range;

use mneme_collections::StoreRecords;
use mneme_log::{Expiry, Part, Patch, Stored, Transaction, Updated, ValueKind, WriteError};

/// Operations of a transaction on records: [`Transaction`] without its lifetimes.
pub(crate) trait RecordOperations: StoreRecords {
    /// The time, which is constant, in milliseconds since the Unix epoch.
    fn wall_ms(&self) -> u64;
    /// When `key` expires; `None` if it does not exist. Its value is not read.
    fn expiry(&mut self, database: usize, key: &[u8]) -> Result<Option<Expiry>, WriteError>;
    /// The kind of the value of `key`; `None` if it does not exist.
    fn kind(&mut self, database: usize, key: &[u8]) -> Result<Option<ValueKind>, WriteError>;
    /// The number of bytes that the record of `key` occupies; `None` if it does not exist.
    fn record_bytes(&mut self, database: usize, key: &[u8]) -> Result<Option<u64>, WriteError>;
    /// Changes the part of the value of `key` that `range` chooses from its length, if `decide`
    /// returns a change.
    fn update_part<'b>(
        &mut self,
        database: usize,
        key: &[u8],
        range: &dyn Fn(usize) -> Range<usize>,
        decide: &mut dyn FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, WriteError>;
    /// Sets when `key` expires, if `decide` says so.
    fn update_expiry(
        &mut self,
        database: usize,
        key: &[u8],
        decide: &mut dyn FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, WriteError>;
}

impl RecordOperations for Transaction<'_> {
    fn wall_ms(&self) -> u64 {
        Transaction::wall_ms(self)
    }

    fn expiry(&mut self, database: usize, key: &[u8]) -> Result<Option<Expiry>, WriteError> {
        self.database(database)?.expiry(key)
    }

    fn kind(&mut self, database: usize, key: &[u8]) -> Result<Option<ValueKind>, WriteError> {
        self.database(database)?.kind(key)
    }

    fn record_bytes(&mut self, database: usize, key: &[u8]) -> Result<Option<u64>, WriteError> {
        self.database(database)?.record_bytes(key)
    }

    fn update_part<'b>(
        &mut self,
        database: usize,
        key: &[u8],
        range: &dyn Fn(usize) -> Range<usize>,
        decide: &mut dyn FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, WriteError> {
        self.database(database)?.update_part(key, range, decide)
    }

    fn update_expiry(
        &mut self,
        database: usize,
        key: &[u8],
        decide: &mut dyn FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, WriteError> {
        self.database(database)?.update_expiry(key, decide)
    }
}
