//! Watching keys: **a watch that reports "unchanged" has missed no change by any process**. One
//! that reports "changed" may be wrong.
//!
//! A table of counters, by hash, in the store's region counts changes of keys, but only while there
//! is a [watch registration](mneme_sync::WatchRegistration). A writer that holds a key's home
//! bucket checks for a registration, and if there is one counts its change before the change is
//! visible: a record that is published, overwritten, removed (also by expiry or eviction) or gets
//! another expiry. To begin watching a key, a thread registers, notes the key's counter, and then
//! waits until the key's home is free: a writer that held the home and did not see the registration
//! is done by then. The models in [`crate::models`] check this order.
//!
//! Rarer changes are recognised without these counters: a database that was cleared has another
//! index root, whose number is never used again; swaps of databases are always counted; and the
//! note has the key's expiry, if the key was there.
//!
//! Two keys share a counter with a probability of one in the number of counters (a store of 1 GiB
//! has 65,536). So about one in as many unrelated changes makes a watch wrong.
//!
//! A transaction that a watch guards locks the homes of the watched keys with its own, so that the
//! answer holds until the commit. If a process dies while it watches, the others go on counting
//! until it is reaped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use mneme_sync::{Slot, WatchRegistration, Word};

use crate::core::{Core, Wait};
use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::bucket::HomeWord;
use crate::index::resize::retired;
use crate::index::root::Root;
use crate::index::{Lookup, Place, SegmentRef};
use crate::layout::DATABASES;
use crate::record::MAX_KEY;
use crate::spaces::Space;
use crate::transaction::Transaction;

/// Keys that are watched for changes, see [`LogStore::watch`](crate::LogStore::watch).
///
/// `Send`; it keeps the store open. While it lives, all writers of the store count their changes:
/// drop it soon.
pub struct Watch {
    core: Arc<Core>,
    keys: HashMap<(u8, Box<[u8]>), Watched>,
    _watch: WatchRegistration,
}

/// A key as it was when it was added to the watch.
pub(crate) struct Watched {
    space: Space,
    pub place: Place,
    /// The number of its index; 0: there was none.
    root: u64,
    /// Its counter.
    changes: u64,
    /// How often databases had been swapped.
    swaps: u64,
    /// When it expires; 0: never, or it was not there.
    expires: u64,
}

