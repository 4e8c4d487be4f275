//! What collections require of a store.

use std::borrow::Cow;

use mneme_log::{Anchor, Expiry, Look, Stored, Transaction, ValueKind, WriteError};

use crate::list_ends::ListEnds;
use crate::open_value::{self, OpenMain, open};

/// Capacity in bytes for one more element of usual length.
const SPARE: usize = 64;

/// The records that a transaction reads and writes: those of keys, and those of collections.
/// Implemented by transactions of a store, and by a map in tests.
pub trait StoreRecords {
    /// Calls `visit` once, with the value of `key`.
    ///
    /// # Errors
    /// As for [`TransactionOn::read`](mneme_log::TransactionOn::read).
    fn read(
        &mut self,
        database: usize,
        key: &[u8],
        visit: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), WriteError>;
    /// Stores `value` under `key`, with this kind and expiry.
    ///
    /// # Errors
    /// As for [`TransactionOn::put`](mneme_log::TransactionOn::put).
    fn put(
        &mut self,
        database: usize,
        key: &[u8],
        value: &[u8],
        kind: (ValueKind, Expiry),
    ) -> Result<(), WriteError>;
    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`TransactionOn::remove`](mneme_log::TransactionOn::remove).
    fn remove(&mut self, database: usize, key: &[u8]) -> Result<bool, WriteError>;
    /// Makes the transaction count as a change of `key`, whose record stays unchanged.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn touch(&mut self, database: usize, key: &[u8]) -> Result<(), WriteError>;
    /// An id that no collection has had.
    fn new_collection(&mut self) -> u64;
    /// The anchor of a collection.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn anchor(&mut self, id: u64) -> Result<Option<Anchor>, WriteError>;
    /// Stores the anchor; `None`: removes it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    fn set_anchor(&mut self, id: u64, anchor: Option<&Anchor>) -> Result<(), WriteError>;
    /// Announces that all inner records of a collection will be read, as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn reads_all(&mut self, _: u64) -> Result<(), WriteError> {
        Ok(())
    }
    /// An inner record of a collection, borrowed in place if possible.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn lend_inner(&mut self, id: u64, number: u64) -> Result<Option<Cow<'_, [u8]>>, WriteError>;
    /// A copy of an inner record of a collection, with capacity for one more element of usual
    /// length.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn inner(&mut self, id: u64, number: u64) -> Result<Option<Vec<u8>>, WriteError> {
        Ok(self.lend_inner(id, number)?.map(|image| match image {
            Cow::Owned(image) => image,
            Cow::Borrowed(image) => copied(image),
        }))
    }
    /// Stores an inner record; `None`: removes it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    fn set_inner(&mut self, id: u64, number: u64, image: Option<&[u8]>) -> Result<(), WriteError>;
    /// Reports to the change feed that an element of a collection of this kind has this value now;
    /// `None`: that it was removed.
    fn say(&mut self, id: u64, kind: ValueKind, element: &[u8], value: Option<&[u8]>);
    /// What was pushed and popped at the ends of list `id` and is stored later. `None`: it is
    /// stored at once.
    #[doc(hidden)]
    fn list_ends(&mut self, _: u64) -> Option<&mut ListEnds> {
        None
    }
}

