//! moka: a concurrent cache with an admission policy, here without a bound. Values are shared by
//! counting references, as its documentation advises; an update replaces them.

use super::strings::{Strings, copied};
use super::{Hash, System, change, hasher, take};
use crate::generate::keys::key;
use ::moka::ops::compute::{CompResult, Op};
use ::moka::sync::Cache;
use std::sync::Arc;

/// Keys in boxes, values behind reference counts.
pub struct Peer(Cache<Box<[u8]>, Arc<[u8]>, Hash>);

impl Peer {
    /// Empty, without a bound.
    pub fn new() -> Self {
        Self(Cache::builder().build_with_hasher(hasher()))
    }
}

impl System for Peer {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        self.0
            .get(&key(id)[..])
            .is_some_and(|value| take(&value, id, into))
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        self.0.insert(key(id)[..].into(), value.into());
        true
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        let mut own = false;
        let result = self
            .0
            .entry(key(id)[..].into())
            .and_compute_with(|entry| match entry {
                Some(entry) => {
                    own = take(entry.value(), id, into);
                    change(into);
                    Op::Put((*into).into())
                }
                None => Op::Nop,
            });
        own && matches!(result, CompResult::ReplacedWith(_))
    }

    fn remove(&self, id: u32) -> bool {
        self.0.remove(&key(id)[..]).is_some()
    }
}

impl Strings for Peer {
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        Ok(self.0.get(key).map(|value| copied(&value, into)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.0.insert(key.into(), value.into());
        Ok(())
    }

    fn del(&self, key: &[u8]) -> Result<bool, String> {
        Ok(self.0.remove(key).is_some())
    }
}
