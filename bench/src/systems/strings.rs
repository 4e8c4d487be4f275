//! Stores of byte strings under byte strings, of any length each: what `postmark` needs, and what
//! the peers' numbered records are kept in.
//!
//! `postmark` calls them through a trait object, which is the same for everybody and small beside
//! what the call does.

use super::{System, dashmap, moka, papaya, scc};
use crate::error::BenchError;
use crate::generate::keys::{key, stamp_of};
use mneme_log::{LogStore, ReadError, WriteError};

/// A store, shared by threads.
pub trait Strings: Send + Sync {
    /// Copies the value of `key` to the front of `into`, which is long enough; its length.
    ///
    /// # Errors
    /// In words.
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String>;

    /// Stores `value` under `key`, in place of an older one.
    ///
    /// # Errors
    /// In words.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// In words.
    fn del(&self, key: &[u8]) -> Result<bool, String>;
}

/// A peer whose strings are records, too, with keys made of their numbers.
pub trait Map: Strings {
    /// As [`System::modify`].
    fn modify(&self, id: u32, into: &mut [u8]) -> bool;
}

impl<M: Map> System for M {
    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        self.get(&key(id), into) == Ok(Some(into.len())) && stamp_of(into) == u64::from(id)
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        self.put(&key(id), value).is_ok()
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        Map::modify(self, id, into)
    }

    fn remove(&self, id: u32) -> bool {
        self.del(&key(id)).unwrap_or(false)
    }
}

/// Copies a value that was found to the front of `into`.
#[inline]
pub fn copied(value: &[u8], into: &mut [u8]) -> usize {
    into[..value.len()].copy_from_slice(value);
    std::hint::black_box(&mut *into);
    value.len()
}

impl Strings for LogStore {
    fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
        let found = LogStore::get(self, key).map_err(|error: ReadError| error.to_string())?;
        Ok(found.map(|value| copied(&value, into)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        LogStore::put(self, key, value).map_err(|error: WriteError| error.to_string())
    }

    fn del(&self, key: &[u8]) -> Result<bool, String> {
        self.remove(key).map_err(|error| error.to_string())
    }
}

/// The peer of this name, empty.
///
/// # Errors
/// [`BenchError::Options`] for a name nobody has.
pub fn peer(name: &str) -> Result<Box<dyn Strings>, BenchError> {
    Ok(match name {
        "dashmap" => Box::new(dashmap::Peer::new()),
        "papaya" => Box::new(papaya::Peer::new()),
        "scc" => Box::new(scc::Peer::new()),
        "moka" => Box::new(moka::Peer::new()),
        other => return Err(BenchError::Options(format!("no peer is called `{other}`"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::PEERS;

    #[test]
    fn all_stores_do_the_same_things() {
        let ours = LogStore::builder().capacity(64 << 20).open_private();
        let mut stores: Vec<Box<dyn Strings>> = vec![Box::new(ours.unwrap())];
        stores.extend(PEERS.map(|name| peer(name).unwrap()));
        for store in stores {
            let mut into = [0; 100];
            assert_eq!(store.get(b"muse", &mut into), Ok(None));
            assert_eq!(store.del(b"muse"), Ok(false));
            // Longer, as long, shorter.
            for value in [&b"Clio"[..], b"Thalia", b"Urania", b""] {
                store.put(b"muse", value).unwrap();
                assert_eq!(store.get(b"muse", &mut into), Ok(Some(value.len())));
                assert_eq!(&into[..value.len()], value);
            }
            assert_eq!(store.del(b"muse"), Ok(true));
            assert_eq!(store.get(b"muse", &mut into), Ok(None));
        }
        assert!(peer("redis").is_err());
    }
}
