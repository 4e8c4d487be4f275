//! Many keys at once: all are hashed, then all buckets prefetched, then all records, and then the
//! work is done.
//!
//! One lookup costs two dependent cache misses. A batch overlaps the misses of its keys. On the
//! machines measured a batch of 32 has three to six times the throughput of single calls.

use crate::error::{BatchError, ReadError, WriteError};
use crate::index::prefetch::{AHEAD_LINES, BatchKeys, DISTANCE, Fetch, WIDTH};
use crate::reclaim::free_space::SpaceSearch;
use crate::records::expiry::Expiry;
use crate::records::publish::{Expect, KeyChange, Published};
use crate::region::kind::ValueKind;
use crate::region::mem::Loc;
use crate::region::record::{Header, MAX_KEY};
use crate::region::space::KeyspaceId;
use crate::store::components::Store;

/// A key and its value.
type Pair<'p> = (&'p [u8], &'p [u8]);

/// The keys of pairs.
struct KeysOf<'p>(&'p [Pair<'p>]);

impl BatchKeys for KeysOf<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn key(&self, i: usize) -> &[u8] {
        self.0[i].0
    }
}

impl Store {
    /// Calls `visit` with each key's number and value, in order.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        database: u8,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ReadError> {
        if !self.records().lends {
            return self.records().copy_many(database, keys, visit);
        }
        let mut copy = Vec::new();
        for (chunk, some) in keys.chunks(WIDTH).enumerate() {
            let (pin, space) = self.index().enter_to_read(database)?;
            let first = chunk * WIDTH;
            let Some(root) = self.index().root(space)? else {
                (first..first + some.len()).for_each(|i| visit(i, None));
                continue;
            };
            let ahead = self.index().prefetch_batch(root, &some, Fetch::Values)?;
            for (i, key) in some.iter().enumerate() {
                if let Some(&Some(loc)) = ahead.locs.get(i + DISTANCE) {
                    self.index().prefetch_rest(loc, AHEAD_LINES);
                }
                let (place, segment, key) = (ahead.places[i], ahead.segment(i), key.as_ref());
                let fast = match segment {
                    Some(segment) => {
                        (self.records()).try_fast_lend_in(&pin, root, place, segment, key)
                    }
                    None => None,
                };
                let value = match fast {
                    Some(value) => Some(value),
                    None => {
                        match (self.records()).find_live(root, place, segment, key, &mut copy)? {
                            Some(record) => {
                                record.header().kind().expect(ValueKind::STRING)?;
                                Some(record.value_or(&copy))
                            }
                            None => None,
                        }
                    }
                };
                visit(first + i, value);
            }
        }
        Ok(())
    }

    /// Starts to prefetch what operations on `keys` will touch. Nothing that is seen here outlives
    /// the call: the operations look everything up again.
    pub(crate) fn prefetch_many<K: AsRef<[u8]>>(&self, database: u8, keys: &[K]) {
        let Ok(_pin) = self.session().participants.pin() else {
            return;
        };
        if let Some(space) = self.index().space(database)
            && let Ok(Some(root)) = self.index().root(space)
        {
            for some in keys.chunks(WIDTH) {
                // Damage is reported to the operation that finds it.
                let _ = self.index().prefetch_batch(root, &some, Fetch::Beginnings);
            }
        }
    }

    /// Stores each pair, in order.
    pub(crate) fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        database: u8,
        pairs: &[(K, V)],
    ) -> Result<(), BatchError> {
        let mut done = 0;
        let stopped = |done, source| BatchError {
            done,
            removed: 0,
            source,
        };
        self.session().may_write().map_err(|e| stopped(done, e))?;
        let mut search = SpaceSearch::new(0);
        while done < pairs.len() {
            let chunk = &pairs[done..(done + WIDTH).min(pairs.len())];
            // `as_ref` of each pair is called only once: it may return different bytes each time,
            // and a record has space for the first result.
            let mut seen: [Pair<'_>; WIDTH] = [(&[], &[]); WIDTH];
            for (seen, (key, value)) in seen.iter_mut().zip(chunk) {
                *seen = (key.as_ref(), value.as_ref());
            }
            let chunk = &seen[..chunk.len()];
            match self.put_chunk(database, chunk) {
                Ok(0) => self
                    .session()
                    .with_feed(|| self.make_space_for(chunk[0], &mut search))
                    .map_err(|e| stopped(done, e))?,
                Ok(n) => {
                    done += n;
                    search = SpaceSearch::new(0);
                }
                Err((n, WriteError::FeedFull)) => {
                    done += n;
                    self.session().await_feed().map_err(|e| stopped(done, e))?;
                }
                Err((n, source)) => return Err(stopped(done + n, source)),
            }
        }
        Ok(())
    }

    fn make_space_for(
        &self,
        (key, value): Pair<'_>,
        search: &mut SpaceSearch,
    ) -> Result<(), WriteError> {
        let slot = self.session().participants.slot()?;
        search.want(Header::record(key.len(), value.len(), KeyspaceId::new(0)).size());
        self.reclaim().make_space(&slot, search)
    }

    /// Stores a first part of up to `WIDTH` pairs. Returns its length. Zero: no free space for the
    /// first pair.
    fn put_chunk(&self, database: u8, pairs: &[Pair<'_>]) -> Result<usize, (usize, WriteError)> {
        let first = |e: WriteError| (0, e);
        let slot = self
            .session()
            .participants
            .slot()
            .map_err(|e| first(e.into()))?;
        let (pin, space) = (self.index().enter(&slot, database)).map_err(|e| first(e.into()))?;
        let Some(root) = self.index().root_or_create(&slot, space).map_err(first)? else {
            return Ok(0);
        };
        if self.records().overwrites() {
            // This only prefetches: each store looks its place up again.
            self.index()
                .prefetch_batch(root, &KeysOf(pairs), Fetch::Values)
                .map_err(|e| first(e.into()))?;
            drop(pin);
            return self.overwrite_chunk(database, pairs);
        }
        let mut headers = [Header(0); WIDTH];
        let mut small = 0;
        for (key, value) in pairs {
            match Self::check_lengths(key, value) {
                Ok(()) => {}
                Err(error) if small == 0 => return Err((0, error)),
                Err(_) => break,
            }
            headers[small] = Header::record(key.len(), value.len(), space);
            if self.log().is_bulk(headers[small].size()) {
                break;
            }
            small += 1;
        }
        if small == 0 {
            drop(pin);
            let (key, value) = pairs[0];
            return self
                .put(database, key, value, Expiry::Never)
                .map(|()| 1)
                .map_err(first);
        }
        let ahead = self
            .index()
            .prefetch_batch(root, &KeysOf(&pairs[..small]), Fetch::Keys)
            .map_err(|e| first(e.into()))?;
        let mut locs = [Loc::of_byte(0); WIDTH];
        let reserved = self
            .log()
            .reserve(&slot, &headers[..small], &mut locs[..small])
            .map_err(first)?;
        for i in 0..reserved {
            let (key, value) = pairs[i];
            let size = headers[i].size();
            self.copy_body(locs[i], headers[i], size, Expiry::Never, key, value)
                .map_err(|e| first(e.into()))?;
        }
        for i in 0..reserved {
            let change = KeyChange {
                root,
                place: ahead.places[i],
                segment: ahead.segment(i),
                key: pairs[i].0,
                new: Some((locs[i], headers[i].size())),
                expiring: false,
                evicting: false,
                expect: Expect::Anything,
                says: None,
            };
            let published = self.records().publish(&slot, &pin, &change);
            let (error, first_dead) = match published {
                Ok(Published::NoSpace) => (None, i),
                Ok(_) => continue,
                // The one that failed is counted.
                Err(error) => (Some(error), i + 1),
            };
            for j in first_dead..reserved {
                self.log()
                    .mark_dead(locs[j], headers[j].size())
                    .map_err(|e| (i, e.into()))?;
            }
            return error.map_or(Ok(i), |e| Err((i, e)));
        }
        Ok(reserved)
    }

    /// Stores up to `WIDTH` pairs in a store that overwrites; all of them, unless it fails.
    fn overwrite_chunk(
        &self,
        database: u8,
        pairs: &[Pair<'_>],
    ) -> Result<usize, (usize, WriteError)> {
        for (i, (key, value)) in pairs.iter().enumerate() {
            self.put(database, key, value, Expiry::Never)
                .map_err(|e| (i, e))?;
        }
        Ok(pairs.len())
    }

    /// Removes each key. Returns how many were present.
    pub(crate) fn remove_many<K: AsRef<[u8]>>(
        &self,
        database: u8,
        keys: &[K],
    ) -> Result<usize, BatchError> {
        let (mut done, mut removed) = (0, 0);
        let all = self.session().with_feed(|| {
            let rest = keys.get(done..).unwrap_or_default();
            self.remove_each(database, rest, &mut done, &mut removed)
        });
        match all {
            Ok(()) => Ok(removed),
            Err(source) => Err(BatchError {
                done,
                removed,
                source,
            }),
        }
    }

    /// Removes each key, counting in `done` and `removed`.
    fn remove_each<K: AsRef<[u8]>>(
        &self,
        database: u8,
        keys: &[K],
        done: &mut usize,
        removed: &mut usize,
    ) -> Result<(), WriteError> {
        self.session().may_write()?;
        for some in keys.chunks(WIDTH) {
            let slot = self.session().participants.slot()?;
            let (pin, space) = self.index().enter(&slot, database)?;
            let Some(root) = self.index().root(space)? else {
                return Ok(());
            };
            let ahead = self.index().prefetch_batch(root, &some, Fetch::Keys)?;
            for (i, key) in some.iter().enumerate() {
                let key = key.as_ref();
                if key.len() <= MAX_KEY {
                    let change = KeyChange {
                        root,
                        place: ahead.places[i],
                        segment: ahead.segment(i),
                        key,
                        ..KeyChange::removal(root, ahead.places[i], key)
                    };
                    let published = self.records().publish(&slot, &pin, &change)?;
                    *removed += usize::from(published == Published::Removed);
                }
                *done += 1;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::Cell;

    use crate::store::{LogStore, MIN_CAPACITY};

    /// Bytes that are different at every second call.
    struct Fickle<'b>(Cell<usize>, [&'b [u8]; 2]);

    impl<'b> Fickle<'b> {
        fn of(looks: [&'b [u8]; 2]) -> Self {
            Fickle(Cell::new(0), looks)
        }
    }

    impl AsRef<[u8]> for Fickle<'_> {
        fn as_ref(&self) -> &[u8] {
            self.1[self.0.replace(self.0.get() + 1) % 2]
        }
    }

    /// A record has space for the bytes that were seen when it was reserved, and no more.
    #[test]
    fn bytes_that_change_between_two_looks_are_stored_as_they_were_seen_once() {
        let store = LogStore::builder().capacity(MIN_CAPACITY);
        let store = store.maintainer(false).open_private().unwrap();
        let long = vec![b'l'; 4000];
        for first in 0..2 {
            let looks = || Fickle::of([[&b"short"[..], &long], [&long, b"short"]][first]);
            let pairs: Vec<_> = (0..8).map(|_| (looks(), looks())).collect();
            let names: Vec<Vec<u8>> = (0..8).map(|i| vec![b'a' + i; 5]).collect();
            let beside: Vec<_> = names.iter().map(|name| (&name[..], looks())).collect();
            store.put_many(&pairs).unwrap();
            store.put_many(&beside).unwrap();
            for name in &names {
                let value = store.get(name).unwrap().unwrap();
                assert!(&value == b"short" || value == long);
            }
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        }
    }
}
