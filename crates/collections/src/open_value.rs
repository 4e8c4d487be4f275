//! A large value that stays open while a transaction changes it several times: **what each change
//! would read and store again is in memory until the last one.**
//!
//! That is the record that leads to the value, its anchor, and what was pushed and popped at the
//! ends of a list.

use mneme_log::{Anchor, Expiry, Stored, Transaction, ValueKind, WriteError};

use crate::list_ends::ListEnds;

/// What a transaction has in memory of one large value.
#[derive(Default)]
pub(crate) struct OpenValue {
    main: Option<OpenMain>,
    anchor: Option<OpenAnchor>,
    ends: ListEnds,
}

/// The record that leads to the value.
pub(crate) struct OpenMain {
    database: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    kind: ValueKind,
    expiry: Expiry,
    /// Whether the transaction counts as a change of it.
    is_touched: bool,
}

struct OpenAnchor {
    id: u64,
    anchor: Anchor,
    is_changed: bool,
}

/// What the transaction keeps open, if it does.
pub(crate) fn open<'t>(transaction: &'t mut Transaction<'_>) -> Option<&'t mut OpenValue> {
    transaction.attached().as_mut()?.downcast_mut()
}

/// Keeps the first large value open that the transaction reads, until [`close`].
pub(crate) fn begin(transaction: &mut Transaction<'_>) {
    *transaction.attached() = Some(Box::new(OpenValue::default()));
}

/// The list whose ends are to be stored before the value is [closed](close).
pub(crate) fn waiting_list(transaction: &mut Transaction<'_>) -> Option<u64> {
    open(transaction)?.ends.waits_for()
}

/// Stores the anchor that is open, and keeps nothing open any more.
pub(crate) fn close(transaction: &mut Transaction<'_>) -> Result<(), WriteError> {
    forget(transaction)?;
    *transaction.attached() = None;
    Ok(())
}

/// Stores the anchor that is open, and forgets it and the record that leads to it, before a record
/// of a key becomes another one.
pub(crate) fn forget(transaction: &mut Transaction<'_>) -> Result<(), WriteError> {
    let Some(open) = open(transaction) else {
        return Ok(());
    };
    open.main = None;
    match open.anchor.take() {
        Some(open) if open.is_changed => transaction.set_anchor(open.id, &open.anchor),
        _ => Ok(()),
    }
}

impl OpenMain {
    /// The record of a key, if that leads to a large value.
    pub fn of(database: usize, key: &[u8], stored: Option<Stored<'_>>) -> Option<OpenMain> {
        let stored = stored.filter(|stored| stored.kind.is_large())?;
        Some(OpenMain {
            database,
            key: key.to_vec(),
            value: stored.value.to_vec(),
            kind: stored.kind,
            expiry: stored.expiry,
            is_touched: false,
        })
    }

    fn is_of(&self, database: usize, key: &[u8]) -> bool {
        self.database == database && self.key == key
    }
}

impl OpenValue {
    /// The record of a key, if it is open.
    pub fn stored(&self, database: usize, key: &[u8]) -> Option<Stored<'_>> {
        let main = self.main.as_ref().filter(|main| main.is_of(database, key));
        main.map(|main| Stored {
            value: &main.value,
            expiry: main.expiry,
            kind: main.kind,
        })
    }

    /// Keeps a record that was read, unless there is one.
    pub fn has_read(&mut self, main: Option<OpenMain>) {
        self.main = self.main.take().or(main);
    }

    /// Whether the transaction does not count as a change of this key yet, as far as is known.
    pub fn is_first_touch(&mut self, database: usize, key: &[u8]) -> bool {
        let main = self.main.as_mut().filter(|main| main.is_of(database, key));
        main.is_none_or(|main| !std::mem::replace(&mut main.is_touched, true))
    }

    /// The anchor of a collection, if it is open.
    pub fn anchor(&self, id: u64) -> Option<Anchor> {
        let open = self.anchor.as_ref().filter(|open| open.id == id);
        open.map(|open| open.anchor)
    }

    /// Keeps an anchor that was read, unless there is one.
    pub fn has_read_anchor(&mut self, id: u64, anchor: Anchor) {
        let is_changed = false;
        self.anchor.get_or_insert(OpenAnchor {
            id,
            anchor,
            is_changed,
        });
    }

    /// Changes the anchor of a collection, if it is open. False: it is to be stored, or removed.
    pub fn set_anchor(&mut self, id: u64, anchor: Option<&Anchor>) -> bool {
        let Some(open) = self.anchor.as_mut().filter(|open| open.id == id) else {
            return false;
        };
        match anchor {
            Some(anchor) => (open.anchor, open.is_changed) = (*anchor, true),
            None => self.anchor = None,
        }
        anchor.is_some()
    }

    /// The ends of this list, unless those of another one are open.
    pub fn ends(&mut self, id: u64) -> Option<&mut ListEnds> {
        self.ends.of(id)
    }
}
