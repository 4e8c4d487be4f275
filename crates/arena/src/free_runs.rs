//! Finds the lowest free run of a given length and alignment within a range of frames, in O(log n).
//!
//! A bitmap (a set bit means a free frame) with a tree of [`SpanRuns`] above it, with eight
//! children a node. All of it is *derived* from the frame descriptors: a thread that takes over the
//! arena's lock from a dead holder recomputes the parts that may be half done, and `check()`
//! compares everything.
//!
//! The search goes from left to right and remembers the free run that ends at the current node. A
//! node is entered only if its `longest` proves that the request fits inside, so apart from the two
//! edges of the range the search follows one path. Values come from shared memory: a wrong one
//! makes the search miss, or find a run that the descriptors then refuse, but never leave the tree.

use crate::runs::{ALIGNMENTS, RunsNode, SpanRuns, align_up};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of frames that a word of the bitmap covers.
pub(crate) const WORD_FRAMES: u32 = 64;
/// The number of children of a tree node.
const FAN: u32 = 8;
/// The maximum number of levels: 64 * 8^6 = 2^24 frames.
const MAX_LEVELS: usize = 7;

/// The positions of the tree's levels in the array of nodes, which depend only on the number of
/// frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeShape {
    /// The number of words of the bitmap, and of nodes of the lowest level.
    words: u32,
    levels: usize,
    /// `first[l]` is the index of the first node of level `l`; the lowest level comes first.
    first: [u32; MAX_LEVELS],
    count: [u32; MAX_LEVELS],
    nodes: u32,
}

impl TreeShape {
    /// The tree over frames `0 .. frames`; `frames` is at most [`MAX_FRAMES`](crate::MAX_FRAMES).
    pub fn over(frames: u32) -> TreeShape {
        let words = frames.div_ceil(WORD_FRAMES).max(1);
        let mut shape = TreeShape {
            words,
            levels: 0,
            first: [0; MAX_LEVELS],
            count: [0; MAX_LEVELS],
            nodes: 0,
        };
        let mut count = words;
        while shape.levels < MAX_LEVELS {
            shape.first[shape.levels] = shape.nodes;
            shape.count[shape.levels] = count;
            shape.nodes += count;
            shape.levels += 1;
            if count == 1 {
                break;
            }
            count = count.div_ceil(FAN);
        }
        shape
    }

    /// The number of words of the bitmap.
    pub fn words(&self) -> usize {
        self.words as usize
    }

    /// The number of nodes of the tree.
    pub fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// The number of frames below a node of the level.
    fn span(level: usize) -> u32 {
        WORD_FRAMES << (3 * level)
    }
}

/// The bitmap and its tree.
#[derive(Clone, Copy)]
pub(crate) struct Summary<'a> {
    shape: &'a TreeShape,
    words: &'a [AtomicU64],
    nodes: &'a [RunsNode],
}

struct Search {
    range: Range<u32>,
    len: u32,
    align_log2: u32,
    /// The begin of the free run that ends at the frame that the search has reached.
    run: u32,
}

impl Search {
    /// The aligned place in the remembered run, if that run extends to `end`.
    #[inline]
    fn fits_up_to(&self, end: u32) -> Option<u32> {
        let place = align_up(self.run, self.align_log2);
        (place + self.len <= end).then_some(place)
    }
}

// SYNC: every access to `words` is Relaxed, for the reason given at `RunsNode`.
impl<'a> Summary<'a> {
    /// `words` and `nodes` must have the lengths given by `shape`.
    pub fn new(shape: &'a TreeShape, words: &'a [AtomicU64], nodes: &'a [RunsNode]) -> Summary<'a> {
        debug_assert!(words.len() == shape.words() && nodes.len() == shape.nodes());
        Summary {
            shape,
            words,
            nodes,
        }
    }

    /// A bitmap without a tree, only for [`scan`](Self::scan).
    pub fn bitmap(shape: &'a TreeShape, words: &'a [AtomicU64]) -> Summary<'a> {
        Summary {
            shape,
            words,
            nodes: &[],
        }
    }

