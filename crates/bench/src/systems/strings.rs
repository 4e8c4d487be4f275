//! Stores of byte strings under byte strings, of any length each: what `postmark` needs and the
//! numbered records of the other workloads cannot say.
//!
//! A call through this trait is virtual, the same for everybody and small beside what it does.

use super::{dashmap, moka, papaya, scc};
use crate::error::BenchError;
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
