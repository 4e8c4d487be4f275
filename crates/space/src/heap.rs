//! A heap whose whole state lies in its segment: any process that enters the segment can allocate
//! from it, and can free what another process has allocated.
//!
//! [`Heap`] is an [`Allocator`](allocator_api2::alloc::Allocator), so that vectors, boxes and maps
//! live in a segment. Blocks up to 32 KiB come from slabs of a size class (`slabs`, `classes`),
//! others are runs of pages of 16 KiB (`pages`). What lies where is drawn at `layout`; `raw` turns
//! it into addresses, all checked; `check` verifies everything. After SpaceJMP (§4.1), which placed
//! an `mspace` of Doug Lea's allocator in each segment.
//!
//! **Damage.** Nothing that the segment holds makes the heap panic or touch a byte outside of the
//! segment. An operation that meets damage only counts it: an allocation fails, and a block that
//! should be freed is lost.

mod check;
mod classes;
mod error;
mod layout;
mod mend;
mod pages;
mod raw;
mod slabs;
mod stats;
#[cfg(test)]
mod tests;
mod untyped;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use allocator_api2::alloc::{AllocError, Allocator};

pub use check::{HeapProblem, HeapReport};
pub use error::HeapError;
pub use stats::HeapStats;
pub use untyped::UntypedHeap;

use crate::process_mapping::{self, ProcessMapping};
use layout::{FORMAT, MAGIC, MOST_PAGES, PAGE, PAGE_SHIFT, PageState, PageUse};
use pages::{Extend, PageRuns};
use raw::{Damaged, HeapWord, RawHeap, add, sub};

/// The number of blocks that this process could not free.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The heap of a segment, for the section with brand `'s`.
///
/// One word, `Copy`, `Send` and `Sync`; it may lie in its segment as the allocator of a collection
/// there. **It works only in the thread that entered the segment, exclusively, and only until that
/// thread leaves**: elsewhere an allocation fails with [`AllocError`], and a block that should be
/// freed is lost (and counted: [`Heap::lost`]). So sending it to another thread cannot misuse it,
/// and threads of a `std::thread::scope` may read what it holds together.
///
/// Memory comes from the segment, which grows up to its maximum when needed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Heap<'s> {
    /// The segment's base.
    base: NonNull<u8>,
    brand: PhantomData<fn(&'s ()) -> &'s ()>,
}

// SAFETY: an address. Every use asks the calling thread's mark, which holds the right to it.
unsafe impl Send for Heap<'_> {}
// SAFETY: as above.
unsafe impl Sync for Heap<'_> {}

impl fmt::Debug for Heap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heap({:p})", self.base)
    }
}

impl Extend for ProcessMapping {
    fn extend(&self, wanted: usize) -> Option<usize> {
        let len = self.ground.extend(wanted).ok()?;
        self.set_len(len);
        Some(len)
    }
}

impl ProcessMapping {
    /// A view of its heap.
    #[inline]
    fn raw(&self) -> Option<RawHeap> {
        // SAFETY: a `ProcessMapping` is found through the thread's current section alone, and a
        // segment is mapped over its length while a thread is in a section of it.
        unsafe { RawHeap::new(self.base, self.len()) }
    }

    /// Whether there is a heap of a known version.
    pub(crate) fn has_heap(&self) -> Result<(), HeapError> {
        has_heap(self.raw())
    }

    /// The root's record.
    pub(crate) fn root_record(&self) -> Option<RootRecord> {
        let header = self.raw()?.header();
        Some(RootRecord {
            at: header.root_at.load(Relaxed),
            layout: header.root_layout.load(Relaxed),
            size: header.root_size.load(Relaxed),
        })
    }

    /// Changes the root's record. The segment must be entered exclusively.
    pub(crate) fn set_root_record(&self, record: RootRecord) {
        if let Some(raw) = self.raw() {
            let header = raw.header();
            // A root that can be seen has its layout, even if the process dies between two stores.
            // A root without a type is replaced at one instant; `mend` determines its size.
            if header.root_layout.load(Relaxed) != record.layout || record.at == 0 {
                header.root_at.put(0);
            }
            header.root_layout.put(record.layout);
            header.root_size.put(record.size);
            header.root_at.put(record.at);
        }
    }
}

/// The place and type of a segment's root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RootRecord {
    /// The offset in the segment; 0: there is no root.
    pub(crate) at: u64,
    /// The layout hash of its schema.
    pub(crate) layout: u64,
    /// The size in bytes.
    pub(crate) size: u64,
}

