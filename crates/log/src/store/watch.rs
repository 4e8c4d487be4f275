//! Watching keys: **a watch that reports "unchanged" has missed no change by any process**. One
//! that reports "changed" may be wrong.
//!
//! A table of counters, selected by hash, in the store's region counts changes of keys, but only
//! while there is a [watch registration](mneme_sync::WatchRegistration). A writer that holds a
//! key's home bucket checks for a registration, and if there is one counts its change before the
//! change is visible: a record is published, overwritten, removed (also by expiry or eviction) or
//! gets another expiry. To begin watching a key, a thread registers, notes the key's counter, and
//! then waits until the key's home is free: by then a writer that held the home and did not see the
//! registration has finished. The models in [`crate::models`] check this order.
//!
//! Rarer changes are recognised without these counters: a database that was cleared has another
//! index root, whose number is never reused; swaps of databases are always counted; and the note
//! has the key's expiry, if the key was present.
//!
//! Two keys share a counter with a probability of one in the number of counters (a store of 1 GiB
//! has 65,536). So about one in that number of unrelated changes makes a watch wrong.
//!
//! A transaction that a watch guards locks the homes of the watched keys with its own, so that the
//! answer holds until the commit. If a process dies while it watches, the others continue to count
//! until it is reaped.

use std::collections::HashMap;
use std::sync::Arc;

use mneme_sync::{Interest, WatchRegistration};

use crate::error::{ReadError, WriteError};
use crate::records::watched::Watched;
use crate::region::record::MAX_KEY;
use crate::region::space::DATABASES;
use crate::store::components::Store;
use crate::store::transaction::Transaction;

/// Keys that are watched for changes, see [`LogStore::watch`](crate::LogStore::watch).
///
/// `Send`; it keeps the store open. While it lives, all writers of the store count their changes,
/// so drop it soon.
pub struct Watch {
    store: Arc<Store>,
    keys: HashMap<(u8, Box<[u8]>), Watched>,
    _watch: WatchRegistration,
}

impl Watch {
    pub(crate) fn new(store: Arc<Store>) -> Result<Watch, ReadError> {
        Ok(Watch {
            _watch: (store.session().participants).register_watch(Interest::Keys)?,
            keys: HashMap::new(),
            store,
        })
    }

    /// Watches `key` of a database too, from now on; a key that is watched already stays watched
    /// from the first time on. Waits for a writer that is just changing the key, a second at most.
    ///
    /// # Errors
    /// As for [`LogStore::get`](crate::LogStore::get), and there is no such database; the key is
    /// not watched.
    pub fn add(&mut self, database: usize, key: &[u8]) -> Result<(), ReadError> {
        if database >= DATABASES {
            return Err(ReadError::NoSuchDatabase(database));
        }
        let database = database as u8;
        let at = (database, Box::from(key));
        // A key that is too long is always absent.
        if key.len() <= MAX_KEY && !self.keys.contains_key(&at) {
            self.keys
                .insert(at, self.store.records().begin_watching(database, key)?);
        }
        Ok(())
    }

    /// Whether no watched key was changed, removed, or has expired since it was added, none of
    /// their databases was cleared, and no databases were swapped. False is wrong in rare cases.
    /// True is right, but may be out of date when it is returned: use
    /// [`transaction`](Self::transaction) to be isolated from others.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        // The pin keeps the blocks of index roots from being freed.
        match self.store.session().participants.pin() {
            Ok(_pin) => self.is_as_noted(),
            Err(_) => false,
        }
    }

    /// Runs `body` as [`LogStore::transaction`](crate::LogStore::transaction) does, and commits
    /// only if no watched key has changed at that instant. `None`: one has changed, and the
    /// transaction did not take place. The transaction's own changes count as changes afterwards.
    ///
    /// # Errors
    /// As for [`LogStore::transaction`](crate::LogStore::transaction); nothing was changed.
    pub fn transaction<T, E: From<WriteError>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.store.transaction(Some(self), &[], body)
    }

    /// [`transaction`](Self::transaction) of keys that are known, as for
    /// [`LogStore::transaction_on`](crate::LogStore::transaction_on).
    ///
    /// # Errors
    /// As for [`LogStore::transaction_on`](crate::LogStore::transaction_on); nothing was changed.
    pub fn transaction_on<K: AsRef<[u8]>, T, E: From<WriteError>>(
        &self,
        keys: &[(usize, K)],
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let places = self.store.places_of(keys)?;
        self.store.transaction(Some(self), &places, body)
    }

    /// How many keys it watches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it watches none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Watched> {
        self.keys.values()
    }

    /// See [`Store::is_as_noted`]. The caller is pinned.
    pub(crate) fn is_as_noted(&self) -> bool {
        self.keys()
            .all(|noted| self.store.records().is_as_noted(noted))
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}
