//! The engines: ours, LMDB in its two ways of writing, redb, Berkeley DB, RocksDB, and a
//! `BTreeMap`, which keeps nothing and shows what order in memory costs.

#[cfg(feature = "bdb")]
mod bdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use super::names::{HASHED, MAP, OURS, VOLATILE};
use crate::error::{BenchError, failed as ours};
use mneme_tree::{Batch, Durability, HashTable, Store};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of a key.
pub const KEY: usize = 25;
/// The file of ours.
pub const FILE: &str = "mneme";

/// The key of a record.
pub fn key(id: u32) -> [u8; KEY] {
    let mut key = *b"user000000000000000000000";
    let mut rest = id;
    for digit in key.iter_mut().rev().take(10) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Keys of records.
pub type Keys<'a> = &'a [[u8; KEY]];

/// What is asked of an engine. Whatever changes something is durable on return.
pub trait Engine {
    /// Sets keys together, or removes them if there is no value. Several keys are sorted.
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError>;
    /// Copies the value of each key, and says how many there are.
    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError>;
    /// As [`gets`](Self::gets), by whatever the engine has for many keys at once.
    fn get_many(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        self.gets(keys, out)
    }
    /// Whether it can be asked for ranges.
    fn has_order(&self) -> bool {
        true
    }
    /// Copies the values of `count` keys from each of `keys` on, and says how many that were.
    fn scans(&mut self, keys: Keys<'_>, count: usize, out: &mut [u8]) -> Result<u64, BenchError>;
}

impl dyn Engine + '_ {
    /// Sets one key.
    pub fn put(&mut self, key: &[u8; KEY], value: &[u8]) -> Result<(), BenchError> {
        self.write(std::slice::from_ref(key), Some(value))
    }

    /// Removes one key.
    pub fn remove(&mut self, key: &[u8; KEY]) -> Result<(), BenchError> {
        self.write(std::slice::from_ref(key), None)
    }
}

/// An empty engine with space for `records` of `value` bytes.
pub fn open(
    name: &str,
    directory: &Path,
    records: u32,
    value: usize,
) -> Result<Box<dyn Engine>, BenchError> {
    let bytes = u64::from(records) * (value as u64 + 100) * 4 + (256 << 20);
    match name {
        MAP => Ok(Box::new(Map(BTreeMap::new()))),
        #[cfg(feature = "redb")]
        "redb" => Ok(Box::new(redb::Redb::open(&directory.join("redb"))?)),
        #[cfg(feature = "bdb")]
        "bdb" => Ok(Box::new(bdb::BerkeleyDb::open(
            &directory.join("bdb"),
            bytes,
        )?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Ok(Box::new(rocksdb::RocksDb::open(
            &directory.join("rocksdb"),
        )?)),
        #[cfg(feature = "lmdb")]
        "lmdb" => Ok(Box::new(lmdb::Lmdb::open(directory, "lmdb", bytes, false)?)),
        #[cfg(feature = "lmdb")]
        "lmdb writemap" => Ok(Box::new(lmdb::Lmdb::open(directory, "map", bytes, true)?)),
        _ => {
            let (file, durability) = match name {
                VOLATILE => ("volatile", Durability::Process),
                HASHED => ("hash", Durability::File),
                _ => (FILE, Durability::File),
            };
            let builder = Store::builder().durability(durability).max_bytes(bytes);
            let store = builder.open(directory.join(file)).map_err(ours)?;
            if name == HASHED {
                return Ok(Box::new(Hashed(store.hash_table("table").map_err(ours)?)));
            }
            Ok(Box::new(Ours(store)))
        }
    }
}

/// An engine gave what it should not.
pub fn wrong(case: &str, what: &str) -> BenchError {
    BenchError::wrong(OURS, case, what)
}

struct Ours(Store);

impl Engine for Ours {
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
        let done = match (keys, value) {
            ([key], Some(value)) => self.0.put(key, value).map(drop),
            ([key], None) => self.0.remove(key).map(drop),
            _ => {
                let mut batch = Batch::new();
                for key in keys {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.remove(key),
                    };
                }
                self.0.apply(&batch).map(drop)
            }
        };
        done.map_err(ours)
    }

    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        for key in keys {
            let copied = self.0.get_with(key, |value| out.copy_from_slice(value));
            found += u64::from(copied.map_err(ours)?.is_some());
        }
        Ok(found)
    }

    fn get_many(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        for keys in keys.chunks(32) {
            let copy = |_, value: Option<&[u8]>| {
                if let Some(value) = value {
                    out.copy_from_slice(value);
                    found += 1;
                }
            };
            self.0.get_many(keys, copy).map_err(ours)?;
        }
        Ok(found)
    }

    fn scans(&mut self, keys: Keys<'_>, count: usize, out: &mut [u8]) -> Result<u64, BenchError> {
        let snapshot = self.0.snapshot().map_err(ours)?;
        let mut found = 0;
        for key in keys {
            for pair in snapshot.range(&key[..]..).take(count) {
                out.copy_from_slice(pair.map_err(ours)?.1);
                found += 1;
            }
        }
        Ok(found)
    }
}

/// Our hash table.
struct Hashed(HashTable);

impl Engine for Hashed {
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
        let done = match (keys, value) {
            ([key], Some(value)) => self.0.put(key, value).map(drop),
            ([key], None) => self.0.remove(key).map(drop),
            _ => {
                let mut batch = Batch::new();
                for key in keys {
                    let key = HashTable::tree_key(key).map_err(ours)?;
                    match value {
                        Some(value) => batch.put_in(self.0.tree(), &key, value),
                        None => batch.remove_in(self.0.tree(), &key),
                    };
                }
                self.0.tree().store().apply(&batch).map(drop)
            }
        };
        done.map_err(ours)
    }

    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        for key in keys {
            let copied = self.0.get_with(key, |value| out.copy_from_slice(value));
            found += u64::from(copied.map_err(ours)?.is_some());
        }
        Ok(found)
    }

    fn has_order(&self) -> bool {
        false
    }

    fn scans(&mut self, _: Keys<'_>, _: usize, _: &mut [u8]) -> Result<u64, BenchError> {
        Err(wrong("scan", "a hash table has no order"))
    }
}