impl StoreRecords for Transaction<'_> {
    fn read(
        &mut self,
        database: usize,
        key: &[u8],
        visit: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), WriteError> {
        let Some(open) = open(self) else {
            return self.database(database)?.read(key, visit);
        };
        if let Some(stored) = open.stored(database, key) {
            visit(Some(stored));
            return Ok(());
        }
        let mut main = None;
        self.database(database)?.read(key, |stored| {
            main = OpenMain::of(database, key, stored);
            visit(stored);
        })?;
        if let Some(open) = open_value::open(self) {
            open.has_read(main);
        }
        Ok(())
    }

    fn put(
        &mut self,
        database: usize,
        key: &[u8],
        value: &[u8],
        (kind, expiry): (ValueKind, Expiry),
    ) -> Result<(), WriteError> {
        open_value::forget(self)?;
        self.database(database)?.put_kind(key, value, kind, expiry)
    }

    fn remove(&mut self, database: usize, key: &[u8]) -> Result<bool, WriteError> {
        open_value::forget(self)?;
        self.database(database)?.remove(key)
    }

    fn touch(&mut self, database: usize, key: &[u8]) -> Result<(), WriteError> {
        match open(self).is_none_or(|open| open.is_first_touch(database, key)) {
            true => self.database(database)?.touch(key),
            false => Ok(()),
        }
    }

    fn new_collection(&mut self) -> u64 {
        Transaction::new_collection(self)
    }

    fn anchor(&mut self, id: u64) -> Result<Option<Anchor>, WriteError> {
        if let Some(anchor) = open(self).and_then(|open| open.anchor(id)) {
            return Ok(Some(anchor));
        }
        let anchor = Transaction::anchor(self, id)?;
        if let (Some(open), Some(anchor)) = (open(self), anchor) {
            open.has_read_anchor(id, anchor);
        }
        Ok(anchor)
    }

    fn set_anchor(&mut self, id: u64, anchor: Option<&Anchor>) -> Result<(), WriteError> {
        if open(self).is_some_and(|open| open.set_anchor(id, anchor)) {
            return Ok(());
        }
        match anchor {
            Some(anchor) => Transaction::set_anchor(self, id, anchor),
            None => self.remove_anchor(id).map(drop),
        }
    }

    fn lend_inner(&mut self, id: u64, number: u64) -> Result<Option<Cow<'_, [u8]>>, WriteError> {
        self.read_inner(id, number, |image| image.map(|image| copied(image).into()))
    }

    fn set_inner(&mut self, id: u64, number: u64, image: Option<&[u8]>) -> Result<(), WriteError> {
        match image {
            Some(image) => self.put_inner(id, number, image),
            None => self.remove_inner(id, number).map(drop),
        }
    }

    fn say(&mut self, id: u64, kind: ValueKind, element: &[u8], value: Option<&[u8]>) {
        Transaction::say(self, id, kind, element, value);
    }

    fn list_ends(&mut self, id: u64) -> Option<&mut ListEnds> {
        open(self)?.ends(id)
    }
}

/// A copy with capacity for one more element of usual length.
pub(crate) fn copied(image: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(image.len() + SPARE);
    copy.extend_from_slice(image);
    copy
}

/// Only the reads of a collection's records are possible.
impl StoreRecords for Look<'_> {
    fn read(
        &mut self,
        _: usize,
        _: &[u8],
        _: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn put(
        &mut self,
        _: usize,
        _: &[u8],
        _: &[u8],
        _: (ValueKind, Expiry),
    ) -> Result<(), WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn remove(&mut self, _: usize, _: &[u8]) -> Result<bool, WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn touch(&mut self, _: usize, _: &[u8]) -> Result<(), WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn new_collection(&mut self) -> u64 {
        self.id()
    }

    fn anchor(&mut self, _: u64) -> Result<Option<Anchor>, WriteError> {
        Ok(Some(Look::anchor(self)))
    }

    fn set_anchor(&mut self, _: u64, _: Option<&Anchor>) -> Result<(), WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn reads_all(&mut self, _: u64) -> Result<(), WriteError> {
        Ok(Look::find_all(self)?)
    }

    fn lend_inner(&mut self, _: u64, number: u64) -> Result<Option<Cow<'_, [u8]>>, WriteError> {
        Ok(Look::inner(self, number)?.map(Cow::Borrowed))
    }

    fn set_inner(&mut self, _: u64, _: u64, _: Option<&[u8]>) -> Result<(), WriteError> {
        Err(WriteError::ReadOnly)
    }

    fn say(&mut self, _: u64, _: ValueKind, _: &[u8], _: Option<&[u8]>) {}
}
