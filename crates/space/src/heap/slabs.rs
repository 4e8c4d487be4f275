//! Small blocks: a bit each, in slabs of one size class, in constant time.
//!
//! Each class keeps a list of its slabs with free blocks. A block is taken from the first slab, and
//! from the next one when that is full. A full slab is in no list; when one of its blocks is freed,
//! the slab returns to the second position, so that nearly full slabs are filled up and others can
//! become empty. The pages of an empty slab are freed, unless it is the class's only slab with free
//! blocks. A free block is marked by a set bit in the slab's entry or bitmap, which lie apart from
//! the blocks. So freeing a block that is free, or an address where no block begins, is detected.

use std::sync::atomic::Ordering::Relaxed;

use super::classes::{SizeClass, TABLE};
use super::layout::{ClassState, PAGE, PageEntry, PageUse};
use super::pages::{PageRuns, link_before, link_behind, mark_slab, next, previous, unlink};
use super::raw::{Damaged, HeapWord, RawHeap, add, sub};
use std::ptr::NonNull;

/// A block found by its address.
pub(super) struct FoundBlock<'a> {
    pub(super) class: u8,
    /// The first page of its slab.
    page: u32,
    /// The entry of that page.
    entry: &'a PageEntry,
    block: u32,
}

/// Allocates a block of `class`; `None`: there is no free space, and the segment cannot grow.
#[inline]
pub(super) fn take(runs: &PageRuns<'_>, class: u8) -> Result<Option<NonNull<u8>>, Damaged> {
    let shape = &TABLE[class as usize];
    let state = &runs.raw().header().classes[class as usize];
    let mut page = state.head.load(Relaxed);
    if page == 0 {
        page = match new_slab(runs, class)? {
            Some(page) => page,
            None => return Ok(None),
        };
    }
    let raw = runs.raw();
    let entry = raw.entry(page)?;
    let is = entry.state();
    if is.kind != PageUse::Slab || is.class != class {
        return Err(Damaged);
    }
    let map = entry.map.load(Relaxed);
    if map == 0 {
        return Err(Damaged);
    }
    let bit = map.trailing_zeros();
    let mut left = map & (map - 1);
    let block = if shape.has_bitmap() {
        let word = raw.bitmap(page, bit)?;
        let bits = word.load(Relaxed);
        if bits == 0 || bit >= shape.words() {
            return Err(Damaged);
        }
        let rest = bits & (bits - 1);
        word.put(rest);
        if rest != 0 {
            left = map;
        }
        bit * 64 + bits.trailing_zeros()
    } else {
        bit
    };
    if block >= shape.blocks {
        return Err(Damaged);
    }
    entry.map.put(left);
    add(&entry.used, 1);
    add(&state.live, 1);
    if left == 0 {
        let head = unlink(raw, page, entry)?.ok_or(Damaged)?;
        state.head.put(head);
    }
    let offset = shape.first + block * shape.size;
    raw.block(page, offset as usize, shape.size as usize)
        .map(Some)
}

/// Creates a new slab, which becomes the head of its class's empty list.
#[cold]
fn new_slab(runs: &PageRuns<'_>, class: u8) -> Result<Option<u32>, Damaged> {
    let shape = &TABLE[class as usize];
    let Some((page, _)) = runs.take(shape.pages)? else {
        return Ok(None);
    };
    let raw = runs.raw();
    if shape.has_bitmap() {
        for word in 0..shape.words() {
            raw.bitmap(page, word)?.put(shape.mask(word));
        }
    }
    let entry = raw.entry(page)?;
    entry.used.put(0);
    entry.map.put(shape.full_map());
    mark_slab(raw, page, shape.pages, class)?;
    let state = &raw.header().classes[class as usize];
    link_before(raw, page, 0)?;
    state.head.put(page);
    let slabs = state.slabs.load(Relaxed);
    state.slabs.put(slabs.wrapping_add(1));
    Ok(Some(page))
}

/// The block that begins `offset` bytes into `page`, a page of a slab with this entry.
#[inline]
pub(super) fn find<'a>(
    raw: RawHeap,
    page: u32,
    entry: &'a PageEntry,
    offset: u32,
) -> Result<FoundBlock<'a>, Damaged> {
    let is = entry.state();
    let (first, entry, offset) = match is.kind {
        PageUse::Slab => (page, entry, offset),
        PageUse::SlabRest if is.pages < 8 => {
            let first = page.checked_sub(is.pages).ok_or(Damaged)?;
            let entry = raw.entry(first)?;
            let head = entry.state();
            if head.kind != PageUse::Slab || head.class != is.class {
                return Err(Damaged);
            }
            (first, entry, offset + is.pages * PAGE as u32)
        }
        _ => return Err(Damaged),
    };
    let shape = TABLE.get(is.class as usize).ok_or(Damaged)?;
    Ok(FoundBlock {
        class: is.class,
        page: first,
        entry,
        block: shape.block_at(offset).ok_or(Damaged)?,
    })
}

