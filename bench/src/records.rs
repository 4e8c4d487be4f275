//! A log store whose records are numbered, and what threads do with them.

use crate::error::{BenchError, failed};
use crate::generate::keys::{key, stamp};
use crate::generate::random::{Random, mix};
use crate::rounds::{Span, rate_of};
use crate::systems::{BATCH, take};
use mneme_log::{BatchError, LogStore};
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations between two looks at the clock.
const CHUNK: u32 = 128;

/// A store, and the records that are there.
pub struct Records {
    /// The store.
    pub store: LogStore,
    /// How many there are, numbered from 0.
    pub count: u64,
    value: usize,
    refused: AtomicU64,
    why: Mutex<Option<String>>,
}

impl Records {
    /// None yet, of `value` bytes each.
    pub fn new(store: LogStore, value: usize) -> Self {
        Self {
            store,
            count: 0,
            value,
            refused: AtomicU64::new(0),
            why: Mutex::new(None),
        }
    }

    /// The number that fills half of a store.
    ///
    /// # Errors
    /// [`BenchError::Store`].
    pub fn half_full(store: LogStore, value: usize) -> Result<Self, BenchError> {
        let half = store.capacity() / 2 / (value as u64 + 64);
        let mut records = Self::new(store, value);
        records.fill(half).map_err(failed)?;
        Ok(records)
    }

    /// Stores more of them, until there are so many.
    ///
    /// # Errors
    /// What the store says; `count` is how many there are then.
    pub fn fill(&mut self, count: u64) -> Result<(), BatchError> {
        while self.count < count {
            let last = count.min(self.count + BATCH as u64);
            let put = self.put_batch(self.count..last);
            self.count = match &put {
                Ok(()) => last,
                Err(error) => self.count + error.done as u64,
            };
            put?;
        }
        Ok(())
    }

    /// Stores these, no more than a batch.
    ///
    /// # Errors
    /// What the store says.
    pub fn put_batch(&self, ids: impl Iterator<Item = u64>) -> Result<(), BatchError> {
        let mut values = vec![0x5A; self.value * BATCH];
        let pairs = ids.zip(values.chunks_exact_mut(self.value));
        let pairs = pairs.map(|(id, value)| {
            stamp(value, id as u32);
            (key(id as u32), &*value)
        });
        self.store.put_many(&pairs.collect::<Vec<_>>())
    }

    /// Operations a second of threads that look up records `reads` times of a hundred and else
    /// store them anew, each chosen evenly.
    pub fn rate(&self, reads: u64, threads: u32, span: Span, seed: u64) -> f64 {
        rate_of(threads, span, CHUNK, |thread| {
            self.worker(reads, mix(seed ^ u64::from(thread) << 32))
        })
    }

    /// What one thread does then, an operation a call.
    pub fn worker(&self, reads: u64, seed: u64) -> impl FnMut() -> u64 {
        let mut random = Random::new(seed);
        let mut value = vec![0x5A; self.value];
        move || {
            let id = random.below(self.count) as u32;
            if reads == 100 || random.below(100) < reads {
                match self.store.get(&key(id)) {
                    Ok(Some(found)) if take(&found, id, &mut value) => {}
                    Ok(_) => self.complain(&"a record is missing, or another's"),
                    Err(error) => self.complain(&error),
                }
            } else {
                stamp(&mut value, id);
                if let Err(error) = self.store.put(&key(id), &value) {
                    self.complain(&error);
                }
            }
            1
        }
    }

    #[cold]
    fn complain(&self, why: &dyn Display) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut first) = self.why.lock() {
            first.get_or_insert_with(|| why.to_string());
        }
    }

    /// Whether operations were refused, and why the first was.
    pub fn complaint(&self) -> Option<String> {
        let refused = self.refused.load(Ordering::Relaxed);
        let why = self.why.lock().ok()?.clone().unwrap_or_default();
        (refused > 0).then(|| format!("{refused} operations were refused: {why}"))
    }

    /// Checks that no operation was refused.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] otherwise.
    pub fn check(&self) -> Result<(), BenchError> {
        match self.complaint() {
            None => Ok(()),
            Some(complaint) => Err(BenchError::wrong("mneme", "its records", complaint)),
        }
    }
}
