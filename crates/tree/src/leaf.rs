//! One leaf as a process sees it: its entries by fingerprint and in order.
//!
//! On the medium entries lie in order of arrival. The data about them in memory is derived: a
//! fingerprint and an offset for each entry, how many of the first entries are sorted, and the
//! order that the last scan found. It is built on first use, which also verifies the entries'
//! checksums.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};

use mneme_sys::fault::without;

use crate::StoreError;
use crate::checksum::WordStamp;
use crate::committed::{Committed, CommittedLook};
use crate::fingerprints::places;
use crate::layout::{
    ENTRY_HEADER, EntryHeader, EntryKind, FencesIn, LEAF, LEAVES, LeafId, MAIN, TreeExtent, align8,
};
use crate::leaf_entry::{LeafEntry, entry, fingerprint, fingerprint_of};
use crate::order::{Order, Sorter};
use crate::pages::TreePages;

/// Leaves that no version uses; only the writer has this list.
#[derive(Debug, Default)]
pub(crate) struct FreeLeaves(Vec<LeafId>);

impl FreeLeaves {
    pub(crate) fn take(&mut self) -> Option<LeafId> {
        self.0.pop()
    }

    pub(crate) fn add(&mut self, ids: impl IntoIterator<Item = LeafId>) {
        self.0.extend(ids);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the leaves of frames in which all leaves are free, and returns these frames.
    pub(crate) fn take_frames(&mut self) -> Vec<u32> {
        let mut counts = BTreeMap::new();
        for leaf in &self.0 {
            *counts.entry(leaf.frame()).or_insert(0) += 1;
        }
        counts.retain(|_, count| *count == LEAVES);
        self.0.retain(|leaf| !counts.contains_key(&leaf.frame()));
        counts.into_keys().collect()
    }
}

/// A leaf. Its place is not reused while a held version or a live pin may refer to it.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    /// The tree that it belongs to.
    pub(crate) tree: u32,
    /// The version that wrote it.
    pub(crate) birth: u64,
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Option<Box<[u8]>>,
    /// The place of the fences on the medium, if they are too long for header and leaf.
    outside: Option<Box<TreeExtent>>,
    body: OnceLock<Body>,
}

/// The derived data. One thread at a time adds to it: the writer, or in a process that follows the
/// writer, the thread that holds [`Committed::extending`].
#[derive(Debug)]
struct Body {
    /// The fingerprints, a byte each; then the offsets; then for each entry a bit that is set once
    /// its extent has been verified. They share one allocation, so that a get waits for a single
    /// miss.
    cells: Box<[UnsafeCell<u16>]>,
    capacity: usize,
    /// This many entries, from the first, are in key order with each key once.
    sorted: usize,
    count: AtomicU32,
    used: AtomicU32,
    live: AtomicU32,
    /// In a process that follows the writer: the version up to which committed entries have been
    /// added.
    seen: AtomicU64,
    /// All of these entries, and later ones, if this body became full.
    next: OnceLock<Box<Body>>,
    /// The live entries in order, and the number of entries when they were ordered.
    order: Mutex<Option<Arc<Order>>>,
}

// SAFETY: a cell below `count` is never stored to again; one at or above it is touched by one
// thread at a time, as said above. The cells of bits are used as atomics alone.
unsafe impl Sync for Body {}

/// Bytes of an entry that are prefetched before its header has arrived.
const READ_AHEAD: usize = 1280;

/// How full a leaf is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafFill {
    /// The number of entries that can still be added.
    pub(crate) free_entries: usize,
    /// Bytes after the last entry.
    pub(crate) free_bytes: usize,
    /// Bytes of entries that are live in the newest version.
    pub(crate) live: usize,
}

impl Leaf {
    /// A leaf of the tree [`MAIN`].
    pub(crate) fn new(id: LeafId, birth: u64, low: Box<[u8]>, high: Option<Box<[u8]>>) -> Self {
        Self {
            id,
            tree: MAIN,
            birth,
            low,
            high,
            outside: None,
            body: OnceLock::new(),
        }
    }

    /// Makes it a leaf of another tree, with fences that lie in `outside`.
    pub(crate) fn of(self, tree: u32, outside: Option<TreeExtent>) -> Self {
        Self {
            tree,
            outside: outside.map(Box::new),
            ..self
        }
    }

