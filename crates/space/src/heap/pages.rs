//! Runs of pages: allocated by good fit, merged with their free neighbours when freed, extended in
//! place.
//!
//! Free runs are kept in 128 bins by length: one for each length below 16 pages, then four for each
//! doubling. A run is taken from among the first few of its own bin, or else from the next bin that
//! is not empty, all of whose runs are long enough (TLSF: Masmano, Ripoll, Crespo and Real, 2004).
//! The rest of the run returns to its bin. If nothing fits, the segment grows by what is missing
//! after a free run at its end, and a little more. Larger growth, by an eighth, happens before a
//! section can change anything ([`growth_ahead`]), because taking memory can kill the process.
//!
//! Death: the segment's lock is held, and the death of its holder poisons the segment. In any state
//! left then, **the first entries of runs lead from page 0 to the end without a gap**, and no entry
//! within a run marks the beginning of a block. So a run is divided by marking its second part
//! first, and joined by one store to its first entry. Links, bins and counts follow from that
//! (`mend`).

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{
    BINS, FORMAT, HEAP_AT, HeapHeader, LEAF_ENTRIES, LEAF_PAGES, LEAF_SHIFT, MAGIC, MOST_PAGES,
    PAGE, PAGE_SHIFT, PageEntry, PageState, PageUse, front_pages,
};
use super::raw::{Damaged, HeapWord, RawHeap, add, step, sub};

/// The number of runs in a bin that are compared for the best fit.
const LOOKED_AT: usize = 8;
/// The least growth of the segment in pages: a frame of 2 MiB.
const LEAST_GROWTH: usize = 128;
/// The most growth in pages beyond what is needed, inside a section: 16 MiB. If memory is scarce,
/// the kernel kills the process that takes it, and a death in a section poisons the segment.
const MOST_BEYOND_NEED: usize = 1024;
/// After growth ahead of need at least one in this many pages of the heap is free.
const SPARE: u64 = 16;

/// The bytes that a segment of `mapped` pages should have before a section begins; `None` if its
/// heap has enough free pages, or is of an unknown version.
pub(super) fn growth_ahead(raw: RawHeap) -> Option<usize> {
    let header = raw.header();
    if header.magic.load(Relaxed) != MAGIC || header.format.load(Relaxed) != FORMAT {
        return None;
    }
    let (mapped, pages) = (raw.mapped() as u64, header.pages.load(Relaxed));
    let unused = mapped.saturating_sub(pages);
    let spare = header.free_pages.load(Relaxed).saturating_add(unused);
    let most = header.max_pages.load(Relaxed).min(MOST_PAGES as u64);
    if spare >= mapped / SPARE || mapped >= most {
        return None;
    }
    let wanted = mapped + (mapped / 8).max(LEAST_GROWTH as u64);
    usize::try_from(wanted.min(most) << PAGE_SHIFT).ok()
}

/// Extends the segment.
pub(super) trait Extend {
    fn extend(&self, wanted: usize) -> Option<usize>;
}

/// The runs of a heap, which can extend the segment.
pub(super) struct PageRuns<'a> {
    raw: Cell<RawHeap>,
    ground: &'a dyn Extend,
}

/// The bin for runs of this many pages.
pub(super) const fn bin(pages: u32) -> usize {
    if pages < 16 {
        pages as usize
    } else {
        let log = pages.ilog2();
        16 + (log as usize - 4) * 4 + ((pages >> (log - 2)) & 3) as usize
    }
}

const _: () = assert!(bin(15) == 15 && bin(16) == 16 && bin(MOST_PAGES as u32) < BINS);

/// The previous and next page in an entry's links.
const fn split(links: u64) -> (u32, u32) {
    (links as u32, (links >> 32) as u32)
}

const fn join(previous: u32, next: u32) -> u64 {
    previous as u64 | (next as u64) << 32
}

/// Inserts `page` before `next`, the head of a list; the caller makes it the new head.
pub(super) fn link_before(raw: RawHeap, page: u32, next: u32) -> Result<(), Damaged> {
    if next != 0 {
        let links = &raw.entry(next)?.links;
        let (_, further) = split(links.load(Relaxed));
        links.put(join(page, further));
    }
    raw.entry(page)?.links.put(join(0, next));
    Ok(())
}

