//! Hash maps that lie in a segment.
//!
//! **Every address in a [`SegMap`] lies in its own segment, whatever operations are called and even
//! if they panic.** A `SegMap` is a `hashbrown` table. Such a table, created without capacity or
//! emptied in certain ways, points to constants of the program, which are other bytes in another
//! process. So a `SegMap` is created with capacity, and lacks every operation that could leave it
//! without: `new` and `with_capacity(0)`, `shrink_to`, `drain` (whose iterator may be leaked
//! half-way), `clone_from`, and the entry API, which hands out the bare table. `take` and `replace`
//! of a whole map put another `SegMap` in its place. The remaining operations that change the table
//! are growing, rehashing and clearing. Each of them ends with a table of at least four buckets or
//! keeps the current one, even if a hash function or a destructor panics or the segment is full.
//!
//! The table's format is private to `hashbrown`. So this workspace's `Cargo.toml` pins its exact
//! version, and [`Stored::describe`] includes the version and the width of a group of buckets,
//! which depends on the processor.

mod keys;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::mem;
use std::ops::Index;

use hashbrown::HashMap;
use hashbrown::hash_map::{Iter, IterMut, Keys, Values, ValuesMut};

use crate::heap::{Heap, HeapError};
use crate::stored::{Shape, Stored};
use keys::HashKeys;

/// The version of `hashbrown`, pinned in this workspace's `Cargo.toml`, whose private fields are
/// stored.
const HASHBROWN: &str = "hashbrown 0.17.1";

/// A hash map in a segment.
///
/// Hashes are SipHash 1-3 under two keys that are drawn for each map and stored in it. So hashes
/// are equal in all processes and on all processors, and an attacker cannot choose keys that
/// collide. The key type's `Hash` must not depend on the process either. A lookup costs one hash
/// and mostly one or two cache misses.
///
/// In **a full segment** the methods named `try_` return an error. The others abort the process, as
/// those of [`SegVec`](crate::SegVec) do, and leave the segment poisoned.
///
/// A map frees its memory only when it is dropped: to shrink one, move its entries into a new one.
///
/// ```
/// use mneme_space::{LocalSegment, Schema, SegMap, SegString, SegVec};
///
/// struct Index;
/// impl Schema for Index {
///     type Root<'s> = SegMap<'s, SegString<'s>, SegVec<'s, u64>>;
/// }
///
/// let segment = LocalSegment::new("index", 64 << 20)?;
/// segment.try_enter(|here| -> Result<(), Box<dyn std::error::Error>> {
///     let heap = here.heap("index")?;
///     let index = here.create_root::<Index>("index", SegMap::new_in)?;
///     for (place, word) in ["to", "be", "or", "not", "to", "be"].into_iter().enumerate() {
///         let word = SegString::try_from_str_in(word, heap)?;
///         index.try_get_or_insert_with(word, || SegVec::new_in(heap))?.push(place as u64);
///     }
///     Ok(())
/// })?;
/// let places = segment.try_read(|here| -> Result<_, Box<dyn std::error::Error>> {
///     Ok(here.root::<Index>("index")?.get("be").map(|places| places.to_vec()))
/// })?;
/// assert_eq!(places, Some(vec![1, 5]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct SegMap<'s, K, V> {
    /// Never the empty table that has no memory of its own.
    table: HashMap<K, V, HashKeys, Heap<'s>>,
}

// SAFETY: the table's address lies in its heap's segment, as the module's documentation argues.
// Everything else in it is numbers, the keys of the hash, the heap, and stored entries. Version,
// compiler and group width determine its format.
unsafe impl<'s, K: Stored<'s>, V: Stored<'s>> Stored<'s> for SegMap<'s, K, V> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Map");
        shape.text(HASHBROWN);
        shape.number(keys::smallest_table() as u64);
        shape.text(keys::HASH);
        // Includes the standard library's version: it determines which bytes of a string or tuple
        // are hashed.
        shape.by_compiler();
        shape.part::<K>();
        shape.part::<V>();
    }
}

impl<'s, K: Eq + Hash, V> SegMap<'s, K, V> {
    /// Creates an empty map with some capacity.
    ///
    /// Aborts the process if the segment is full or not entered for writing: see
    /// [`try_new_in`](Self::try_new_in).
    #[must_use]
    pub fn new_in(heap: Heap<'s>) -> Self {
        Self::with_capacity_in(1, heap)
    }

    /// Creates an empty map with some capacity.
    ///
    /// # Errors
    /// [`HeapError::Refused`]: the segment is full or not entered exclusively by this thread;
    /// [`HeapError::Outside`].
    pub fn try_new_in(heap: Heap<'s>) -> Result<Self, HeapError> {
        Self::try_with_capacity_in(1, heap)
    }

