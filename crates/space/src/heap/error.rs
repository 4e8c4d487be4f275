//! Why a heap operation fails.

/// Why a heap could not be obtained, created, or enlarged.
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
    /// This part of the section works with another segment already.
    #[error(
        "this part of the section works on segment {home:?}; to work on {asked:?} besides, use `Section::beside`"
    )]
    AnotherSegment {
        /// The segment that it works with.
        home: Box<str>,
        /// The segment that was requested.
        asked: Box<str>,
    },
    /// Another part of this section works with the segment.
    #[error("another part of this section works on segment {asked:?}")]
    Taken {
        /// The segment.
        asked: Box<str>,
    },
    /// This part of the section does not work with any segment yet.
    #[error("no segment has been named in this section yet: ask for a root or a heap first")]
    NoHome,
    /// The heap could not allocate memory.
    #[error("no memory: the segment is full, or the calling thread has not entered it for writing")]
    Refused,
    /// The segment has no heap, or one of an unknown format.
    #[error("the segment has no heap of format {expected}: {found}")]
    NoHeap {
        /// The format that this version reads.
        expected: u64,
        /// What was found.
        found: &'static str,
    },
    /// The given sizes leave no space for a heap's tables.
    #[error("{len} bytes, growing to {max}, cannot hold a heap: 512 KiB at least, 16 TiB at most")]
    Size {
        /// Bytes mapped.
        len: usize,
        /// The size in bytes to which the segment may grow.
        max: usize,
    },
    /// The segment has reached its maximum size.
    #[error("the segment is full: {wanted} bytes wanted, {max} allowed")]
    Full {
        /// The bytes needed.
        wanted: usize,
        /// The bytes allowed.
        max: usize,
    },
    /// The segment could not grow.
    #[error("the segment could not grow to {wanted} bytes: {reason}")]
    Growth {
        /// The bytes needed.
        wanted: usize,
        /// The reason.
        reason: Box<str>,
    },
    /// An operation needed words of the heap that contradict each other.
    #[error("the heap is damaged")]
    Damaged,
    /// The damage cannot stem from a death during an operation, which could be repaired.
    #[error(
        "the heap cannot be repaired: {problem}; restore the segment from a clone, or rebuild it empty"
    )]
    NotMended {
        /// The first contradiction.
        problem: super::HeapProblem,
    },
    /// The kernel provides no random seed for maps.
    #[error("no random seed for the heap's maps")]
    Seed(#[source] std::io::Error),
}
