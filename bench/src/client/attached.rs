//! A client that has attached the store: what it asks for it looks up itself.

use super::{Asks, is_value, value_of};
use crate::error::{BenchError, failed};
use crate::generate::keys::{KEY_BYTES, key};
use crate::scratch::space;
use crate::systems::BATCH;
use mneme_shared::{Access, CONTENTS, Registry, SharedStore};
use std::path::Path;

/// The segment of the store.
pub const SEGMENT: &str = "store";
/// The segment of another one, in huge pages.
pub const HUGE: &str = "huge";

/// An attached store, and the place that values are copied to.
pub struct Attached {
    store: SharedStore,
    value: usize,
    copy: Vec<u8>,
    keys: Vec<[u8; KEY_BYTES]>,
}

impl Attached {
    /// Attaches it. Values have `value` bytes.
    ///
    /// # Errors
    /// It cannot be attached.
    pub fn new(
        registry: &Path,
        segment: &str,
        writes: bool,
        value: usize,
    ) -> Result<Self, BenchError> {
        let registry = Registry::open(registry).map_err(space)?;
        let store = match writes {
            true => SharedStore::attach_writable(&registry, segment),
            false => SharedStore::attach(&registry, segment),
        };
        Ok(Self {
            store: store.map_err(space)?,
            value,
            copy: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// The pages that it lies in here, in words.
    pub fn pages(&self) -> String {
        let pages = self.store.stats().pages;
        let [huge, all] = [pages.huge_bytes, pages.resident_bytes].map(|bytes| bytes >> 20);
        format!("{huge} of {all} MiB in memory are in huge pages")
    }

    /// Brings all of its memory there, in huge pages where the kernel can collapse others into
    /// them.
    ///
    /// # Errors
    /// There is not enough.
    pub fn in_huge_pages(&self) -> Result<(), BenchError> {
        let parts = self.store.segment().parts(&CONTENTS, Access::ReadWrite);
        let parts = parts.map_err(space)?;
        Ok(parts.data.prefault(0..parts.data.len())?)
    }

    /// Looks up every record, so that its page is in this process' page tables, as those of a
    /// client at work are.
    ///
    /// # Errors
    /// One of them is missing, or another's.
    pub fn visit(&mut self, records: u32) -> Result<(), BenchError> {
        let ids: Vec<u32> = (0..records).collect();
        for ids in ids.chunks(BATCH) {
            if self.batch(ids, &[])? != ids.len() {
                return Err(BenchError::Store("a record is missing".to_owned()));
            }
        }
        Ok(())
    }
}

impl Asks for Attached {
    #[inline]
    fn get(&mut self, id: u32) -> Result<bool, BenchError> {
        // A client has its value for as long as it likes.
        let found = self.store.get_into(&key(id), &mut self.copy);
        Ok(found.map_err(failed)? && is_value(&self.copy, id, self.value))
    }

    #[inline]
    fn set(&mut self, id: u32) -> Result<bool, BenchError> {
        self.copy.clear();
        value_of(id, self.value, &mut self.copy);
        self.store.put(&key(id), &self.copy).map_err(failed)?;
        Ok(true)
    }

    fn batch(&mut self, gets: &[u32], sets: &[u32]) -> Result<usize, BenchError> {
        let Self {
            store,
            value,
            copy,
            keys,
        } = self;
        let mut right = 0;
        if !gets.is_empty() {
            keys.clear();
            keys.extend(gets.iter().map(|&id| key(id)));
            let copied = store.copy_many(keys, |i, found| {
                right += usize::from(found.is_some_and(|found| is_value(found, gets[i], *value)));
            });
            copied.map_err(failed)?;
        }
        if !sets.is_empty() {
            copy.clear();
            sets.iter().for_each(|&id| value_of(id, *value, copy));
            let values = copy.chunks_exact(*value);
            let pairs: Vec<_> = sets.iter().map(|&id| key(id)).zip(values).collect();
            store.put_many(&pairs).map_err(failed)?;
            right += sets.len();
        }
        Ok(right)
    }
}
