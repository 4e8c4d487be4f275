//! Transactions: several keys, of any databases, read and changed as if at one instant.
//!
//! **No thread sees a part of a transaction, even if a process dies in the middle.** A transaction
//! runs optimistically: its body reads, and appends new records that the index does not name yet.
//! Committing locks the home buckets of all its keys, in the order of their locations, checks that
//! its reads are unchanged, and publishes (see [`commit`]). On a conflict the body runs again,
//! after some conflicts under locks (see [`ahead`]).
//!
//! Readers of its keys wait while it publishes. Writers in the same buckets wait while these are
//! locked. All others are unaffected.

mod attempts;
mod collections;
mod commit;
mod database;
mod few;
mod home_buckets;
mod index_growth;
mod known_keys;
mod own_records;
mod reads;
mod said;
mod undo;

use std::any::Any;

use hashbrown::hash_table::HashTable;
use mneme_sync::{Pin, Slot, SlotError};
use mneme_sys::fault::without;
use smallvec::SmallVec;

use crate::error::{ReadError, WriteError};
use crate::index::bucket::{Entry, HomeWord};
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::records::expiry::{Expiry, Stored};
use crate::region::kind::ValueKind;
use crate::region::mem::Loc;
use crate::region::space::{DATABASES, KeyspaceId};
use crate::store::components::Store;
use crate::store::watch::Watch;

pub(crate) use crate::index::intent::TRANSACTION_LANE as LANE;
pub use database::TransactionOn;
use few::OwnedKey;
use index_growth::Growth;
use known_keys::Ahead;
use own_records::Own;
use said::{Said, Touched};

/// A key as a transaction has read it.
struct Read {
    space: KeyspaceId,
    place: Place,
    key: OwnedKey,
    /// The index in which it was looked up, if there was one.
    root: Option<Root>,
    /// The home bucket's word at that time, if there was a bucket.
    seen: Option<HomeWord>,
    /// The entry that was found.
    entry: Option<Entry>,
    /// Whether the record can change without a change of its entry.
    mutable: bool,
    /// When the record that was seen expires; 0: never, or there was none.
    expires: u64,
}

/// A key as a transaction changes it.
struct Write {
    database: u8,
    root: Root,
    place: Place,
    key: OwnedKey,
    /// The record, and its size; `None`: the key is to be absent.
    new: Option<(Loc, u64)>,
    expiry: Expiry,
    /// Whether the record has more space than its value needs.
    has_slack: bool,
}

impl Write {
    fn is_of(&self, database: u8, place: Place, key: &[u8]) -> bool {
        self.place == place && self.database == database && *self.key == *key
    }
}

/// One attempt at a transaction, see [`LogStore::transaction`](crate::LogStore::transaction).
///
/// Its operations are on database 0; [`database`](Self::database) gives access to the others. They
/// see what the transaction itself has written before.
pub struct Transaction<'a> {
    store: &'a Store,
    slot: &'a Slot<'a>,
    /// The pin keeps everything that was read and written in place until the attempt is over, and
    /// the spaces of databases unchanged.
    _pin: Pin<'a>,
    /// The time, in milliseconds since the Unix epoch, fixed for the attempt.
    now_ms: u64,
    /// The indexes of the databases and hidden keyspaces that it has used.
    roots: SmallVec<[(u8, Option<Root>); 4]>,
    reads: Vec<Read>,
    writes: Vec<Write>,
    /// The numbers in `writes`, by the places of the keys. Empty while there are few.
    written: HashTable<usize>,
    /// Its own records that it no longer needs.
    spare: Vec<Own>,
    /// Its notes about elements of collections.
    said: Said,
    /// Keys whose collections it changes.
    touched: Vec<Touched>,
    /// Collections whose mains it has stored, and replaced or removed again.
    unowned: Vec<u64>,
    /// The number of bytes for which the attempt found no space.
    wanting: Option<u64>,
    /// Whether, in a full store, it has freed at least as much as it has written.
    frees_space: bool,
    /// Bytes of the records that its first writes replace or remove, and the number of these
    /// writes.
    freed: (usize, u64),
    /// Whether the body could not continue because the change feed was full.
    awaits_feed: bool,
    /// Whether its changes, which are too long for an entry of the feed, were sent ahead.
    sent_ahead: bool,
    /// Keys that must not have changed since they were watched.
    watch: Option<&'a Watch>,
    /// The homes that are locked before the body runs.
    ahead: Option<Ahead<'a>>,
    growth: Growth,
    /// Whether the writes may be committed: set from the announcement until the outcome is known.
    may_be_committed: bool,
    /// Data that a layer above keeps for this attempt.
    attached: Option<Box<dyn Any>>,
}