/// Frees a block.
#[inline]
pub(super) fn give(runs: &PageRuns<'_>, found: &FoundBlock<'_>) -> Result<(), Damaged> {
    let raw = runs.raw();
    let shape = &TABLE[found.class as usize];
    let state = &raw.header().classes[found.class as usize];
    let entry = found.entry;
    let map = entry.map.load(Relaxed);
    let (word, bit) = (found.block / 64, 1 << (found.block % 64));
    let used = entry.used.load(Relaxed);
    if is_free(raw, shape, found, map)? || used == 0 {
        // It was freed already.
        return Err(Damaged);
    }
    if shape.has_bitmap() {
        let bits = raw.bitmap(found.page, word)?;
        bits.put(bits.load(Relaxed) | bit);
        entry.map.put(map | 1 << word);
    } else {
        entry.map.put(map | bit);
    }
    entry.used.put(used - 1);
    sub(&state.live, 1);
    if map == 0 {
        let head = state.head.load(Relaxed);
        if head != 0 {
            let first = raw.entry(head)?;
            if first.used.load(Relaxed) > 0 {
                // As the head it would be full again after the next allocation, and leave the list.
                return link_behind(raw, (found.page, entry), (head, first));
            }
        }
        link_before(raw, found.page, head)?;
        state.head.put(found.page);
        // The previous head may be an empty slab that was kept because there was no other.
        if head != 0 {
            release(runs, state, head, shape.pages)?;
        }
    } else if used == 1 {
        let alone = previous(entry) == 0 && next(entry) == 0;
        if !alone {
            release(runs, state, found.page, shape.pages)?;
        }
    }
    Ok(())
}

/// Whether a block is allocated.
pub(super) fn is_used(raw: RawHeap, found: &FoundBlock<'_>) -> Result<bool, Damaged> {
    let map = found.entry.map.load(Relaxed);
    Ok(!is_free(raw, &TABLE[found.class as usize], found, map)?)
}

fn is_free(
    raw: RawHeap,
    shape: &SizeClass,
    found: &FoundBlock<'_>,
    map: u64,
) -> Result<bool, Damaged> {
    let bits = if shape.has_bitmap() {
        raw.bitmap(found.page, found.block / 64)?.load(Relaxed)
    } else {
        map
    };
    Ok(bits & 1 << (found.block % 64) != 0)
}

/// The number of free blocks according to the bits of the slab at `page`; `None` if bits of
/// nonexistent blocks are set.
pub(super) fn count_free(
    raw: RawHeap,
    page: u32,
    shape: &SizeClass,
) -> Result<Option<u32>, Damaged> {
    let mut free = 0;
    for index in 0..shape.words() {
        let bits = if shape.has_bitmap() {
            raw.bitmap(page, index)?.load(Relaxed)
        } else {
            raw.entry(page)?.map.load(Relaxed)
        };
        if bits & !shape.mask(index) != 0 {
            return Ok(None);
        }
        free += bits.count_ones();
    }
    Ok(Some(free))
}

/// Whether all blocks of the slab at `page` are free.
pub(super) fn is_empty(raw: RawHeap, page: u32, class: u8) -> Result<bool, Damaged> {
    let shape = TABLE.get(class as usize).ok_or(Damaged)?;
    Ok(count_free(raw, page, shape)? == Some(shape.blocks))
}

/// Recomputes everything that follows from the bits of a slab, and links the slab if it has free
/// blocks. The list and the counts of its class must have been cleared before.
pub(super) fn recount(raw: RawHeap, page: u32, class: u8) -> Result<(), Damaged> {
    let shape = TABLE.get(class as usize).ok_or(Damaged)?;
    let entry = raw.entry(page)?;
    let state = &raw.header().classes[class as usize];
    let free = count_free(raw, page, shape)?.ok_or(Damaged)?;
    if shape.has_bitmap() {
        let mut map = 0;
        for index in 0..shape.words() {
            let any = raw.bitmap(page, index)?.load(Relaxed) != 0;
            map |= u64::from(any) << index;
        }
        entry.map.put(map);
    }
    let used = u64::from(shape.blocks - free);
    entry.used.put(used);
    add(&state.live, used);
    state.slabs.put(state.slabs.load(Relaxed).wrapping_add(1));
    if free > 0 {
        link_before(raw, page, state.head.load(Relaxed))?;
        state.head.put(page);
    }
    Ok(())
}

/// Removes an empty slab from its class's list and frees its pages.
#[cold]
fn release(runs: &PageRuns<'_>, state: &ClassState, page: u32, pages: u32) -> Result<(), Damaged> {
    let raw = runs.raw();
    if let Some(head) = unlink(raw, page, raw.entry(page)?)? {
        state.head.put(head);
    }
    let slabs = state.slabs.load(Relaxed);
    state.slabs.put(slabs.wrapping_sub(1));
    runs.give(page, pages)
}

/// Frees the empty slabs that classes keep. Returns whether there were any.
#[cold]
pub(super) fn trim(runs: &PageRuns<'_>) -> Result<bool, Damaged> {
    let mut any = false;
    for (class, shape) in TABLE.iter().enumerate() {
        let state = &runs.raw().header().classes[class];
        let page = state.head.load(Relaxed);
        // Only a class's first slab may be empty, and only while it is the only one with free
        // blocks.
        if page != 0 && runs.raw().entry(page)?.used.load(Relaxed) == 0 {
            release(runs, state, page, shape.pages)?;
            any = true;
        }
    }
    Ok(any)
}
