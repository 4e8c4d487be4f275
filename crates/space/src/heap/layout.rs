//! The heap's part of a segment's format, version 1.
//!
//! ```text
//! 0       region header                      128 B (mneme-sys)
//! 4096    HeapHeader                        3584 B: geometry, root, bins of free runs, size classes
//! 8192    directory                            4 B a leaf of the maximum: the leaf's first page
//! F       page F, the next whole page: pages that are handed out, leaves among them
//! ```
//! The unit is a **page** of 16 KiB, numbered from the segment's start; 0 means no page, because
//! page 0 holds the headers. A **run** is a sequence of pages with one use. Each page has a
//! [`PageEntry`] of 32 bytes in a **leaf** of 4096 entries (eight pages, for 64 MiB), so that a
//! small segment needs few pages and growth moves nothing:
//!
//! ```text
//! Entry   0  state   bits 0..8 kind, 8..16 size class, 32..64 pages of the run (for SlabRest: pages back to its first)
//!         8  links   bits 0..32 previous, 32..64 next: a list of free runs of one bin, or of slabs with free blocks
//!        16  used    blocks handed out of a slab
//!        24  map     slab of at most 64 blocks: a bit a free block; else a bit a word of its own bitmap that has one
//! ```
//! A run's first and last entries describe it. The entries between are not used, except in a slab,
//! where every page is marked. A slab of more than 64 blocks begins with its bitmap, one bit per
//! free block. **No data of the heap lies in a free or used block**: what a program writes beyond
//! its block cannot lead the heap into other runs, and `check` reads no block.
//!
//! All integers are atomics in the machine's byte order with relaxed accesses: the segment's lock
//! orders them, and as atomics they stay defined even if a foreign process breaks the lock.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::classes::CLASSES;

/// The offset of the heap in a segment.
pub(crate) const HEAP_AT: usize = 4096;
/// Magic of a formatted heap.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"MNEMHEAP");
/// Version of the format that this file describes.
pub(super) const FORMAT: u64 = 1;

/// Bits of an offset within a page.
pub(super) const PAGE_SHIFT: u32 = 14;
/// The unit of runs: 16 KiB. Smaller pages mean more entries; larger ones waste more in the last
/// page of a run: at most a third, in the smallest run, of 32 KiB and a byte.
pub(super) const PAGE: usize = 1 << PAGE_SHIFT;
/// Bits of an entry's index within its leaf.
pub(super) const LEAF_SHIFT: u32 = 12;
/// The number of pages whose entries one leaf holds.
pub(super) const LEAF_ENTRIES: usize = 1 << LEAF_SHIFT;
/// The size of a leaf in pages.
pub(super) const LEAF_PAGES: u32 = (LEAF_ENTRIES * size_of::<PageEntry>() / PAGE) as u32;
/// The offset of the directory.
pub(super) const DIRECTORY_AT: usize = 8192;
/// Bins of free runs by length.
pub(super) const BINS: usize = 128;
/// The most pages: 16 TiB, the registry's whole window.
pub(super) const MOST_PAGES: usize = 1 << 30;

/// The state of one size class.
#[repr(C)]
pub(super) struct ClassState {
    /// The first slab with free blocks.
    pub(super) head: AtomicU32,
    /// The number of slabs, including full ones.
    pub(super) slabs: AtomicU32,
    /// The number of allocated blocks.
    pub(super) live: AtomicU64,
}

