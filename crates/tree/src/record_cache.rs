//! Copies of records in memory that is lent: [`RecordCache`].
//!
//! The kernel keeps pages of the file, of which a small record that is read often is a small part.
//! A store that was opened with a cache keeps copies of the records instead, and a get that finds
//! one touches no page of the file.
//!
//! # Why no copy is stale
//!
//! **A copy says what it is a copy of, and a reader compares that with what it sees.** Nobody
//! invalidates anything: commits do not know the cache. A copy holds the leaf with its birth, the
//! version that wrote the entry, and a place in the leaf: among all entries *examined* before that
//! place, this one is the newest of its key. A reader takes the copy if
//!
//! 1. *leaf*: the leaf of its root for the key is that one, with that birth;
//! 2. *version*: the reader's version has the entry;
//! 3. *examined*: none of the leaf's entries from that place on has the key's fingerprint.
//!
//! A leaf is append-only while it lives, and a birth is given once. So what a copy says was true of
//! the leaf when it was made and stays so, whatever is committed, rolled back or rewritten since,
//! by whichever process. This holds as long as the file is open. Another file may come under the
//! same path, or an older state of this one, so each opening has keys of its own (*opening*).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mneme_arena::{Arena, CacheLookup, Discardable, DiscardableStats};
use mneme_sys::fault::without;
use mneme_sys::{SyntheticTopology, SysfsTopology, Topology, random_bytes};

use crate::committed::Committed;
use crate::error::{CacheError, StoreError};
use crate::index::Node;
use crate::leaf::Leaf;
use crate::pages::TreePages;

/// The longest value that is copied. Of a longer record a page holds so few that the page is as
/// good a place for it (`mneme-bench tenant`).
const MAX_COPIED: usize = 512;
/// Bytes that a record of the cache takes about, when its index is made.
const MEAN_RECORD: u64 = 192;

/// Memory for copies of records that gets have read; see
/// [`Builder::record_cache`](crate::Builder::record_cache).
///
/// A clone is the same memory, and several stores may use it. It is worth its memory where records
/// are much smaller than a page, and the file is larger than what the kernel can keep of it. Values
/// of more than 512 bytes, keys of more than 1,024, snapshots, ranges and transactions are read
/// from the file as ever.
///
/// ```
/// use mneme_tree::{RecordCache, Store};
/// # let path = std::env::temp_dir().join(format!("mneme-doc-cache-{}", std::process::id()));
/// let cache = RecordCache::with_budget(16 << 20)?;
/// let db = Store::builder().record_cache(&cache).open(&path)?;
/// db.put(b"city", b"Hull")?;
/// assert_eq!(db.get(b"city")?.as_deref(), Some(&b"Hull"[..])); // from the file
/// assert_eq!(db.get(b"city")?.as_deref(), Some(&b"Hull"[..])); // from the cache
/// db.put(b"city", b"York")?;
/// assert_eq!(db.get(b"city")?.as_deref(), Some(&b"York"[..]));
/// assert_eq!(db.stats()?.cache.map(|cache| (cache.hits, cache.misses)), Some((1, 2)));
/// # drop(db);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RecordCache {
    arena: Arc<Arena>,
    topology: Arc<dyn Topology>,
}

impl fmt::Debug for RecordCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCache")
            .field("arena", &self.arena)
            .finish_non_exhaustive()
    }
}

impl RecordCache {
    /// The idle frames of an arena that [lends](mneme_arena::ArenaOptions::lending). Any claim
    /// there may take them, at once and without a word; a get then reads the file again.
    ///
    /// # Errors
    /// [`CacheError::Lending`].
    pub fn lent(arena: Arc<Arena>) -> Result<Self, CacheError> {
        Discardable::open(arena.clone())?;
        let topology: Arc<dyn Topology> = match arena.nodes() {
            1 => Arc::new(SyntheticTopology::new(1, 1)),
            _ => Arc::new(SysfsTopology::detect()),
        };
        Ok(Self { arena, topology })
    }

    /// An arena of its own with so many bytes, at least 4 MiB, tables and index included. The
    /// process grows by them as the cache is filled.
    ///
    /// # Errors
    /// [`CacheError::Private`].
    pub fn with_budget(bytes: u64) -> Result<Self, CacheError> {
        let cache = Discardable::private(bytes, (bytes / MEAN_RECORD).max(1))?;
        Self::lent(cache.arena().clone())
    }

    /// The arena whose memory it is.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// For one opening of a store.
    pub(crate) fn open(&self) -> Result<Copies, CacheError> {
        let mut opening = [0; 8];
        if !without("cache.opening") {
            random_bytes(&mut opening).map_err(CacheError::Random)?;
        }
        Ok(Copies {
            cache: Discardable::open(self.arena.clone())?,
            topology: self.topology.clone(),
            opening,
            outdated: AtomicU64::new(0),
        })
    }
}

/// The copies of one opening's records.
pub(crate) struct Copies {
    cache: Discardable,
    topology: Arc<dyn Topology>,
    opening: [u8; 8],
    /// Copies that were found and not taken.
    outdated: AtomicU64,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Copies").field(&self.cache).finish()
    }
}

/// Buffers of a get, which a thread keeps.
#[derive(Default)]
struct Buffers {
    key: Vec<u8>,
    value: Vec<u8>,
}