/// Inserts `page` after `before` in its list; the entries are those of the two.
pub(super) fn link_behind(
    raw: RawHeap,
    (page, entry): (u32, &PageEntry),
    (before, links): (u32, &PageEntry),
) -> Result<(), Damaged> {
    let (previous, next) = split(links.links.load(Relaxed));
    entry.links.put(join(before, next));
    links.links.put(join(previous, page));
    if next != 0 {
        let links = &raw.entry(next)?.links;
        let (_, further) = split(links.load(Relaxed));
        links.put(join(page, further));
    }
    Ok(())
}

/// Removes `page` from its list; `entry` is its entry. Returns the new head if `page` was the head.
pub(super) fn unlink(raw: RawHeap, page: u32, entry: &PageEntry) -> Result<Option<u32>, Damaged> {
    let (previous, next) = split(entry.links.load(Relaxed));
    if next != 0 {
        let links = &raw.entry(next)?.links;
        let (back, further) = split(links.load(Relaxed));
        if back != page {
            return Err(Damaged);
        }
        links.put(join(previous, further));
    }
    if previous == 0 {
        return Ok(Some(next));
    }
    let links = &raw.entry(previous)?.links;
    let (further, ahead) = split(links.load(Relaxed));
    if ahead != page {
        return Err(Damaged);
    }
    links.put(join(further, next));
    Ok(None)
}

/// The page after `page` in its list.
pub(super) fn next(entry: &PageEntry) -> u32 {
    split(entry.links.load(Relaxed)).1
}

/// The page before it.
pub(super) fn previous(entry: &PageEntry) -> u32 {
    split(entry.links.load(Relaxed)).0
}

impl<'a> PageRuns<'a> {
    pub(super) fn new(raw: RawHeap, ground: &'a dyn Extend) -> Self {
        Self {
            raw: Cell::new(raw),
            ground,
        }
    }

    /// The heap's words, up to the segment's current length.
    #[inline]
    pub(super) fn raw(&self) -> RawHeap {
        self.raw.get()
    }

    /// Allocates a run of `pages` pages, which the caller marks; `None` if there is no free space
    /// and the segment cannot grow. The second value says whether all its bytes are zero.
    pub(super) fn take(&self, pages: u32) -> Result<Option<(u32, bool)>, Damaged> {
        loop {
            if let Some(first) = self.take_free(pages)? {
                return Ok(Some((first, self.handed_out(first, pages))));
            }
            // A second growth is needed only if the first one had to put a leaf between the free
            // run at the old end and the new pages.
            if !self.grow(pages)? {
                return Ok(None);
            }
        }
    }

    /// As [`take`](Self::take), with the run's address a multiple of `align` pages, a power of two.
    pub(super) fn take_aligned(
        &self,
        pages: u32,
        align: u32,
    ) -> Result<Option<(u32, bool)>, Damaged> {
        if align <= 1 {
            return self.take(pages);
        }
        let Some(longer) = pages.checked_add(align - 1) else {
            return Ok(None);
        };
        let Some((first, zero)) = self.take(longer)? else {
            return Ok(None);
        };
        let base = self.raw().base().addr().get() >> PAGE_SHIFT;
        let aligned = ((base + first as usize).next_multiple_of(align as usize) - base) as u32;
        let behind = first + longer - (aligned + pages);
        // Divides it into three free runs, from last to first, because the first entry of a run
        // leads to the next run.
        let raw = self.raw();
        if behind > 0 {
            raw.mark(aligned + pages, behind, PageUse::Free, PageUse::FreeEnd)?;
        }
        if aligned > first {
            raw.mark(aligned, pages, PageUse::Free, PageUse::FreeEnd)?;
            // No free run precedes it, because it was the first part of one.
            self.bin(first, aligned - first)?;
        }
        // Marked before the part after it is freed, because freeing examines it.
        raw.mark(aligned, pages, PageUse::Large, PageUse::LargeEnd)?;
        if behind > 0 {
            self.give(aligned + pages, behind)?;
        }
        Ok(Some((aligned, zero)))
    }

