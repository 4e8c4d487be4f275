//! A list of a store: **each operation is atomic, and one that fails has changed nothing.**

use std::ops::Range;

use mneme_log::{Database, LogStore};

use crate::error::CollectionError;
use crate::keyed::{Form, KeyedValue, Locking};
use crate::list_type::{ListChange, ListType};
use crate::packed_list::{End, PackedList};

/// The position from the front of the item with this index, in a list of `len` items. Negative
/// indices count from the end: -1 is the last item. `None`: there is no such item.
#[must_use]
pub fn index_within(index: i64, len: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => (index < len).then_some(index),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// The list under a key of a database: an ordered sequence of byte strings.
///
/// This is a name, not a copy: each operation reads what the key holds now, and other threads and
/// processes may change it in between. Without the key, the list is empty; removing the last item
/// removes the key. [`List::read`] and [`List::change`] do several things atomically. Clients of a
/// server that wait for an item (`BLPOP`) get items that are pushed here.
///
/// ```
/// use mneme_collections::{End, List};
/// use mneme_log::LogStore;
///
/// let store = LogStore::builder().capacity(64 << 20).open_private()?;
/// let jobs = List::of(&store, b"jobs")?;
/// jobs.push(End::Back, &[b"first", b"second", b"third"])?;
/// assert_eq!(jobs.pop(End::Front)?.as_deref(), Some(&b"first"[..]));
/// assert_eq!(jobs.get(0)?.as_deref(), Some(&b"second"[..]));
/// assert_eq!(jobs.range(0..10)?, [b"second".to_vec(), b"third".to_vec()]);
///
/// // A change that depends on what is there.
/// jobs.change(|list| {
///     if list.len()? == 2 {
///         list.insert(b"third", true, b"almost third")?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(jobs.len()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct List<'s, 'k> {
    at: KeyedValue<'s, 'k, ListType>,
}

impl<'s, 'k> List<'s, 'k> {
    /// The list under `key` in database 0. Nothing is read yet.
    ///
    /// # Errors
    /// Those of [`LogStore::database`].
    pub fn of(store: &'s LogStore, key: &'k [u8]) -> Result<Self, CollectionError> {
        Ok(List::new(store.database(0)?, key))
    }

    /// The list under `key` in this database. Nothing is read yet.
    #[must_use]
    pub fn new(database: Database<'s>, key: &'k [u8]) -> Self {
        List {
            at: KeyedValue::new(database, key),
        }
    }

    /// Calls `visit` with all of the list as it is at one instant; `None`: the key is not there.
    ///
    /// # Errors
    /// Those of [`LogStore::get`]: the key holds a value of another kind, for one; those that
    /// `visit` returns.
    pub fn read<R>(
        &self,
        visit: impl FnOnce(Option<PackedList<'_>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.read(
            |mut large| large.view(),
            |list| match list {
                Some(Form::Packed(list)) => visit(Some(list)),
                Some(Form::Large(view)) => visit(Some(PackedList::read(&view)?)),
                None => visit(None),
            },
        )
    }

