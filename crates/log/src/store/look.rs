//! Validated reads of collections: **main, anchor and inner records as they were at one instant, in
//! place**, without the notes that a transaction keeps about its reads.
//!
//! Anchors and inner records never change in place, and what is replaced never comes back while a
//! thread that has seen it is pinned. So a look reads the main, the anchor, and inner records, and
//! then checks whether the index still names all of these. If so, all of them were valid at the
//! first of these checks. An absent inner record needs no check: a thread that adds one stores the
//! anchor again.
//!
//! **A look at a whole collection ends, however often others change it.** It first finds all inner
//! records, and reads them only after that has been checked ([`Look::find_all`]). If others have
//! changed the collection meanwhile, the next look finds them while it holds the lock of the main's
//! home: a thread that changes a collection has read its main, and locks the homes of everything
//! that it has read. The records stay in place after the unlocking, because the thread is pinned.
//! So writers wait while a collection is found, and not while it is copied or decoded.

use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;
use std::time::Duration;

use mneme_sys::fault::without;

use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::bucket::{Entry, HomeWord};
use crate::index::lookup::Lookup;
use crate::index::prefetch::{AHEAD_LINES, Fetch, WIDTH};
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::inner::{
    Anchor, InnerNumbers, anchor_key, collection_of, inner_key, leaf_of, numbers_of,
};
use crate::records::expiry::{Before, RecordLife};
use crate::region::kind::ValueKind;
use crate::region::record::Record;
use crate::region::space::KeyspaceId;
use crate::store::components::Store;

/// The number of looks that may fail because of changes before a transaction is used.
const TRIES: u32 = 3;
/// The longest collection, in bytes, that is found under the lock of its key: a waiter fails after
/// a second. No value that is returned as a whole is longer.
const MOST_UNDER_LOCK: u64 = 1 << 30;

/// Bytes of leaves that are likely to be in a processor's cache, if they are in use.
const MOST_CACHED: u64 = 1 << 20;

/// The maximum number of inner records for which memory is reserved before they are found.
const MOST_RESERVED: u64 = 1 << 12;

/// A look at a collection, see [`Database::look`](crate::Database::look).
pub struct Look<'s> {
    store: &'s Store,
    id: u64,
    anchor: Anchor,
    /// What the look has found.
    seen: Vec<Found>,
    all: All<'s>,
}

/// An entry that a look has found, and its home bucket's word at that time.
#[derive(Clone, Copy)]
struct Found {
    root: Root,
    place: Place,
    entry: Entry,
    home: HomeWord,
}