    /// Allocates from the bins only.
    fn take_free(&self, pages: u32) -> Result<Option<u32>, Damaged> {
        let Some((first, has)) = self.find(pages)? else {
            return Ok(None);
        };
        self.unbin(first, has)?;
        if has > pages {
            self.bin(first + pages, has - pages)?;
        }
        Ok(Some(first))
    }

    /// A free run of at least this many pages, and its length.
    fn find(&self, pages: u32) -> Result<Option<(u32, u32)>, Damaged> {
        let header = self.raw().header();
        let own = bin(pages);
        let mut best: Option<(u32, u32)> = None;
        let mut page = header.bins[own].load(Relaxed);
        for _ in 0..LOOKED_AT {
            if page == 0 {
                break;
            }
            let has = self.free_at(page)?;
            if has >= pages && best.is_none_or(|(_, least)| has < least) {
                best = Some((page, has));
            }
            page = next(self.raw().entry(page)?);
        }
        if best.is_some() {
            return Ok(best);
        }
        let Some(bin) = next_set(header, own + 1) else {
            return Ok(None);
        };
        let page = header.bins[bin].load(Relaxed);
        let has = self.free_at(page)?;
        if has < pages {
            return Err(Damaged);
        }
        Ok(Some((page, has)))
    }

    /// The length of the free run at `page`.
    fn free_at(&self, page: u32) -> Result<u32, Damaged> {
        let state = self.raw().state(page)?;
        let fits = state.pages > 0 && page as usize + state.pages as usize <= self.raw().pages();
        if page == 0 || state.kind != PageUse::Free || !fits {
            return Err(Damaged);
        }
        Ok(state.pages)
    }

    /// The free run that ends before `page`.
    fn free_before(&self, page: u32) -> Result<Option<(u32, u32)>, Damaged> {
        let before = self.raw().state(page.checked_sub(1).ok_or(Damaged)?)?;
        if !matches!(before.kind, PageUse::Free | PageUse::FreeEnd) {
            return Ok(None);
        }
        let first = page.checked_sub(before.pages).ok_or(Damaged)?;
        if self.free_at(first)? != before.pages {
            return Err(Damaged);
        }
        Ok(Some((first, before.pages)))
    }

    /// Frees a run and merges it with free neighbours.
    pub(super) fn give(&self, first: u32, pages: u32) -> Result<(), Damaged> {
        let (mut begin, mut total) = (first, pages);
        if let Some((before, has)) = self.free_before(first)? {
            self.unbin(before, has)?;
            begin = before;
            total += has;
        }
        let behind = first + pages;
        if (behind as usize) < self.raw().pages() && self.raw().state(behind)?.kind == PageUse::Free
        {
            let more = self.free_at(behind)?;
            self.unbin(behind, more)?;
            total += more;
        }
        if begin < first {
            // The page becomes an inner one. If it kept its state, a second `free` of the same
            // block would still find a block there.
            self.raw()
                .mark(first, pages, PageUse::Free, PageUse::FreeEnd)?;
        }
        self.bin(begin, total)
    }

