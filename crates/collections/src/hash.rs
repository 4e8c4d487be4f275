//! A hash of a store: **each operation is atomic, and one that fails has changed nothing.**
//!
//! A small hash is one record: every operation reads all of it, and a change rewrites it. A larger
//! one is a [`LargeHash`](crate::LargeHash), which transactions read and change.

use mneme_log::{Database, LogStore};

use crate::LARGE_HASH;
use crate::error::CollectionError;
use crate::hash_type::HashType;
use crate::in_place::set_in_place;
use crate::keyed::{Form, KeyedValue, Locking};
use crate::packed::{PackedHash, Pair};
use crate::packed_edit::{HashEdit, Limits};

/// The hash under a key of a database: fields with values, both byte strings.
///
/// This is a name, not a copy: each operation reads what the key holds now, and other threads and
/// processes may change it in between. Without the key, the hash is empty; removing the last field
/// removes the key. [`Hash::read`] and [`Hash::change`] do several things atomically.
///
/// ```
/// use mneme_collections::Hash;
/// use mneme_log::LogStore;
///
/// let store = LogStore::builder().capacity(64 << 20).open_private()?;
/// let user = Hash::of(&store, b"user:1")?;
/// user.set(b"name", b"Ada")?;
/// user.set_many(&[(b"born", b"1815"), (b"visits", b"41")])?;
/// assert_eq!(user.increment(b"visits", 1)?, 42);
/// assert_eq!(user.get(b"name")?.as_deref(), Some(&b"Ada"[..]));
/// assert_eq!(user.len()?, 3);
///
/// // Several fields at one instant, and a change that depends on what is there.
/// user.change(|hash| {
///     if hash.read()?.get(b"born")?.is_some() {
///         hash.set(b"century", b"19")?;
///     }
///     Ok(())
/// })?;
/// assert!(user.remove(b"century")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Hash<'s, 'k> {
    at: KeyedValue<'s, 'k, HashType>,
    limits: Limits,
}

/// A field and its value, copied.
pub type OwnedPair = (Vec<u8>, Vec<u8>);

impl<'s, 'k> Hash<'s, 'k> {
    /// The hash under `key` in database 0. Nothing is read yet.
    ///
    /// # Errors
    /// Those of [`LogStore::database`].
    pub fn of(store: &'s LogStore, key: &'k [u8]) -> Result<Self, CollectionError> {
        Ok(Hash::new(store.database(0)?, key))
    }

    /// The hash under `key` in this database. Nothing is read yet.
    #[must_use]
    pub fn new(database: Database<'s>, key: &'k [u8]) -> Self {
        Hash {
            at: KeyedValue::new(database, key),
            limits: Limits::default(),
        }
    }

