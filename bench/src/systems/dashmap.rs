//! DashMap: a sharded map under read-write locks. Updates overwrite the value where it lies.

use super::strings::{Map, Strings, copied};
use super::{Hash, change, hasher, take};
use crate::generate::keys::key;
use ::dashmap::DashMap;

/// Keys and values in boxes of their own.
pub struct Peer(DashMap<Box<[u8]>, Box<[u8]>, Hash>);

impl Peer {
    /// Empty.
    pub fn new() -> Self {
        Self(DashMap::with_hasher(hasher()))
    }
}

impl Strings for Peer {
    #[inline]
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        Ok(self.0.get(key).map(|value| copied(&value, into)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if let Some(mut old) = self.0.get_mut(key)
            && old.len() == value.len()
        {
            old.copy_from_slice(value);
            return Ok(());
        }
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
        self.0.get_mut(&key(id)[..]).is_some_and(|mut value| {
            let own = take(&value, id, into);
            change(into);
            value.copy_from_slice(into);
            own
        })
    }
}