/// Makes an empty heap in a segment of `len` mapped bytes at `base`, which may grow to `max`.
/// Nothing of an earlier heap remains, nor its root. `zero`: all bytes after the first 4096 are
/// zero, as in a new file, which saves clearing memory later.
///
/// # Errors
/// [`HeapError::Size`], [`HeapError::Seed`].
///
/// # Safety
/// The bytes must be mapped for reading and writing, `base` be a multiple of 2 MiB, and nobody else
/// use the segment.
pub(crate) unsafe fn format(
    base: NonNull<u8>,
    len: usize,
    max: usize,
    zero: bool,
) -> Result<(), HeapError> {
    let mut seed = [0; 8];
    mneme_sys::random_bytes(&mut seed).map_err(HeapError::Seed)?;
    // SAFETY: the caller's promise.
    let raw = unsafe { RawHeap::new(base, len) }.ok_or(HeapError::Size { len, max })?;
    let max_pages = max.max(len) >> PAGE_SHIFT;
    match pages::format(raw, max_pages, u64::from_le_bytes(seed), zero) {
        Ok(true) => Ok(()),
        Ok(false) => Err(HeapError::Size { len, max }),
        Err(Damaged) => Err(HeapError::Damaged),
    }
}

/// Repairs the heap of a segment of `len` mapped bytes at `base` after the death of a process in
/// the middle of an operation.
///
/// # Errors
/// [`HeapError::NoHeap`]; [`HeapError::NotMended`], with nothing changed.
///
/// # Safety
/// The bytes must be mapped for reading and writing, `base` be a multiple of 2 MiB, and nobody else
/// use the segment.
pub(crate) unsafe fn mend(base: NonNull<u8>, len: usize) -> Result<(), HeapError> {
    // SAFETY: the caller's promise.
    let raw = unsafe { RawHeap::new(base, len) };
    has_heap(raw)?;
    match raw.map(mend::mend) {
        Some(Err(problem)) => Err(HeapError::NotMended { problem }),
        _ => Ok(()),
    }
}

/// Whether there is a heap of a known version.
fn has_heap(raw: Option<RawHeap>) -> Result<(), HeapError> {
    let found = match raw {
        Some(raw) if raw.header().magic.load(Relaxed) != MAGIC => "no heap's magic",
        Some(raw) if raw.header().format.load(Relaxed) != FORMAT => "another format",
        Some(_) => return Ok(()),
        None => "the segment is too short",
    };
    Err(HeapError::NoHeap {
        expected: FORMAT,
        found,
    })
}

/// The bytes that a segment of `len` mapped bytes at `base` should have before a section begins
/// that may change it, so that the section need not take memory; `None` if it has enough.
///
/// # Safety
/// The bytes must be mapped for reading, and `base` be a multiple of 2 MiB.
#[inline]
pub(crate) unsafe fn growth_ahead(base: NonNull<u8>, len: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    pages::growth_ahead(unsafe { RawHeap::new(base, len) }?)
}

/// Whether a data file contains a heap.
pub(crate) fn begins_in(data: &std::path::Path) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;

    let mut magic = [0; 8];
    std::fs::File::open(data)?.read_exact_at(&mut magic, layout::HEAP_AT as u64)?;
    Ok(u64::from_le_bytes(magic) == MAGIC)
}

impl<'s> Heap<'s> {
    /// The heap of the segment at `base`.
    pub(crate) fn new(base: NonNull<u8>) -> Self {
        Self {
            base,
            brand: PhantomData,
        }
    }

    /// Calls `f` with the heap's runs, if the calling thread entered the segment exclusively.
    #[inline]
    fn with<R>(self, f: impl FnOnce(&PageRuns<'_>) -> Result<R, Damaged>) -> Option<R> {
        process_mapping::with(self.base, |present| {
            if !present.exclusive {
                return None;
            }
            let raw = present.raw()?;
            let runs = PageRuns::new(raw, present);
            f(&runs).map_err(|Damaged| raw.note()).ok()
        })
        .flatten()
    }

    /// Statistics of the heap; costs some 50 loads.
    ///
    /// # Errors
    /// [`HeapError::Outside`] if the calling thread has not entered the segment.
    pub fn stats(self) -> Result<HeapStats, HeapError> {
        process_mapping::with(self.base, |present| {
            present.has_heap()?;
            present.raw().map(stats::stats).ok_or(HeapError::Outside)
        })
        .ok_or(HeapError::Outside)?
    }

    /// Walks all pages, bitmaps and lists and reports every contradiction. Reads no block; safe on
    /// damaged bytes.
    ///
    /// # Errors
    /// [`HeapError::Outside`] if the calling thread has not entered the segment,
    /// [`HeapError::NoHeap`].
    pub fn check(self) -> Result<HeapReport, HeapError> {
        process_mapping::with(self.base, |present| {
            present.has_heap()?;
            present.raw().map(check::check).ok_or(HeapError::Outside)
        })
        .ok_or(HeapError::Outside)?
    }

    /// The seed of the hashes in this heap's maps: random, drawn when the heap is made, and equal
    /// in all processes.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub fn seed(self) -> Result<u64, HeapError> {
        process_mapping::with(self.base, |present| {
            present.raw().map(|raw| raw.header().seed.load(Relaxed))
        })
        .flatten()
        .ok_or(HeapError::Outside)
    }

