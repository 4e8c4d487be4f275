//! Why an operation on a heap, or on the root in it, fails.

/// Why a heap could not be obtained, created, or enlarged, or its root not be returned, created or
/// removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The segment has no root yet.
    #[error("segment {segment:?} has no root yet")]
    NoRoot {
        /// The segment.
        segment: Box<str>,
    },
    /// The segment has a root already.
    #[error("segment {segment:?} has a root already")]
    RootExists {
        /// The segment.
        segment: Box<str>,
    },
    /// The root was created as another type, by another version of the program, or by another
    /// compiler.
    #[error(
        "the root of segment {segment:?} has layout {found:#018x}, this program's type has {expected:#018x}: it was created as another type or by another build"
    )]
    Layout {
        /// The segment.
        segment: Box<str>,
        /// The hash of the type that was asked for.
        expected: u64,
        /// The hash of the type as which it was created.
        found: u64,
    },
    /// The section may only read the segment.
    #[error("segment {segment:?} was entered for reading only")]
    ReadOnly {
        /// The segment.
        segment: Box<str>,
    },
    /// The address that was to become a root without a type is not that of a block in the segment's
    /// heap.
    #[error("no block of segment {segment:?} lies at that address")]
    NoBlock {
        /// The segment.
        segment: Box<str>,
    },
    /// The root's record names an impossible offset.
    #[error("the root of segment {segment:?} is recorded at offset {at}, which is impossible")]
    RootDamaged {
        /// The segment.
        segment: Box<str>,
        /// The offset.
        at: u64,
    },
}
