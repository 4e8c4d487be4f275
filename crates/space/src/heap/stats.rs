//! Statistics of a heap, computed from its counters.

use std::sync::atomic::Ordering::Relaxed;

use super::classes::TABLE;
use super::layout::PAGE;
use super::raw::RawHeap;

/// The use of a heap's memory, in bytes unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapStats {
    /// The current size of the heap in its segment, headers included.
    pub segment_bytes: u64,
    /// The largest possible size.
    pub max_bytes: u64,
    /// The number of allocated blocks.
    pub blocks: u64,
    /// The bytes of allocated blocks, rounded up to the size that each takes.
    pub used_bytes: u64,
    /// The bytes of slabs that are free for blocks of their sizes, including unused ends and
    /// bitmaps.
    pub slab_rest_bytes: u64,
    /// The bytes of free runs of pages, which are free for any use.
    pub free_bytes: u64,
    /// The bytes of the heap's own tables.
    pub own_bytes: u64,
    /// The number of operations that met damage.
    pub damage: u64,
}

pub(super) fn stats(raw: RawHeap) -> HeapStats {
    let header = raw.header();
    let page = PAGE as u64;
    let large_pages = header.large_pages.load(Relaxed);
    let mut blocks = header.large_runs.load(Relaxed);
    // The counters of a damaged heap may have any value: wrap instead of panicking.
    let mut used = large_pages.wrapping_mul(page);
    let mut slabs = 0_u64;
    for (class, state) in TABLE.iter().zip(&header.classes) {
        let live = state.live.load(Relaxed);
        blocks = blocks.wrapping_add(live);
        used = used.wrapping_add(live.wrapping_mul(u64::from(class.size)));
        let pages = u64::from(state.slabs.load(Relaxed)).wrapping_mul(u64::from(class.pages));
        slabs = slabs.wrapping_add(pages.wrapping_mul(page));
    }
    let segment = (raw.pages() as u64).wrapping_mul(page);
    let free = header.free_pages.load(Relaxed).wrapping_mul(page);
    let large = large_pages.wrapping_mul(page);
    HeapStats {
        segment_bytes: segment,
        max_bytes: header.max_pages.load(Relaxed).wrapping_mul(page),
        blocks,
        used_bytes: used,
        slab_rest_bytes: slabs.wrapping_sub(used.wrapping_sub(large)),
        free_bytes: free,
        own_bytes: segment
            .wrapping_sub(free)
            .wrapping_sub(slabs)
            .wrapping_sub(large),
        damage: header.damage.load(Relaxed),
    }
}