    /// The limits up to which the hash counts as a listpack, as `OBJECT ENCODING` of a server
    /// reports it; by default those of Redis. Once a hash has exceeded them it stays a table.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Hash { limits, ..self }
    }

    /// Calls `visit` with all of the hash as it is at one instant; `None`: the key is not there.
    ///
    /// # Errors
    /// Those of [`LogStore::get`]: the key holds a value of another kind, for one; those that
    /// `visit` returns.
    pub fn read<R>(
        &self,
        visit: impl FnOnce(Option<PackedHash<'_>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.look(None, visit)
    }

    /// As [`read`](Self::read), but `visit` gets at least those of `fields` that the hash has;
    /// `None`: all.
    fn look<R>(
        &self,
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<PackedHash<'_>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.view(fields, visit)
    }

    /// Calls `change` to change the hash, atomically; it is empty if there is no key. If another
    /// writer interferes, `change` is called again, and only the last call counts. If it returns an
    /// error, or changes nothing, nothing is stored.
    ///
    /// # Errors
    /// Those of [`LogStore::put`]; the key holds a value of another kind; those of `change`.
    pub fn change<R>(
        &self,
        mut change: impl FnMut(&mut HashEdit) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.edit(Locking::Nothing, None, &mut change)
    }

    /// As [`change`](Self::change), but `change` gets at least those of `fields` that the hash has,
    /// and changes no others. `None`: all.
    fn edit<R>(
        &self,
        locking: Locking,
        fields: Option<&[&[u8]]>,
        mut change: impl FnMut(&mut HashEdit) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        (self.at).edit(locking, fields, |hash| self.changed(hash, &mut change))
    }

    /// Calls `change` to change a hash, and returns whether it did.
    fn changed<R>(
        &self,
        hash: &mut HashEdit,
        change: impl FnOnce(&mut HashEdit) -> Result<R, CollectionError>,
    ) -> Result<(R, bool), CollectionError> {
        let result = change(hash)?;
        let is_changed = hash.is_changed();
        if is_changed {
            hash.convert(self.limits)?;
        }
        Ok((result, is_changed))
    }

    /// The value of `field`; `None`: the hash does not have it.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn get(&self, field: &[u8]) -> Result<Option<Vec<u8>>, CollectionError> {
        self.at.read(
            |mut hash| hash.get(field),
            |hash| match hash {
                Some(Form::Packed(hash)) => Ok(hash.get(field)?.map(|value| value.to_vec())),
                Some(Form::Large(value)) => Ok(value),
                None => Ok(None),
            },
        )
    }

    /// The values of `fields`, in this order, all as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn get_many(&self, fields: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CollectionError> {
        self.look(Some(fields), |hash| {
            let Some(hash) = hash else {
                return Ok(vec![None; fields.len()]);
            };
            let values = hash.get_many(fields)?.into_iter();
            Ok(values.map(|value| Some(value?.to_vec())).collect())
        })
    }

    /// Calls `visit` with each field and its value, all as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read). Damage in the middle is reported after some visits.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), CollectionError> {
        self.read(|hash| {
            for pair in hash.into_iter().flat_map(|hash| hash.pairs()) {
                let pair = pair?;
                (pair.field).with_bytes(|field| pair.value.with_bytes(|value| visit(field, value)));
            }
            Ok(())
        })
    }

    /// All fields with their values, as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn pairs(&self) -> Result<Vec<OwnedPair>, CollectionError> {
        let mut pairs = Vec::new();
        self.for_each(|field, value| pairs.push((field.to_vec(), value.to_vec())))?;
        Ok(pairs)
    }

    /// A step of a walk through the fields, from `cursor` on, which is 0 at first: about `count`
    /// fields with their values, and the next cursor, which is 0 at the end. A field that exists
    /// throughout is found at least once.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
    ) -> Result<(Vec<OwnedPair>, u64), CollectionError> {
        let copied = |pair: &Pair<'_>| (pair.field.to_vec(), pair.value.to_vec());
        self.at.scan(cursor, count, copied)
    }

    /// Whether the hash has `field`.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn contains(&self, field: &[u8]) -> Result<bool, CollectionError> {
        self.at.read(
            |mut hash| hash.contains(field),
            |hash| match hash {
                Some(Form::Packed(hash)) => Ok(hash.contains(field)?),
                Some(Form::Large(contains)) => Ok(contains),
                None => Ok(false),
            },
        )
    }

    /// The number of its fields.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn len(&self) -> Result<usize, CollectionError> {
        self.at.read(
            |hash| Ok(hash.count() as usize),
            |hash| match hash {
                Some(Form::Packed(hash)) => Ok(hash.len()?),
                Some(Form::Large(len)) => Ok(len),
                None => Ok(0),
            },
        )
    }

    /// Whether the hash has no field, so that the key does not exist.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        Ok(self.len()? == 0)
    }

    /// Sets `field` to `value`. Returns whether it is new.
    ///
    /// # Errors
    /// As for [`change`](Self::change); the hash would be too long.
    pub fn set(&self, field: &[u8], value: &[u8]) -> Result<bool, CollectionError> {
        let (database, key) = (&self.at.database, self.at.key);
        match set_in_place(database, key, (field, value), self.limits, false) {
            Ok(Some(is_new)) => return Ok(is_new),
            Ok(None) => {}
            Err(CollectionError::WrongKind(wrong)) if wrong.found == LARGE_HASH => {
                return self.at.edit_large(Some(&[field]), |hash| {
                    self.changed(hash, |hash| Ok(hash.set(field, value)?))
                });
            }
            Err(error) => return Err(error),
        }
        self.edit(Locking::Key, Some(&[field]), |hash| {
            Ok(hash.set(field, value)?)
        })
    }

    /// Sets each field to its value, in order, atomically. Returns how many fields are new.
    ///
    /// # Errors
    /// As for [`set`](Self::set); then none is set.
    pub fn set_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<usize, CollectionError> {
        let fields: Vec<&[u8]> = pairs.iter().map(|(field, _)| *field).collect();
        self.edit(Locking::of(fields.len()), Some(&fields), |hash| {
            Ok(hash.set_many(pairs)?)
        })
    }

    /// Sets `field` to `value`, unless the hash has it. Returns whether it was set.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn insert_new(&self, field: &[u8], value: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, Some(&[field]), |hash| {
            let is_new = hash.read()?.get(field)?.is_none();
            if is_new {
                hash.set(field, value)?;
            }
            Ok(is_new)
        })
    }

    /// Removes `field`; removing the last one removes the key. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove(&self, field: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, Some(&[field]), |hash| Ok(hash.remove(field)?))
    }

    /// Removes each of `fields`, atomically. Returns how many were removed.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove_many(&self, fields: &[&[u8]]) -> Result<usize, CollectionError> {
        self.edit(Locking::of(fields.len()), Some(fields), |hash| {
            Ok(hash.remove_many(fields)?)
        })
    }

    /// Adds `by` to the integer in `field`, which counts as 0 if the hash does not have it. Returns
    /// the sum.
    ///
    /// # Errors
    /// As for [`set`](Self::set); the value or the sum is not a 64-bit integer.
    pub fn increment(&self, field: &[u8], by: i64) -> Result<i64, CollectionError> {
        self.edit(Locking::Key, Some(&[field]), |hash| {
            Ok(hash.increment(field, by)?)
        })
    }
}

impl std::fmt::Debug for Hash<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hash")
            .field("database", &self.at.database.number())
            .field("key", &self.at.key.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}
