//! Our store as the target of a pattern, and what is left of the records checked.

use super::pattern::{BATCH, Churn, KEY_BYTES, Target, key};
use crate::error::BenchError;
use crate::generate::keys::{stamp, stamp_of};
use mneme_log::{BatchError, LogStore, WriteError};
use std::time::Instant;

/// How a pattern ended that did not complete.
#[derive(Debug)]
pub enum Refusal {
    /// The store was full, and said so.
    Full,
    /// The time was over.
    Late,
    /// Something else, in words.
    Other(String),
}

impl From<BatchError> for Refusal {
    fn from(error: BatchError) -> Self {
        match error.source {
            WriteError::OutOfMemory { .. } => Refusal::Full,
            other => Refusal::Other(other.to_string()),
        }
    }
}

/// A store that is written in batches until a deadline.
pub struct Ours<'a> {
    store: &'a LogStore,
    values: Vec<u8>,
    until: Instant,
}

impl<'a> Ours<'a> {
    /// Writes to `store`; values are of at most `longest` bytes.
    pub fn new(store: &'a LogStore, longest: usize, until: Instant) -> Self {
        Self {
            store,
            values: vec![0x5A; longest * BATCH],
            until,
        }
    }
}

impl Target for Ours<'_> {
    type Error = Refusal;

    fn put(&mut self, ids: &[u64], bytes: usize) -> Result<(), Refusal> {
        if Instant::now() > self.until {
            return Err(Refusal::Late);
        }
        let mut pairs: [([u8; KEY_BYTES], &[u8]); BATCH] = [([0; KEY_BYTES], &[]); BATCH];
        let values = self.values.chunks_exact_mut(bytes);
        for ((pair, &id), value) in pairs.iter_mut().zip(ids).zip(values) {
            stamp(value, id as u32);
            *pair = (key(id), value);
        }
        Ok(self.store.put_many(&pairs[..ids.len()])?)
    }

    fn remove(&mut self, ids: &[u64]) -> Result<(), Refusal> {
        let mut keys = [[0; KEY_BYTES]; BATCH];
        for (key_of, &id) in keys.iter_mut().zip(ids) {
            *key_of = key(id);
        }
        let removed = self.store.remove_many(&keys[..ids.len()])?;
        if removed == ids.len() {
            Ok(())
        } else {
            Err(Refusal::Other(
                "records to be removed were not there".to_owned(),
            ))
        }
    }
}

/// Looks for the survivors and for a sample of the others: compaction that loses records wins any
/// comparison.
///
/// # Errors
/// [`BenchError::Wrong`].
pub fn verify(store: &LogStore, churn: &Churn) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::wrong("mneme", churn.pattern.name, what);
    for id in (0..churn.loaded).step_by(churn.loaded as usize / 10_000 + 1) {
        let value = store
            .get(&key(id))
            .map_err(|error| wrong(error.to_string()))?;
        let whole = |value: &[u8]| {
            value.len() == churn.pattern.first && stamp_of(value) == u64::from(id as u32)
        };
        let right = match &value {
            Some(value) => churn.survives(id) && whole(value),
            None => !churn.survives(id),
        };
        if !right {
            return Err(wrong(format!("record {id} is not what was left of it")));
        }
    }
    Ok(())
}
