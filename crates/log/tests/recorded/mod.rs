//! A store whose every operation is written down before and after, so that a test can compare after
//! the death of its thread.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mneme_log::{Decision, Expiry, LogStore, Patch, WriteError};

/// The second database, beside database 0, in which work is done.
pub const OTHER: usize = 9;
/// The prefix of the model's keys that are in it.
pub const IN_OTHER: &[u8] = b"in the other: ";

/// The key's counterpart in the other of the two databases.
pub fn twin(key: &[u8]) -> Vec<u8> {
    match key.strip_prefix(IN_OTHER) {
        Some(key) => key.to_vec(),
        None => [IN_OTHER, key].concat(),
    }
}

pub fn get(store: &LogStore, key: &[u8]) -> Option<Vec<u8>> {
    let (db, key) = match key.strip_prefix(IN_OTHER) {
        Some(key) => (OTHER, key),
        None => (0, key),
    };
    let found = store.database(db).unwrap().get(key).unwrap();
    found.map(|value| value.to_vec())
}

/// The effect of the acknowledged operations on the store, and the one under way.
#[derive(Clone, Default)]
pub struct Model {
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The keys of the operation under way, each with its new value.
    pub pending: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether they change together.
    pub at_once: bool,
    /// Whether the store may evict records.
    pub forgets: bool,
}

/// A store whose every operation is written down before and after.
pub struct Recorded {
    pub store: LogStore,
    pub model: Arc<Mutex<Model>>,
}

impl Recorded {
    pub fn around<T>(
        &self,
        changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        work: impl FnOnce(&LogStore) -> T,
    ) -> T {
        self.around_all(false, changes, work)
    }

    pub fn around_all<T>(
        &self,
        at_once: bool,
        changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        work: impl FnOnce(&LogStore) -> T,
    ) -> T {
        {
            let mut model = self.model.lock().unwrap();
            model.pending = changes.into_iter().collect();
            model.at_once = at_once;
        }
        let result = work(&self.store);
        let mut model = self.model.lock().unwrap();
        for (key, value) in std::mem::take(&mut model.pending) {
            match value {
                Some(value) => model.records.insert(key, value),
                None => model.records.remove(&key),
            };
        }
        result
    }

    pub fn put(&self, key: &[u8], value: &[u8]) {
        self.around(vec![(key.to_vec(), Some(value.to_vec()))], |s| {
            s.put(key, value).unwrap()
        });
    }

    pub fn remove(&self, key: &[u8]) {
        self.around(vec![(key.to_vec(), None)], |s| s.remove(key).unwrap());
    }

    pub fn put_many(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        let changes = pairs
            .iter()
            .map(|(k, v)| (k.clone(), Some(v.clone())))
            .collect();
        self.around(changes, |s| s.put_many(pairs).unwrap());
    }

    pub fn update(&self, key: &[u8], value: &[u8]) {
        let value = value.to_vec();
        self.around(vec![(key.to_vec(), Some(value.clone()))], |s| {
            let expiry = match value.len() % 2 {
                0 => Expiry::At(u64::MAX >> 1),
                _ => Expiry::Never,
            };
            s.update(key, |_| Decision::ReplaceUntil(value.clone(), expiry))
                .unwrap();
        });
    }

    pub fn transact(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        self.around_all(true, changes.clone(), |s| {
            s.transaction(|t| {
                for (key, value) in &changes {
                    match value {
                        // Expired records are counted, whatever replaces them.
                        Some(value) if value.len() % 2 == 0 => {
                            t.put_until(key, value, Expiry::At(u64::MAX >> 1))?;
                        }
                        Some(value) => t.put(key, value)?,
                        None => {
                            t.remove(key)?;
                        }
                    }
                }
                Ok::<_, WriteError>(())
            })
            .unwrap();
        });
    }

    /// Reads and rewrites these keys, one of which is stored again, unchanged, in the first runs.
    pub fn overtaken(&self, keys: Vec<Vec<u8>>, other: Vec<u8>) {
        let new = |key: &[u8]| Some([key, b" anew"].concat());
        let changes = keys.iter().map(|key| (key.clone(), new(key))).collect();
        let first = get(&self.store, &keys[0]);
        let mut runs = 0;
        self.around_all(true, changes, |s| {
            s.transaction(|t| {
                runs += 1;
                if runs == 17 {
                    // It gives up its locks for this read, if the key is not among its keys.
                    t.get(&other)?;
                }
                for key in &keys {
                    t.get(key)?;
                    t.put(key, &new(key).unwrap_or_default())?;
                }
                match &first {
                    Some(value) if runs <= 16 => s.put(&keys[0], value),
                    _ => Ok(()),
                }
            })
            .unwrap();
        });
    }

    /// Writes `bytes` at `at`, however long the value is.
    pub fn patch(&self, key: &[u8], at: usize, bytes: &[u8]) {
        let mut value = self.model.lock().unwrap().records[key].clone();
        value.resize(value.len().max(at + bytes.len()), 0);
        value[at..at + bytes.len()].copy_from_slice(bytes);
        self.around(vec![(key.to_vec(), Some(value))], |s| {
            s.update_part(
                key,
                |_| at..at + 8,
                |_| Patch::Write {
                    at,
                    bytes: Cow::Borrowed(bytes),
                },
            )
            .unwrap();
        });
    }

    pub fn put_until(&self, key: &[u8], value: &[u8]) {
        self.around(vec![(key.to_vec(), Some(value.to_vec()))], |s| {
            s.put_until(key, value, Expiry::At(u64::MAX >> 1)).unwrap();
        });
    }

    /// Exchanges the two databases of the model.
    pub fn swap(&self) {
        let model = self.model.lock().unwrap().clone();
        let keys = model.records.keys().flat_map(|k| [k.clone(), twin(k)]);
        let changes = keys.map(|k| (k.clone(), model.records.get(&twin(&k)).cloned()));
        self.around_all(true, changes.collect(), |s| {
            s.swap_databases(0, OTHER).unwrap()
        });
    }

    pub fn clear(&self) {
        let model = self.model.lock().unwrap().clone();
        let keys = model.records.into_keys();
        let keys = keys.filter(|k| !k.starts_with(IN_OTHER));
        self.around(keys.map(|k| (k, None)).collect(), |s| s.clear().unwrap());
    }
}
