//! Why a heap refuses.

/// Why a heap could not be had, made, or enlarged.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// The calling thread is not in a section with this segment.
    #[error("the calling thread has not entered the segment")]
    Outside,
    /// No segment of this name was entered.
    #[error("the section has no segment named {asked:?}")]
    NoSegment {
        /// The name.
        asked: Box<str>,
    },
    /// The section's brand already speaks of another segment.
    #[error(
        "this part of the section works on segment {home:?}; to work on {asked:?} besides, use `Section::beside`"
    )]
    AnotherSegment {
        /// The segment that was worked on first.
        home: Box<str>,
        /// The one asked for.
        asked: Box<str>,
    },
    /// Another brand of this section speaks of the segment.
    #[error("segment {asked:?} is worked on by another part of this section")]
    Taken {
        /// The segment.
        asked: Box<str>,
    },
    /// No segment has been named yet to this part of the section.
    #[error("no segment has been named in this section yet: ask for a root or a heap first")]
    NoHome,
    /// The heap gave no memory.
    #[error("no memory: the segment is full, or the calling thread has not entered it for writing")]
    Refused,
    /// The segment has no heap, or what stands in its place is none that this version knows.
    #[error("the segment has no heap of format {expected}: {found}")]
    NoHeap {
        /// The format that this version reads.
        expected: u64,
        /// What was found.
        found: &'static str,
    },
    /// The sizes given leave no space for a heap's tables.
    #[error("{len} bytes, growing to {max}, cannot hold a heap: 512 KiB at least, 16 TiB at most")]
    Size {
        /// Bytes mapped.
        len: usize,
        /// Bytes to which the segment may grow.
        max: usize,
    },
    /// The segment has its maximal size.
    #[error("the segment is full: {wanted} bytes wanted, {max} allowed")]
    Full {
        /// Bytes wanted.
        wanted: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The segment could not grow.
    #[error("the segment could not grow to {wanted} bytes: {reason}")]
    Growth {
        /// Bytes wanted.
        wanted: usize,
        /// Why.
        reason: Box<str>,
    },
    /// The heap's words contradict each other where they were needed.
    #[error("the heap is damaged")]
    Damaged,
    /// What a death inside of an operation leaves can be made whole, and this was something else.
    #[error(
        "the heap cannot be made whole: {problem}; restore the segment from a clone, or rebuild it empty"
    )]
    NotMended {
        /// The first contradiction.
        problem: super::HeapProblem,
    },
    /// The kernel has no randomness for the seed of maps.
    #[error("no random seed for the heap's maps")]
    Seed(#[source] std::io::Error),
}