thread_local! {
    /// Taken out while they are used: a caller's function may read the store, too.
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// What a copy is a copy of. It follows the value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    leaf: u32,
    birth: u64,
    /// The version that wrote the entry.
    start: u64,
    /// Of the entries that begin before this, it is the newest of its key.
    examined: u16,
}

impl Origin {
    const BYTES: usize = 22;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.leaf.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.birth.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.start.to_le_bytes());
        bytes[20..].copy_from_slice(&self.examined.to_le_bytes());
        bytes
    }

    /// The value of a copy, and where it comes from.
    fn split(copy: &[u8]) -> Option<(&[u8], Self)> {
        let (value, bytes) = copy.split_last_chunk::<{ Self::BYTES }>()?;
        let (leaf, rest) = bytes.split_first_chunk()?;
        let (birth, rest) = rest.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        let origin = Self {
            leaf: u32::from_le_bytes(*leaf),
            birth: u64::from_le_bytes(*birth),
            start: u64::from_le_bytes(*start),
            examined: u16::from_le_bytes(*rest.first_chunk()?),
        };
        Some((value, origin))
    }

    /// Whether it is what a reader of `version` looks for, which sees `leaf` and whose newest
    /// candidate for the key lies at `newest`.
    fn is_current(&self, leaf: &Leaf, newest: u16, version: u64) -> bool {
        let is_leaf = (self.leaf, self.birth) == (leaf.id.0, leaf.birth);
        (is_leaf || without("cache.leaf"))
            && (self.start <= version || without("cache.version"))
            && (newest < self.examined || without("cache.examined"))
    }
}

impl Copies {
    /// Calls `f` with the value of `key` in `version`, which the caller reads: `leaf` is the one
    /// for the key, and was loaded.
    pub(crate) fn get_with<R>(
        &self,
        pages: &TreePages,
        leaf: &Leaf,
        key: &[u8],
        version: u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        let Some((newest, _)) = leaf.candidates(key).next() else {
            return Ok(None);
        };
        let mut buffers = BUFFERS.take().unwrap_or_default();
        let Buffers { key: name, value } = &mut *buffers;
        name.clear();
        name.extend_from_slice(&self.opening);
        name.extend_from_slice(&leaf.tree.to_le_bytes());
        name.extend_from_slice(key);
        let is_wanted = match self.cache.get(name, value) {
            CacheLookup::Miss(ticket) => self.cache.is_wanted(&ticket),
            CacheLookup::Hit => match Origin::split(value) {
                Some((value, origin)) if origin.is_current(leaf, newest, version) => {
                    let result = f(value);
                    BUFFERS.set(Some(buffers));
                    return Ok(Some(result));
                }
                _ => {
                    self.outdated.fetch_add(1, Ordering::Relaxed);
                    true
                }
            },
        };
        let copy = is_wanted.then_some((&*name, value));
        let found = self.read(pages, leaf, key, version, copy);
        BUFFERS.set(Some(buffers));
        Ok(found?.map(f))
    }

    /// Calls `f` with the place of each key in `keys` and its value in `version`, in order.
    pub(crate) fn many<K: AsRef<[u8]>>(
        &self,
        (pages, committed): (&TreePages, &Committed),
        root: &Node,
        version: u64,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        for (i, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            let leaf = root.find(key);
            leaf.load(pages, committed)?;
            let found = self.get_with(pages, leaf, key, version, |value| f(i, Some(value)))?;
            if found.is_none() {
                f(i, None);
            }
        }
        Ok(())
    }

    /// Reads the value from the file, and offers a copy if there is a name and a buffer for it.
    fn read<'p>(
        &self,
        pages: &'p TreePages,
        leaf: &'p Leaf,
        key: &[u8],
        version: u64,
        copy: Option<(&Vec<u8>, &mut Vec<u8>)>,
    ) -> Result<Option<&'p [u8]>, StoreError> {
        let mut examined = None;
        for (at, end) in leaf.candidates(key) {
            let examined = examined.get_or_insert(end);
            let entry = leaf.entry(pages, at);
            if !entry.is_of(pages, key, version) {
                if entry.start() > version && !without("cache.later") {
                    // It may be the key's in a later version.
                    *examined = at;
                }
                continue;
            }
            let Some(value) = leaf.value_of(pages, &entry)? else {
                return Ok(None);
            };
            if let Some((name, copy)) = copy
                && value.len() <= MAX_COPIED
                && entry.extent().is_none()
            {
                let origin = Origin {
                    leaf: leaf.id.0,
                    birth: leaf.birth,
                    start: entry.start(),
                    examined: *examined,
                };
                copy.clear();
                copy.extend_from_slice(value);
                copy.extend_from_slice(&origin.to_bytes());
                self.offer(name, copy);
            }
            return Ok(Some(value));
        }
        Ok(None)
    }

    fn offer(&self, name: &[u8], copy: &[u8]) {
        // Without a slot there is no copy. It is what it says whatever came in between, so no
        // ticket is needed.
        if let Ok(slot) = self.cache.arena().participants().slot() {
            let node = self.topology.current_node();
            let _ = self.cache.put(&slot, node, name, copy);
        }
    }

    /// Numbers about the memory, and about the gets of this opening. `None` if the arena cannot be
    /// reached.
    pub(crate) fn stats(&self) -> Option<DiscardableStats> {
        let outdated = self.outdated.load(Ordering::Relaxed);
        let stats = self.cache.stats().ok()?;
        Some(DiscardableStats {
            hits: stats.hits.saturating_sub(outdated),
            misses: stats.misses + outdated,
            ..stats
        })
    }
}