impl Watch {
    pub(crate) fn new(core: Arc<Core>) -> Result<Watch, ReadError> {
        Ok(Watch {
            _watch: core.participants.register_watch()?,
            keys: HashMap::new(),
            core,
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
        // A key that is too long is absent for ever.
        if key.len() <= MAX_KEY && !self.keys.contains_key(&at) {
            self.keys
                .insert(at, self.core.begin_watching(database, key)?);
        }
        Ok(())
    }

    /// Whether no watched key was changed, removed, or has expired since it was added, none of
    /// their databases was cleared, and no databases were swapped. False may be wrong, seldom. True
    /// is right, but may be out of date when it is returned: use [`transaction`](Self::transaction)
    /// to be isolated from others.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        // The pin keeps the blocks of index roots from being freed.
        match self.core.participants.pin() {
            Ok(_pin) => self.is_as_noted(),
            Err(_) => false,
        }
    }

    /// Runs `body` as [`LogStore::transaction`](crate::LogStore::transaction) does, and commits
    /// only if nothing watched has changed at that instant. `None`: something has changed, and the
    /// transaction did not take place. What it changes itself counts as changed afterwards.
    ///
    /// # Errors
    /// As for [`LogStore::transaction`](crate::LogStore::transaction); nothing was changed.
    pub fn transaction<T, E: From<WriteError>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.core.transaction(Some(self), &[], body)
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
        let places = self.core.places_of(keys)?;
        self.core.transaction(Some(self), &places, body)
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

    /// See [`Core::is_as_noted`]. The caller is pinned.
    pub(crate) fn is_as_noted(&self) -> bool {
        self.keys().all(|noted| self.core.is_as_noted(noted))
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Counts a change, before it is visible.
pub(crate) fn count<W: Word>(counter: &W) {
    // SYNC: pairs with the Acquire load in `changes`, for `begin_watching` and `is_as_noted`: a
    // thread that sees the new count sees the home locked.
    counter.fetch_add(1, Release);
}

impl Core {
    /// Counts a change of the key at `place`, if any process watches. The caller holds the key's
    /// home, and the change is not visible yet.
    #[inline(always)]
    pub(crate) fn note_change(&self, root: Root, place: Place) {
        if self.participants.is_watched() {
            self.count_change(root.space(), place);
        }
    }

    #[cold]
    fn count_change(&self, space: Space, place: Place) {
        count(self.tables.changes_of(hash(space, place)));
    }

    fn changes(&self, space: Space, place: Place) -> u64 {
        // SYNC: pairs with the Release in `count`.
        self.tables.changes_of(hash(space, place)).load(Acquire)
    }

    fn swaps(&self) -> u64 {
        // SYNC: pairs with the Release in `swap_databases`.
        self.tables.header().swaps.load(Acquire)
    }

    /// Notes a key as it is. The watch is registered.
    fn begin_watching(&self, database: u8, key: &[u8]) -> Result<Watched, ReadError> {
        let slot = self.participants.slot()?;
        // All that is compared later is noted before the key is looked at.
        let swaps = self.swaps();
        let (_pin, space) = self.enter(&slot, database)?;
        let place = self.place(key);
        let changes = self.changes(space, place);
        let mut noted = Watched {
            space,
            place,
            root: 0,
            changes,
            swaps,
            expires: 0,
        };
        if let Some(root) = self.root(space)? {
            noted.root = self.root_id(root)?;
            self.await_home(&slot, root, place)
                .map_err(WriteError::while_reading)?;
            let segment = self.mem.index_segment(root, place)?;
            let found = self.find(root, place, segment, key)?;
            let expires = found.map_or(0, |found| found.record.expires());
            if !self.has_passed(expires) {
                noted.expires = expires;
            }
        }
        Ok(noted)
    }

    /// Waits until the thread that held the home of `place` when this began has released it.
    fn await_home(&self, slot: &Slot<'_>, root: Root, place: Place) -> Result<(), WriteError> {
        let mut wait = Wait::new();
        let mut first: Option<HomeWord> = None;
        loop {
            // Without a segment no thread holds a home: a thread that makes one sees the
            // registration.
            let Some(segment) = self.mem.index_segment(root, place)? else {
                return Ok(());
            };
            let home = self.mem.bucket(segment, segment.home(place.tag))?;
            let word = home.word();
            let now = segment.home_word(place.tag, word);
            if !word.locked() {
                return Ok(());
            }
            if word.retired() {
                if !wait.found_retired(segment.word()) {
                    return Err(retired(segment.loc()).into());
                }
                first = None;
                continue;
            }
            match first {
                // Another thread has taken the lock since, and has seen the registration.
                Some(first) if first.at == now.at && !now.same_version(first) => return Ok(()),
                Some(first) if first.at == now.at => {}
                _ => first = Some(now),
            }
            self.wait_for_bucket(slot, &mut wait, now.at, word)?;
        }
    }

    /// Whether a key is unchanged since. The caller is pinned. While it holds the key's home the
    /// answer stays right, except that the key may expire.
    pub(crate) fn is_as_noted(&self, noted: &Watched) -> bool {
        let same_root = |root: Root| self.root_id(root).is_ok_and(|id| id == noted.root);
        self.swaps() == noted.swaps
            && self.changes(noted.space, noted.place) == noted.changes
            && !self.has_passed(noted.expires)
            && (noted.root == 0
                || matches!(self.root(noted.space), Ok(Some(root)) if same_root(root)))
    }

    /// The index segment that a watched key's home is in, if there is one.
    pub(crate) fn watched_segment(&self, noted: &Watched) -> Result<Option<SegmentRef>, Corrupt> {
        match self.root(noted.space)? {
            Some(root) => self.mem.index_segment(root, noted.place),
            None => Ok(None),
        }
    }
}

/// The hash by which a key of a space gets its counter. Keys of different places or spaces seldom
/// share one.
fn hash(space: Space, place: Place) -> u64 {
    let word =
        u64::from(place.partition) << 32 | u64::from(place.tag) << 6 | u64::from(space.number());
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 40
}
