//! A set of a store: **each operation is atomic, and one that fails has changed nothing.**
//!
//! A small set is one record: every operation reads all of it, and a change rewrites it. A larger
//! one is a [`LargeSet`](crate::LargeSet), which transactions read and change.

use mneme_log::{Database, LogStore};

use crate::error::CollectionError;
use crate::keyed::{Form, KeyedValue, Locking};
use crate::lot::Lot;
use crate::packed::PackedSet;
use crate::packed_builder::PackedBuilder;
use crate::packed_edit::MAX_INTSET;
use crate::set_type::{SetChange, SetType, copied_members};

/// The set under a key of a database: distinct byte strings.
///
/// This is a name, not a copy: each operation reads what the key holds now, and other threads and
/// processes may change it in between. Without the key, the set is empty; removing the last member
/// removes the key. [`Set::change`] does several things atomically.
///
/// ```
/// use mneme_collections::Set;
/// use mneme_log::LogStore;
///
/// let store = LogStore::builder().capacity(64 << 20).open_private()?;
/// let tags = Set::of(&store, b"tags")?;
/// assert!(tags.add(b"red")?);
/// assert_eq!(tags.add_many(&[b"green", b"blue", b"red"])?, 2);
/// assert!(tags.contains(b"blue")?);
/// assert_eq!(tags.len()?, 3);
///
/// // Several members at one instant, and a change that depends on what is there.
/// tags.change(|set| {
///     if set.remove(b"red")? {
///         set.add(b"purple")?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(tags.members()?.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Set<'s, 'k> {
    at: KeyedValue<'s, 'k, SetType>,
    max_intset: usize,
}

impl<'s, 'k> Set<'s, 'k> {
    /// The set under `key` in database 0. Nothing is read yet.
    ///
    /// # Errors
    /// Those of [`LogStore::database`].
    pub fn of(store: &'s LogStore, key: &'k [u8]) -> Result<Self, CollectionError> {
        Ok(Set::new(store.database(0)?, key))
    }

    /// The set under `key` in this database. Nothing is read yet.
    #[must_use]
    pub fn new(database: Database<'s>, key: &'k [u8]) -> Self {
        Set {
            at: KeyedValue::new(database, key),
            max_intset: MAX_INTSET,
        }
    }

    /// The maximum number of members of a set of integers that counts as an intset, as `OBJECT
    /// ENCODING` of a server reports it; by default that of Redis. Once a set has exceeded it, it
    /// stays a table.
    #[must_use]
    pub fn max_intset(self, max_intset: usize) -> Self {
        Set { max_intset, ..self }
    }

    /// Calls `change` to change the set, atomically; it is empty if there is no key. If another
    /// writer interferes, `change` is called again, and only the last call counts. If it returns an
    /// error, or changes nothing, nothing is stored. O(bytes) if the set is small, else as long as
    /// `change` takes.
    ///
    /// # Errors
    /// Those of [`LogStore::put`]; the key holds a value of another kind; those of `change`.
    pub fn change<R>(
        &self,
        change: impl FnMut(&mut SetChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.edit(Locking::Nothing, change)
    }

    fn edit<R>(
        &self,
        locking: Locking,
        mut change: impl FnMut(&mut SetChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.edit(locking, (), |set| {
            let result = change(set)?;
            let is_changed = set.is_changed();
            if is_changed {
                set.convert(self.max_intset)?;
            }
            Ok((result, is_changed))
        })
    }

    /// Whether `member` is in the set. O(bytes) if the set is small, else O(1).
    ///
    /// # Errors
    /// Those of [`LogStore::get`]: the key holds a value of another kind, for one.
    pub fn contains(&self, member: &[u8]) -> Result<bool, CollectionError> {
        self.at.read(
            |mut set| set.contains(member),
            |set| match set {
                Some(Form::Packed(set)) => Ok(set.contains(member)?),
                Some(Form::Large(contains)) => Ok(contains),
                None => Ok(false),
            },
        )
    }

    /// Whether each of `members` is in the set, in this order, all as of one instant. O(bytes +
    /// members) if the set is small, else O(members).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn contains_many(&self, members: &[&[u8]]) -> Result<Vec<bool>, CollectionError> {
        let mut sought = PackedBuilder::default();
        sought.push_strings(members);
        let sought = sought.into_image()?;
        let members: Vec<_> = PackedSet::read(&sought)?.raw().collect::<Result<_, _>>()?;
        self.at.read(
            |mut set| set.contains_many(&members),
            |set| match set {
                Some(Form::Packed(set)) => Ok(set.contains_many(&members)?),
                Some(Form::Large(contains)) => Ok(contains),
                None => Ok(vec![false; members.len()]),
            },
        )
    }

    /// The number of its members. O(1).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn len(&self) -> Result<usize, CollectionError> {
        self.at.read(
            |set| Ok(set.count()),
            |set| match set {
                Some(Form::Packed(set)) => Ok(set.len()?),
                Some(Form::Large(count)) => Ok(count as usize),
                None => Ok(0),
            },
        )
    }

