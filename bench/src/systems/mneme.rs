//! Ours: the log-structured store, in private memory of twice its records' size, with its
//! maintainer; once as it appends every change, once as it overwrites values where they lie.

use super::{BATCH, Load, System, bare, change, take};
use crate::error::{BenchError, failed};
use crate::generate::keys::{KEY_BYTES, key};
use mneme_log::{Decision, LogStore, MIN_CAPACITY, UpdatePolicy, Updated};
use std::fmt::Display;
use std::sync::Mutex;

/// Its name in reports.
pub const NAME: &str = "mneme";
/// The name of the one that overwrites.
pub const OVERWRITING: &str = "mneme-inplace";

/// The policies that there are, with their names in reports. Workloads that compare policies go
/// through this list.
pub const POLICIES: &[(&str, UpdatePolicy)] = &[
    (APPEND, UpdatePolicy::Append),
    (IN_PLACE, UpdatePolicy::InPlace),
];

/// Every change appends a record.
pub const APPEND: &str = "Append";
/// A value that fits is overwritten where it lies.
pub const IN_PLACE: &str = "InPlace";

/// Bytes of index a record, for the capacity.
pub const INDEX_BYTES: u64 = 14;

/// Bytes of which one record of `value` bytes fills half.
pub fn bytes_a_record(value: usize) -> u64 {
    2 * (bare::stride(value) as u64 + INDEX_BYTES)
}

/// A store, and what it complained about first.
pub struct Store {
    store: LogStore,
    trouble: Mutex<Option<String>>,
}

impl Store {
    /// Empty.
    ///
    /// # Errors
    /// [`BenchError::Store`].
    pub fn new(load: Load, policy: UpdatePolicy) -> Result<Self, BenchError> {
        let capacity = (load.records * bytes_a_record(load.value)).max(MIN_CAPACITY);
        let store = LogStore::builder()
            .capacity(capacity)
            .update_policy(policy)
            .open_private();
        Ok(Self {
            store: store.map_err(failed)?,
            trouble: Mutex::new(None),
        })
    }

    /// Keeps the first error for the report; false, for the caller to count.
    #[cold]
    fn refused(&self, error: &dyn Display) -> bool {
        if let Ok(mut trouble) = self.trouble.lock() {
            trouble.get_or_insert_with(|| error.to_string());
        }
        false
    }
}

impl System for Store {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        match self.store.get(&key(id)) {
            Ok(Some(value)) => take(&value, id, into),
            Ok(None) => false,
            Err(error) => self.refused(&error),
        }
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        match self.store.put(&key(id), value) {
            Ok(()) => true,
            Err(error) => self.refused(&error),
        }
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        let mut own = false;
        let updated = self.store.update(&key(id), |old| match old {
            Some(value) => {
                own = take(value, id, into);
                change(into);
                Decision::Replace(into.to_vec())
            }
            None => Decision::Keep,
        });
        match updated {
            Ok(updated) => own && updated == Updated::Replaced,
            Err(error) => self.refused(&error),
        }
    }

    fn remove(&self, id: u32) -> bool {
        self.store
            .remove(&key(id))
            .unwrap_or_else(|error| self.refused(&error))
    }

    #[inline]
    fn read_many(&self, ids: &[u32], into: &mut [u8]) -> usize {
        let mut keys = [[0; KEY_BYTES]; BATCH];
        for (key_of, &id) in keys.iter_mut().zip(ids) {
            *key_of = key(id);
        }
        let mut own = 0;
        let visited = self.store.get_many(&keys[..ids.len()], |i, value| {
            own += usize::from(value.is_some_and(|value| take(value, ids[i], into)));
        });
        if let Err(error) = visited {
            self.refused(&error);
        }
        own
    }

    #[inline]
    fn write_many(&self, ids: &[u32], values: &[u8]) -> usize {
        let mut pairs = [([0; KEY_BYTES], &[][..]); BATCH];
        let values = values.chunks_exact(values.len() / ids.len().max(1));
        for ((pair, &id), value) in pairs.iter_mut().zip(ids).zip(values) {
            *pair = (key(id), value);
        }
        match self.store.put_many(&pairs[..ids.len()]) {
            Ok(()) => ids.len(),
            Err(error) => {
                self.refused(&error);
                error.done
            }
        }
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().ok()?.clone()
    }
}