    fn node(&self, level: usize, index: u32) -> &'a RunsNode {
        &self.nodes[(self.shape.first[level] + index) as usize]
    }

    /// The word with the bits of the frames from `index * 64` on.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index].load(Relaxed)
    }

    /// Whether the frame is free according to the bitmap.
    pub fn is_free(&self, frame: u32) -> bool {
        self.word((frame / WORD_FRAMES) as usize) >> (frame % WORD_FRAMES) & 1 != 0
    }

    /// The number of free frames.
    pub fn free(&self) -> u32 {
        self.node(self.shape.levels - 1, 0).free()
    }

    /// Replaces 64 bits at once; [`refresh`](Self::refresh) must follow.
    pub fn set_word(&self, index: usize, bits: u64) {
        self.words[index].store(bits, Relaxed);
    }

    /// Marks frames free or taken in the bitmap; [`refresh`](Self::refresh) must follow.
    pub fn mark(&self, frames: Range<u32>, free: bool) {
        for (index, mask) in words_of(&frames) {
            let word = &self.words[index as usize];
            let old = word.load(Relaxed);
            word.store(if free { old | mask } else { old & !mask }, Relaxed);
        }
    }

    /// Recomputes the part of the tree above these frames from the bitmap.
    pub fn refresh(&self, frames: Range<u32>) {
        if frames.is_empty() {
            return;
        }
        let (mut first, mut last) = (frames.start / WORD_FRAMES, (frames.end - 1) / WORD_FRAMES);
        for index in first..=last {
            self.node(0, index).store(&self.computed(0, index));
        }
        for level in 1..self.shape.levels {
            (first, last) = (first / FAN, last / FAN);
            for index in first..=last {
                self.node(level, index).store(&self.computed(level, index));
            }
        }
    }

    /// The value that follows for the node from the words or nodes below it.
    fn computed(&self, level: usize, index: u32) -> SpanRuns {
        if level == 0 {
            return SpanRuns::of_word(index * WORD_FRAMES, self.word(index as usize));
        }
        let span = TreeShape::span(level - 1);
        let mut runs = SpanRuns::empty(index * FAN * span);
        let children = index * FAN..((index + 1) * FAN).min(self.shape.count[level - 1]);
        for child in children {
            runs.append(
                &self
                    .node(level - 1, child)
                    .load(child * span, span)
                    .possible(),
            );
        }
        runs
    }

    /// The frames below the first tree node that disagrees with the bitmap.
    pub fn first_wrong_node(&self) -> Option<Range<u32>> {
        for level in 0..self.shape.levels {
            for index in 0..self.shape.count[level] {
                let wanted = self.computed(level, index);
                if self.node(level, index).load(wanted.base, wanted.len) != wanted {
                    return Some(wanted.base..wanted.base + wanted.len);
                }
            }
        }
        None
    }

    /// The lowest place in `range` where `len` free frames begin at a multiple of `1 <<
    /// align_log2`.
    pub fn find(&self, range: Range<u32>, len: u32, align_log2: u32) -> Option<u32> {
        debug_assert!(len > 0 && (align_log2 as usize) < ALIGNMENTS);
        if range.is_empty() || len > range.end - range.start {
            return None;
        }
        let run = range.start;
        self.find_below(
            self.shape.levels - 1,
            0,
            &mut Search {
                range,
                len,
                align_log2,
                run,
            },
        )
    }

    /// Like [`find`](Self::find), but reads only the bitmap, and at most that many of its words.
    pub fn scan(&self, range: Range<u32>, len: u32, align_log2: u32, words: u32) -> Option<u32> {
        let words = words_of(&range).take(words as usize);
        let mut search = Search {
            run: range.start,
            range: range.clone(),
            len,
            align_log2,
        };
        words
            .into_iter()
            .find_map(|(index, _)| self.find_in_word(index, &mut search))
    }

    fn find_below(&self, level: usize, index: u32, search: &mut Search) -> Option<u32> {
        let span = TreeShape::span(level);
        let (base, end) = (index * span, (index + 1) * span);
        if end <= search.range.start || base >= search.range.end {
            return None;
        }
        if search.range.start <= base && end <= search.range.end {
            let node = self.node(level, index);
            let prefix = node.start().min(span);
            if let Some(place) = search.fits_up_to(base + prefix) {
                return Some(place);
            }
            if node.longest(search.align_log2) < search.len {
                if prefix < span {
                    search.run = end - node.end().min(span);
                }
                return None;
            }
        }
        if level == 0 {
            return self.find_in_word(index, search);
        }
        let children = index * FAN..((index + 1) * FAN).min(self.shape.count[level - 1]);
        children
            .into_iter()
            .find_map(|child| self.find_below(level - 1, child, search))
    }

    fn find_in_word(&self, index: u32, search: &mut Search) -> Option<u32> {
        let base = index * WORD_FRAMES;
        let bits = self.word(index as usize) & mask_within(base, &search.range);
        let mut at = 0;
        while at < WORD_FRAMES {
            let run = (bits >> at).trailing_ones();
            if let Some(place) = search.fits_up_to(base + at + run) {
                return Some(place);
            }
            at += run;
            if at == WORD_FRAMES {
                return None;
            }
            at += (bits >> at).trailing_zeros().min(WORD_FRAMES - at);
            search.run = base + at;
        }
        None
    }

    /// The number of free frames and the longest runs within `range`; the other fields refer to the
    /// range rounded out to whole nodes.
    pub fn within(&self, range: Range<u32>) -> SpanRuns {
        let mut sum = SpanRuns::empty(range.start / WORD_FRAMES * WORD_FRAMES);
        if !range.is_empty() {
            self.gather(self.shape.levels - 1, 0, &range, &mut sum);
        }
        sum
    }

    fn gather(&self, level: usize, index: u32, range: &Range<u32>, sum: &mut SpanRuns) {
        let span = TreeShape::span(level);
        let (base, end) = (index * span, (index + 1) * span);
        if end <= range.start || base >= range.end {
            return;
        }
        if range.start <= base && end <= range.end {
            sum.append(&self.node(level, index).load(base, span).possible());
        } else if level == 0 {
            sum.append(&SpanRuns::of_word(
                base,
                self.word(index as usize) & mask_within(base, range),
            ));
        } else {
            for child in index * FAN..((index + 1) * FAN).min(self.shape.count[level - 1]) {
                self.gather(level - 1, child, range, sum);
            }
        }
    }
}

