//! Access to the heap's words in a mapped segment. Every offset is checked against the mapped
//! length before it becomes an address, so **no content of the segment leads outside it**.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::layout::{
    DIRECTORY_AT, HEAP_AT, HeapHeader, LEAF_ENTRIES, LEAF_PAGES, LEAF_SHIFT, PAGE, PAGE_SHIFT,
    PageEntry, PageState, PageUse,
};

/// A word of the heap's tables.
///
/// **Words are stored in program order**: after a death, memory contains all stores up to some
/// point and none after it, and `mend` repairs the heap from that.
pub(super) trait HeapWord {
    type Value;

    fn put(&self, value: Self::Value);
}

impl HeapWord for AtomicU64 {
    type Value = u64;

    #[inline]
    fn put(&self, value: u64) {
        step();
        // SYNC: pairs with no load of this process. The next holder of the lock sees the stores
        // that the processor has executed; Release keeps the compiler from reordering them.
        self.store(value, Release);
    }
}

impl HeapWord for AtomicU32 {
    type Value = u32;

    #[inline]
    fn put(&self, value: u32) {
        step();
        // SYNC: as above.
        self.store(value, Release);
    }
}

/// Called before each store, so that a test can simulate a death there.
#[inline]
pub(super) fn step() {
    #[cfg(test)]
    super::tests::deaths::step();
}

/// A word had an impossible value. The operation that found it did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// A mapped segment that is large enough for a heap.
///
/// A plain copyable view that holds no reference; by the promise of [`RawHeap::new`], the mapping
/// outlives it.
#[derive(Clone, Copy)]
pub(super) struct RawHeap {
    base: NonNull<u8>,
    /// The mapped length, in whole pages; at least [`PAGE`].
    len: usize,
}

impl RawHeap {
    /// A view of `len` bytes at `base`, rounded down to whole pages; `None` if that is less than
    /// one.
    ///
    /// # Safety
    /// As long as the view and its copies are used, the bytes must be mapped for reading and
    /// writing (or only for reading, if only reading functions are called), at an address that is a
    /// multiple of 2 MiB. A process that meanwhile writes to the heap's own words must do so
    /// atomically.
    #[inline]
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize) -> Option<Self> {
        let len = len & !(PAGE - 1);
        (len > 0).then_some(Self { base, len })
    }

    #[inline]
    pub(super) fn base(self) -> NonNull<u8> {
        self.base
    }

    /// The number of mapped pages.
    #[inline]
    pub(super) fn mapped(self) -> usize {
        self.len >> PAGE_SHIFT
    }

    #[inline]
    pub(super) fn header<'a>(self) -> &'a HeapHeader {
        // SAFETY: page 0 is mapped and holds the header, which is aligned because the base is;
        // atomics accept any bits. The lifetime ends with the view's use, by the promise of `new`.
        unsafe { self.base.add(HEAP_AT).cast().as_ref() }
    }

    /// The number of pages recorded in the heap's header, at most those mapped.
    #[inline]
    pub(super) fn pages(self) -> usize {
        (self.header().pages.load(Relaxed) as usize).min(self.mapped())
    }

    /// The directory's word for a leaf.
    #[inline]
    pub(super) fn leaf<'a>(self, leaf: usize) -> Option<&'a AtomicU32> {
        let at = DIRECTORY_AT + leaf * 4;
        if at + 4 > self.len {
            return None;
        }
        // SAFETY: mapped, as just checked, and aligned.
        Some(unsafe { self.base.add(at).cast().as_ref() })
    }

    /// The entry of `page`.
    #[inline]
    pub(super) fn entry<'a>(self, page: u32) -> Result<&'a PageEntry, Damaged> {
        let page = page as usize;
        if page >= self.mapped() {
            return Err(Damaged);
        }
        let at = DIRECTORY_AT + (page >> LEAF_SHIFT) * 4;
        // SAFETY: mapped, because `page` is: the directory begins in the middle of page 0, and
        // there are 4 bytes for each 4096 pages up to the word of the last mapped page. Aligned.
        let word: &AtomicU32 = unsafe { self.base.add(at).cast().as_ref() };
        let leaf = word.load(Relaxed) as usize;
        if leaf == 0 || leaf + LEAF_PAGES as usize > self.mapped() {
            return Err(Damaged);
        }
        let at = (leaf << PAGE_SHIFT) + (page & (LEAF_ENTRIES - 1)) * size_of::<PageEntry>();
        // SAFETY: the leaf's pages are mapped, as just checked; entries are aligned within pages.
        Ok(unsafe { self.base.add(at).cast().as_ref() })
    }

    /// The decoded first word of an entry.
    #[inline]
    pub(super) fn state(self, page: u32) -> Result<PageState, Damaged> {
        Ok(self.entry(page)?.state())
    }

    /// Marks the ends of a run. The first store sets the first entry, which determines the run, so
    /// the run after it must have been marked before.
    pub(super) fn mark(
        self,
        first: u32,
        pages: u32,
        kind: PageUse,
        end: PageUse,
    ) -> Result<(), Damaged> {
        let begins = &self.entry(first)?.state;
        if pages > 1 {
            let last = self.entry(first + pages - 1)?;
            begins.put(PageState::new(kind, 0, pages).word());
            last.state.put(PageState::new(end, 0, pages).word());
        } else {
            begins.put(PageState::new(kind, 0, pages).word());
        }
        Ok(())
    }

    /// Word `index` of the bitmap at the beginning of the slab at `page`.
    #[inline]
    pub(super) fn bitmap<'a>(self, page: u32, index: u32) -> Result<&'a AtomicU64, Damaged> {
        let page = page as usize;
        if page >= self.mapped() || index as usize >= PAGE / 8 {
            return Err(Damaged);
        }
        let at = (page << PAGE_SHIFT) + index as usize * 8;
        // SAFETY: within a mapped page, aligned.
        Ok(unsafe { self.base.add(at).cast().as_ref() })
    }

    /// The address of the byte at `offset` in the run at `page`, if `bytes` bytes follow there.
    #[inline]
    pub(super) fn block(
        self,
        page: u32,
        offset: usize,
        bytes: usize,
    ) -> Result<NonNull<u8>, Damaged> {
        let at = ((page as usize) << PAGE_SHIFT) + offset;
        // Neither term exceeds 2^45.
        if at + bytes > self.len {
            return Err(Damaged);
        }
        // SAFETY: within the mapping.
        Ok(unsafe { self.base.add(at) })
    }

    /// The page that contains an address, and the offset in it; `None` outside the segment.
    #[inline]
    pub(super) fn place(self, at: NonNull<u8>) -> Option<(u32, u32)> {
        let offset = at.addr().get().wrapping_sub(self.base.addr().get());
        (offset < self.len).then_some(((offset >> PAGE_SHIFT) as u32, (offset & (PAGE - 1)) as u32))
    }

    /// Counts the damage that an operation found.
    #[cold]
    pub(super) fn note(self) {
        let damage = &self.header().damage;
        damage.put(damage.load(Relaxed).saturating_add(1));
    }
}

/// Adds to a counter that only the holder of the segment's lock changes. The addition wraps, so it
/// stays defined if the counter is damaged.
#[inline]
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.put(counter.load(Relaxed).wrapping_add(by));
}

/// Subtracts from such a counter.
#[inline]
pub(super) fn sub(counter: &AtomicU64, by: u64) {
    counter.put(counter.load(Relaxed).wrapping_sub(by));
}
