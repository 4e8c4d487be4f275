//! The free runs of a span of frames in 64 bytes: enough to know, exactly, whether a request of any
//! length and any alignment fits in the span, and to compute the same for two neighbouring spans
//! taken together.
//!
//! The paper finds a contiguous run by a linear pass over a bitmap (Park, §2.4.1). A tree of
//! `(start, longest, end)` summaries, as in radix page allocators, makes that logarithmic, but only
//! for requests without alignment: a run of sufficient length may contain no aligned place. So the
//! longest run is recorded *per alignment*, counted from the first aligned frame of each run. Since
//! that frame is the best aligned place of its run, this loses nothing.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of alignments that are summarised: 1, 2, 4, ... 4096 frames.
pub(crate) const ALIGNMENTS: usize = 13;

/// The first multiple of `1 << align_log2` at or after `frame`.
#[inline]
pub(crate) fn align_up(frame: u32, align_log2: u32) -> u32 {
    let mask = (1u32 << align_log2) - 1;
    (frame + mask) & !mask
}

/// The free runs of the span `base .. base + len`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanRuns {
    pub base: u32,
    pub len: u32,
    /// The number of free frames at the beginning of the span.
    pub start: u32,
    /// The number of free frames at the end of the span.
    pub end: u32,
    /// The number of free frames.
    pub free: u32,
    /// `longest[a]` is the largest number of frames that a request aligned to `1 << a` can get
    /// inside the span.
    pub longest: [u32; ALIGNMENTS],
}

impl SpanRuns {
    /// The span of no frames at `base`.
    pub fn empty(base: u32) -> SpanRuns {
        SpanRuns {
            base,
            len: 0,
            start: 0,
            end: 0,
            free: 0,
            longest: [0; ALIGNMENTS],
        }
    }

    /// The span of 64 frames at `base` whose free frames are the set bits, lowest first.
    pub fn of_word(base: u32, bits: u64) -> SpanRuns {
        let mut runs = SpanRuns {
            len: 64,
            start: bits.trailing_ones(),
            end: bits.leading_ones(),
            free: bits.count_ones(),
            ..SpanRuns::empty(base)
        };
        let (mut rest, mut at) = (bits, base);
        while rest != 0 {
            let gap = rest.trailing_zeros();
            rest >>= gap;
            let run = rest.trailing_ones();
            at += gap;
            runs.note(at, run);
            at += run;
            rest = rest.checked_shr(run).unwrap_or(0);
        }
        runs
    }

    /// Includes a run in `longest`.
    #[inline]
    fn note(&mut self, start: u32, len: u32) {
        let end = start + len;
        for (align, longest) in self.longest.iter_mut().enumerate() {
            *longest = (*longest).max(end.saturating_sub(align_up(start, align as u32)));
        }
    }

    /// Limits values that were read without the lock, or from a damaged region, to those that the
    /// span can have, so that sums do not overflow.
    pub fn possible(self) -> SpanRuns {
        SpanRuns {
            start: self.start.min(self.len),
            end: self.end.min(self.len),
            free: self.free.min(self.len),
            ..self
        }
    }

    /// Extends the span by the one to its right.
    pub fn append(&mut self, right: &SpanRuns) {
        debug_assert_eq!(self.base + self.len, right.base);
        for (mine, theirs) in self.longest.iter_mut().zip(right.longest) {
            *mine = (*mine).max(theirs);
        }
        if self.end + right.start > 0 {
            self.note(right.base - self.end, self.end + right.start);
        }
        if self.start == self.len {
            self.start += right.start;
        }
        self.end = if right.end == right.len {
            self.end + right.len
        } else {
            right.end
        };
        self.free += right.free;
        self.len += right.len;
    }
}

/// A [`SpanRuns`] in shared memory: one cache line.
///
/// Written only by the holder of the arena's lock. A reader without the lock (`stats()`) may see a
/// mixture of two states; no memory is handed out on that basis.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct RunsNode {
    start: AtomicU32,
    end: AtomicU32,
    free: AtomicU32,
    longest: [AtomicU32; ALIGNMENTS],
}

const _: () = assert!(size_of::<RunsNode>() == 64);

impl RunsNode {
    // SYNC: all Relaxed. The arena's lock orders writers, and its hand-over makes their stores
    // visible to the next holder; readers without the lock treat every value as a hint.
    pub fn load(&self, base: u32, len: u32) -> SpanRuns {
        SpanRuns {
            base,
            len,
            start: self.start.load(Relaxed),
            end: self.end.load(Relaxed),
            free: self.free.load(Relaxed),
            longest: std::array::from_fn(|align| self.longest[align].load(Relaxed)),
        }
    }

    pub fn store(&self, runs: &SpanRuns) {
        self.start.store(runs.start, Relaxed);
        self.end.store(runs.end, Relaxed);
        self.free.store(runs.free, Relaxed);
        for (mine, value) in self.longest.iter().zip(runs.longest) {
            mine.store(value, Relaxed);
        }
    }

    /// The number of free frames at the beginning of the span.
    #[inline]
    pub fn start(&self) -> u32 {
        self.start.load(Relaxed)
    }

    /// The number of free frames at the end of the span.
    #[inline]
    pub fn end(&self) -> u32 {
        self.end.load(Relaxed)
    }

    /// The number of free frames in the span.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// The largest number of frames that a request with this alignment can get inside the span.
    #[inline]
    pub fn longest(&self, align_log2: u32) -> u32 {
        self.longest[align_log2 as usize].load(Relaxed)
    }
}