    /// Creates an empty map with capacity for `capacity` entries.
    ///
    /// Aborts the process as [`new_in`](Self::new_in).
    #[must_use]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'s>) -> Self {
        // Outside a section there is no seed. Allocation fails there too, so no map is created with
        // the default keys.
        let keys = HashKeys::new(heap).unwrap_or_default();
        Self {
            table: HashMap::with_capacity_and_hasher_in(capacity.max(1), keys, heap),
        }
    }

    /// Creates an empty map with capacity for `capacity` entries.
    ///
    /// # Errors
    /// As [`try_new_in`](Self::try_new_in).
    pub fn try_with_capacity_in(capacity: usize, heap: Heap<'s>) -> Result<Self, HeapError> {
        let mut table = HashMap::with_hasher_in(HashKeys::new(heap)?, heap);
        // Until this succeeds, the table has no memory of its own, and no `SegMap` is made from it.
        table.try_reserve(capacity.max(1)).map_err(refused)?;
        Ok(Self { table })
    }

    /// Reserves capacity for at least `additional` more entries.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; the map is then unchanged.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.table.try_reserve(additional).map_err(refused)
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn reserve(&mut self, additional: usize) {
        self.table.reserve(additional);
    }

    /// Inserts an entry and returns the value that the key had before. If an equal key is present,
    /// that key is kept.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; `key` and `value` are then dropped and the map is unchanged. A
    /// caller that wants to keep them calls [`try_reserve`](Self::try_reserve) first.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, HeapError> {
        if self.is_tight() {
            // An existing key needs no capacity, but `insert` into a full table reserves some
            // before it looks.
            if let Some(there) = self.table.get_mut(&key) {
                return Ok(Some(mem::replace(there, value)));
            }
            self.try_reserve(1)?;
        }
        Ok(self.table.insert(key, value))
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.table.insert(key, value)
    }

    /// Returns the value of a key; inserts the result of `value` if there is none.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; `value` was not called then.
    pub fn try_get_or_insert_with(
        &mut self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<&mut V, HeapError> {
        if self.is_tight() && !self.table.contains_key(&key) {
            self.try_reserve(1)?;
        }
        Ok(self.table.entry(key).or_insert_with(value))
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.table.entry(key).or_insert_with(value)
    }

    /// Whether inserting one more entry may need memory.
    fn is_tight(&self) -> bool {
        self.table.len() == self.table.capacity()
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.table.get(key)
    }

    /// The value of a key, to change.
    #[must_use]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.table.get_mut(key)
    }

    /// The entry of a key, with the key as it is stored.
    #[must_use]
    pub fn get_key_value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.table.get_key_value(key)
    }

    /// Whether the map contains the key.
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.table.contains_key(key)
    }

    /// Removes a key and returns its value. The map keeps its memory.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.table.remove(key)
    }

    /// Removes a key and returns it with its value.
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.table.remove_entry(key)
    }
}

impl<'s, K, V> SegMap<'s, K, V> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the map has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The number of entries that the map can hold without growing, including those present.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The heap that the map lies in.
    #[must_use]
    pub fn heap(&self) -> Heap<'s> {
        *self.table.allocator()
    }

    /// Drops all entries. The map keeps its memory.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// Keeps only the entries for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.table.retain(keep);
    }

    /// All entries, in an arbitrary order, which is the same in every process as long as the map is
    /// unchanged.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.table.iter()
    }

    /// All entries, in an arbitrary order, with their values mutable.
    #[must_use]
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.table.iter_mut()
    }

    /// All keys, in an arbitrary order.
    #[must_use]
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.table.keys()
    }

    /// All values, in an arbitrary order.
    #[must_use]
    pub fn values(&self) -> Values<'_, K, V> {
        self.table.values()
    }

    /// All values, mutable, in an arbitrary order.
    #[must_use]
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        self.table.values_mut()
    }

    /// Consumes the map and returns its entries; the map's memory is freed.
    pub fn into_entries(self) -> impl Iterator<Item = (K, V)> + use<'s, K, V> {
        self.table.into_iter()
    }
}

fn refused(_: hashbrown::TryReserveError) -> HeapError {
    HeapError::Refused
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SegMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Two maps are equal if they have equal entries, in any order.
impl<K: Eq + Hash, V: PartialEq> PartialEq for SegMap<'_, K, V> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(key, value): (&K, &V)| other.get(key).is_some_and(|theirs| theirs == value);
        self.len() == other.len() && self.iter().all(same)
    }
}

impl<K: Eq + Hash, V: Eq> Eq for SegMap<'_, K, V> {}

/// The value of a key. Panics if there is none, which poisons a segment that was entered for
/// writing.
impl<K: Eq + Hash + Borrow<Q>, Q: Hash + Eq + ?Sized, V> Index<&Q> for SegMap<'_, K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        &self.table[key]
    }
}

impl<'a, K, V> IntoIterator for &'a SegMap<'_, K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut SegMap<'_, K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

impl<K: Eq + Hash, V> Extend<(K, V)> for SegMap<'_, K, V> {
    /// Aborts the process if the segment is full.
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.table.extend(entries);
    }
}
