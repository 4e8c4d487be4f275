//! A hash of a store: **each operation is atomic, and one that fails has changed nothing.**
//!
//! A small hash is one record: every operation looks through the whole of it, and a change stores
//! it anew. A larger one is a [`LargeHash`](crate::LargeHash), which transactions read and change.

use mneme_log::{Database, LogStore};

use crate::LARGE_HASH;
use crate::error::CollectionError;
use crate::hash_type::HashType;
use crate::in_place::set_in_place;
use crate::keyed::{Form, KeyedValue};
use crate::packed::{PackedHash, Pair};
use crate::packed_edit::{HashEdit, Limits};

/// The hash under a key of a database: fields with values, both byte strings.
///
/// It is a name, not a copy: each operation looks at what the key holds now, and other threads and
/// processes may change it in between. Where there is no key, the hash is empty; where its last
/// field is removed, so is the key. [`Hash::read`] and [`Hash::change`] do several things at one
/// instant.
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

    /// Up to where the hash counts as a listpack, which `OBJECT ENCODING` of a server reports; by
    /// default what Redis has. A hash that was once beyond counts as a table for good.
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

    /// As [`read`](Self::read), with those of `fields` that the hash has, or more; `None`: all.
    fn look<R>(
        &self,
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<PackedHash<'_>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.view(fields, visit)
    }

    /// Has `change` change the hash, which is empty where there is no key, at one instant. `change`
    /// may be called again, if another writer was faster: the last call counts. If it returns an
    /// error, or changes nothing, nothing is stored.
    ///
    /// # Errors
    /// Those of [`LogStore::put`]; the key holds a value of another kind; those of `change`.
    pub fn change<R>(
        &self,
        mut change: impl FnMut(&mut HashEdit) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.edit(None, &mut change)
    }

    /// As [`change`](Self::change), with those of `fields` that the hash has, or more: `change`
    /// changes no others. `None`: all.
    fn edit<R>(
        &self,
        fields: Option<&[&[u8]]>,
        mut change: impl FnMut(&mut HashEdit) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.edit(fields, |hash| self.changed(hash, &mut change))
    }

    /// Lets `change` change a hash, and says whether it did.
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

    /// The values of `fields`, in their order, all of one instant.
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

    /// Calls `visit` with each field and its value, all of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read). Damage in the middle comes after visits.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), CollectionError> {
        self.read(|hash| {
            for pair in hash.into_iter().flat_map(|hash| hash.pairs()) {
                let pair = pair?;
                (pair.field).with_bytes(|field| pair.value.with_bytes(|value| visit(field, value)));
            }
            Ok(())
        })
    }

    /// All fields with their values, of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn pairs(&self) -> Result<Vec<OwnedPair>, CollectionError> {
        let mut pairs = Vec::new();
        self.for_each(|field, value| pairs.push((field.to_vec(), value.to_vec())))?;
        Ok(pairs)
    }

    /// A step of a walk through the fields, from `cursor` on, which is 0 at first: some `count`
    /// fields with their values, and the next cursor, which is 0 at the end. A field that is there
    /// all the time is found at least once.
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

    /// Whether it has no field, so that the key is not there.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        Ok(self.len()? == 0)
    }

    /// Sets `field` to `value`. Whether it is a new field.
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
        self.edit(Some(&[field]), |hash| Ok(hash.set(field, value)?))
    }

    /// Sets each field to its value, in order, all at one instant. How many fields are new.
    ///
    /// # Errors
    /// As for [`set`](Self::set); then none is set.
    pub fn set_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<usize, CollectionError> {
        let fields: Vec<&[u8]> = pairs.iter().map(|(field, _)| *field).collect();
        self.edit(Some(&fields), |hash| Ok(hash.set_many(pairs)?))
    }

    /// Sets `field` to `value`, unless the hash has it. Whether it was set.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn insert_new(&self, field: &[u8], value: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Some(&[field]), |hash| {
            let is_new = hash.read()?.get(field)?.is_none();
            if is_new {
                hash.set(field, value)?;
            }
            Ok(is_new)
        })
    }

    /// Removes `field`; the last one takes the key with it. Whether it was there.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove(&self, field: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Some(&[field]), |hash| Ok(hash.remove(field)?))
    }

    /// Removes each of `fields`, all at one instant. How many were there.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove_many(&self, fields: &[&[u8]]) -> Result<usize, CollectionError> {
        self.edit(Some(fields), |hash| Ok(hash.remove_many(fields)?))
    }

    /// Adds `by` to the integer in `field`, which is 0 if the hash does not have it. The sum.
    ///
    /// # Errors
    /// As for [`set`](Self::set); the value is no integer of 64 bits, or the sum would be none.
    pub fn increment(&self, field: &[u8], by: i64) -> Result<i64, CollectionError> {
        self.edit(Some(&[field]), |hash| Ok(hash.increment(field, by)?))
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
