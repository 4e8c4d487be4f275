//! DashMap: a sharded map under read-write locks. Updates overwrite the value where it lies.

use super::strings::{Strings, copied};
use super::{Hash, System, change, hasher, take};
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

impl System for Peer {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        self.0
            .get(&key(id)[..])
            .is_some_and(|value| take(&value, id, into))
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        let key = key(id);
        match self.0.get_mut(&key[..]) {
            Some(mut old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(mut old) => *old = value.into(),
            None => {
                self.0.insert(key[..].into(), value.into());
            }
        }
        true
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        self.0.get_mut(&key(id)[..]).is_some_and(|mut value| {
            let own = take(&value, id, into);
            change(into);
            value.copy_from_slice(into);
            own
        })
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