    /// The number of blocks that this process could not free: outside of an exclusive section, or
    /// in a damaged heap. They stay allocated.
    #[must_use]
    pub fn lost() -> u64 {
        LOST.load(Relaxed)
    }

    #[inline]
    fn obtain(self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let nothing = NonNull::without_provenance(nonzero_align(layout));
            return Ok(NonNull::slice_from_raw_parts(nothing, 0));
        }
        let (at, len, zero) = self
            .with(|runs| take(runs, layout))
            .flatten()
            .ok_or(AllocError)?;
        if zeroed && !zero {
            // SAFETY: just allocated, this long.
            unsafe { at.write_bytes(0, len) };
        }
        Ok(NonNull::slice_from_raw_parts(at, len))
    }

    /// Extends a block in place; returns its new length.
    #[inline]
    fn stretch(self, at: NonNull<u8>, size: usize) -> Option<usize> {
        self.with(|runs| {
            let (page, offset) = runs.raw().place(at).ok_or(Damaged)?;
            let entry = runs.raw().entry(page)?;
            let state = entry.state();
            if state.kind != PageUse::Large {
                let found = slabs::find(runs.raw(), page, entry, offset)?;
                let has = classes::TABLE[found.class as usize].size as usize;
                return Ok((has >= size).then_some(has));
            }
            whole_run(runs.raw(), page, offset, state)?;
            let Some(pages) = pages_of(size) else {
                return Ok(None);
            };
            if state.pages < pages {
                if !runs.extend(page, state.pages, pages)? {
                    return Ok(None);
                }
                runs.raw()
                    .mark(page, pages, PageUse::Large, PageUse::LargeEnd)?;
                let more = u64::from(pages - state.pages);
                add(&runs.raw().header().large_pages, more);
            }
            Ok(Some(pages.max(state.pages) as usize * PAGE))
        })
        .flatten()
    }

    /// Shortens a block in place, if that is worth it; returns its new length.
    fn cut(self, at: NonNull<u8>, size: usize) -> Option<usize> {
        self.with(|runs| {
            let (page, offset) = runs.raw().place(at).ok_or(Damaged)?;
            let entry = runs.raw().entry(page)?;
            let state = entry.state();
            if state.kind != PageUse::Large {
                let found = slabs::find(runs.raw(), page, entry, offset)?;
                let has = classes::TABLE[found.class as usize].size as usize;
                // Less than half would be in use, so moving is better.
                return Ok((size > has / 2 && size <= has).then_some(has));
            }
            whole_run(runs.raw(), page, offset, state)?;
            let pages = pages_of(size).ok_or(Damaged)?;
            if size <= classes::LARGEST || pages > state.pages {
                return Ok(None);
            }
            if pages < state.pages {
                let (rest, behind) = (page + pages, state.pages - pages);
                runs.raw()
                    .mark(rest, behind, PageUse::Free, PageUse::FreeEnd)?;
                runs.raw()
                    .mark(page, pages, PageUse::Large, PageUse::LargeEnd)?;
                runs.give(rest, behind)?;
                let less = u64::from(behind);
                sub(&runs.raw().header().large_pages, less);
            }
            Ok(Some(pages as usize * PAGE))
        })
        .flatten()
    }
}

fn nonzero_align(layout: Layout) -> std::num::NonZeroUsize {
    std::num::NonZeroUsize::new(layout.align()).unwrap_or(std::num::NonZeroUsize::MIN)
}

/// The pages for this many bytes; `None` if no segment has that many.
fn pages_of(size: usize) -> Option<u32> {
    let pages = size.div_ceil(PAGE);
    (pages <= MOST_PAGES).then_some(pages as u32)
}