    /// Extends the run at `first` to `pages` pages, if the pages after it are free or the segment
    /// can grow.
    pub(super) fn extend(&self, first: u32, has: u32, pages: u32) -> Result<bool, Damaged> {
        for may_grow in [true, false] {
            let behind = first + has;
            let at_end = behind as usize == self.raw().pages();
            let more = if at_end || self.raw().state(behind)?.kind != PageUse::Free {
                0
            } else {
                self.free_at(behind)?
            };
            if has + more >= pages {
                self.unbin(behind, more)?;
                if has + more > pages {
                    self.bin(first + pages, has + more - pages)?;
                }
                self.handed_out(behind, pages - has);
                return Ok(true);
            }
            let ends = (behind + more) as usize == self.raw().pages();
            if !ends || !may_grow || !self.grow(pages - has)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Records that pages are in use. Returns whether they had never been used.
    fn handed_out(&self, first: u32, pages: u32) -> bool {
        let fresh = &self.raw().header().fresh;
        let was = fresh.load(Relaxed);
        fresh.put(was.max(u64::from(first + pages)));
        u64::from(first) >= was
    }

    /// Inserts a free run into its bin.
    pub(super) fn bin(&self, first: u32, pages: u32) -> Result<(), Damaged> {
        let header = self.raw().header();
        self.raw()
            .mark(first, pages, PageUse::Free, PageUse::FreeEnd)?;
        let bin = bin(pages);
        let head = &header.bins[bin];
        link_before(self.raw(), first, head.load(Relaxed))?;
        head.put(first);
        let map = &header.bin_map[bin / 64];
        map.put(map.load(Relaxed) | 1 << (bin % 64));
        add(&header.free_pages, u64::from(pages));
        Ok(())
    }

    /// Removes a free run from its bin.
    fn unbin(&self, first: u32, pages: u32) -> Result<(), Damaged> {
        let header = self.raw().header();
        let bin = bin(pages);
        if let Some(head) = unlink(self.raw(), first, self.raw().entry(first)?)? {
            if header.bins[bin].load(Relaxed) != first {
                return Err(Damaged);
            }
            header.bins[bin].put(head);
            if head == 0 {
                let map = &header.bin_map[bin / 64];
                map.put(map.load(Relaxed) & !(1 << (bin % 64)));
            }
        }
        sub(&header.free_pages, u64::from(pages));
        Ok(())
    }

    /// Grows the segment so that a run of `pages` pages fits at its end, including a free run that
    /// lies there.
    #[cold]
    fn grow(&self, pages: u32) -> Result<bool, Damaged> {
        let has = self.raw().pages();
        let most = self
            .raw()
            .header()
            .max_pages
            .load(Relaxed)
            .min(MOST_PAGES as u64) as usize;
        let free = self
            .free_before(has as u32)?
            .map_or(0, |(_, pages)| pages as usize);
        let new = (pages as usize).saturating_sub(free);
        // Leaves for the new pages, which may have to lie before them.
        let leaves = ((has + new) >> LEAF_SHIFT) + 2 - has.div_ceil(LEAF_ENTRIES);
        let needed = has + new + leaves * LEAF_PAGES as usize;
        let ahead = (has / 8).min(MOST_BEYOND_NEED);
        let liked = has
            + (new + leaves * LEAF_PAGES as usize)
                .max(LEAST_GROWTH)
                .max(ahead);
        for wanted in [liked.min(most), needed.min(most)] {
            if wanted <= has {
                continue;
            }
            if let Some(len) = self.ground.extend(wanted << PAGE_SHIFT) {
                let mapped = (len >> PAGE_SHIFT).min(most);
                // SAFETY: `extend` returned that the segment is mapped that far now; the rest as
                // for `self.raw()`.
                let Some(raw) = (unsafe { RawHeap::new(self.raw().base(), mapped << PAGE_SHIFT) })
                else {
                    continue;
                };
                self.raw.set(raw);
                self.adopt(has as u32, mapped as u32)?;
                return Ok(self.raw().pages() > has);
            }
        }
        Ok(false)
    }

    /// Adds the mapped and unused pages from `from` to `to` to the heap.
    fn adopt(&self, from: u32, to: u32) -> Result<(), Damaged> {
        let header = self.raw().header();
        let mut to = to;
        let mut cursor = from;
        let known = (from as usize).div_ceil(LEAF_ENTRIES);
        // Leaves go elsewhere if possible, so that a free run at the end can continue into the new
        // pages.
        let tail = self.free_before(from)?;
        if let Some((first, pages)) = tail {
            self.unbin(first, pages)?;
        }
        for leaf in known..(to as usize).div_ceil(LEAF_ENTRIES) {
            let (place, zero) = match self.take_free(LEAF_PAGES)? {
                Some(place) => {
                    let zero = self.handed_out(place, LEAF_PAGES);
                    self.raw()
                        .mark(place, LEAF_PAGES, PageUse::Own, PageUse::OwnEnd)?;
                    (place, zero)
                }
                None if cursor + LEAF_PAGES <= to => {
                    cursor += LEAF_PAGES;
                    let place = cursor - LEAF_PAGES;
                    (place, self.handed_out(place, LEAF_PAGES))
                }
                None => {
                    to = (leaf << LEAF_SHIFT) as u32;
                    break;
                }
            };
            if !zero {
                self.clear(place, LEAF_PAGES)?;
            }
            self.raw().leaf(leaf).ok_or(Damaged)?.put(place);
        }
        if let Some((first, pages)) = tail {
            self.bin(first, pages)?;
        }
        if to <= from {
            return Ok(());
        }
        let raw = self.raw();
        let mut place = from;
        while place < cursor.min(to) {
            raw.mark(place, LEAF_PAGES, PageUse::Own, PageUse::OwnEnd)?;
            place += LEAF_PAGES;
        }
        if cursor < to {
            raw.mark(cursor, to - cursor, PageUse::Free, PageUse::FreeEnd)?;
        }
        // Runs lead from the old end to the new one, so the pages belong to the heap from now on.
        header.pages.put(u64::from(to));
        if cursor < to {
            self.give(cursor, to - cursor)?;
        }
        Ok(())
    }

    /// Fills pages with zeros.
    pub(super) fn clear(&self, first: u32, pages: u32) -> Result<(), Damaged> {
        let bytes = pages as usize * PAGE;
        let at = self.raw().block(first, 0, bytes)?;
        step();
        // SAFETY: mapped, as `block` found, and unused: the run was just taken.
        unsafe { at.write_bytes(0, bytes) };
        Ok(())
    }
}

/// The first non-empty bin from `from` on.
fn next_set(header: &HeapHeader, from: usize) -> Option<usize> {
    (from / 64..BINS / 64).find_map(|word| {
        let mut bits = header.bin_map[word].load(Relaxed);
        if word == from / 64 {
            bits &= u64::MAX << (from % 64);
        }
        (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
    })
}

/// Creates an empty heap in the mapped pages, whatever they contain; `zero` says that they are zero
/// except page 0.
///
/// Returns false if there is no free space for its tables.
pub(super) fn format(
    raw: RawHeap,
    max_pages: usize,
    seed: u64,
    zero: bool,
) -> Result<bool, Damaged> {
    let front = front_pages(max_pages);
    let pages = raw.mapped().min(max_pages);
    if max_pages > MOST_PAGES || (front + LEAF_PAGES) as usize >= pages {
        return Ok(false);
    }
    let header = raw.header();
    header.magic.put(0);
    let runs = PageRuns::new(raw, &Nowhere);
    // Zero the headers' words and the directory, but not the region's header.
    let at = raw.block(0, HEAP_AT, front as usize * PAGE - HEAP_AT)?;
    // SAFETY: mapped, as `block` found; the caller has exclusive use of the segment, and nothing of
    // an earlier heap is used any more.
    unsafe { at.write_bytes(0, front as usize * PAGE - HEAP_AT) };
    if !zero {
        runs.clear(front, LEAF_PAGES)?;
    }
    header.format.put(FORMAT);
    header.max_pages.put(max_pages as u64);
    header.seed.put(seed);
    // Otherwise no page is known to be zero.
    let fresh = if zero {
        front + LEAF_PAGES
    } else {
        pages as u32
    };
    header.fresh.put(u64::from(fresh));
    // First the first leaf's own pages, then the other pages in the first leaf's range, then all
    // further pages as in growth.
    let first = pages.min(LEAF_ENTRIES);
    raw.leaf(0).ok_or(Damaged)?.put(front);
    header.pages.put(first as u64);
    raw.mark(0, front, PageUse::Own, PageUse::OwnEnd)?;
    raw.mark(front, LEAF_PAGES, PageUse::Own, PageUse::OwnEnd)?;
    let begin = front + LEAF_PAGES;
    runs.give(begin, first as u32 - begin)?;
    if pages > first {
        runs.adopt(first as u32, pages as u32)?;
    }
    header.magic.put(MAGIC);
    Ok(true)
}

/// An [`Extend`] for a segment that does not grow.
pub(super) struct Nowhere;

impl Extend for Nowhere {
    fn extend(&self, _wanted: usize) -> Option<usize> {
        None
    }
}

/// Marks every page of a slab. Its bits must have been written before, because its first entry
/// makes them valid.
pub(super) fn mark_slab(raw: RawHeap, first: u32, pages: u32, class: u8) -> Result<(), Damaged> {
    for back in 1..pages {
        let state = PageState::new(PageUse::SlabRest, class, back);
        raw.entry(first + back)?.state.put(state.word());
    }
    let state = PageState::new(PageUse::Slab, class, pages);
    raw.entry(first)?.state.put(state.word());
    Ok(())
}
