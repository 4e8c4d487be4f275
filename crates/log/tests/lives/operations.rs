//! The operations: each runs on the store and on the model, and the results are compared.

use std::collections::{BTreeMap, HashSet};

use mneme_log::{BatchError, Cursor, Decision, Evict, Expiry, Updated, WriteError};

use crate::expected::{Kept, Name};
use crate::history::History;

/// Why a transaction ended without effect.
#[derive(Debug)]
enum Ended {
    AsAsked,
    Refused(WriteError),
}

impl From<WriteError> for Ended {
    fn from(error: WriteError) -> Ended {
        Ended::Refused(error)
    }
}

impl History {
    /// The result of a write, or `None` if there was no free space for it, which has to be true.
    pub fn granted<T>(
        &mut self,
        bytes: usize,
        mut write: impl FnMut() -> Result<T, WriteError>,
    ) -> Option<T> {
        let refused = match write() {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        // Memory that dead threads have claimed is free once they are reaped.
        self.store().reap().unwrap();
        let error = match write() {
            Ok(done) if matches!(refused, WriteError::OutOfMemory { .. }) => return Some(done),
            Ok(_) => refused,
            Err(error) => error,
        };
        let stats = self.store().stats();
        // Contiguous space is not guaranteed, and records that must stay may fill the store.
        let may_be = bytes > 250_000
            || !matches!(
                self.evict,
                Evict::None | Evict::Lru | Evict::Lfu | Evict::Random
            );
        assert!(
            may_be && matches!(error, WriteError::OutOfMemory { .. }),
            "{bytes} bytes: {error}; {stats:?}"
        );
        self.refused += 1;
        None
    }

    /// Removes some records if the store is as full as it should be.
    pub fn keep_below_the_brim(&mut self) {
        let store = self.store();
        let fill = self.fill;
        let is_full = || {
            let stats = store.stats();
            let taken = stats.overhead_bytes + stats.index_bytes + stats.reserve_bytes;
            stats.live_bytes * 100 > (stats.capacity - taken) * fill
        };
        if self.evict == Evict::None && is_full() {
            store.remove_expired().unwrap();
            while is_full() {
                self.remove_many(60);
            }
        }
    }

    pub fn put(&mut self) {
        self.keep_below_the_brim();
        let (store, (db, key), expiry) = (self.store(), self.any_name(), self.any_expiry());
        let kept = self.any_value(expiry);
        let (value, db_store) = (kept.value(), store.database(db).unwrap());
        let put = || match kept.expiry {
            Expiry::Never => db_store.put(&key, &value),
            expiry => db_store.put_until(&key, &value, expiry),
        };
        match self.granted(kept.length, put) {
            Some(()) => drop(self.model[db].insert(key, kept)),
            None => self.get((db, key)),
        }
    }

    pub fn put_many(&mut self) {
        self.keep_below_the_brim();
        let (store, (db, keys)) = (self.store(), self.some_names(60));
        let kept: Vec<_> = keys.iter().map(|_| self.any_value(Expiry::Never)).collect();
        let pairs: Vec<_> = keys.iter().zip(kept.iter().map(Kept::value)).collect();
        let done = match store.database(db).unwrap().put_many(&pairs) {
            Ok(()) => pairs.len(),
            Err(BatchError { done, source, .. }) => {
                let out_of_memory = matches!(source, WriteError::OutOfMemory { .. });
                assert!(out_of_memory, "{source}");
                self.refused += 1;
                done
            }
        };
        self.model[db].extend(keys.into_iter().zip(kept).take(done));
    }

    pub fn remove(&mut self, (db, key): Name) {
        let there = self.store().database(db).unwrap().remove(&key).unwrap();
        self.saw_whether((db, &key), there);
        self.model[db].remove(&key);
    }

    pub fn remove_many(&mut self, most: u64) {
        let (store, (db, keys)) = (self.store(), self.some_names(most));
        let gone = store.database(db).unwrap().remove_many(&keys).unwrap();
        let mut known = Vec::new();
        for key in &keys {
            known.extend(self.model[db].remove(key));
        }
        let sure = known.iter().filter(|kept| !self.may_be_forgotten(kept));
        assert!((sure.count()..=known.len()).contains(&gone));
    }

    pub fn update(&mut self, (db, key): Name) {
        self.keep_below_the_brim();
        let (store, what) = (self.store(), self.random.below(4));
        let expiry = self.any_expiry();
        let mut new = self.any_value(expiry);
        let (value, db_store) = (new.value(), store.database(db).unwrap());
        let mut seen = None;
        let did = self.granted(new.length, || {
            db_store.update_stored(&key, |stored| {
                seen = stored.map(|s| (s.value.to_vec(), s.expiry));
                match what {
                    0 => Decision::Keep,
                    1 => Decision::Replace(value.clone()),
                    2 => Decision::ReplaceUntil(value.clone(), expiry),
                    _ => Decision::Remove,
                }
            })
        });
        let name = (db, key);
        self.saw(&name, seen.as_ref().map(|(value, _)| value.as_slice()));
        if let Some((_, expiry)) = seen {
            assert_eq!(self.model[db][&name.1].expiry, expiry);
        }
        let Some(did) = did else {
            return self.get(name);
        };
        let expected = match (what, seen.is_some()) {
            (0, true) => Updated::Kept,
            (1 | 2, true) => Updated::Replaced,
            (1 | 2, false) => Updated::Inserted,
            (3, true) => Updated::Removed,
            _ => Updated::Absent,
        };
        assert_eq!(did, expected);
        match what {
            1 | 2 => {
                if what == 1 {
                    new.expiry = seen.map_or(Expiry::Never, |(_, expiry)| expiry);
                }
                self.model[db].insert(name.1, new);
            }
            3 => drop(self.model[db].remove(&name.1)),
            _ => {}
        }
    }

    pub fn set_expiry(&mut self, (db, key): Name) {
        let (store, expiry) = (self.store(), self.any_expiry());
        let db_store = store.database(db).unwrap();
        let Some(there) = self.granted(0, || db_store.set_expiry(&key, expiry)) else {
            return;
        };
        self.saw_whether((db, &key), there);
        if let Some(kept) = self.model[db].get_mut(&key) {
            kept.expiry = expiry;
        }
    }

    pub fn get(&mut self, name: Name) {
        let store = self.store();
        let database = store.database(name.0).unwrap();
        self.saw(&name, database.get(&name.1).unwrap().as_deref());
        let expiry = self.model[name.0].get(&name.1).map(|kept| kept.expiry);
        assert_eq!(database.expiry(&name.1).unwrap(), expiry);
    }

    pub fn get_many(&mut self, db: usize, keys: &[Vec<u8>]) {
        let store = self.store();
        let (mut seen, mut missed) = (0, Vec::new());
        let visit = |i: usize, value: Option<&[u8]>| {
            seen += 1;
            match value {
                Some(value) => self.found(db, &keys[i], value),
                None => missed.push(i),
            }
        };
        store.database(db).unwrap().get_many(keys, visit).unwrap();
        assert_eq!(seen, keys.len());
        missed.iter().for_each(|i| self.missed(db, &keys[*i]));
    }

    /// Reads, writes and removals under several names, at once; sometimes undone in the end.
    pub fn transact(&mut self) {
        self.keep_below_the_brim();
        let most = if self.random.one_in(20) { 600 } else { 40 };
        let count = 1 + self.random.below(most);
        let steps: Vec<(Name, u64, Kept)> = (0..count)
            .map(|_| {
                let (name, expiry) = (self.any_name(), self.any_expiry());
                let mut kept = self.any_value(expiry);
                kept.length %= 3000;
                (name, self.random.below(3), kept)
            })
            .collect();
        let (store, taken_back) = (self.store(), self.random.one_in(6));
        let (mut seen, mut own) = (Vec::new(), BTreeMap::<Name, Option<Kept>>::new());
        let ended = store.transaction(|t| {
            seen.clear();
            own.clear();
            for (name, what, kept) in &steps {
                let mut t = t.database(name.0)?;
                let found = t.get(&name.1)?;
                match own.get(name) {
                    Some(own) => assert_eq!(found, own.map(|kept| kept.value())),
                    None => seen.push((name.clone(), found.clone())),
                }
                match what {
                    0 => continue,
                    1 => t.put_until(&name.1, &kept.value(), kept.expiry)?,
                    _ => assert_eq!(t.remove(&name.1)?, found.is_some()),
                }
                own.insert(name.clone(), (*what == 1).then_some(*kept));
            }
            match taken_back {
                true => Err(Ended::AsAsked),
                false => Ok(()),
            }
        });
        for (name, found) in &seen {
            self.saw(name, found.as_deref());
        }
        match ended {
            Ok(()) => {}
            Err(Ended::AsAsked) => return,
            Err(Ended::Refused(WriteError::OutOfMemory { .. })) => {
                self.refused += 1;
                return;
            }
            Err(Ended::Refused(error)) => panic!("{error}"),
        }
        for ((db, key), kept) in own {
            match kept {
                Some(kept) => self.model[db].insert(key, kept),
                None => self.model[db].remove(&key),
            };
        }
    }

    /// A scan, with changes between its steps if `beside`: it visits every record that is present
    /// throughout, and no absent one.
    pub fn scan(&mut self, db: usize, beside: bool) {
        let before = self.model[db].clone();
        let mut visited = HashSet::new();
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let (store, step) = (self.store(), 1 + self.random.below(500) as usize);
            let visit = |key: &[u8], value: &[u8]| {
                self.found(db, key, value);
                visited.insert(key.to_vec());
            };
            let database = store.database(db).unwrap();
            cursor = database.scan(cursor, step, visit).unwrap();
            if beside {
                self.change();
            }
        }
        for (key, kept) in before {
            if self.model[db].get(&key) == Some(&kept) && !visited.contains(&key) {
                let store = self.store();
                let there = store.database(db).unwrap().contains(&key).unwrap();
                assert!(!there, "{} is not visited", key.escape_ascii());
                self.missed(db, &key);
            }
        }
    }
}