    /// Calls `change` to change the list, atomically; it is empty if there is no key. If another
    /// writer interferes, `change` is called again, and only the last call counts. If it returns an
    /// error, or changes nothing, nothing is stored.
    ///
    /// # Errors
    /// Those of [`LogStore::put`]; the key holds a value of another kind; those of `change`.
    pub fn change<R>(
        &self,
        change: impl FnMut(&mut ListChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.edit(Locking::Nothing, change)
    }

    fn edit<R>(
        &self,
        locking: Locking,
        mut change: impl FnMut(&mut ListChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.edit(locking, (), |list| {
            let result = change(list)?;
            Ok((result, list.is_changed()))
        })
    }

    /// The number of its items. O(1).
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn len(&self) -> Result<usize, CollectionError> {
        self.at.read(
            |large| Ok(large.len() as usize),
            |list| match list {
                Some(Form::Packed(list)) => Ok(list.len()?),
                Some(Form::Large(len)) => Ok(len),
                None => Ok(0),
            },
        )
    }

    /// Whether there is no item, so that the key does not exist. O(1).
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        Ok(self.len()? == 0)
    }

    /// The item at `index`, counted from 0; `None`: the list is shorter. O(log items).
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn get(&self, index: usize) -> Result<Option<Vec<u8>>, CollectionError> {
        self.at.read(
            |mut large| large.get(index),
            |list| match list {
                Some(Form::Packed(list)) => Ok(list.get(index)?.map(|item| item.to_vec())),
                Some(Form::Large(item)) => Ok(item),
                None => Ok(None),
            },
        )
    }

    /// The items at these indices, as far as they exist, as of one instant. O(log items, and their
    /// bytes).
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn range(&self, range: Range<usize>) -> Result<Vec<Vec<u8>>, CollectionError> {
        self.range_by_len(|_| range.clone())
    }

    /// As [`range`](Self::range), but `choose` computes the indices from the list's length, for
    /// indices that count from the end. It may be called again if another writer interferes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn range_by_len(
        &self,
        choose: impl Fn(usize) -> Range<usize>,
    ) -> Result<Vec<Vec<u8>>, CollectionError> {
        self.at.read(
            |mut large| {
                let range = choose(large.len() as usize);
                large.range(range)
            },
            |list| match list {
                Some(Form::Packed(list)) => {
                    let items = list.range(choose(list.len()?))?;
                    items.map(|item| Ok(item?.to_vec())).collect()
                }
                Some(Form::Large(items)) => Ok(items),
                None => Ok(Vec::new()),
            },
        )
    }

    /// The indices of the first `count` items that equal `value`, starting from `end`, as of one
    /// instant. O(bytes of the items up to the last one found).
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn positions(
        &self,
        value: &[u8],
        from: End,
        count: usize,
    ) -> Result<Vec<usize>, CollectionError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.at.read(
            |mut large| {
                let mut found = Vec::new();
                large.positions(value, from, usize::MAX, |index| {
                    found.push(index);
                    found.len() < count
                })?;
                Ok(found)
            },
            |list| match list {
                Some(Form::Packed(list)) => {
                    let mut found = Vec::new();
                    list.positions(value, from, usize::MAX, |index| {
                        found.push(index);
                        found.len() < count
                    })?;
                    Ok(found)
                }
                Some(Form::Large(found)) => Ok(found),
                None => Ok(Vec::new()),
            },
        )
    }

    /// Calls `visit` with each item, in order, all as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read). Damage in the middle is reported after some visits.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8])) -> Result<(), CollectionError> {
        self.read(|list| {
            for item in list.into_iter().flat_map(|list| list.items()) {
                item?.with_bytes(&mut visit);
            }
            Ok(())
        })
    }

    /// Appends items at `end`, one after the other, atomically. Returns the list's new length.
    /// O(log items).
    ///
    /// # Errors
    /// As for [`change`](Self::change); the list would be too long.
    pub fn push(&self, end: End, items: &[&[u8]]) -> Result<usize, CollectionError> {
        self.edit(Locking::of(items.len()), |list| {
            list.push_many(end, items)?;
            list.len()
        })
    }

    /// Removes the item at an end, and returns it. `None`: the list is empty. Removing the last one
    /// removes the key. O(log items).
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn pop(&self, end: End) -> Result<Option<Vec<u8>>, CollectionError> {
        Ok(self.pop_many(end, 1)?.pop())
    }

    /// Removes up to `count` items from an end, atomically, and returns them in the order of
    /// removal. O(log items).
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn pop_many(&self, end: End, count: usize) -> Result<Vec<Vec<u8>>, CollectionError> {
        self.edit(Locking::Key, |list| {
            let mut items = Vec::new();
            list.pop(end, count, |item| items.push(item.to_vec()))?;
            Ok(items)
        })
    }

    /// Replaces the item at `index`. Returns whether there is such an item. O(log items).
    ///
    /// # Errors
    /// As for [`change`](Self::change); the list would be too long.
    pub fn set(&self, index: usize, value: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, |list| list.set(index, value))
    }
}

impl std::fmt::Debug for List<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List")
            .field("database", &self.at.database.number())
            .field("key", &self.at.key.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}
