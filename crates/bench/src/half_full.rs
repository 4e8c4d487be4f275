//! A log store that is half full, and what one thread can do with it.

use crate::error::{BenchError, failed};
use crate::generate::keys::{key, stamp};
use crate::generate::random::Random;
use crate::rounds::{Span, rate};
use crate::systems::take;
use mneme_log::LogStore;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Bytes of a value.
pub const VALUE: usize = 256;
/// Operations between two looks at the clock.
const CHUNK: u64 = 512;

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
        let mut into = vec![0; VALUE];
        self.rate(
            span,
            seed,
            "gets",
            |id| matches!(self.store.get(&key(id)), Ok(Some(value)) if take(&value, id, &mut into)),
        )
    }

    /// PUTs a second of one thread, to records chosen evenly.
    ///
    /// # Errors
    /// A record is refused.
    pub fn puts(&self, span: Span, seed: u64) -> Result<f64, BenchError> {
        let mut value = vec![0; VALUE];
        self.rate(span, seed, "puts", |id| {
            stamp(&mut value, id);
            self.store.put(&key(id), &value).is_ok()
        })
    }

    fn rate(
        &self,
        span: Span,
        seed: u64,
        case: &str,
        operation: impl FnMut(u32) -> bool + Send,
    ) -> Result<f64, BenchError> {
        let wrong = AtomicU64::new(0);
        let operation = std::sync::Mutex::new(operation);
        let done = rate(1, span, |_, until| {
            let mut random = Random::new(seed);
            let Ok(mut operation) = operation.lock() else {
                return 0;
            };
            let mut done = 0;
            while Instant::now() < until {
                for _ in 0..CHUNK {
                    let id = random.below(u64::from(self.records)) as u32;
                    wrong.fetch_add(u64::from(!(*operation)(id)), Relaxed);
                }
                done += CHUNK;
            }
            done
        });
        match wrong.into_inner() {
            0 => Ok(done),
            lost => Err(BenchError::wrong(
                "the store",
                case,
                format!("{lost} operations failed"),
            )),
        }
    }
}
