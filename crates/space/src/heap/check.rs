//! Walks a heap's pages, bitmaps and lists, and reports contradictions in words. It terminates and
//! stays within the segment, whatever the bytes are.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::classes::{CLASSES, TABLE};
use super::layout::{
    BINS, LEAF_ENTRIES, LEAF_PAGES, MOST_PAGES, PAGE, PageEntry, PageUse, front_pages,
};
use super::pages::{bin, next, previous};
use super::raw::{Damaged, RawHeap};
use super::slabs;
use super::stats::{HeapStats, stats};

/// The most problems that are reported: enough to show the kind of damage.
const MOST: usize = 100;

/// The result of [`Heap::check`](super::Heap::check).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapReport {
    /// The contradictions, at most 100.
    pub problems: Vec<HeapProblem>,
    /// The heap's statistics.
    pub stats: HeapStats,
}

impl HeapReport {
    /// Whether there are no problems.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A contradiction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapProblem {
    /// The header's sizes are impossible.
    #[error("the heap's header says {pages} pages of {max} allowed, where {mapped} are mapped")]
    Sizes {
        /// The pages that the heap claims to have.
        pages: u64,
        /// The pages allowed.
        max: u64,
        /// The pages mapped.
        mapped: u64,
    },
    /// The page's entry cannot be located.
    #[error("page {page} has no entry: the directory of leaves is damaged")]
    NoEntry {
        /// The page.
        page: u32,
    },
    /// The entry where a run should begin does not begin one, or the run's length is impossible.
    /// Pages after it are not examined.
    #[error("no run begins at page {page}, where one should: {what}")]
    Run {
        /// The page.
        page: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A slab's bits, count and class contradict each other.
    #[error("the slab at page {page}: {what}")]
    Slab {
        /// Its first page.
        page: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Two free runs are adjacent.
    #[error("the free run at page {page} should have been merged with the free run before it")]
    NotMerged {
        /// Its first page.
        page: u32,
    },
    /// The list of free runs, or of slabs with free blocks, is broken.
    #[error("the list of {list}: page {page} {what}")]
    List {
        /// The list.
        list: String,
        /// The page in the list at which it is broken.
        page: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A count is wrong.
    #[error("{what}: counted {counted}, recorded {recorded}")]
    Count {
        /// What was counted.
        what: String,
        /// The actual count.
        counted: u64,
        /// The count in the header.
        recorded: u64,
    },
    /// The root is not in a block.
    #[error("the root at offset {at} is in no allocated block")]
    Root {
        /// The offset.
        at: u64,
    },
    /// Earlier operations met damage.
    #[error("{times} operations met damage")]
    Met {
        /// The number of these operations.
        times: u64,
    },
}

/// The counts of a size class.
#[derive(Default)]
struct Counted {
    slabs: u64,
    live: u64,
    with_free_blocks: u64,
}

/// The counts of a walk over the pages.
struct Walk {
    problems: Vec<HeapProblem>,
    free_runs: u64,
    free_pages: u64,
    large_runs: u64,
    large_pages: u64,
    classes: [Counted; CLASSES],
}

impl Walk {
    fn new() -> Self {
        Self {
            problems: Vec::new(),
            free_runs: 0,
            free_pages: 0,
            large_runs: 0,
            large_pages: 0,
            classes: [const {
                Counted {
                    slabs: 0,
                    live: 0,
                    with_free_blocks: 0,
                }
            }; CLASSES],
        }
    }

    fn tell(&mut self, problem: HeapProblem) {
        if self.problems.len() < MOST {
            self.problems.push(problem);
        }
    }

    fn compare(&mut self, what: &str, counted: u64, recorded: u64) {
        if counted != recorded {
            self.tell(HeapProblem::Count {
                what: what.to_owned(),
                counted,
                recorded,
            });
        }
    }
}

pub(super) fn check(raw: RawHeap) -> HeapReport {
    let mut walk = Walk::new();
    let header = raw.header();
    let (pages, max) = (header.pages.load(Relaxed), header.max_pages.load(Relaxed));
    if pages > max || max > MOST_PAGES as u64 || pages as usize > raw.mapped() {
        walk.tell(HeapProblem::Sizes {
            pages,
            max,
            mapped: raw.mapped() as u64,
        });
    } else if walk_pages(raw, &mut walk) {
        walk_lists(raw, &mut walk);
        walk.compare(
            "free pages",
            walk.free_pages,
            header.free_pages.load(Relaxed),
        );
        walk.compare(
            "large runs",
            walk.large_runs,
            header.large_runs.load(Relaxed),
        );
        walk.compare(
            "their pages",
            walk.large_pages,
            header.large_pages.load(Relaxed),
        );
        for (class, state) in header.classes.iter().enumerate() {
            let size = TABLE[class].size;
            let slabs = u64::from(state.slabs.load(Relaxed));
            walk.compare(
                &format!("slabs of {size} bytes"),
                walk.classes[class].slabs,
                slabs,
            );
            let live = state.live.load(Relaxed);
            walk.compare(
                &format!("blocks of {size} bytes"),
                walk.classes[class].live,
                live,
            );
        }
    }
    let root = header.root_at.load(Relaxed);
    if root != 0 && !in_block(raw, root) {
        walk.tell(HeapProblem::Root { at: root });
    }
    let times = header.damage.load(Relaxed);
    if times > 0 {
        walk.tell(HeapProblem::Met { times });
    }
    HeapReport {
        problems: walk.problems,
        stats: stats(raw),
    }
}

/// Walks from run to run. Returns false if it had to stop.
fn walk_pages(raw: RawHeap, walk: &mut Walk) -> bool {
    let end = raw.pages() as u32;
    let mut page = 0;
    let mut after_free = false;
    while page < end {
        let Ok(state) = raw.state(page) else {
            walk.tell(HeapProblem::NoEntry { page });
            return false;
        };
        let wrong = |what| HeapProblem::Run { page, what };
        let last = match page.checked_add(state.pages) {
            Some(next) if state.pages > 0 && next <= end => next - 1,
            _ => {
                walk.tell(wrong("its length is impossible"));
                return false;
            }
        };
        let expected_end = match state.kind {
            PageUse::Free => PageUse::FreeEnd,
            PageUse::Large => PageUse::LargeEnd,
            PageUse::Own => PageUse::OwnEnd,
            PageUse::Slab => PageUse::SlabRest,
            _ => {
                walk.tell(wrong("it is of no kind that begins one"));
                return false;
            }
        };
        match raw.state(last) {
            Ok(found) if last == page || found.kind == expected_end => {
                // Check the last page too, which merging reads.
                if last > page && found.pages != state.pages && state.kind == PageUse::Free {
                    walk.tell(wrong("its end says another length"));
                }
            }
            _ => walk.tell(wrong("its end says otherwise")),
        }
        if state.kind == PageUse::Free && after_free {
            walk.tell(HeapProblem::NotMerged { page });
        }
        after_free = state.kind == PageUse::Free;
        if matches!(state.kind, PageUse::Free | PageUse::Large)
            && has_blocks_within(raw, page, last)
        {
            walk.tell(wrong("blocks begin within it"));
        }
        match state.kind {
            PageUse::Free => {
                walk.free_runs += 1;
                walk.free_pages += u64::from(state.pages);
            }
            PageUse::Large => {
                walk.large_runs += 1;
                walk.large_pages += u64::from(state.pages);
            }
            PageUse::Slab => slab(raw, page, state.class, state.pages, walk),
            _ if !is_own(raw, page, state.pages) => {
                walk.tell(wrong("it claims to be a table, but none lies there"));
            }
            _ => {}
        }
        page = last + 1;
    }
    true
}

/// Whether a block begins within a run that is free or a single block, after its first page.
pub(super) fn has_blocks_within(raw: RawHeap, first: u32, last: u32) -> bool {
    let kinds = (first + 1..=last).map(|page| raw.state(page).map(|state| state.kind));
    kinds
        .flatten()
        .any(|kind| matches!(kind, PageUse::Large | PageUse::Slab))
}

/// Whether the run holds the headers, or a leaf that the directory lists.
fn is_own(raw: RawHeap, page: u32, pages: u32) -> bool {
    let max = raw.header().max_pages.load(Relaxed) as usize;
    if page == 0 {
        return pages == front_pages(max);
    }
    let leaves = raw.pages().div_ceil(LEAF_ENTRIES);
    pages == LEAF_PAGES
        && (0..leaves).any(|leaf| raw.leaf(leaf).is_some_and(|at| at.load(Relaxed) == page))
}

fn slab(raw: RawHeap, page: u32, class: u8, pages: u32, walk: &mut Walk) {
    let wrong = |what| HeapProblem::Slab { page, what };
    let Some(shape) = TABLE.get(class as usize) else {
        return walk.tell(wrong("its size class does not exist"));
    };
    if pages != shape.pages {
        return walk.tell(wrong("it is too short or too long for its class"));
    }
    for back in 1..pages {
        let rest = raw.state(page + back);
        if !rest
            .is_ok_and(|is| is.kind == PageUse::SlabRest && is.class == class && is.pages == back)
        {
            walk.tell(wrong("a further page of it says otherwise"));
        }
    }
    let Ok(entry) = raw.entry(page) else { return };
    let map = entry.map.load(Relaxed);
    if map & !shape.full_map() != 0 {
        walk.tell(wrong("blocks are free that it does not have"));
    }
    let free = if shape.has_bitmap() {
        let mut free = 0;
        for index in 0..shape.words() {
            let bits = raw.bitmap(page, index).map_or(0, |word| word.load(Relaxed));
            if bits & !shape.mask(index) != 0 {
                walk.tell(wrong("blocks are free that it does not have"));
            }
            if (bits != 0) != (map & 1 << index != 0) {
                walk.tell(wrong("its summary contradicts its bitmap"));
            }
            free += u64::from(bits.count_ones());
        }
        free
    } else {
        u64::from(map.count_ones())
    };
    let used = entry.used.load(Relaxed);
    if used.wrapping_add(free) != u64::from(shape.blocks) {
        walk.tell(wrong("its count contradicts its bits"));
    }
    let class = class as usize;
    let counted = &mut walk.classes[class];
    counted.slabs += 1;
    counted.live = counted.live.wrapping_add(used);
    counted.with_free_blocks += u64::from(map != 0);
}

/// Walks every list and checks that each node names its predecessor. So no node is visited twice,
/// and the lengths add up only if every expected node is in its list.
fn walk_lists(raw: RawHeap, walk: &mut Walk) {
    let header = raw.header();
    let mut runs = 0;
    for index in 0..BINS {
        let list = || format!("free runs, bin {index}");
        let found = walk_list(raw, &header.bins[index], walk, list, |page, _| {
            raw.state(page)
                .is_ok_and(|is| is.kind == PageUse::Free && bin(is.pages) == index)
        });
        let bit = header.bin_map[index / 64].load(Relaxed) & 1 << (index % 64) != 0;
        if bit != (found > 0) {
            walk.tell(HeapProblem::List {
                list: list(),
                page: 0,
                what: "the map of bins says otherwise",
            });
        }
        runs += found;
    }
    walk.compare("free runs in lists", walk.free_runs, runs);
    for (class, shape) in TABLE.iter().enumerate() {
        let size = shape.size;
        let list = || format!("slabs of {size} bytes");
        let head = &header.classes[class].head;
        let found = walk_list(raw, head, walk, list, |page, entry| {
            raw.state(page)
                .is_ok_and(|is| is.kind == PageUse::Slab && is.class as usize == class)
                && entry.map.load(Relaxed) != 0
        });
        let what = format!("slabs of {size} bytes with free blocks, in their list");
        walk.compare(&what, walk.classes[class].with_free_blocks, found);
    }
}

fn walk_list(
    raw: RawHeap,
    head: &AtomicU32,
    walk: &mut Walk,
    list: impl Fn() -> String,
    belongs: impl Fn(u32, &PageEntry) -> bool,
) -> u64 {
    let (mut before, mut page, mut found) = (0, head.load(Relaxed), 0);
    while page != 0 {
        let what = match raw.entry(page) {
            Err(Damaged) => "lies nowhere",
            Ok(entry) if previous(entry) != before => "does not name the page before it",
            Ok(entry) if !belongs(page, entry) => "does not belong there",
            Ok(entry) => {
                (before, page, found) = (page, next(entry), found + 1);
                continue;
            }
        };
        walk.tell(HeapProblem::List {
            list: list(),
            page,
            what,
        });
        break;
    }
    found
}

/// Whether an allocated block begins at this offset.
pub(super) fn in_block(raw: RawHeap, at: u64) -> bool {
    let (page, offset) = ((at / PAGE as u64), (at % PAGE as u64) as u32);
    let Ok(page) = u32::try_from(page) else {
        return false;
    };
    match raw.entry(page) {
        Ok(entry) if entry.state().kind == PageUse::Large => offset == 0,
        Ok(entry) => slabs::find(raw, page, entry, offset)
            .and_then(|found| slabs::is_used(raw, &found))
            .unwrap_or(false),
        Err(Damaged) => false,
    }
}