    /// Whether there is no member, so that the key does not exist. O(1).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        Ok(self.len()? == 0)
    }

    /// All members, as of one instant. O(bytes).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn members(&self) -> Result<Vec<Vec<u8>>, CollectionError> {
        self.at
            .view(None, |set| set.map_or(Ok(Vec::new()), copied_members))
    }

    /// A step of a walk through the members, from `cursor` on, which is 0 at first: about `count`
    /// members, and the next cursor, which is 0 at the end. A member that exists throughout is
    /// found at least once. O(bytes) if the set is small, else O(count).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn scan(&self, cursor: u64, count: usize) -> Result<(Vec<Vec<u8>>, u64), CollectionError> {
        self.at.scan(cursor, count, |pair| pair.field.to_vec())
    }

    /// Adds `member`. Returns whether it is new. O(bytes) if the set is small, else O(1).
    ///
    /// # Errors
    /// As for [`change`](Self::change); the member or the set would be too long.
    pub fn add(&self, member: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, |set| set.add(member))
    }

    /// Adds each of `members`, atomically. Returns how many are new. O(bytes + members) if the set
    /// is small, else O(members).
    ///
    /// # Errors
    /// As for [`add`](Self::add); then none is added.
    pub fn add_many(&self, members: &[&[u8]]) -> Result<usize, CollectionError> {
        self.edit(Locking::of(members.len()), |set| set.add_many(members))
    }

    /// Removes `member`; removing the last one removes the key. Returns whether it was there.
    /// O(bytes) if the set is small, else O(1).
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove(&self, member: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, |set| set.remove(member))
    }

    /// Removes each of `members`, atomically. Returns how many were removed. O(bytes + members) if
    /// the set is small, else O(members).
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove_many(&self, members: &[&[u8]]) -> Result<usize, CollectionError> {
        self.edit(Locking::of(members.len()), |set| set.remove_many(members))
    }

    /// Removes and returns a uniformly random member; `None`: the set is empty. O(bytes) if the set
    /// is small, else expected O(1).
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn pop(&self) -> Result<Option<Vec<u8>>, CollectionError> {
        let mut lot = Lot::new();
        self.edit(Locking::Key, |set| set.pop(&mut lot))
    }

    /// A uniformly random member; `None`: the set is empty. O(bytes) if the set is small, else
    /// expected O(1).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub fn random(&self) -> Result<Option<Vec<u8>>, CollectionError> {
        self.at.read(
            |mut set| set.random_member(&mut Lot::new()),
            |set| match set {
                Some(Form::Packed(set)) => {
                    let member = set.random(&mut Lot::new())?;
                    Ok(member.map(|member| member.to_vec()))
                }
                Some(Form::Large(member)) => Ok(member),
                None => Ok(None),
            },
        )
    }
}

impl std::fmt::Debug for Set<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set")
            .field("database", &self.at.database.number())
            .field("key", &self.at.key.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}
