//! Hash tables: trees whose keys begin with a hash of the caller's key.

use std::ops::RangeFull;

use crate::catalogue_entry::TreeKind;
use crate::layout::MAX_KEY;
use crate::range::Range;
use crate::{Snapshot, Store, StoreError, Tree, Version};

/// Bytes of the hash in front of a key.
const HASH: usize = 8;

/// An unordered map in a store, under a name.
///
/// It is a [`Tree`] whose keys consist of a hash and the caller's key, so it has a tree's versions,
/// snapshots and guarantees. Use it for keys that are looked up one by one and are badly
/// distributed: long keys with long common prefixes (URLs, paths), which make fences and
/// comparisons long in an ordered tree, or ascending keys, whose puts all go to one leaf. If keys
/// are needed in order, or neighbours are read together, use [`Store::tree`].
///
/// ```
/// use mneme_tree::Store;
/// # let path = std::env::temp_dir().join(format!("mneme-doc-hash-{}", std::process::id()));
/// let db = Store::builder().open(&path)?;
/// let pages = db.hash_table("pages")?;
/// pages.put(b"https://example.org/a/very/long/path", b"200")?;
/// assert_eq!(pages.get(b"https://example.org/a/very/long/path")?, Some(b"200".to_vec()));
/// let snapshot = db.snapshot()?;
/// for pair in pages.iter(&snapshot)? {
///     let (key, value) = pair?;                     // in the order of the hashes
///     println!("{} {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # drop((snapshot, pages, db));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct HashTable {
    tree: Tree,
}

/// The hash of a key. Part of the format: see `docs/design/tree.md`.
fn hash(key: &[u8]) -> u64 {
    let mut hash = key.len() as u64;
    for word in key.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let mixed = u64::from_le_bytes(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ mixed)
            .rotate_left(31)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 33
}

impl Store {
    /// The hash table with this name. If there is none, it is created durably; a process that only
    /// reads gets an error then. [`trees`](Self::trees) lists it and [`drop_tree`](Self::drop_tree)
    /// drops it.
    ///
    /// # Errors
    /// As [`tree`](Self::tree).
    pub fn hash_table(&self, name: &str) -> Result<HashTable, StoreError> {
        let tree = self.tree_of(name, TreeKind::Hashed, true)?;
        Ok(HashTable { tree })
    }
}

impl HashTable {
    /// Maps a user key to its key in the underlying [`tree`](Self::tree), for batches and
    /// transactions.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`] above [`MAX_KEY`] less 8 bytes.
    pub fn tree_key(key: &[u8]) -> Result<Vec<u8>, StoreError> {
        let max = MAX_KEY - HASH;
        if key.len() > max {
            let len = key.len();
            return Err(StoreError::KeyTooLong { len, max });
        }
        Ok([&hash(key).to_be_bytes(), key].concat())
    }

    /// The underlying tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Sets a key. Durable on return.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Version, StoreError> {
        self.tree.put(&Self::tree_key(key)?, value)
    }

    /// Removes a key; nothing happens if it is absent. Durable on return.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn remove(&self, key: &[u8]) -> Result<Version, StoreError> {
        self.tree.remove(&Self::tree_key(key)?)
    }

    /// A copy of the value of a key.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.tree.get(&Self::tree_key(key)?)
    }

    /// Calls `f` with the value of a key in place; see [`Store::get_with`].
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_with<R>(
        &self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.tree.get_with(&Self::tree_key(key)?, f)
    }

    /// The keys and values in a snapshot, in the order of the hashes; double-ended.
    ///
    /// # Errors
    /// [`StoreError::TreeDropped`] if the snapshot does not have this table, even if another table
    /// has its name there; [`StoreError::OtherStore`].
    pub fn iter<'s>(&self, snapshot: &'s Snapshot) -> Result<HashTablePairs<'s>, StoreError> {
        let view = self.tree.view_in(snapshot)?;
        let all: RangeFull = ..;
        Ok(HashTablePairs(view.range(all)))
    }
}

/// Iterates over the keys and values of a hash table.
#[derive(Debug)]
pub struct HashTablePairs<'s>(Range<'s>);

/// The caller's key and its value.
type Pair<'s> = Result<(&'s [u8], &'s [u8]), StoreError>;

fn without_hash(pair: Pair<'_>) -> Pair<'_> {
    pair.map(|(key, value)| (key.get(HASH..).unwrap_or_default(), value))
}

impl<'s> Iterator for HashTablePairs<'s> {
    type Item = Pair<'s>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(without_hash)
    }
}

impl DoubleEndedIterator for HashTablePairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(without_hash)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Ascending keys with long common prefixes: no two share a hash, and the first bytes of the
    /// hashes are evenly distributed.
    #[test]
    fn hashes_of_like_keys_are_spread() {
        let keys = (0..65_536_u32).map(|n| format!("https://example.org/{n:08}").into_bytes());
        let hashes: Vec<u64> = keys.map(|key| hash(&key)).collect();
        assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), hashes.len());
        let mut first = [0_u32; 256];
        for hash in &hashes {
            first[(hash >> 56) as usize] += 1;
        }
        // 256 each on average; six standard deviations.
        assert!(
            first.iter().all(|count| (160..352).contains(count)),
            "{first:?}"
        );
    }

    /// The hash is part of the format.
    #[test]
    fn hashes_are_what_they_were() {
        let found = [&b""[..], b"a", b"12345678", b"123456789"].map(hash);
        assert_eq!(found.map(|hash| format!("{hash:016x}")), EXPECTED);
    }

    /// Computed by another program from `docs/design/tree.md`.
    const EXPECTED: [&str; 4] = [
        "0000000000000000",
        "cc2b97e7e3c44ab1",
        "d226b66a98c092fb",
        "5135b20178df3c2c",
    ];
}