/// The heap's own words, at [`HEAP_AT`].
#[repr(C)]
pub(super) struct HeapHeader {
    /// Written last.
    pub(super) magic: AtomicU64,
    pub(super) format: AtomicU64,
    /// The number of pages at the segment's maximum size, which determines the size of the
    /// directory.
    pub(super) max_pages: AtomicU64,
    /// The number of pages that belong to the heap.
    pub(super) pages: AtomicU64,
    /// The first page that has never been used. All bytes from it on are zero.
    pub(super) fresh: AtomicU64,
    /// The number of operations that met damage.
    pub(super) damage: AtomicU64,
    /// The number of allocated runs, followed by the number of their pages.
    pub(super) large_runs: AtomicU64,
    pub(super) large_pages: AtomicU64,
    /// The number of pages in free runs.
    pub(super) free_pages: AtomicU64,
    /// The offset of the root's value in the segment; 0: no root.
    pub(super) root_at: AtomicU64,
    /// Layout hash of the root's schema.
    pub(super) root_layout: AtomicU64,
    /// Size of the root's value in bytes.
    pub(super) root_size: AtomicU64,
    /// The seed of the hashes of this heap's maps.
    pub(super) seed: AtomicU64,
    pub(super) reserved: [AtomicU64; 3],
    /// One bit for each bin that is not empty.
    pub(super) bin_map: [AtomicU64; BINS / 64],
    /// The first free run of each bin.
    pub(super) bins: [AtomicU32; BINS],
    pub(super) classes: [ClassState; CLASSES],
}

/// The entry of one page.
#[repr(C, align(32))]
pub(super) struct PageEntry {
    pub(super) state: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) used: AtomicU64,
    pub(super) map: AtomicU64,
}

impl PageEntry {
    /// Decodes the first word.
    #[inline]
    pub(super) fn state(&self) -> PageState {
        PageState::of(self.state.load(Relaxed))
    }
}

const _: () = assert!(size_of::<PageEntry>() == 32);
const _: () = assert!(size_of::<ClassState>() == 16);
const _: () = assert!(offset_of!(HeapHeader, root_at) == 72);
const _: () = assert!(offset_of!(HeapHeader, bin_map) == 128);
const _: () = assert!(offset_of!(HeapHeader, bins) == 144);
const _: () = assert!(offset_of!(HeapHeader, classes) == 656);
const _: () = assert!(HEAP_AT + size_of::<HeapHeader>() <= DIRECTORY_AT);
const _: () = assert!(LEAF_PAGES == 8);

/// The use of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum PageUse {
    /// Never written.
    Unknown = 0,
    /// First page of a free run.
    Free = 1,
    /// Last page of a free run of several.
    FreeEnd = 2,
    /// First page of a run that is one block.
    Large = 3,
    /// Last page of such a run of several.
    LargeEnd = 4,
    /// First page of a slab.
    Slab = 5,
    /// Another page of a slab.
    SlabRest = 6,
    /// First page of the headers or of a leaf.
    Own = 7,
    /// Last page of such a run, if it has several.
    OwnEnd = 8,
}

/// The decoded first word of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageState {
    pub(super) kind: PageUse,
    pub(super) class: u8,
    /// Pages of the run, or the distance to its first page.
    pub(super) pages: u32,
}

impl PageState {
    pub(super) const fn new(kind: PageUse, class: u8, pages: u32) -> Self {
        Self { kind, class, pages }
    }

    pub(super) const fn word(self) -> u64 {
        self.kind as u64 | (self.class as u64) << 8 | (self.pages as u64) << 32
    }

    /// Decodes a word; unknown words become `Unknown`.
    #[inline]
    pub(super) const fn of(word: u64) -> Self {
        // A table lookup: a match would become a jump that is often mispredicted.
        const KINDS: [PageUse; 16] = {
            let mut kinds = [PageUse::Unknown; 16];
            let known = [
                PageUse::Free,
                PageUse::FreeEnd,
                PageUse::Large,
                PageUse::LargeEnd,
                PageUse::Slab,
                PageUse::SlabRest,
                PageUse::Own,
                PageUse::OwnEnd,
            ];
            let mut index = 0;
            while index < known.len() {
                kinds[known[index] as usize] = known[index];
                index += 1;
            }
            kinds
        };
        let byte = word as u8;
        let kind = KINDS[if byte < 16 { byte as usize } else { 0 }];
        Self::new(kind, (word >> 8) as u8, (word >> 32) as u32)
    }
}

/// The pages of the headers and the directory for a maximum of `max_pages`.
pub(super) const fn front_pages(max_pages: usize) -> u32 {
    let leaves = max_pages.div_ceil(LEAF_ENTRIES);
    (DIRECTORY_AT + leaves * 4).div_ceil(PAGE) as u32
}