/// The bits of the word at `base` whose frames lie in `range`.
fn mask_within(base: u32, range: &Range<u32>) -> u64 {
    let from = range.start.saturating_sub(base).min(WORD_FRAMES);
    let to = range.end.saturating_sub(base).min(WORD_FRAMES);
    if from >= to {
        0
    } else {
        (u64::MAX >> (WORD_FRAMES - (to - from))) << from
    }
}

/// The words with the bits of these frames, each with the mask of those bits.
pub(crate) fn words_of(frames: &Range<u32>) -> impl DoubleEndedIterator<Item = (u32, u64)> + use<> {
    let range = frames.clone();
    let words = if range.is_empty() {
        0..0
    } else {
        range.start / WORD_FRAMES..(range.end - 1) / WORD_FRAMES + 1
    };
    words.map(move |index| (index, mask_within(index * WORD_FRAMES, &range)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Owned {
        shape: TreeShape,
        words: Vec<AtomicU64>,
        nodes: Vec<RunsNode>,
        naive: Vec<bool>,
    }

    impl Owned {
        fn new(frames: u32) -> Owned {
            let shape = TreeShape::over(frames);
            Owned {
                shape,
                words: (0..shape.words()).map(|_| AtomicU64::new(0)).collect(),
                nodes: (0..shape.nodes()).map(|_| RunsNode::default()).collect(),
                naive: vec![false; frames as usize],
            }
        }

        fn summary(&self) -> Summary<'_> {
            Summary::new(&self.shape, &self.words, &self.nodes)
        }

        fn mark(&mut self, frames: Range<u32>, free: bool) {
            self.summary().mark(frames.clone(), free);
            self.summary().refresh(frames.clone());
            self.naive[frames.start as usize..frames.end as usize].fill(free);
        }

        fn naive_find(&self, range: Range<u32>, len: u32, align_log2: u32) -> Option<u32> {
            let step = 1u32 << align_log2;
            let mut place = range.start.next_multiple_of(step);
            while place + len <= range.end {
                if (place..place + len).all(|frame| self.naive[frame as usize]) {
                    return Some(place);
                }
                place += step;
            }
            None
        }
    }

    fn range_in(frames: u32) -> impl Strategy<Value = Range<u32>> {
        (0..=frames, 0..=frames).prop_map(|(a, b)| a.min(b)..a.max(b))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_search_finds_what_a_linear_scan_finds(
            marks in prop::collection::vec((range_in(1500), any::<bool>()), 0..60),
            holes in prop::collection::vec(0u32..1500, 0..200),
            queries in prop::collection::vec((range_in(1500), 1u32..200, 0u32..8), 1..40),
        ) {
            let mut owned = Owned::new(1500);
            for (range, free) in marks {
                owned.mark(range, free);
            }
            for hole in holes {
                owned.mark(hole..hole + 1, hole % 3 == 0);
            }
            prop_assert_eq!(owned.summary().first_wrong_node(), None);
            for (range, len, align) in queries {
                prop_assert_eq!(
                    owned.summary().find(range.clone(), len, align),
                    owned.naive_find(range.clone(), len, align)
                );
                let within = owned.summary().within(range.clone());
                let free = range.clone().filter(|frame| owned.naive[*frame as usize]).count();
                prop_assert_eq!(within.free as usize, free);
                let longest = within.longest[align as usize];
                prop_assert!(longest == 0 || owned.naive_find(range.clone(), longest, align).is_some());
                prop_assert!(owned.naive_find(range, longest + 1, align).is_none());
            }
        }

        #[test]
        fn a_search_in_a_garbage_tree_neither_panics_nor_leaves_it(
            words in prop::collection::vec(any::<u64>(), 24),
            garbage in prop::collection::vec((0usize..28, any::<u32>(), any::<u32>(), any::<u32>()), 0..28),
            query in (range_in(1500), 1u32..200, 0u32..8),
        ) {
            let owned = Owned::new(1500);
            for (index, bits) in words.into_iter().enumerate() {
                owned.summary().set_word(index, bits);
            }
            owned.summary().refresh(0..1500);
            for (index, start, end, longest) in garbage {
                owned.nodes[index].store(&SpanRuns { start, end, longest: [longest; ALIGNMENTS], ..SpanRuns::empty(0) });
            }
            let (range, len, align) = query;
            if let Some(place) = owned.summary().find(range.clone(), len, align) {
                prop_assert!(range.start <= place && place + len <= range.end);
            }
            owned.summary().within(range);
            owned.summary().refresh(0..64);
            owned.summary().first_wrong_node();
        }
    }

    #[test]
    fn the_largest_arena_fits_in_the_levels() {
        let shape = TreeShape::over(crate::MAX_FRAMES);
        assert_eq!(shape.levels, MAX_LEVELS);
        assert_eq!(shape.count[MAX_LEVELS - 1], 1);
        assert_eq!(TreeShape::span(MAX_LEVELS - 1), crate::MAX_FRAMES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a tree of 20,000 frames takes a minute")]
    fn a_run_over_many_words_is_found_whole() {
        let mut owned = Owned::new(20_000);
        owned.mark(77..15_003, true);
        assert_eq!(owned.summary().find(0..20_000, 15_003 - 77, 0), Some(77));
        assert_eq!(owned.summary().find(0..20_000, 15_003 - 76, 0), None);
        assert_eq!(owned.summary().find(0..20_000, 10_000, 12), Some(4096));
        assert_eq!(owned.summary().find(100..9_000, 8_900, 0), Some(100));
        assert_eq!(owned.summary().within(0..20_000).longest[0], 15_003 - 77);
    }
}