    /// The extent with its fences, if they are too long for header and leaf.
    pub(crate) fn outside(&self) -> Option<TreeExtent> {
        self.outside.as_deref().copied()
    }

    /// The offset of the first entry: after the fences if the leaf begins with them.
    pub(crate) fn first(&self) -> usize {
        let bytes = self.low.len() + self.high.as_ref().map_or(0, |high| high.len());
        match FencesIn::of(bytes) {
            FencesIn::Leaf => align8(bytes),
            FencesIn::Header | FencesIn::Extent => 0,
        }
    }

    /// Whether `key` belongs to this leaf or an earlier one.
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| key < high)
    }

    /// Builds the derived data of a new leaf; `entries` holds fingerprints and offsets in key
    /// order.
    pub(crate) fn fill(&self, entries: &[(u8, u16)], end: usize) {
        let live = end - self.first();
        let body = Body::new(capacity_for(entries.len(), live));
        body.add(0, entries);
        body.set(end, live, entries.len());
        // A leaf is filled once, right after it was made.
        let _ = self.body.set(Body {
            sorted: entries.len(),
            ..body
        });
    }

    /// The length of the prefix common to all keys of the leaf.
    fn shared(&self) -> usize {
        let high = self.high.as_deref().unwrap_or_default();
        let same = self.low.iter().zip(high).take_while(|(a, b)| a == b);
        same.count()
    }

    fn sorter<'p>(&self, pages: &'p TreePages) -> Sorter<'p> {
        Sorter {
            pages,
            id: self.id,
            shared: self.shared(),
        }
    }

    /// Reads what the leaf holds, unless that is known; only `committed` versions count.
    #[inline]
    pub(crate) fn load(&self, pages: &TreePages, committed: &Committed) -> Result<(), StoreError> {
        match self.body.get() {
            None => self.load_all(pages, committed),
            Some(_) if committed.follows() => self.load_more(pages, committed),
            Some(_) => Ok(()),
        }
    }

    #[cold]
    fn load_all(&self, pages: &TreePages, committed: &Committed) -> Result<(), StoreError> {
        let committed = committed.look();
        let mut bytes = vec![0; LEAF];
        pages.copy(self.id.at(), &mut bytes);
        let body = Body::new(MOST_ENTRIES);
        let mut at = self.first();
        let mut sorted = 0;
        while at + ENTRY_HEADER <= LEAF {
            let header = EntryHeader::read(&bytes[at..]);
            let Some(mark) = self.accept(pages, &committed, at, &header, &bytes[at..])? else {
                break;
            };
            let count = body.count();
            let before = count
                .checked_sub(1)
                .map(|last| usize::from(body.offset(last)));
            let ascends = before.is_none_or(|before| ascends(&bytes[before..], &bytes[at..]));
            if sorted == count && ascends && header.kind() != EntryKind::Removal {
                sorted += 1;
            }
            body.push(mark, at as u16);
            at += header.size();
        }
        let body = Body {
            sorted,
            ..body.shrunk(at)
        };
        let live = body.live_bytes(self.sorter(pages));
        body.live.store(live as u32, Ordering::Relaxed);
        body.seen.store(committed.version(), Ordering::Relaxed);
        // Another reader may have been first, with the same result: the writer loads a leaf before
        // it appends to it. A follower reads what is missing the next time.
        let _ = self.body.set(body);
        Ok(())
    }

    /// Adds what another process has appended since, up to the newest `committed` version.
    fn load_more(&self, pages: &TreePages, committed: &Committed) -> Result<(), StoreError> {
        // SYNC: pairs with the Release store below.
        if self.body().seen.load(Ordering::Acquire) >= committed.version() {
            return Ok(());
        }
        let extending = committed.extending();
        let committed = committed.look();
        let body = self.body();
        let mut found = Vec::new();
        let mut at = body.used.load(Ordering::Relaxed) as usize;
        let mut bytes = Vec::new();
        while at + ENTRY_HEADER <= LEAF {
            let mut header = [0; ENTRY_HEADER];
            pages.copy(self.id.at() + at as u64, &mut header);
            let header = EntryHeader::read(&header);
            // With the word behind it.
            bytes.resize((header.size() + 8).min(LEAF - at), 0);
            pages.copy(self.id.at() + at as u64, &mut bytes);
            let Some(mark) = self.accept(pages, &committed, at, &header, &bytes)? else {
                break;
            };
            found.push((mark, at as u16));
            at += header.size();
        }
        body.extend(&found, at)
            .seen
            .store(committed.version(), Ordering::Release);
        drop(extending);
        Ok(())
    }

    /// The fingerprint of the entry at `at`, where `bytes` begin. `None`: the committed entries end
    /// before it. No extent is read: if no version in use shows the entry, its extent may belong to
    /// something else.
    fn accept(
        &self,
        pages: &TreePages,
        committed: &CommittedLook<'_>,
        at: usize,
        header: &EntryHeader,
        bytes: &[u8],
    ) -> Result<Option<u8>, StoreError> {
        match header.start(self.id, at) {
            WordStamp::Zero => return Ok(None),
            WordStamp::Version(version) if header.is_alone() => {
                let is_whole = header.is_whole(bytes);
                if version > committed.version() {
                    return Ok(None);
                }
                // A writer was interrupted soon after, or just then. What was moved here since,
                // with a rewrite, is as durable as that.
                if version > self.birth && committed.is_dead(version) {
                    if !is_whole && without("alone.whole") {
                        return Err(self.damaged(at, "an entry of a leaf"));
                    }
                    if !is_whole || !self.is_committed(pages, version, (at, header, bytes)) {
                        return Ok(None);
                    }
                } else if !is_whole {
                    return Err(self.damaged(at, "an entry of a leaf"));
                }
            }
            // This entry and all that follow belong to commits that did not happen.
            WordStamp::Version(version) if !committed.contains(version) => return Ok(None),
            WordStamp::Version(_) if header.is_whole(bytes) => {}
            _ => return Err(self.damaged(at, "an entry of a leaf")),
        }
        let body = &bytes[ENTRY_HEADER..];
        if header.extent(body).is_some_and(|extent| !pages.has(extent)) {
            return Err(self.damaged(at, "the place of a long value or a long key"));
        }
        Ok(Some(fingerprint_of(header, body)))
    }

    /// Whether an entry that is whole, alone, and of a commit that may have been interrupted was
    /// committed: all that its commit stored is there. The next writer makes its word zero before
    /// it stores anything in its place, so one that is still there has not been stored over.
    fn is_committed(
        &self,
        pages: &TreePages,
        version: u64,
        (at, header, bytes): (usize, &EntryHeader, &[u8]),
    ) -> bool {
        if !header.is_followed(bytes, version, (self.id, at)) && !without("alone.followed") {
            return false;
        }
        // SYNC: pairs with the Release fence in `Writer::append`.
        fence(Ordering::Acquire);
        let mut word = [0; 8];
        pages.copy(self.id.at() + at as u64, &mut word);
        u64::from_le_bytes(word) == header.first_word()
    }

    fn damaged(&self, at: usize, what: &'static str) -> StoreError {
        StoreError::Damaged {
            at: self.id.at() + at as u64,
            what,
        }
    }

    fn body(&self) -> &Body {
        static EMPTY: OnceLock<Body> = OnceLock::new();
        match self.body.get() {
            Some(body) => body.newest(),
            // Callers load the leaf first.
            None => EMPTY.get_or_init(|| Body::new(0)),
        }
    }

    /// The entry for `key` in `version`, if it is in this leaf. Load first.
    #[inline]
    pub(crate) fn find<'p>(
        &'p self,
        pages: &'p TreePages,
        key: &[u8],
        version: u64,
    ) -> Option<LeafEntry<'p>> {
        let body = self.body();
        body.prefetch_offsets();
        self.find_below::<true>((body, body.count()), pages, key, version)
    }

    /// The offsets of the entries with the key's fingerprint, from newest to oldest, and where the
    /// last entry that the leaf had at this call begins, plus one. Load first.
    pub(crate) fn candidates(&self, key: &[u8]) -> impl Iterator<Item = (u16, u16)> {
        let body = self.body();
        let count = body.count();
        let last = count.checked_sub(1).map(|last| body.offset(last));
        let end = last.map_or(0, |last| last + 1);
        let places = places(fingerprint(key), body.marks(count));
        places.map(move |place| (body.offset(place), end))
    }

    /// As [`find`](Self::find), after [`prefetch_entry`](Self::prefetch_entry) has returned this
    /// `place`.
    #[inline]
    pub(crate) fn find_at<'p>(
        &'p self,
        pages: &'p TreePages,
        key: &[u8],
        version: u64,
        place: usize,
    ) -> Option<LeafEntry<'p>> {
        let body = self.body();
        let found = entry(pages, self.id, body.offset(place));
        match found.is_of(pages, key, version) {
            true => Some(found),
            false => self.find_below::<false>((body, place), pages, key, version),
        }
    }

    /// Finds an entry before position `below`. If the value will be read too, the whole entry is
    /// prefetched before its header has arrived.
    #[inline]
    fn find_below<'p, const VALUE: bool>(
        &'p self,
        (body, below): (&Body, usize),
        pages: &'p TreePages,
        key: &[u8],
        version: u64,
    ) -> Option<LeafEntry<'p>> {
        let marks = body.marks(below);
        for i in places(fingerprint(key), marks) {
            let at = body.offset(i);
            if VALUE {
                // Entries lie in order of arrival: the next one begins where this one ends.
                let end = match i + 1 < below {
                    true => usize::from(body.offset(i + 1)),
                    false => body.used.load(Ordering::Relaxed) as usize,
                };
                let end = end.min(usize::from(at) + READ_AHEAD);
                let mut line = usize::from(at);
                while line < end {
                    pages.prefetch(self.id, line);
                    line += 128;
                }
            }
            let found = entry(pages, self.id, at);
            if found.is_of(pages, key, version) {
                return Some(found);
            }
        }
        None
    }

    /// Prefetches what [`load`](Self::load) reads.
    pub(crate) fn prefetch(&self) {
        mneme_sys::prefetch(std::ptr::from_ref(self).cast());
        mneme_sys::prefetch(std::ptr::from_ref(&self.body).cast());
    }

    /// Prefetches the fingerprints.
    pub(crate) fn prefetch_marks(&self) {
        let body = self.body();
        for line in body.cells[..body.capacity / 2].chunks(32) {
            mneme_sys::prefetch(line.as_ptr().cast());
        }
        body.prefetch_offsets();
    }

    /// Prefetches the entry that [`find_at`](Self::find_at) reads first, and returns its position.
    pub(crate) fn prefetch_entry(&self, pages: &TreePages, key: &[u8]) -> Option<usize> {
        let body = self.body();
        let place = places(fingerprint(key), body.marks(body.count())).next()?;
        pages.prefetch(self.id, usize::from(body.offset(place)));
        Some(place)
    }

    /// The value of an entry of this leaf, as for [`LeafEntry::value`]. The first read of a value
    /// in an extent, or of a long key, compares checksums, as the first read of the leaf does for
    /// all other entries. Load first.
    #[inline]
    pub(crate) fn value_of<'p>(
        &self,
        pages: &'p TreePages,
        entry: &LeafEntry<'p>,
    ) -> Result<Option<&'p [u8]>, StoreError> {
        if entry.is_outside() {
            self.verify_once(pages, entry)?;
        }
        Ok(entry.value(pages))
    }

    /// Verifies the extent of an entry, unless that has been done.
    pub(crate) fn verify_once(
        &self,
        pages: &TreePages,
        entry: &LeafEntry<'_>,
    ) -> Result<(), StoreError> {
        let offset = (pages.place(entry.bytes) - self.id.at()) as u16;
        let body = self.body();
        let place = body
            .offsets(body.count())
            .partition_point(|at| *at < offset);
        let (verified, bit) = body.verified(place);
        // Relaxed: extents do not change, so the order in which threads see the bit does not
        // matter.
        if verified.load(Ordering::Relaxed) & bit == 0 {
            entry.verify_extent(pages)?;
            verified.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The entries that are live in `version`, in key order. Load first.
    pub(crate) fn order_at(&self, pages: &TreePages, version: u64) -> Arc<Order> {
        self.body().order_at(self.sorter(pages), version)
    }

    /// The entry at an offset returned by [`order_at`](Self::order_at).
    #[inline]
    pub(crate) fn entry<'p>(&'p self, pages: &'p TreePages, offset: u16) -> LeafEntry<'p> {
        entry(pages, self.id, offset)
    }

    /// Prefetches the entry at an offset.
    #[inline]
    pub(crate) fn prefetch_at(&self, pages: &TreePages, offset: u16) {
        pages.prefetch(self.id, usize::from(offset));
    }

    /// Prefetches the first lines of all entries.
    pub(crate) fn prefetch_entries(&self, pages: &TreePages) {
        let body = self.body();
        for offset in body.offsets(body.count()) {
            pages.prefetch(self.id, usize::from(*offset));
        }
    }

    /// The version of the newest entry; 0 without one. Load first.
    pub(crate) fn newest(&self, pages: &TreePages) -> u64 {
        let body = self.body();
        let last = body.count().checked_sub(1);
        last.map_or(0, |i| entry(pages, self.id, body.offset(i)).start())
    }

    /// How full the leaf is. Load first.
    pub(crate) fn filled(&self) -> LeafFill {
        let body = self.body();
        LeafFill {
            free_entries: body.capacity - body.count(),
            free_bytes: LEAF - body.used.load(Ordering::Relaxed) as usize,
            live: body.live.load(Ordering::Relaxed) as usize,
        }
    }

    /// The offset of the next entry. Load first.
    pub(crate) fn end(&self) -> usize {
        self.body().used.load(Ordering::Relaxed) as usize
    }

    /// Adds stored `entries`, by fingerprint and offset, to the derived data. The last one ends at
    /// `end`; `live` is the bytes of the leaf that are now live. Readers of a version with these
    /// entries see them.
    ///
    /// Only the writer calls this, with the writer lock held.
    pub(crate) fn appended(&self, entries: &[(u8, u16)], end: usize, live: usize) {
        let body = self.body();
        let count = body.count();
        body.add(count, entries);
        body.set(end, live, count + entries.len());
    }
}

/// The most entries that fit into a leaf.
const MOST_ENTRIES: usize = LEAF / ENTRY_HEADER + 1;

impl Body {
    fn new(capacity: usize) -> Self {
        let capacity = capacity.next_multiple_of(2);
        let cells = capacity / 2 * 3 + capacity / 16 + 1;
        Self {
            cells: (0..cells).map(|_| UnsafeCell::new(0)).collect(),
            capacity,
            sorted: 0,
            count: AtomicU32::new(0),
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            next: OnceLock::new(),
            order: Mutex::default(),
        }
    }

    /// A body of these entries, of which the last ends at `end`, with space for more of their size.
    fn shrunk(&self, end: usize) -> Self {
        let count = self.count();
        let body = self.copied(capacity_for(count, end));
        body.set(end, 0, count);
        body
    }

    /// A body of these entries with space for `capacity` entries.
    fn copied(&self, capacity: usize) -> Self {
        let count = self.count();
        let body = Self {
            sorted: self.sorted,
            ..Self::new(capacity)
        };
        for i in 0..count {
            body.push(self.marks(count)[i], self.offset(i));
        }
        body
    }

    #[inline]
    fn newest(&self) -> &Self {
        let mut body = self;
        while let Some(next) = body.next.get() {
            body = next;
        }
        body
    }

    /// Adds entries, of which the last ends at `end`, and returns the body that holds them.
    fn extend(&self, entries: &[(u8, u16)], end: usize) -> &Self {
        let count = self.count();
        let total = count + entries.len();
        if total > self.capacity {
            let body = self.copied(capacity_for(total, end).max(total));
            body.extend(entries, end);
            return self.next.get_or_init(|| Box::new(body));
        }
        self.add(count, entries);
        self.set(end, self.live.load(Ordering::Relaxed) as usize, total);
        self
    }

    #[inline]
    fn count(&self) -> usize {
        // SYNC: pairs with the Release store in `set`: cells below the count are filled.
        self.count.load(Ordering::Acquire) as usize
    }

    /// The fingerprints of the first `count` entries; `count` is not above [`count`](Self::count).
    #[inline]
    fn marks(&self, count: usize) -> &[u8] {
        debug_assert!(count <= self.capacity);
        // SAFETY: `capacity` bytes begin the cells; those below the count are never stored to
        // again.
        unsafe { std::slice::from_raw_parts(self.cells.as_ptr().cast(), count) }
    }

    #[inline]
    fn offset(&self, i: usize) -> u16 {
        // SAFETY: callers pass an index below the count; such a cell is never stored to again.
        unsafe { *self.cells[self.capacity / 2 + i].get() }
    }

    /// The offsets of the first `count` entries; `count` is not above [`count`](Self::count).
    fn offsets(&self, count: usize) -> &[u16] {
        let cells = &self.cells[self.capacity / 2..][..count];
        // SAFETY: cells below the count are never stored to again, and a cell is a number.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), count) }
    }

    /// The word and bit that record that the extent of entry `i` was verified.
    #[inline]
    fn verified(&self, i: usize) -> (&AtomicU16, u16) {
        let cell = &self.cells[self.capacity / 2 * 3 + i.min(self.capacity) / 16];
        // SAFETY: the cells behind those of the offsets are used as atomics alone; they live as
        // long as `self`.
        let word = unsafe { AtomicU16::from_ptr(cell.get()) };
        (word, 1 << (i % 16))
    }

    /// Prefetches the offsets.
    #[inline]
    fn prefetch_offsets(&self) {
        let offsets = self.cells.as_ptr().cast::<u8>().wrapping_add(self.capacity);
        for line in 0..(self.capacity / 32).min(4) {
            mneme_sys::prefetch(offsets.wrapping_add(line * 64));
        }
    }

    /// Fills the cells from `count` on.
    fn add(&self, count: usize, entries: &[(u8, u16)]) {
        for (i, (mark, offset)) in (count..).zip(entries) {
            self.put(i, *mark, *offset);
        }
    }

    /// Fills the cell `i`, which is at or above the count.
    fn put(&self, i: usize, mark: u8, offset: u16) {
        assert!(i < self.capacity);
        // SAFETY: cells at or above the count are touched by one thread at a time, the caller; the
        // fingerprint is one of the `capacity` bytes that begin the cells.
        unsafe {
            UnsafeCell::raw_get(self.cells.as_ptr())
                .cast::<u8>()
                .add(i)
                .write(mark);
            *self.cells[self.capacity / 2 + i].get() = offset;
        }
    }

    /// Adds an entry to a body that is not shared yet.
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

    /// The entries that are live in `version`, which is not below the leaf's birth.
    fn order_at(&self, sorter: Sorter<'_>, version: u64) -> Arc<Order> {
        let all = self.count();
        let count = self.visible(sorter, version, all);
        // If another reader holds the lock, this one does without the cached order.
        let kept = self.order.try_lock().ok().and_then(|kept| kept.clone());
        let kept = kept.filter(|kept| kept.count <= count);
        let order = match kept {
            Some(kept) if kept.count == count => return kept,
            Some(kept) => {
                let later = &self.offsets(count)[kept.count..];
                sorter.merge(&kept.offsets, later, count)
            }
            None => {
                let (base, later) = self.offsets(count).split_at(self.sorted.min(count));
                sorter.merge(base, later, count)
            }
        };
        if count == all
            && let Ok(mut kept) = self.order.try_lock()
        {
            *kept = Some(order.clone());
        }
        order
    }

    /// Bytes of the entries that are live in the newest version, in a body that is not shared yet.
    /// An entry with a long key always counts, because it lives as long as its leaf.
    fn live_bytes(&self, sorter: Sorter<'_>) -> usize {
        let size = |at: &u16| entry(sorter.pages, sorter.id, *at).bytes.len();
        let offsets = self.offsets(self.count());
        let is_long = |at: &&u16| entry(sorter.pages, sorter.id, **at).has_long_key();
        if !offsets.iter().any(|at| is_long(&at)) {
            let order = self.order_at(sorter, u64::MAX);
            return order.offsets.iter().map(size).sum();
        }
        let (long, short): (Vec<u16>, Vec<u16>) = offsets.iter().partition(is_long);
        let order = sorter.merge(&[], &short, short.len());
        long.iter().chain(&order.offsets).map(size).sum()
    }

    /// How many of the first `count` entries `version` has. Entries ascend by version, except those
    /// that the leaf was born with, all of which it has.
    fn visible(&self, sorter: Sorter<'_>, version: u64, count: usize) -> usize {
        let has = |at: u16| entry(sorter.pages, sorter.id, at).start() <= version;
        let offsets = self.offsets(count);
        match offsets.last() {
            Some(last) if !has(*last) => offsets.partition_point(|at| has(*at)),
            _ => count,
        }
    }
}

/// Whether the parts of the keys in two consecutive entries show that the keys ascend.
fn ascends(before: &[u8], after: &[u8]) -> bool {
    fn inline(bytes: &[u8]) -> (EntryHeader, &[u8]) {
        let header = EntryHeader::read(bytes);
        (header, &bytes[ENTRY_HEADER..][..header.inline_key()])
    }
    let ((header, before), (_, after)) = (inline(before), inline(after));
    // More of the long key follows.
    before < after && !(header.has_long_key() && after.starts_with(before))
}

/// The number of entries to provide space for, if `count` entries end at offset `end`.
fn capacity_for(count: usize, end: usize) -> usize {
    (count.max(8) * LEAF / end.max(64) + 8).min(MOST_ENTRIES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use mneme_sys::medium::{Medium, MemoryMedium};

    use super::*;
    use crate::Durability;
    use crate::layout::{FRAME, write_entry};

    const ID: LeafId = LeafId(0);

    fn pages() -> TreePages {
        let medium = MemoryMedium::new(2 * FRAME).unwrap();
        medium.grow(2 * FRAME).unwrap();
        TreePages::new(Box::new(medium), Durability::Process)
    }

    fn leaf() -> Leaf {
        Leaf::new(ID, 1, Box::default(), None)
    }

    /// Stores an entry as a commit would, and adds it to the derived data.
    fn append(pages: &TreePages, leaf: &Leaf, version: u64, key: &[u8], value: Option<&[u8]>) {
        let (at, mut bytes) = (leaf.end(), Vec::new());
        write_entry(&mut bytes, (ID, at), (version, false), key, value, None);
        let end = at + bytes.len();
        bytes.extend_from_slice(&[0; 8]);
        pages.store(ID.at() + at as u64, &bytes);
        leaf.appended(&[(fingerprint(key), at as u16)], end, 0);
    }

    fn keys(pages: &TreePages, leaf: &Leaf, version: u64) -> Vec<Vec<u8>> {
        let order = leaf.order_at(pages, version);
        let keys = order.offsets.iter();
        keys.map(|at| leaf.entry(pages, *at).key(pages).to_vec())
            .collect()
    }

    #[test]
    fn each_version_has_its_entries_in_order_and_a_loaded_leaf_has_the_same() {
        let (pages, committed) = (pages(), Committed::new(9, Vec::new()));
        let leaf = leaf();
        leaf.load(&pages, &committed).unwrap();
        append(&pages, &leaf, 2, b"m", Some(b"1"));
        append(&pages, &leaf, 3, b"c", Some(b"2"));
        append(&pages, &leaf, 4, b"m", None);
        append(&pages, &leaf, 5, b"x", Some(b"3"));
        append(&pages, &leaf, 6, b"c", Some(b"4"));
        let loaded = Leaf::new(ID, 1, Box::default(), None);
        loaded.load(&pages, &committed).unwrap();
        for leaf in [&leaf, &loaded] {
            // First backwards, so that a cached order is useless, then forwards, so that it is
            // useful.
            for version in [6, 5, 4, 3, 2, 3, 4, 5, 6] {
                let expected: &[&[u8]] = match version {
                    2 => &[b"m"],
                    3 => &[b"c", b"m"],
                    4 => &[b"c"],
                    _ => &[b"c", b"x"],
                };
                assert_eq!(keys(&pages, leaf, version), expected, "version {version}");
            }
            let value = |version| {
                leaf.find(&pages, b"c", version)
                    .and_then(|entry| entry.value(&pages))
            };
            assert_eq!(value(2), None);
            assert_eq!(value(5), Some(&b"2"[..]));
            assert_eq!(value(6), Some(&b"4"[..]));
        }
    }

    #[test]
    fn readers_see_whole_entries_while_more_are_appended() {
        let (pages, leaf) = (pages(), leaf());
        leaf.load(&pages, &Committed::new(0, Vec::new())).unwrap();
        let version = AtomicU64::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    // SYNC: pairs with the Release store below.
                    let version = version.load(Ordering::Acquire);
                    let found = keys(&pages, &leaf, version);
                    assert_eq!(found.len() as u64, version - 1);
                    assert!(found.is_sorted());
                    if version == 13 {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            for n in 2..=13_u64 {
                append(&pages, &leaf, n, &[(n * 7 % 13) as u8], Some(b"value"));
                // SYNC: pairs with the Acquire load above.
                version.store(n, Ordering::Release);
            }
        });
    }
}
