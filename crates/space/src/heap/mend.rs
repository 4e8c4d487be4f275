//! Repairs a heap whose holder died in the middle of an operation.
//!
//! **Only the states of the pages and the bits of the slabs determine which blocks are allocated**,
//! and these are correct whenever a process can die (`pages`). Counts, links, bins, summaries and
//! the ends of runs follow from them. A block that was being allocated or freed counts as one or
//! the other; no pointer to it can exist. Anything that no death can leave is damage: it is
//! reported with its place, and nothing is changed. A death during a repair leaves a heap that can
//! be repaired.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use super::check::{HeapProblem, has_blocks_within, in_block};
use super::classes::TABLE;
use super::layout::{LEAF_ENTRIES, LEAF_PAGES, MOST_PAGES, PageState, PageUse, front_pages};
use super::pages::{Nowhere, PageRuns};
use super::raw::{Damaged, HeapWord, RawHeap, add};
use super::slabs;
use super::untyped::{UNTYPED, usable};

/// Repairs the heap. Nobody else may use the segment meanwhile.
pub(super) fn mend(raw: RawHeap) -> Result<(), HeapProblem> {
    let leaves = examine(raw)?;
    derive(raw, &leaves)
}

/// Calls `f` with the first entry of each run.
fn each_run(
    raw: RawHeap,
    mut f: impl FnMut(u32, PageState) -> Result<(), HeapProblem>,
) -> Result<(), HeapProblem> {
    let end = raw.pages() as u32;
    let mut page = 0;
    while page < end {
        let state = raw.state(page).map_err(no_entry(page))?;
        let next = match page.checked_add(state.pages) {
            Some(next) if state.pages > 0 && next <= end => next,
            _ => {
                let what = "its length is impossible";
                return Err(HeapProblem::Run { page, what });
            }
        };
        f(page, state)?;
        page = next;
    }
    Ok(())
}

fn no_entry(page: u32) -> impl FnOnce(Damaged) -> HeapProblem {
    move |Damaged| HeapProblem::NoEntry { page }
}

/// Fails if the heap has damage that a death cannot leave. Returns the leaves that the directory
/// lists. Changes nothing.
fn examine(raw: RawHeap) -> Result<BTreeSet<u32>, HeapProblem> {
    let header = raw.header();
    let (pages, max) = (header.pages.load(Relaxed), header.max_pages.load(Relaxed));
    if pages > max || max > MOST_PAGES as u64 || pages as usize > raw.mapped() {
        return Err(HeapProblem::Sizes {
            pages,
            max,
            mapped: raw.mapped() as u64,
        });
    }
    let mut leaves = BTreeSet::new();
    for leaf in 0..raw.pages().div_ceil(LEAF_ENTRIES) {
        let page = raw.leaf(leaf).map_or(0, |word| word.load(Relaxed));
        if page == 0 || !leaves.insert(page) {
            let page = (leaf * LEAF_ENTRIES) as u32;
            return Err(HeapProblem::NoEntry { page });
        }
    }
    let mut met = 0;
    each_run(raw, |page, state| {
        let wrong = |what| Err(HeapProblem::Run { page, what });
        match state.kind {
            PageUse::Own if page == 0 => match state.pages == front_pages(max as usize) {
                true => Ok(()),
                false => wrong("the headers have another length"),
            },
            _ if page == 0 => wrong("the headers are not marked as such"),
            // A leaf that the directory does not list was about to be added, or has just been
            // removed.
            PageUse::Own if state.pages == LEAF_PAGES => {
                met += usize::from(leaves.contains(&page));
                Ok(())
            }
            PageUse::Own => wrong("it claims to be a table, but none lies there"),
            PageUse::Free | PageUse::Large => {
                match has_blocks_within(raw, page, page + state.pages - 1) {
                    true => wrong("blocks begin within it"),
                    false => Ok(()),
                }
            }
            PageUse::Slab => slab(raw, page, state),
            _ => wrong("it is of no kind that begins one"),
        }
    })?;
    if met != leaves.len() {
        let page = leaves.first().copied().unwrap_or(0);
        let what = "the directory names a table that lies elsewhere";
        return Err(HeapProblem::Run { page, what });
    }
    let root = header.root_at.load(Relaxed);
    if root != 0 && !in_block(raw, root) {
        return Err(HeapProblem::Root { at: root });
    }
    Ok(leaves)
}

