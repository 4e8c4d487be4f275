//! papaya: a lock-free map with deferred reclamation. Values are immutable, so an update allocates;
//! a batch shares one guard.

use super::strings::{Strings, copied};
use super::{Hash, System, change, hasher, take};
use crate::generate::keys::key;
use ::papaya::HashMap;

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
        Ok(self.0.pin().get(key).map(|value| copied(value, into)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.0.pin().insert(key.into(), value.into());
        Ok(())
    }

    fn del(&self, key: &[u8]) -> Result<bool, String> {
        Ok(self.0.pin().remove(key).is_some())
    }
}

impl System for Peer {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        let map = self.0.pin();
        map.get(&key(id)[..])
            .is_some_and(|value| take(value, id, into))
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        self.put(&key(id), value).is_ok()
    }

    fn remove(&self, id: u32) -> bool {
        self.0.pin().remove(&key(id)[..]).is_some()
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        // It may call this more than once, so the copy out is taken from what it has stored.
        let map = self.0.pin();
        let changed = map.update(key(id)[..].into(), |value| {
            let mut value = value.clone();
            change(&mut value);
            value
        });
        changed.is_some_and(|value| take(value, id, into))
    }

    #[inline]
    fn read_many(&self, ids: &[u32], into: &mut [u8]) -> usize {
        let map = self.0.pin();
        let read = |&&id: &&u32| {
            let value = map.get(&key(id)[..]);
            value.is_some_and(|value| take(value, id, into))
        };
        ids.iter().filter(read).count()
    }

    #[inline]
    fn write_many(&self, ids: &[u32], values: &[u8]) -> usize {
        let map = self.0.pin();
        let values = values.chunks_exact(values.len() / ids.len().max(1));
        for (&id, value) in ids.iter().zip(values) {
            map.insert(key(id)[..].into(), value.into());
        }
        ids.len()
    }
}
