//! Collections within a transaction: their anchors, their inner records, and the items of their
//! elements in the change feed (see [`crate::inner`]).
//!
//! Anchors and inner records are records of hidden keyspaces, which a transaction reads and writes
//! as it does those of databases. So a change of a collection is seen whole or not at all, and one
//! repair completes all of it.

use std::sync::atomic::Ordering::Relaxed;

use crate::error::{Corrupt, WriteError};
use crate::inner::{Anchor, MainPlace, anchor_key, collection_of, inner_key};
use crate::records::expiry::Expiry;
use crate::region::kind::ValueKind;
use crate::region::space::KeyspaceId;

use super::said::Touched;
use super::{Transaction, TransactionOn};

impl<'a> Transaction<'a> {
    /// The records of a hidden keyspace.
    fn hidden(&mut self, space: KeyspaceId) -> TransactionOn<'_, 'a> {
        TransactionOn {
            transaction: self,
            database: space.number(),
        }
    }

    /// The id of a new collection, which no other has or had. It needs an
    /// [anchor](Self::set_anchor) and a main, which [`put_kind`](TransactionOn::put_kind) stores.
    pub fn new_collection(&mut self) -> u64 {
        // Relaxed: it is a number that nobody else gets.
        let last = (self.store.session().tables.header().next_collection).fetch_add(1, Relaxed);
        last + 1
    }

    /// The anchor of a collection. `None`: there is none, or it was removed.
    ///
    /// # Errors
    /// As for [`read`](Self::read); the record is not an anchor.
    pub fn anchor(&mut self, id: u64) -> Result<Option<Anchor>, WriteError> {
        let most = self.store.log().most_bytes();
        let found = self
            .hidden(KeyspaceId::ANCHORS)
            .read(&anchor_key(id), |stored| {
                stored.map(|stored| Anchor::decode(stored.value, most))
            })?;
        match found {
            None => Ok(None),
            Some(Some(anchor)) => Ok(Some(anchor)),
            Some(None) => Err(no_anchor(id).into()),
        }
    }

    /// Stores the anchor of a collection. The place of its main in it does not change.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn set_anchor(&mut self, id: u64, anchor: &Anchor) -> Result<(), WriteError> {
        let next = &self.store.session().tables.header().next_collection;
        // Relaxed: no other thread gets this number. An id that is stored again, after the loss of
        // a store, is not given to another collection.
        if next.load(Relaxed) < id {
            next.fetch_max(id, Relaxed);
        }
        self.put_hidden(KeyspaceId::ANCHORS, &anchor_key(id), &anchor.encode())
    }

    /// Removes the anchor of a collection that no longer has inner records.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn remove_anchor(&mut self, id: u64) -> Result<bool, WriteError> {
        self.hidden(KeyspaceId::ANCHORS).remove(&anchor_key(id))
    }

    /// Calls `visit` with inner record `number` of a collection, in place; `None`: there is none.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_inner<R>(
        &mut self,
        id: u64,
        number: u64,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, WriteError> {
        let mut inner = self.hidden(KeyspaceId::INNER);
        inner.read(&inner_key(id, number), |stored| {
            visit(stored.map(|stored| stored.value))
        })
    }

    /// Stores inner record `number` of a collection.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_inner(&mut self, id: u64, number: u64, image: &[u8]) -> Result<(), WriteError> {
        self.put_hidden(KeyspaceId::INNER, &inner_key(id, number), image)
    }

    /// Removes inner record `number` of a collection. Returns whether it was present.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn remove_inner(&mut self, id: u64, number: u64) -> Result<bool, WriteError> {
        let mut inner = self.hidden(KeyspaceId::INNER);
        inner.remove(&inner_key(id, number))
    }

    /// Notes for the change feed that an element of a collection of this kind has this value now;
    /// `None`: that the collection does not have the element. The key of an element has at most
    /// [`MAX_KEY`](crate::MAX_KEY) bytes.
    pub fn say(&mut self, id: u64, kind: ValueKind, element: &[u8], value: Option<&[u8]>) {
        let (feed, said) = (&self.store.session().feed, &mut self.said);
        if feed.kept().is_none() {
            // Listeners learn only whether elements were set or removed.
            let mut all = said.lengths.iter();
            let is_said = all.any(|(_, other)| other.is_some() == value.is_some());
            if feed.has_other_followers() && !is_said {
                said.bytes.extend_from_slice(&id.to_be_bytes());
                let value = value.map(|_| (kind.number(), 0));
                said.lengths.push((size_of::<u64>(), value));
            }
            return;
        }
        said.bytes.extend_from_slice(&id.to_be_bytes());
        said.bytes.extend_from_slice(element);
        said.bytes.extend_from_slice(value.unwrap_or_default());
        let key = size_of::<u64>() + element.len();
        let value = value.map(|value| (kind.number(), value.len()));
        said.lengths.push((key, value));
    }

    /// Notes for the change feed that the sweep of a collection begins.
    pub(crate) fn say_swept(&mut self, id: u64) {
        if self.store.session().feed.kept().is_some() {
            self.said.swept.push(id.to_be_bytes());
        }
    }

    fn put_hidden(
        &mut self,
        space: KeyspaceId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        self.may_go_on()?;
        self.store.session().may_write()?;
        let kind = match space {
            KeyspaceId::ANCHORS => ValueKind::ANCHOR,
            _ => ValueKind::INNER,
        };
        self.store_own(space.number(), key, value, (kind, Expiry::Never), false)
    }

    /// Notes, in the anchor of the collection that a main of this value leads to, that the main is
    /// stored under `key`. A collection without an anchor gets one.
    pub(super) fn own_collection(
        &mut self,
        database: u8,
        key: &[u8],
        (kind, value): (ValueKind, &[u8]),
    ) -> Result<(), WriteError> {
        let no_id = || Corrupt::at(0, "a value of a large kind that is no id of a collection");
        let id = collection_of(value).ok_or_else(no_id)?;
        let Some(root) = self.root_or_create(database)? else {
            return Err(self.no_space(0));
        };
        let owner = MainPlace::new(
            self.store.index().root_id(root)?,
            self.store.index().place(key),
        );
        let before = self.anchor(id)?;
        let anchor = before.unwrap_or(Anchor::new(kind));
        if before.is_some() && anchor.owner == owner {
            return Ok(());
        }
        self.set_anchor(id, &Anchor { owner, ..anchor })
    }
}

impl TransactionOn<'_, '_> {
    /// Makes the transaction count as a change of `key`, which it has read, although the record
    /// stays as it is: the transaction changes the collection that the record leads to.
    ///
    /// # Errors
    /// As for [`Transaction::read`].
    pub fn touch(&mut self, key: &[u8]) -> Result<(), WriteError> {
        let (t, database) = (&mut *self.transaction, self.database);
        let place = t.store.index().place(key);
        let is_touched = t
            .touched
            .iter()
            .any(|of| of.database == database && of.place == place && *of.key == *key);
        match t.root(database)? {
            Some(root) if !is_touched => t.touched.push(Touched {
                database,
                root,
                place,
                key: key.into(),
            }),
            _ => {}
        }
        Ok(())
    }
}

#[cold]
fn no_anchor(id: u64) -> Corrupt {
    Corrupt::at(0, format!("the anchor of collection {id} is none"))
}