/// What a look knows about all inner records.
enum All<'s> {
    /// Nothing: they are found one by one.
    Unknown,
    /// All of them at one instant, in the order of their numbers.
    Found(Vec<(u64, Record<'s>)>),
    /// The collection was changed while they were found. The look fails.
    Overtaken,
}

impl<'s> Look<'s> {
    fn new(store: &'s Store, id: u64, kind: ValueKind) -> Look<'s> {
        Look {
            store,
            id,
            anchor: Anchor::new(kind),
            seen: Vec::with_capacity(4),
            all: All::Unknown,
        }
    }

    /// The id of the collection.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its anchor.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Its inner record of this number. `None`: there is none.
    ///
    /// # Errors
    /// As for [`LogStore::get`](crate::LogStore::get).
    pub fn inner(&mut self, number: u64) -> Result<Option<&'s [u8]>, ReadError> {
        if let All::Found(all) = &self.all {
            let at = all.binary_search_by_key(&number, |(number, _)| *number);
            return Ok(at.ok().map(|at| all[at].1.value()));
        }
        let found = self.find(KeyspaceId::INNER, &inner_key(self.id, number))?;
        Ok(found.map(|record| record.value()))
    }

    /// Finds all its inner records. Called before they are read, if all will be: then the look
    /// ends, however often others change the collection.
    ///
    /// # Errors
    /// As for [`LogStore::get`](crate::LogStore::get). After an error the look fails.
    pub fn find_all(&mut self) -> Result<(), ReadError> {
        if matches!(self.all, All::Found(_)) {
            return Ok(());
        }
        let all = self.find_inner_records()?;
        if !self.is_still_there()? {
            self.all = All::Overtaken;
            return Err(ReadError::Overtaken(Duration::ZERO));
        }
        self.all = All::Found(all);
        Ok(())
    }

    fn find_inner_records(&mut self) -> Result<Vec<(u64, Record<'s>)>, ReadError> {
        let (mut all, mut numbers) = (Vec::new(), InnerNumbers::of(&self.anchor));
        let id = self.id;
        let mut left = self.anchor.leaves.saturating_add(self.anchor.tree.numbers);
        let likely = left.min(MOST_RESERVED) as usize;
        all.reserve(likely);
        self.seen.reserve(likely);
        while let Some(number) = numbers.next(|number| {
            let branch = self.find(KeyspaceId::INNER, &inner_key(id, number))?;
            let image = branch.map_or(&[][..], |branch| branch.value());
            Ok::<_, ReadError>(numbers_of(image).collect())
        })? {
            left = left.checked_sub(1).ok_or_else(|| {
                let what = format!("the tree of collection {id} leads to itself");
                Corrupt::at(0, what)
            })?;
            if let Some(record) = self.find(KeyspaceId::INNER, &inner_key(id, number))? {
                all.push((number, record));
            }
        }
        all.sort_unstable_by_key(|(number, _)| *number);
        Ok(all)
    }

    /// Finds the anchor. `None`: there is none.
    fn find_anchor(&mut self) -> Result<Option<Anchor>, ReadError> {
        let Some(record) = self.find(KeyspaceId::ANCHORS, &anchor_key(self.id))? else {
            return Ok(None);
        };
        let no_anchor = || Corrupt::at(0, format!("the anchor of collection {} is none", self.id));
        let anchor = Anchor::decode(record.value(), self.store.log().most_bytes());
        self.anchor = anchor.ok_or_else(no_anchor)?;
        Ok(Some(self.anchor))
    }

    /// A record of a hidden keyspace.
    fn find(&mut self, space: KeyspaceId, key: &[u8]) -> Result<Option<Record<'s>>, ReadError> {
        let Some(root) = self.store.index().root(space)? else {
            return Ok(None);
        };
        let place = self.store.index().place(key);
        let segment = self.store.session().mem.index_segment(root, place)?;
        let seen = self.store.index().find(root, place, segment, key)?;
        let Some((Some(found), home)) = seen else {
            return Ok(None);
        };
        let entry = found.entry;
        self.seen.push(Found {
            root,
            place,
            entry,
            home,
        });
        Ok(Some(found.record))
    }

    /// Whether everything that the look has shown was there at one instant.
    fn is_valid(&self) -> Result<bool, ReadError> {
        match self.all {
            All::Unknown => self.is_still_there(),
            All::Found(_) => Ok(true),
            All::Overtaken => Ok(false),
        }
    }

    /// Whether the index still names all that was found.
    fn is_still_there(&self) -> Result<bool, ReadError> {
        if without("look.valid") {
            return Ok(true);
        }
        // The index of a database that was cleared stays as it is while a thread is pinned, but the
        // collections of its mains are freed.
        if let Some(main) = self.seen.first().map(|main| main.root)
            && self.store.index().root(main.space())? != Some(main)
        {
            return Ok(false);
        }
        // SYNC: whatever was read of the records was read before the words are read again.
        fence(Acquire);
        for &Found {
            root,
            place,
            entry,
            home,
        } in &self.seen
        {
            let store = self.store;
            // Most homes were not locked since.
            if home.word.is_unlocked() && store.session().mem.home_word(home.at)? == home {
                continue;
            }
            let segment = store.session().mem.index_segment(root, place)?;
            let found = store.index().look(root, place, segment, |segment, _| {
                Ok(store.session().mem.find_entry(segment, entry)?.is_some())
            })?;
            if !found.is_some_and(|(found, _)| found) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl std::fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look")
            .field("id", &self.id)
            .field("anchor", &self.anchor)
            .finish_non_exhaustive()
    }
}

/// The main that a look has found, and the collection's id.
type FoundMain = (Found, u64);

impl Store {
    /// See [`Database::look`](crate::Database::look).
    pub(crate) fn look_at_collection<R>(
        &self,
        database: u8,
        key: &[u8],
        kind: ValueKind,
        mut visit: impl FnMut(&mut Look<'_>) -> R,
    ) -> Result<Option<R>, ReadError> {
        if !self.records().lends {
            return Ok(None);
        }
        let place = self.index().place(key);
        for _ in 0..TRIES {
            let (_pin, space) = self.index().enter_to_read(database)?;
            let Some(root) = self.index().root(space)? else {
                return Ok(None);
            };
            let Some((main, id)) = self.find_main((root, place), key, kind)? else {
                return Ok(None);
            };
            let mut look = Look::new(self, id, kind);
            look.seen.push(main);
            if look.find_anchor()?.is_none() {
                // It was removed meanwhile, or there never was one, which the other way reports.
                continue;
            }
            let result = visit(&mut look);
            if look.is_valid()? {
                self.records().note_access(root, place);
                return Ok(Some(result));
            }
            if !matches!(look.all, All::Unknown) {
                drop(look);
                return self.look_under_lock(database, key, kind, visit);
            }
        }
        Ok(None)
    }

    /// As [`look_at_collection`](Self::look_at_collection), for a whole collection, whose inner
    /// records are found while the home of its key is locked. The caller is pinned.
    fn look_under_lock<R>(
        &self,
        database: u8,
        key: &[u8],
        kind: ValueKind,
        mut visit: impl FnMut(&mut Look<'_>) -> R,
    ) -> Result<Option<R>, ReadError> {
        if self.session().read_only {
            return Ok(None);
        }
        let (slot, place) = (self.session().participants.slot()?, self.index().place(key));
        let find = |root| {
            let Some((_, id)) = self.find_main((root, place), key, kind)? else {
                return Ok(None);
            };
            let mut look = Look::new(self, id, kind);
            match look.find_anchor()? {
                Some(anchor)
                    if anchor.bytes.saturating_add(anchor.tree.bytes) <= MOST_UNDER_LOCK => {}
                _ => return Ok(None),
            }
            mneme_sys::fault!("look.locked");
            look.all = All::Found(look.find_inner_records()?);
            Ok(Some((look, root)))
        };
        let found = self
            .with_home_locked(&slot, (database, place), find)
            .map_err(WriteError::while_reading)?;
        let Some((mut look, root)) = found.flatten() else {
            return Ok(None);
        };
        let result = visit(&mut look);
        self.records().note_access(root, place);
        Ok(Some(result))
    }

    /// Starts to prefetch the leaves for these hashes, of the collection that `key` leads to. What
    /// is seen here is not validated, and does not outlive the call, as in
    /// [`prefetch_many`](Self::prefetch_many).
    pub(crate) fn prefetch_leaves(
        &self,
        database: u8,
        key: &[u8],
        hashes: impl Iterator<Item = u64>,
    ) {
        // Damage is reported to the operation that finds it.
        let _ = self.try_prefetch_leaves(database, key, hashes);
    }

    fn try_prefetch_leaves(
        &self,
        database: u8,
        key: &[u8],
        hashes: impl Iterator<Item = u64>,
    ) -> Result<(), ReadError> {
        let index = self.index();
        let _pin = self.session().participants.pin()?;
        // If records are overwritten, only a look that waits may read them.
        let root = index.space(database).filter(|_| self.records().lends);
        let root = root.map(|space| index.root(space)).transpose()?.flatten();
        let Some(main) = root
            .map(|root| self.seek_plain(root, key))
            .transpose()?
            .flatten()
        else {
            return Ok(());
        };
        let id = match main.header().kind().is_large() {
            true => collection_of(main.value()),
            false => None,
        };
        let (Some(id), Some(anchors)) = (id, index.root(KeyspaceId::ANCHORS)?) else {
            return Ok(());
        };
        let anchor = self.seek_plain(anchors, &anchor_key(id))?;
        let anchor =
            anchor.and_then(|record| Anchor::decode(record.value(), self.log().most_bytes()));
        let anchor = anchor.filter(|anchor| anchor.bytes > MOST_CACHED);
        let (Some(anchor), Some(inner)) = (anchor, index.root(KeyspaceId::INNER)?) else {
            return Ok(());
        };
        let (mut keys, mut count) = ([[0; 16]; WIDTH], 0);
        for (key, hash) in keys.iter_mut().zip(hashes) {
            *key = inner_key(id, leaf_of(hash, anchor.leaves));
            count += 1;
        }
        let ahead = index.prefetch_batch(inner, &&keys[..count], Fetch::Values)?;
        for loc in ahead.locs.into_iter().flatten() {
            index.prefetch_rest(loc, AHEAD_LINES);
        }
        Ok(())
    }

    /// The record of `key`, without waiting. The caller is pinned.
    fn seek_plain(&self, root: Root, key: &[u8]) -> Result<Option<Record<'_>>, ReadError> {
        let place = self.index().place(key);
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(None);
        };
        let found = self.session().mem.find_in(segment, place.tag, key)?;
        let plain = found.filter(|found| found.record.header().capacity().is_none());
        Ok(plain.map(|found| found.record))
    }

    /// The main of this kind under `key`, and the id of its collection. `None`: there is none.
    fn find_main(
        &self,
        (root, place): (Root, Place),
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Option<FoundMain>, ReadError> {
        let segment = self.session().mem.index_segment(root, place)?;
        let seen = self.index().find(root, place, segment, key)?;
        let Some((Some(found), home)) = seen else {
            return Ok(None);
        };
        let record = found.record;
        let is_live = self.records().life(record.expires(), &Before::default()) == RecordLife::Live;
        if !is_live || record.header().kind() != kind || !kind.is_large() {
            return Ok(None);
        }
        let no_id = || Corrupt::at(found.entry.loc().byte(), "a main that is no id");
        let id = collection_of(record.value()).ok_or_else(no_id)?;
        let entry = found.entry;
        Ok(Some((
            Found {
                root,
                place,
                entry,
                home,
            },
            id,
        )))
    }
}
