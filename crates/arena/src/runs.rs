//! The free runs of a span of frames in 64 bytes: enough to know, exactly, whether a request of any
//! length and any alignment fits in the span, and to compute the same for two neighbouring spans
//! taken together.
//!
//! The paper finds a contiguous run by a linear pass over a bitmap (Park, §2.4.1). A tree of
//! `(start, longest, end)` summaries, as in radix page allocators, makes that logarithmic, but only
//! for requests without alignment: a run of sufficient length may hold no aligned place. So the
//! longest run is kept *per alignment*, counted from the first aligned frame of each run. Since
//! that frame is the best aligned place of its run, nothing is lost by keeping just it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Alignments that are summarised: 1, 2, 4, ... 4096 frames.
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
    /// Free frames at the very beginning of the span.
    pub start: u32,
    /// Free frames at the very end of the span.
    pub end: u32,
    /// Free frames altogether.
    pub free: u32,
    /// `longest[a]`: the most frames that a request aligned to `1 << a` can get inside the span.
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

    /// The span of 64 frames at `base` whose free ones are the set bits, lowest first.
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

    /// Takes a run into account in `longest`.
    #[inline]
    fn note(&mut self, start: u32, len: u32) {
        let end = start + len;
        for (align, longest) in self.longest.iter_mut().enumerate() {
            *longest = (*longest).max(end.saturating_sub(align_up(start, align as u32)));
        }
    }

    /// What was read without the lock, or from a damaged region, with numbers that the span can
    /// have: sums of them do not overflow.
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
/// Written by the holder of the arena's lock alone. A reader without the lock (`stats()`) may see a
/// mixture of two states; no memory is handed out on its word.
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
    // SYNC: all Relaxed. Writers are ordered by the arena's lock, whose hand-over makes their
    // stores visible to the next holder; readers outside of it take every value as a hint.
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

    /// Free frames at the beginning of the span.
    #[inline]
    pub fn start(&self) -> u32 {
        self.start.load(Relaxed)
    }

    /// Free frames at the end of the span.
    #[inline]
    pub fn end(&self) -> u32 {
        self.end.load(Relaxed)
    }

    /// Free frames in the span.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// The most frames that a request of this alignment can get inside the span.
    #[inline]
    pub fn longest(&self, align_log2: u32) -> u32 {
        self.longest[align_log2 as usize].load(Relaxed)
    }
}