impl<'a> Transaction<'a> {
    fn new(
        store: &'a Store,
        slot: &'a Slot<'a>,
        watch: Option<&'a Watch>,
    ) -> Result<Transaction<'a>, WriteError> {
        Ok(Transaction {
            store,
            slot,
            _pin: store.index().enter_all(slot)?,
            now_ms: store.session().clock.wall_ms(),
            roots: SmallVec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            written: HashTable::new(),
            spare: Vec::new(),
            said: Said::default(),
            touched: Vec::new(),
            unowned: Vec::new(),
            wanting: None,
            frees_space: false,
            freed: (0, 0),
            awaits_feed: false,
            sent_ahead: false,
            watch,
            ahead: None,
            may_be_committed: false,
            attached: None,
            growth: Growth::Unprepared,
        })
    }

    /// One of the 64 databases.
    ///
    /// # Errors
    /// [`WriteError::NoSuchDatabase`] from 64 on.
    pub fn database(&mut self, number: usize) -> Result<TransactionOn<'_, 'a>, WriteError> {
        if number >= DATABASES {
            return Err(WriteError::NoSuchDatabase(number));
        }
        Ok(TransactionOn {
            transaction: self,
            database: number as u8,
        })
    }

    /// Milliseconds since the Unix epoch, fixed for the whole attempt: no record expires in the
    /// middle of it. If a record that was read has expired by the time of the commit, there is
    /// another attempt, as after any other conflict.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.now_ms
    }

    /// Data that a layer above keeps for this attempt; initially nothing. It is dropped with the
    /// attempt, whether that commits or not.
    pub fn attached(&mut self) -> &mut Option<Box<dyn Any>> {
        &mut self.attached
    }

    fn has_passed(&self, expires: u64) -> bool {
        expires != 0 && expires <= self.now_ms && !without("txn.expired")
    }

    /// Whether a record that was read has expired since, so that another attempt must treat it as
    /// absent.
    fn has_outlived_what_it_saw(&self) -> bool {
        let expiries = self.reads.iter().map(|read| read.expires);
        let first = expiries.filter(|expires| *expires != 0).min();
        first.is_some_and(|first| self.store.records().has_passed(first)) && !without("txn.expired")
    }

    fn zero(&mut self) -> TransactionOn<'_, 'a> {
        TransactionOn {
            transaction: self,
            database: 0,
        }
    }

    /// The value of `key`, a string.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`WriteError::WrongKind`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, WriteError> {
        self.zero().get(key)
    }

    /// Calls `visit` with what is stored under `key`, of whatever kind, in place.
    ///
    /// # Errors
    /// As for [`LogStore::get`](crate::LogStore::get); the transaction has no effect.
    pub fn read<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> Result<R, WriteError> {
        self.zero().read(key, visit)
    }

    /// When `key` expires. `None`: it is absent. Its value is not read.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn expiry(&mut self, key: &[u8]) -> Result<Option<Expiry>, WriteError> {
        self.zero().expiry(key)
    }

    /// Bytes that the record of `key` occupies, or will once the transaction is committed.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn record_bytes(&mut self, key: &[u8]) -> Result<Option<u64>, WriteError> {
        self.zero().record_bytes(key)
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// As for [`LogStore::put`](crate::LogStore::put); the transaction has no effect. Pass
    /// [`WriteError::OutOfMemory`] on: the transaction may have another attempt.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.zero().put(key, value)
    }

    /// The kind of the value of `key`. `None`: it is absent. The value is not read.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<ValueKind>, WriteError> {
        self.zero().kind(key)
    }

    /// Stores `value` under `key` until its expiry.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_until(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), WriteError> {
        self.zero().put_until(key, value, expiry)
    }

    /// Removes `key`. Returns whether it was present.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError> {
        self.zero().remove(key)
    }

    /// The store.
    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// The keyspace of a database, or the hidden one of this number.
    fn space_of(&self, number: u8) -> KeyspaceId {
        match KeyspaceId::of_number(number.into()) {
            Some(hidden) if hidden.is_hidden() => hidden,
            _ => self.store.index().entered_space(number),
        }
    }

    /// The index of a database. It stays fixed for the whole attempt, so that a concurrent clearing
    /// takes place either before all of it or after all of it.
    fn root(&mut self, database: u8) -> Result<Option<Root>, ReadError> {
        if let Some((_, root)) = self.roots.iter().find(|(used, _)| *used == database) {
            return Ok(*root);
        }
        let root = self.store.index().root(self.space_of(database))?;
        self.roots.push((database, root));
        Ok(root)
    }

    /// As [`root`](Self::root), created if necessary. `None`: no free space.
    fn root_or_create(&mut self, database: u8) -> Result<Option<Root>, WriteError> {
        if let Some(root) = self.root(database)? {
            return Ok(Some(root));
        }
        let space = self.space_of(database);
        let root = self.store.index().root_or_create(self.slot, space);
        self.awaits_feed |= matches!(root, Err(WriteError::FeedFull));
        let root = root?;
        let used = self.roots.iter_mut().find(|(used, _)| *used == database);
        if let (Some((_, used)), Some(_)) = (used, root) {
            *used = root;
        }
        Ok(root)
    }

    /// Fails in a child that was forked by the body: the attempt belongs to its parent. Also fails
    /// if the body has caught a panic of another operation.
    fn may_go_on(&self) -> Result<(), WriteError> {
        match self.store.session().participants.is_forked() {
            true => Err(SlotError::Forked.into()),
            false => self.store.session().may_go_on(self.slot),
        }
    }

    /// Its own records, including those that it no longer needs.
    fn own_records(&self) -> impl Iterator<Item = Own> {
        let written = self.writes.iter().filter_map(|w| w.new);
        written.chain(self.spare.iter().copied())
    }

    /// Bytes that were appended.
    fn bytes(&self) -> u64 {
        self.own_records().map(|(_, size)| size).sum()
    }
}

impl Drop for Transaction<'_> {
    /// Counts the appended records as dead, unless they were committed; also if the body panics.
    fn drop(&mut self) {
        if self.store.session().participants.is_forked() {
            return;
        }
        // If the arena cannot take the notes back now, it does so when this thread is gone.
        let _ = self.give_up_locks();
        if self.may_be_committed {
            // A panic in the middle of the commit: its repair decides what is dead.
            self.store.log().suspect_lost();
            return;
        }
        for (loc, size) in self.own_records() {
            // This fails only because of damage, which the check reports.
            let _ = self.store.log().mark_dead(loc, size);
        }
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("reads", &self.reads.len())
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}
