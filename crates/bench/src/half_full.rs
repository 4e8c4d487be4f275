//! A log store that is half full, and what one thread can do with it.

use crate::error::{BenchError, failed};
use crate::generate::keys::{key, stamp};
use crate::generate::random::Random;
use crate::rounds::{Span, rate};
use crate::systems::take;
use mneme_log::LogStore;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes of a value.
pub const VALUE: usize = 256;
/// Operations between two looks at the clock.
pub const CHUNK: u64 = 512;

/// A store, half full.
pub struct HalfFull {
    /// The store.
    pub store: LogStore,
    records: u32,
}

impl HalfFull {
    /// Fills half of an empty store.
    ///
    /// # Errors
    /// [`BenchError::Store`].
    pub fn of(store: LogStore) -> Result<Self, BenchError> {
        let records = (store.capacity() / 2 / (VALUE as u64 + 64)) as u32;
        let mut value = vec![0; VALUE];
        for id in 0..records {
            stamp(&mut value, id);
            store.put(&key(id), &value).map_err(failed)?;
        }
        Ok(Self { store, records })
    }

    /// GETs a second of one thread, of records chosen evenly.
    ///
    /// # Errors
    /// A record is not found.
    pub fn gets(&self, span: Span, seed: u64) -> Result<f64, BenchError> {
        let worker = Mutex::new((self.worker(Kind::Get, seed), Ok(())));
        let rate = rate(1, span, |_, until| {
            let Ok(mut worker) = worker.lock() else {
                return 0;
            };
            let (worker, all_right) = &mut *worker;
            let mut done = 0;
            while Instant::now() < until && all_right.is_ok() {
                *all_right = worker.run(CHUNK);
                done += CHUNK;
            }
            done
        });
        let (_, all_right) = worker.into_inner().unwrap_or_else(PoisonError::into_inner);
        all_right.map(|()| rate)
    }

    /// What one thread does with the store.
    pub fn worker(&self, kind: Kind, seed: u64) -> Worker<'_> {
        Worker {
            half_full: self,
            kind,
            random: Random::new(seed),
            value: vec![0; VALUE],
        }
    }
}

/// What is done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is read.
    Get,
    /// It is stored anew.
    Put,
}

/// Does one thing with records chosen evenly.
pub struct Worker<'a> {
    half_full: &'a HalfFull,
    kind: Kind,
    random: Random,
    value: Vec<u8>,
}

impl Worker<'_> {
    /// So many operations.
    ///
    /// # Errors
    /// A record is not found, is another, or is refused.
    pub fn run(&mut self, operations: u64) -> Result<(), BenchError> {
        let HalfFull { store, records } = self.half_full;
        for _ in 0..operations {
            let id = self.random.below(u64::from(*records)) as u32;
            let is_right = match self.kind {
                Kind::Get => matches!(
                    store.get(&key(id)),
                    Ok(Some(value)) if take(&value, id, &mut self.value)
                ),
                Kind::Put => {
                    stamp(&mut self.value, id);
                    store.put(&key(id), &self.value).is_ok()
                }
            };
            if !is_right {
                let what = format!("record {id} failed");
                return Err(BenchError::wrong("the store", "operations", what));
            }
        }
        Ok(())
    }
}
