//! moka: a concurrent cache with an admission policy, here without a bound. Values are shared by
//! counting references, as its documentation advises; an update replaces them.

use super::strings::{Map, Strings, copied};
use super::{Hash, change, hasher, take};
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

impl Strings for Peer {
    #[inline]
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        Ok(self.0.get(key).map(|value| copied(&value, into)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.0.insert(key.into(), value.into());
        Ok(())
    }

    fn del(&self, key: &[u8]) -> Result<bool, String> {
        Ok(self.0.remove(key).is_some())
    }
}

impl Map for Peer {
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
}
