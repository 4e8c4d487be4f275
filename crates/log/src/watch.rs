//! Watching keys: **a watch that says "unchanged" has missed no change, whoever made it**; one that
//! says "changed" may be wrong.
//!
//! A table of counters, by hash, in the store's region counts changes of keys, but only while
//! somebody keeps a [vigil](mneme_sync::WatchRegistration). A writer that holds a key's home bucket
//! asks whether anybody does, and if so counts, before what it does can be seen: a record that is
//! published, overwritten, removed (also because it has expired, or for want of room) or gets
//! another expiry. To begin watching a key is to begin the vigil, to note the key's counter, and
//! then to wait until its home is found free: who held it and was not told to count is done by
//! then. Whether the order is right is tried in [`crate::models`].
//!
//! What is rarer is told without counting while one watches: a database that was cleared has
//! another index root, whose number is never used again; swaps of databases are counted always; and
//! the note has when the key is to expire, if it was there.
//!
//! Two keys may share a counter: one in as many as there are counters (a store of 1 GiB has
//! 65,536), so that a watch is wrong as often as so many other changes happen meanwhile.
//!
//! A transaction that a watch guards locks the homes of the watched keys with its own, so that the
//! answer holds until it has happened. Who dies while it watches leaves the others counting until
//! it is reaped.

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

/// A key, as it was when watching it began.
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

    /// Watches `key` of a database too, from now on; one that is watched already is watched from
    /// the first time on. Waits for who is just changing it, a second at most.
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
    /// their databases was cleared, and no databases were swapped. "No" may be wrong, seldom; "yes"
    /// is not, but by the time that it arrives: [`transaction`](Self::transaction) is isolated from
    /// others.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        // Roots are in blocks that are freed when nobody is pinned.
        match self.core.participants.pin() {
            Ok(_pin) => self.is_as_noted(),
            Err(_) => false,
        }
    }

    /// Runs `body` as [`LogStore::transaction`](crate::LogStore::transaction) does, so that at the
    /// instant at which it happens nothing watched has changed. `None`: something has, and it did
    /// not happen. What it changes itself counts as changed afterwards.
    ///
    /// # Errors
    /// As for that; nothing was changed.
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
    /// As for those; nothing was changed.
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

/// Counts a change, before anybody can see it.
pub(crate) fn count<W: Word>(counter: &W) {
    // SYNC: pairs with the Acquire loads in `begin_watching` and `is_as_noted`: who sees it counted
    // sees the home locked.
    counter.fetch_add(1, Release);
}

impl Core {
    /// Notes a change of the key at `place`, if anybody watches. The caller holds its home, and
    /// nobody can see the change yet.
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

    /// Notes a key as it is. A vigil has begun.
    fn begin_watching(&self, database: u8, key: &[u8]) -> Result<Watched, ReadError> {
        let slot = self.participants.slot()?;
        // All that is compared later is noted before anything is looked at.
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

    /// Waits until whoever held the home of `place` when this began has given it back.
    fn await_home(&self, slot: &Slot<'_>, root: Root, place: Place) -> Result<(), WriteError> {
        let mut wait = Wait::new();
        let mut first: Option<HomeWord> = None;
        loop {
            // Without a segment nobody holds anything: who makes one finds the vigil begun.
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
                // Held by another since, who found the vigil begun.
                Some(first) if first.at == now.at && !now.same_version(first) => return Ok(()),
                Some(first) if first.at == now.at => {}
                _ => first = Some(now),
            }
            self.wait_for_bucket(slot, &mut wait, now.at, word)?;
        }
    }

    /// Whether nothing has happened to a key since. The caller is pinned; while it holds the key's
    /// home the answer stays right, but for time that passes.
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

/// By which a key of a space gets its counter: keys that differ by place, or lie in different
/// spaces, seldom have the same.
fn hash(space: Space, place: Place) -> u64 {
    let word =
        u64::from(place.partition) << 32 | u64::from(place.tag) << 6 | u64::from(space.number());
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 40
}