/// Fails if the pages or bits of a slab are impossible.
fn slab(raw: RawHeap, page: u32, state: PageState) -> Result<(), HeapProblem> {
    let wrong = |what| Err(HeapProblem::Slab { page, what });
    let Some(shape) = TABLE.get(state.class as usize) else {
        return wrong("its size class does not exist");
    };
    if state.pages != shape.pages {
        return wrong("it is too short or too long for its class");
    }
    for back in 1..state.pages {
        let rest = raw.state(page + back).map_err(no_entry(page + back))?;
        if rest != PageState::new(PageUse::SlabRest, state.class, back) {
            return wrong("a further page of it says otherwise");
        }
    }
    match slabs::count_free(raw, page, shape) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => wrong("blocks are free that it does not have"),
        Err(Damaged) => Err(HeapProblem::NoEntry { page }),
    }
}

/// Writes everything that follows from the pages' states and the slabs' bits.
fn derive(raw: RawHeap, leaves: &BTreeSet<u32>) -> Result<(), HeapProblem> {
    let header = raw.header();
    header.bins.iter().for_each(|bin| bin.put(0));
    header.bin_map.iter().for_each(|map| map.put(0));
    for class in &header.classes {
        class.head.put(0);
        class.slabs.put(0);
        class.live.put(0);
    }
    for count in [
        &header.free_pages,
        &header.large_runs,
        &header.large_pages,
        &header.damage,
    ] {
        count.put(0);
    }
    // These leaves belong to an interrupted growth; the next growth creates them again.
    let known = raw.pages().div_ceil(LEAF_ENTRIES);
    let unknown = (known..raw.mapped().div_ceil(LEAF_ENTRIES)).map_while(|leaf| raw.leaf(leaf));
    unknown.for_each(|word| word.put(0));
    let runs = PageRuns::new(raw, &Nowhere);
    let mut free: Option<(u32, u32)> = None;
    each_run(raw, |page, state| {
        let pages = state.pages;
        let is_free = match state.kind {
            PageUse::Free => true,
            PageUse::Own => page != 0 && !leaves.contains(&page),
            PageUse::Slab => slabs::is_empty(raw, page, state.class).map_err(no_entry(page))?,
            _ => false,
        };
        if is_free {
            if state.kind != PageUse::Free {
                let marked = raw.mark(page, pages, PageUse::Free, PageUse::FreeEnd);
                marked.map_err(no_entry(page))?;
            }
            free = Some(free.map_or((page, pages), |(first, has)| (first, has + pages)));
            return Ok(());
        }
        if let Some((first, has)) = free.take() {
            runs.bin(first, has).map_err(no_entry(first))?;
        }
        let derived = match state.kind {
            PageUse::Slab => slabs::recount(raw, page, state.class),
            PageUse::Large => {
                add(&header.large_runs, 1);
                add(&header.large_pages, u64::from(pages));
                raw.mark(page, pages, PageUse::Large, PageUse::LargeEnd)
            }
            _ => raw.mark(page, pages, PageUse::Own, PageUse::OwnEnd),
        };
        derived.map_err(no_entry(page))
    })?;
    if let Some((first, has)) = free {
        runs.bin(first, has).map_err(no_entry(first))?;
    }
    let root = header.root_at.load(Relaxed);
    if root != 0
        && header.root_layout.load(Relaxed) == UNTYPED
        && let Some(size) = usable(raw, root)
    {
        header.root_size.put(size as u64);
    }
    Ok(())
}
