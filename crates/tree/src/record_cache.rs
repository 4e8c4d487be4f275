//! Copies of records in lent memory: [`RecordCache`].
//!
//! The kernel caches whole pages of the file, and a small record that is read often is a small part
//! of its page. A store opened with a cache keeps copies of single records instead, and a get that
//! finds one touches no page of the file.
//!
//! # Why no copy is stale
//!
//! **A copy names the entry that it is a copy of, and a reader compares that with what it sees.**
//! Nothing is invalidated: commits do not know the cache. A copy holds the leaf with its birth, the
//! version that wrote the entry, and a place in the leaf: among all entries *examined*, those
//! before that place, this one is the newest of its key. A reader uses the copy if
//! place, this one is the newest of its key. A reader takes the copy if
//!
//! 1. *leaf*: the leaf of its root for the key is that one, with that birth;
//! 2. *version*: the reader's version has the entry;
//! 3. *examined*: none of the leaf's entries from that place on has the key's fingerprint.
//!
//! A leaf is append-only while it lives, and each birth is used once. So what a copy states was
//! true of the leaf when the copy was made and stays true, whatever any process has committed,
//! rolled back or rewritten since. This holds as long as the file is open. Later another file, or
//! an older state of this one, may lie under the same path, so each opening has keys of its own
//! (*opening*).

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

/// The longest value that is copied. A page holds so few longer records that it is as good a place
/// for them (`mneme-bench tenant`).
const MAX_COPIED: usize = 512;
/// The approximate size of a record in the cache, from which its index is sized.
const MEAN_RECORD: u64 = 192;

/// Memory for copies of records that gets have read; see
/// [`Builder::record_cache`](crate::Builder::record_cache).
///
/// A clone is the same memory, and several stores may use it. It pays if records are much smaller
/// than a page and the file is larger than the memory that the kernel can spare for it. Values of
/// more than 512 bytes, keys of more than 1,024, snapshots, ranges and transactions are always read
/// from the file.
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
    /// A cache in the idle frames of an arena that [lends](mneme_arena::ArenaOptions::lending). Any
    /// claim in the arena may take the frames at once without notice; gets then read the file
    /// again.
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

    /// A cache in an arena of its own with this many bytes, at least 4 MiB, tables and index
    /// included. The process grows by them as the cache fills.
    ///
    /// # Errors
    /// [`CacheError::Private`].
    pub fn with_budget(bytes: u64) -> Result<Self, CacheError> {
        let cache = Discardable::private(bytes, (bytes / MEAN_RECORD).max(1))?;
        Self::lent(cache.arena().clone())
    }

    /// The arena that the memory belongs to.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The copies for one opening of a store.
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
    /// Copies that were found and not used.
    outdated: AtomicU64,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Copies").field(&self.cache).finish()
    }
}

/// The buffers of a get, which each thread keeps.
#[derive(Default)]
struct Buffers {
    key: Vec<u8>,
    value: Vec<u8>,
}

thread_local! {
    /// Taken out during use, because a caller's function may read the store too.
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// The origin of a copy. It follows the value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    leaf: u32,
    birth: u64,
    /// The version that wrote the entry.
    start: u64,
    /// Among the entries that begin before this offset, it is the newest of its key.
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

    /// Splits a copy into the value and its origin.
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

    /// Whether the copy is what a reader of `version` needs; the reader sees `leaf`, where the
    /// newest candidate for the key lies at `newest`.
    fn is_current(&self, leaf: &Leaf, newest: u16, version: u64) -> bool {
        let is_leaf = (self.leaf, self.birth) == (leaf.id.0, leaf.birth);
        (is_leaf || without("cache.leaf"))
            && (self.start <= version || without("cache.version"))
            && (newest < self.examined || without("cache.examined"))
    }
}

impl Copies {
    /// Calls `f` with the value of `key` in `version`, which the caller reads; `leaf` is the leaf
    /// of the key and is loaded.
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

    /// Calls `f` with the index of each key in `keys` and its value in `version`, in order.
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

    /// Reads the value from the file, and stores a copy if there is an origin and a buffer for it.
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
                    // This entry may be the key's in a later version.
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
        // Without a slot no copy is made. A copy is valid whatever happened in between, so no
        // ticket is needed.
        if let Ok(slot) = self.cache.arena().participants().slot() {
            let node = self.topology.current_node();
            let _ = self.cache.put(&slot, node, name, copy);
        }
    }

    /// Statistics of the memory, and of the gets of this opening. `None` if the arena cannot be
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
