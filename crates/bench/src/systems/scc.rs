//! scc: a map of buckets under fine locks that grows by steps. Updates overwrite the value where it
//! lies.

use super::strings::{Strings, copied};
use super::{Hash, System, change, hasher, take};
use crate::generate::keys::key;
use ::scc::HashMap;

/// Keys and values in boxes of their own.
pub struct Peer(HashMap<Box<[u8]>, Box<[u8]>, Hash>);

impl Peer {
    /// Empty.
    pub fn new() -> Self {
        Self(HashMap::with_hasher(hasher()))
    }
}

impl System for Peer {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        self.0
            .read_sync(&key(id)[..], |_, value| take(value, id, into))
            == Some(true)
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        let key = key(id);
        let overwritten = self.0.update_sync(&key[..], |_, old| {
            if old.len() == value.len() {
                old.copy_from_slice(value);
            } else {
                *old = value.into();
            }
        });
        if overwritten.is_none() {
            self.0.upsert_sync(key[..].into(), value.into());
        }
        true
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        let changed = self.0.update_sync(&key(id)[..], |_, value| {
            let own = take(value, id, into);
            change(into);
            value.copy_from_slice(into);
            own
        });
        changed == Some(true)
    }

    fn remove(&self, id: u32) -> bool {
        self.0.remove_sync(&key(id)[..]).is_some()
    }
}

impl Strings for Peer {
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        Ok(self.0.read_sync(key, |_, value| copied(value, into)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let overwritten = self.0.update_sync(key, |_, old| {
            if old.len() == value.len() {
                old.copy_from_slice(value);
            } else {
                *old = value.into();
            }
        });
        if overwritten.is_none() {
            self.0.upsert_sync(key.into(), value.into());
        }
        Ok(())
    }

    fn del(&self, key: &[u8]) -> Result<bool, String> {
        Ok(self.0.remove_sync(key).is_some())
    }
}
