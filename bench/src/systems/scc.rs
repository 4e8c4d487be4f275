//! scc: a map of buckets under fine locks that grows by steps. Updates overwrite the value where it
//! lies.

use super::strings::{Map, Strings, copied};
use super::{Hash, change, hasher, take};
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

impl Strings for Peer {
    #[inline]
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        Ok(self.0.read_sync(key, |_, value| copied(value, into)))
    }

    #[inline]
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

impl Map for Peer {
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
}
