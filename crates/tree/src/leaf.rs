//! One leaf as a process sees it: which entries it has, by fingerprint and in order.
//!
//! The entries lie on the medium in order of arrival. What is kept beside them, in memory, is
//! derived: a fingerprint and an offset for each, and how many of the first are sorted. It is built
//! on first touch, which also verifies the entries' checksums.

use std::cell::UnsafeCell;
use std::cmp::Ordering as Order;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::StoreError;
use crate::checksum::Stamp;
use crate::layout::{ENTRY_HEADER, EntryHeader, Kind, LEAF, LeafId, align8};
use crate::pages::Pages;

/// Leaves whose last user in memory is gone.
#[derive(Debug, Default)]
pub(crate) struct FreeLeaves(Mutex<Vec<LeafId>>);

impl FreeLeaves {
    pub(crate) fn take(&self) -> Option<LeafId> {
        self.lock().pop()
    }

    pub(crate) fn add(&self, ids: impl IntoIterator<Item = LeafId>) {
        self.lock().extend(ids);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<LeafId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which versions were committed when the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    pub(crate) version: u64,
    pub(crate) dead: Vec<u64>,
}

impl Committed {
    pub(crate) fn contains(&self, version: u64) -> bool {
        version <= self.version && self.dead.binary_search(&version).is_err()
    }
}

/// A leaf. Dropping the last reference to it frees its place: roots, snapshots and readers hold
/// references for as long as they may look at it.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Option<Box<[u8]>>,
    body: OnceLock<Body>,
    free: Arc<FreeLeaves>,
}

/// The derived part. Only the writer adds to it.
#[derive(Debug)]
struct Body {
    marks: Box<[UnsafeCell<u8>]>,
    offsets: Box<[UnsafeCell<u16>]>,
    /// So many entries, from the first, are in the order of their keys, each key once.
    sorted: usize,
    count: AtomicU32,
    used: AtomicU32,
    live: AtomicU32,
    /// Bytes behind the last entry may not be zero.
    rest_is_dirty: AtomicBool,
}

// SAFETY: a cell below `count` is never stored to again; one at or above it is touched by the
// writer alone, of which there is one (it holds the store's writer lock).
unsafe impl Sync for Body {}

/// An entry, where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'p> {
    pub(crate) start: u64,
    pub(crate) key: &'p [u8],
    /// `None`: the key was removed.
    pub(crate) value: Option<&'p [u8]>,
    pub(crate) size: usize,
}

/// How full a leaf is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    /// Entries that more could be added to.
    pub(crate) free_entries: usize,
    /// Bytes behind the last entry.
    pub(crate) free_bytes: usize,
    /// Bytes of entries that are live in the newest version.
    pub(crate) live: usize,
}

/// One byte of a key's hash.
#[inline]
fn fingerprint(key: &[u8]) -> u8 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = key.len() as u64;
    for word in words {
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(K);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = (hash.rotate_left(23) ^ u64::from_le_bytes(last)).wrapping_mul(K);
    (hash >> 56) as u8
}

impl Leaf {
    pub(crate) fn new(
        id: LeafId,
        low: Box<[u8]>,
        high: Option<Box<[u8]>>,
        free: Arc<FreeLeaves>,
    ) -> Self {
        Self {
            id,
            low,
            high,
            body: OnceLock::new(),
            free,
        }
    }

    /// Where the first entry lies: behind the fences, if these are too long for the header.
    pub(crate) fn first(&self) -> usize {
        let bytes = self.low.len() + self.high.as_ref().map_or(0, |high| high.len());
        if bytes > crate::layout::FENCES_INLINE {
            align8(bytes)
        } else {
            0
        }
    }