/// Allocates a block for `layout`: address, length, and whether it is zeroed.
#[inline]
fn take(
    runs: &PageRuns<'_>,
    layout: Layout,
) -> Result<Option<(NonNull<u8>, usize, bool)>, Damaged> {
    if let Some(class) = classes::of(layout.size(), layout.align()) {
        let at = match slabs::take(runs, class)? {
            Some(at) => at,
            None if slabs::trim(runs)? => match slabs::take(runs, class)? {
                Some(at) => at,
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        return Ok(Some((
            at,
            classes::TABLE[class as usize].size as usize,
            false,
        )));
    }
    take_large(runs, layout)
}

#[cold]
fn take_large(
    runs: &PageRuns<'_>,
    layout: Layout,
) -> Result<Option<(NonNull<u8>, usize, bool)>, Damaged> {
    let (Some(pages), Some(align)) = (pages_of(layout.size()), pages_of(layout.align().max(PAGE)))
    else {
        return Ok(None);
    };
    let taken = match runs.take_aligned(pages, align)? {
        None if slabs::trim(runs)? => runs.take_aligned(pages, align)?,
        taken => taken,
    };
    let Some((first, zero)) = taken else {
        return Ok(None);
    };
    let raw = runs.raw();
    raw.mark(first, pages, PageUse::Large, PageUse::LargeEnd)?;
    add(&raw.header().large_runs, 1);
    add(&raw.header().large_pages, u64::from(pages));
    let len = pages as usize * PAGE;
    Ok(Some((raw.block(first, 0, len)?, len, zero)))
}

/// Checks that an address, `offset` bytes into `page`, is that of an allocated run.
fn whole_run(raw: RawHeap, page: u32, offset: u32, state: PageState) -> Result<(), Damaged> {
    let end = page as usize + state.pages as usize;
    if offset != 0 || state.pages == 0 || end > raw.pages() {
        return Err(Damaged);
    }
    Ok(())
}

#[inline]
fn give(runs: &PageRuns<'_>, at: NonNull<u8>) -> Result<(), Damaged> {
    let raw = runs.raw();
    let (page, offset) = raw.place(at).ok_or(Damaged)?;
    let entry = raw.entry(page)?;
    let state = entry.state();
    if state.kind != PageUse::Large {
        let found = slabs::find(raw, page, entry, offset)?;
        return slabs::give(runs, &found);
    }
    whole_run(raw, page, offset, state)?;
    let header = raw.header();
    sub(&header.large_runs, 1);
    sub(&header.large_pages, u64::from(state.pages));
    runs.give(page, state.pages)
}

// SAFETY: blocks are disjoint, lie in the segment and stay there until they are given back,
// whatever becomes of a `Heap`, whose copies are all equal. A block's memory remains valid as long
// as the segment is mapped; that nobody has one when it no longer is, is the brand's part: no value
// with `'s` leaves the section. Sizes and alignments are met by `classes::of` and `take_aligned`;
// `deallocate`, `grow` and `shrink` find a block by its address.
unsafe impl Allocator for Heap<'_> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.obtain(layout, false)
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.obtain(layout, true)
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 && self.with(|runs| give(runs, ptr)).is_none() {
            LOST.fetch_add(1, Relaxed);
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() > 0
            && ptr.addr().get().is_multiple_of(new.align())
            && let Some(len) = self.stretch(ptr, new.size())
        {
            return Ok(NonNull::slice_from_raw_parts(ptr, len));
        }
        // SAFETY: the caller's promise: `ptr` is a block of `old`, which is no longer than `new`.
        unsafe { self.relocate(ptr, old, new, old.size()) }
    }

    unsafe fn grow_zeroed(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        let block = unsafe { self.grow(ptr, old, new) }?;
        // SAFETY: the block is at least `new` long; what was there before is `old` long.
        unsafe {
            let rest = block.cast::<u8>().add(old.size());
            rest.write_bytes(0, block.len() - old.size());
        }
        Ok(block)
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.size() > 0
            && ptr.addr().get().is_multiple_of(new.align())
            && let Some(len) = self.cut(ptr, new.size())
        {
            return Ok(NonNull::slice_from_raw_parts(ptr, len));
        }
        // SAFETY: the caller's promise: `ptr` is a block of `old`, which is no shorter than `new`.
        unsafe { self.relocate(ptr, old, new, new.size()) }
    }
}

impl Heap<'_> {
    /// Moves `bytes` bytes of a block to a new one and frees the old one.
    ///
    /// # Safety
    /// `ptr` must be a block of this heap with layout `old`, and `bytes` no more than either's
    /// size.
    #[cold]
    unsafe fn relocate(
        self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
        bytes: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.allocate(new)?;
        // SAFETY: two blocks, both at least `bytes` long, by the caller's promise and by the
        // allocation.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(ptr, bytes) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(ptr, old) };
        Ok(block)
    }
}
