//! This crate's errors: one enum for each family of operations.

use crate::{Extent, Frame};
use mneme_sync::{SlotError, Stalled};
use mneme_sys::{HeaderError, RegionError};

/// Why an arena could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The options contradict each other.
    #[error("{0}")]
    Options(&'static str),
    /// The region is too small for the tables, the client area and one frame, now or at its maximum
    /// size.
    #[error(
        "the region has {len} bytes and may have {max}; its tables and {client} bytes for the client take \
         {needed} with one frame; give it more, or ask for a smaller client area"
    )]
    TooSmall {
        /// The region's length in bytes.
        len: u64,
        /// The region's maximum length in bytes.
        max: u64,
        /// The requested length of the client area in bytes.
        client: u64,
        /// The number of bytes needed now.
        needed: u64,
    },
    /// The region's maximum is more than an arena can number.
    #[error("the region may grow to {max} bytes; an arena divides at most 32 TiB")]
    TooLarge {
        /// The region's maximum length in bytes.
        max: u64,
    },
    /// The kernel has no randomness for the secret of an arena that lends.
    #[error("the kernel gives no randomness")]
    Random(#[source] std::io::Error),
    /// The region's memory could not be reached.
    #[error("the region cannot be written")]
    Region(#[from] RegionError),
}

/// Why an arena could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is not an arena's region, has another version or layout (both are named), or has a
    /// damaged header, or its creator died during its creation.
    #[error("not a usable arena region")]
    Header(#[from] HeaderError),
    /// The region is shorter than its recorded number of frames.
    #[error("the region is torn: its arena needs {needed} bytes, it has {len}")]
    Torn {
        /// The number of bytes that the arena needs.
        needed: u64,
        /// The region's length in bytes.
        len: u64,
    },
    /// The arena's own header contradicts itself.
    #[error("the arena's header is damaged: {0}")]
    Damaged(&'static str),
    /// Frames and the lock have owners from an earlier control region, which was rebuilt since, for
    /// instance after a reboot. [`Arena::recover`](crate::Arena::recover) opens the arena if nobody
    /// else has it open.
    #[error(
        "the arena belongs to incarnation {arena} of its control region, which is now at {control}; recover it"
    )]
    OtherIncarnation {
        /// The incarnation recorded in the arena.
        arena: u64,
        /// The incarnation of the given control region.
        control: u64,
    },
    /// The lock's holder makes no progress (only when the arena is recovered or repaired while it
    /// is opened).
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread could not get a slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The region's memory could not be reached.
    #[error("the region cannot be read")]
    Region(#[from] RegionError),
}

/// Why a claim failed. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// There are not that many free frames, or only within the reserve.
    #[error(
        "out of memory: {wanted} frames wanted, {free} free, of which {reserve} are kept in reserve; \
         release something or grow the region"
    )]
    OutOfMemory {
        /// The number of frames requested.
        wanted: u32,
        /// The number of free frames, including the reserve.
        free: u32,
        /// The number of frames that this class may not use; 0 for
        /// [`Class::Reserved`](crate::Class::Reserved).
        reserve: u32,
    },
    /// There are enough free frames, but no such run on one node with that alignment.
    #[error(
        "no {wanted} free frames in a row, aligned to {align}: the longest such run has {longest}"
    )]
    NoContiguousRun {
        /// The number of frames requested.
        wanted: u32,
        /// The requested alignment in frames.
        align: u32,
        /// The longest run that a request with this alignment can get.
        longest: u32,
    },
    /// The request can never be granted.
    #[error(transparent)]
    Invalid(#[from] InvalidClaim),
    /// Another participant holds the arena's lock and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The memory behind the extent could not be mapped into this process.
    #[error("the extent found cannot be backed with memory")]
    Backing(#[from] RegionError),
    /// The descriptors contradict the search structure; `check()` reports how.
    #[error("the arena is damaged at {frame}; check it for details")]
    Damaged {
        /// The frame.
        frame: Frame,
    },
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidClaim {
    /// It asks for no frames.
    #[error("a claim of no frames")]
    NoFrames,
    /// It asks for more frames than the arena can ever have.
    #[error("a claim of {wanted} frames in an arena that has at most {most}")]
    TooMany {
        /// The number of frames requested.
        wanted: u32,
        /// The number of frames at its maximum size.
        most: u32,
    },
    /// The alignment is not a power of two, or is larger than
    /// [`MAX_ALIGN_FRAMES`](crate::MAX_ALIGN_FRAMES).
    #[error(
        "an alignment of {align} frames; a power of two from 1 to {} is possible",
        crate::MAX_ALIGN_FRAMES
    )]
    Alignment {
        /// The requested alignment.
        align: u32,
    },
    /// The tag is larger than [`MAX_TAG`](crate::MAX_TAG).
    #[error("tag {tag}; the largest is {}", crate::MAX_TAG)]
    Tag {
        /// The requested tag.
        tag: u16,
    },
}

/// Why an extent could not be adopted. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// There is no such extent: it was never claimed, was released, or was freed because its
    /// claimer was found dead.
    #[error("no {extent} is claimed")]
    NotClaimed {
        /// The extent given.
        extent: Extent,
    },
    /// It was adopted before.
    #[error("the {extent} was adopted before")]
    AlreadyHeld {
        /// The extent given.
        extent: Extent,
    },
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}

/// Why an extent could not be released. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It does not lie among the arena's frames.
    #[error("the {extent} is not within this arena's frames {first} to {last}")]
    Foreign {
        /// The extent given.
        extent: Extent,
        /// The first frame available for claims.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// Its first frame is free: it was released before, or never claimed.
    #[error("the {extent} is free already")]
    NotClaimed {
        /// The extent given.
        extent: Extent,
    },
    /// It is only a part of an extent, or more than one.
    #[error("the {given} is not what was claimed there: {actual}")]
    Mismatch {
        /// The extent given.
        given: Extent,
        /// The extent that contains its first frame.
        actual: Extent,
    },
    /// Another participant holds the arena's lock and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The descriptors contradict each other; `check()` reports how.
    #[error("the arena is damaged at {frame}; check it for details")]
    Damaged {
        /// The frame.
        frame: Frame,
    },
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}

/// Why an arena could not grow. Its size is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The requested size is beyond the size that the arena's tables were made for.
    #[error("cannot grow to {wanted} bytes: the arena was made for at most {max}")]
    BeyondMax {
        /// The requested length in bytes.
        wanted: u64,
        /// The maximum length in bytes.
        max: u64,
    },
    /// Another participant holds the arena's lock and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The region could not grow.
    #[error("the region cannot grow")]
    Region(#[from] RegionError),
}

/// Why an arena could not be repaired after a death, or could not be checked. Trying again
/// continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Another participant holds the arena's lock and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread could not get a slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}