    /// Whether `key` belongs into this leaf or one before it.
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| key < high)
    }

    /// Builds the derived part of a fresh leaf, whose `offsets` are in order of the keys.
    pub(crate) fn fill(&self, pages: &Pages, offsets: &[u16], end: usize) {
        let count = offsets.len().max(8);
        let body = Body::new((count * LEAF / (end - self.first()).max(64)).min(LEAF / 32) + 8);
        for offset in offsets {
            body.push(fingerprint(entry(pages, self.id, *offset).key), *offset);
        }
        let live = end - self.first();
        body.set(end, live, offsets.len());
        // A leaf is filled once, right after it was made.
        let _ = self.body.set(Body {
            sorted: offsets.len(),
            ..body
        });
    }

    /// Finds out what the leaf holds, unless that is known: only what was `committed` counts.
    pub(crate) fn load(&self, pages: &Pages, committed: &Committed) -> Result<(), StoreError> {
        if self.body.get().is_some() {
            return Ok(());
        }
        let mut bytes = vec![0; LEAF];
        pages.copy(self.id.at(), &mut bytes);
        let body = Body::new(LEAF / 32);
        let mut at = self.first();
        let mut sorted = 0;
        while at + ENTRY_HEADER <= LEAF {
            let header = EntryHeader::read(&bytes[at..]);
            match header.start(self.id, at) {
                Stamp::Zero => break,
                // Of a commit that did not happen; so is whatever follows.
                Stamp::Version(version) if !committed.contains(version) => break,
                Stamp::Version(_) if header.is_whole(self.id, at, &bytes) => {}
                _ => {
                    return Err(StoreError::Damaged {
                        at: self.id.at() + at as u64,
                        what: "an entry of a leaf",
                    });
                }
            }
            let count = body.count();
            let key = &bytes[at + ENTRY_HEADER..][..usize::from(header.key_len)];
            let before = count
                .checked_sub(1)
                .map(|last| usize::from(body.offset(last)));
            let ascends = before.is_none_or(|before| {
                let len = usize::from(EntryHeader::read(&bytes[before..]).key_len);
                bytes[before + ENTRY_HEADER..][..len] < *key
            });
            if sorted == count && ascends && header.kind() == Kind::Value {
                sorted += 1;
            }
            if count == body.marks.len() {
                return Err(StoreError::Damaged {
                    at: self.id.at(),
                    what: "a leaf with more entries than fit",
                });
            }
            body.push(fingerprint(key), at as u16);
            at += header.size();
        }
        let dirty = bytes[at.min(LEAF)..].iter().any(|byte| *byte != 0);
        body.rest_is_dirty.store(dirty, Ordering::Relaxed);
        body.set(at, 0, body.count());
        let body = Body { sorted, ..body };
        let mut live = Vec::new();
        body.live_at(pages, self.id, u64::MAX, &mut live);
        let bytes: usize = live.iter().map(|at| entry(pages, self.id, *at).size).sum();
        body.live.store(bytes as u32, Ordering::Relaxed);
        // Another reader may have been faster, with the same result: the writer loads a leaf
        // before it appends to it.
        let _ = self.body.set(body);
        Ok(())
    }

    fn body(&self) -> &Body {
        static EMPTY: OnceLock<Body> = OnceLock::new();
        match self.body.get() {
            Some(body) => body,
            // Callers load first.
            None => EMPTY.get_or_init(|| Body::new(0)),
        }
    }

    /// What `version` says of `key`: an entry, if it has one here. Load first.
    #[inline]
    pub(crate) fn find<'p>(
        &'p self,
        pages: &'p Pages,
        key: &[u8],
        version: u64,
    ) -> Option<Entry<'p>> {
        let body = self.body();
        let marks = body.marks(body.count());
        for i in memchr::memrchr_iter(fingerprint(key), marks) {
            let found = entry(pages, self.id, body.offset(i));
            if found.key == key && found.start <= version {
                return Some(found);
            }
        }
        None
    }

    /// Begins to load what [`load`](Self::load) looks at.
    pub(crate) fn prefetch(&self) {
        mneme_sys::prefetch(std::ptr::from_ref(self).cast());
        mneme_sys::prefetch(std::ptr::from_ref(&self.body).cast());
    }

    /// Begins to load the fingerprints.
    pub(crate) fn prefetch_marks(&self) {
        let body = self.body();
        for line in body.marks[..body.count()].chunks(64) {
            mneme_sys::prefetch(line.as_ptr().cast());
        }
        mneme_sys::prefetch(body.offsets.as_ptr().cast());
    }

    /// Begins to load the entry that [`find`](Self::find) will probably look at first.
    pub(crate) fn prefetch_entry(&self, pages: &Pages, key: &[u8]) {
        let body = self.body();
        if let Some(i) = memchr::memrchr(fingerprint(key), body.marks(body.count())) {
            pages.prefetch(self.id, usize::from(body.offset(i)));
        }
    }

    /// The offsets of the entries that are live in `version`, in order of their keys. Load first.
    pub(crate) fn live_at(&self, pages: &Pages, version: u64, out: &mut Vec<u16>) {
        self.body().live_at(pages, self.id, version, out);
    }

    /// The entry at an offset that [`live_at`](Self::live_at) gave.
    #[inline]
    pub(crate) fn entry<'p>(&'p self, pages: &'p Pages, offset: u16) -> Entry<'p> {
        entry(pages, self.id, offset)
    }

    /// How full it is. Load first.
    pub(crate) fn filled(&self) -> Fill {
        let body = self.body();
        Fill {
            free_entries: body.marks.len() - body.count(),
            free_bytes: LEAF - body.used.load(Ordering::Relaxed) as usize,
            live: body.live.load(Ordering::Relaxed) as usize,
        }
    }

    /// Where the next entry goes, and whether what lies there must be zeroed first.
    pub(crate) fn end(&self) -> (usize, bool) {
        let body = self.body();
        let used = body.used.load(Ordering::Relaxed) as usize;
        (used, body.rest_is_dirty.load(Ordering::Relaxed))
    }

    /// Makes entries known that were stored at `offsets`, the last ending at `end`; `live` bytes of
    /// the leaf are live now. They are seen by readers of a version that has them.
    ///
    /// The writer alone calls this, with the writer lock held.
    pub(crate) fn appended(&self, pages: &Pages, offsets: &[u16], end: usize, live: usize) {
        let body = self.body();
        let mut count = body.count();
        for offset in offsets {
            body.put(
                count,
                fingerprint(entry(pages, self.id, *offset).key),
                *offset,
            );
            count += 1;
        }
        body.rest_is_dirty.store(false, Ordering::Relaxed);
        body.set(end, live, count);
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.free.add([self.id]);
    }
}

