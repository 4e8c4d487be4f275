//! Looks at collections: **main, anchor and inner records as they were at one instant, where they
//! lie**, without what a transaction writes down of what it reads.
//!
//! Anchors and inner records never change where they lie, and what is replaced never comes back
//! while a thread that has seen it is pinned. So a look reads the main, the anchor, and inner
//! records, and then looks whether the main, the anchor and these inner records are still named by
//! the index. At the first of these looks all of them were. An inner record that is absent needs
//! none: what makes one stores the anchor anew.

use crate::error::{Corrupt, ReadError};
use crate::index::bucket::Entry;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::inner::{Anchor, anchor_key, collection_of, inner_key};
use crate::records::expiry::{Before, RecordLife};
use crate::region::kind::ValueKind;
use crate::region::record::Record;
use crate::region::space::KeyspaceId;
use crate::store::components::Store;

/// Looks that others have overtaken, after which a transaction is the better way.
const TRIES: u32 = 3;

/// A look at a collection, see [`Database::look`](crate::Database::look).
pub struct Look<'s> {
    store: &'s Store,
    id: u64,
    anchor: Anchor,
    /// What was found.
    seen: Vec<(Root, Place, Entry)>,
}

impl<'s> Look<'s> {
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
        let found = self.find(KeyspaceId::INNER, &inner_key(self.id, number))?;
        Ok(found.map(|record| record.value()))
    }

    /// A record of a hidden keyspace.
    fn find(&mut self, space: KeyspaceId, key: &[u8]) -> Result<Option<Record<'s>>, ReadError> {
        let Some(root) = self.store.root(space)? else {
            return Ok(None);
        };
        let place = self.store.place(key);
        let segment = self.store.mem.index_segment(root, place)?;
        let seen = self.store.find(root, place, segment, key)?;
        let Some(found) = seen.and_then(|(found, _)| found) else {
            return Ok(None);
        };
        self.seen.push((root, place, found.entry));
        Ok(Some(found.record))
    }

    /// Whether the index still names all that was found.
    fn is_still_there(&self) -> Result<bool, ReadError> {
        for &(root, place, entry) in &self.seen {
            let store = self.store;
            let segment = store.mem.index_segment(root, place)?;
            let found = store.look(root, place, segment, |segment, _| {
                Ok(store.mem.find_entry(segment, entry)?.is_some())
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

impl Store {
    /// See [`Database::look`](crate::Database::look).
    pub(crate) fn look_at_collection<R>(
        &self,
        database: u8,
        key: &[u8],
        kind: ValueKind,
        mut visit: impl FnMut(&mut Look<'_>) -> R,
    ) -> Result<Option<R>, ReadError> {
        if !self.lends {
            return Ok(None);
        }
        let place = self.place(key);
        for _ in 0..TRIES {
            let (_pin, space) = self.enter_to_read(database)?;
            let Some(root) = self.root(space)? else {
                return Ok(None);
            };
            let segment = self.mem.index_segment(root, place)?;
            let seen = self.find(root, place, segment, key)?;
            let Some(found) = seen.and_then(|(found, _)| found) else {
                return Ok(None);
            };
            let record = found.record;
            let is_live = self.life(record.expires(), &Before::default()) == RecordLife::Live;
            if !is_live || record.header().kind() != kind || !kind.is_large() {
                return Ok(None);
            }
            let no_id = || Corrupt::at(found.entry.loc().byte(), "a main that is no id");
            let id = collection_of(record.value()).ok_or_else(no_id)?;
            let mut look = Look {
                store: self,
                id,
                anchor: Anchor::new(kind),
                seen: Vec::with_capacity(4),
            };
            look.seen.push((root, place, found.entry));
            let Some(anchor) = look.find(KeyspaceId::ANCHORS, &anchor_key(id))? else {
                // It was removed meanwhile, or there never was one, which the other way reports.
                continue;
            };
            let no_anchor = || Corrupt::at(found.entry.loc().byte(), "a main without an anchor");
            look.anchor = Anchor::decode(anchor.value()).ok_or_else(no_anchor)?;
            let result = visit(&mut look);
            if look.is_still_there()? {
                self.note_access(root, place);
                return Ok(Some(result));
            }
        }
        Ok(None)
    }
}