/// In memory, of one thread, durable never.
struct Map(BTreeMap<[u8; KEY], Vec<u8>>);

impl Engine for Map {
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
        for key in keys {
            match value {
                Some(value) => self.0.insert(*key, value.to_vec()),
                None => self.0.remove(key),
            };
        }
        Ok(())
    }

    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let values = keys.iter().filter_map(|key| self.0.get(key));
        Ok(values.map(|value| out.copy_from_slice(value)).count() as u64)
    }

    fn scans(&mut self, keys: Keys<'_>, count: usize, out: &mut [u8]) -> Result<u64, BenchError> {
        let ranges = keys.iter().map(|key| self.0.range(*key..).take(count));
        let pairs = ranges.flatten();
        Ok(pairs.map(|(_, value)| out.copy_from_slice(value)).count() as u64)
    }
}

#[cfg(feature = "redb")]
mod redb {
    use super::{BenchError, Engine, Keys};
    use redb::{Database, ReadableDatabase, TableDefinition};
    use std::path::Path;

    const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

    pub struct Redb(Database);

    fn failed(error: impl Into<redb::Error>) -> BenchError {
        BenchError::tool("redb", error.into())
    }

    impl Redb {
        pub fn open(path: &Path) -> Result<Self, BenchError> {
            Ok(Self(Database::create(path).map_err(failed)?))
        }
    }

    impl Engine for Redb {
        fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
            let tx = self.0.begin_write().map_err(failed)?;
            {
                let mut table = tx.open_table(RECORDS).map_err(failed)?;
                for key in keys {
                    match value {
                        Some(value) => table.insert(&key[..], value).map(drop),
                        None => table.remove(&key[..]).map(drop),
                    }
                    .map_err(failed)?;
                }
            }
            tx.commit().map_err(failed)
        }

        fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
            let tx = self.0.begin_read().map_err(failed)?;
            let table = tx.open_table(RECORDS).map_err(failed)?;
            let mut found = 0;
            for key in keys {
                if let Some(value) = table.get(&key[..]).map_err(failed)? {
                    out.copy_from_slice(value.value());
                    found += 1;
                }
            }
            Ok(found)
        }

        fn scans(
            &mut self,
            keys: Keys<'_>,
            count: usize,
            out: &mut [u8],
        ) -> Result<u64, BenchError> {
            let tx = self.0.begin_read().map_err(failed)?;
            let table = tx.open_table(RECORDS).map_err(failed)?;
            let mut found = 0;
            for key in keys {
                let range = table.range(&key[..]..).map_err(failed)?;
                for pair in range.take(count) {
                    out.copy_from_slice(pair.map_err(failed)?.1.value());
                    found += 1;
                }
            }
            Ok(found)
        }
    }
}

#[cfg(feature = "lmdb")]
mod lmdb {
    use super::{BenchError, Engine, Keys};
    use heed::types::Bytes;
    use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};
    use std::ops::Bound;
    use std::path::Path;

    pub struct Lmdb {
        env: Env<WithTls>,
        records: Database<Bytes, Bytes>,
    }

    fn failed(error: heed::Error) -> BenchError {
        BenchError::tool("lmdb", error)
    }

    impl Lmdb {
        pub fn open(
            directory: &Path,
            name: &str,
            bytes: u64,
            writemap: bool,
        ) -> Result<Self, BenchError> {
            let mut options = EnvOpenOptions::new();
            // A whole number of pages, of any size there is.
            options.map_size((bytes as usize).next_multiple_of(2 << 20));
            let mut flags = EnvFlags::NO_SUB_DIR;
            flags.set(EnvFlags::WRITE_MAP, writemap);
            // SAFETY: these flags keep LMDB's locks and syncs; the file is this run's own and is
            // opened once.
            let env = unsafe {
                options.flags(flags);
                options.open(directory.join(name)).map_err(failed)?
            };
            let mut tx = env.write_txn().map_err(failed)?;
            let records = env.create_database(&mut tx, None).map_err(failed)?;
            tx.commit().map_err(failed)?;
            Ok(Self { env, records })
        }
    }

    impl Engine for Lmdb {
        fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
            let mut tx = self.env.write_txn().map_err(failed)?;
            for key in keys {
                match value {
                    Some(value) => self.records.put(&mut tx, key, value),
                    None => self.records.delete(&mut tx, key).map(drop),
                }
                .map_err(failed)?;
            }
            tx.commit().map_err(failed)
        }

        fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
            let tx = self.env.read_txn().map_err(failed)?;
            let mut found = 0;
            for key in keys {
                if let Some(value) = self.records.get(&tx, key).map_err(failed)? {
                    out.copy_from_slice(value);
                    found += 1;
                }
            }
            Ok(found)
        }

        fn scans(
            &mut self,
            keys: Keys<'_>,
            count: usize,
            out: &mut [u8],
        ) -> Result<u64, BenchError> {
            let tx = self.env.read_txn().map_err(failed)?;
            let mut found = 0;
            for key in keys {
                let from = (Bound::Included(&key[..]), Bound::Unbounded);
                let range = self.records.range(&tx, &from).map_err(failed)?;
                for pair in range.take(count) {
                    out.copy_from_slice(pair.map_err(failed)?.1);
                    found += 1;
                }
            }
            Ok(found)
        }
    }
}