impl Body {
    fn new(capacity: usize) -> Self {
        Self {
            marks: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
            offsets: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
            sorted: 0,
            count: AtomicU32::new(0),
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            rest_is_dirty: AtomicBool::new(false),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        // SYNC: pairs with the Release store in `set`: cells below the count are filled.
        self.count.load(Ordering::Acquire) as usize
    }

    /// The fingerprints of the first `count` entries; `count` is not above [`count`](Self::count).
    #[inline]
    fn marks(&self, count: usize) -> &[u8] {
        let cells = &self.marks[..count];
        // SAFETY: cells below the count are never stored to again, and a cell is a byte.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    #[inline]
    fn offset(&self, i: usize) -> u16 {
        // SAFETY: callers pass an index below the count; such a cell is never stored to again.
        unsafe { *self.offsets[i].get() }
    }

    /// Fills the cell `i`, which is not below the count.
    fn put(&self, i: usize, mark: u8, offset: u16) {
        // SAFETY: cells at or above the count are the writer's alone, which is the caller.
        unsafe {
            *self.marks[i].get() = mark;
            *self.offsets[i].get() = offset;
        }
    }

    /// Adds to a body that is not shared yet.
    fn push(&self, mark: u8, offset: u16) {
        let count = self.count.load(Ordering::Relaxed);
        self.put(count as usize, mark, offset);
        self.count.store(count + 1, Ordering::Relaxed);
    }

    fn set(&self, used: usize, live: usize, count: usize) {
        self.used.store(used as u32, Ordering::Relaxed);
        self.live.store(live as u32, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `count`.
        self.count.store(count as u32, Ordering::Release);
    }

    fn live_at(&self, pages: &Pages, id: LeafId, version: u64, out: &mut Vec<u16>) {
        out.clear();
        let at = |offset: u16| entry(pages, id, offset);
        // The newest entry of each key among those that arrived after the sorted ones.
        let mut tail: Vec<(Entry<'_>, u16)> = (self.sorted..self.count())
            .rev()
            .map(|i| (at(self.offset(i)), self.offset(i)))
            .filter(|(entry, _)| entry.start <= version)
            .collect();
        // Stable: of equal keys the newest stays first.
        tail.sort_by(|(a, _), (b, _)| a.key.cmp(b.key));
        tail.dedup_by(|(later, _), (first, _)| later.key == first.key);
        let mut tail = tail.into_iter().peekable();
        for i in 0..self.sorted {
            let offset = self.offset(i);
            let sorted = at(offset);
            let mut replaced = sorted.start > version;
            while let Some((newer, place)) = tail.peek() {
                match newer.key.cmp(sorted.key) {
                    Order::Greater => break,
                    Order::Equal => replaced = true,
                    Order::Less => {}
                }
                out.extend(newer.value.is_some().then_some(*place));
                tail.next();
            }
            if !replaced {
                out.push(offset);
            }
        }
        out.extend(tail.filter(|(e, _)| e.value.is_some()).map(|(_, at)| at));
    }
}

/// The entry at `offset` of a leaf.
///
/// Offsets come from a leaf's [`Body`], whose entries were verified when it was loaded, or were
/// written by this process. What leaves this module borrows the [`Leaf`], too, whose place is not
/// reused while it lives.
#[inline]
fn entry(pages: &Pages, id: LeafId, offset: u16) -> Entry<'_> {
    let at = usize::from(offset);
    // SAFETY: see above: the entry lies in the leaf, and entries are never stored to again.
    let header = EntryHeader::read(unsafe { pages.in_leaf(id, at, ENTRY_HEADER) });
    let (key, value) = (usize::from(header.key_len), header.value_len as usize);
    // SAFETY: as above.
    let bytes = unsafe { pages.in_leaf(id, at + ENTRY_HEADER, key + value) };
    let (key, value) = bytes.split_at(key);
    Entry {
        start: header.version(),
        key,
        value: (header.kind() == Kind::Value).then_some(value),
        size: header.size(),
    }
}
