//! What can go wrong, one enum for each family of operations.

use crate::{Extent, Frame};
use mneme_sync::{SlotError, Stalled};
use mneme_sys::{HeaderError, RegionError};

/// Why an arena could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The options contradict themselves.
    #[error("{0}")]
    Options(&'static str),
    /// The region is too small for the tables, the client area and one frame, now or at its
    /// maximum.
    #[error(
        "the region has {len} bytes and may have {max}; its tables and {client} bytes for the client take \
         {needed} with one frame; give it more, or ask for a smaller client area"
    )]
    TooSmall {
        /// Bytes the region has.
        len: u64,
        /// Bytes it may grow to.
        max: u64,
        /// Bytes asked for the client area.
        client: u64,
        /// Bytes needed now.
        needed: u64,
    },
    /// The region's maximum is above what an arena can number.
    #[error("the region may grow to {max} bytes; an arena divides at most 32 TiB")]
    TooLarge {
        /// Bytes it may grow to.
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
pub enum OpenError {
    /// It is not an arena's region, or one of another version or layout (both are named), or its
    /// creator died before the end, or its header is damaged.
    #[error("not a usable arena region")]
    Header(#[from] HeaderError),
    /// The region is shorter than the frames it says it has.
    #[error("the region is torn: its arena needs {needed} bytes, it has {len}")]
    Torn {
        /// Bytes that the arena needs.
        needed: u64,
        /// Bytes there are.
        len: u64,
    },
    /// The arena's own header contradicts itself.
    #[error("the arena's header is damaged: {0}")]
    Damaged(&'static str),
    /// Frames and the lock name owners in a control region that is not the one of today: it was
    /// rebuilt, after a reboot for instance. [`Arena::recover`](crate::Arena::recover) opens the
    /// arena if nobody else has it open.
    #[error(
        "the arena belongs to incarnation {arena} of its control region, which is now at {control}; recover it"
    )]
    OtherIncarnation {
        /// The incarnation that the arena knows.
        arena: u64,
        /// That of the control region given.
        control: u64,
    },
    /// The lock is held by somebody who does not get on (only when recovering or repairing at
    /// once).
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread could get no slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The region's memory could not be reached.
    #[error("the region cannot be read")]
    Region(#[from] RegionError),
}

/// Why a claim got nothing. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// So many frames are not free, or only within the reserve.
    #[error(
        "out of memory: {wanted} frames wanted, {free} free, of which {reserve} are kept in reserve; \
         release something or grow the region"
    )]
    OutOfMemory {
        /// Frames asked for.
        wanted: u32,
        /// Frames that are free, reserve included.
        free: u32,
        /// Frames that this class may not take; 0 for [`Class::Reserved`](crate::Class::Reserved).
        reserve: u32,
    },
    /// Enough frames are free, but not side by side on one node with that alignment.
    #[error(
        "no {wanted} free frames in a row, aligned to {align}: the longest such run has {longest}"
    )]
    NoContiguousRun {
        /// Frames asked for.
        wanted: u32,
        /// Their alignment in frames.
        align: u32,
        /// What a request of this alignment can get.
        longest: u32,
    },
    /// The request can never be granted.
    #[error(transparent)]
    Invalid(#[from] InvalidClaim),
    /// Another participant holds the arena's lock and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The memory behind the extent could not be mapped into this process.
    #[error("the extent found cannot be backed with memory")]
    Backing(#[from] RegionError),
    /// The descriptors contradict the search structure; `check()` says how.
    #[error("the arena is damaged at {frame}; its check tells more")]
    Damaged {
        /// Where.
        frame: Frame,
    },
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClaim {
    /// Zero frames.
    #[error("a claim of no frames")]
    NoFrames,
    /// More than the arena can ever have.
    #[error("a claim of {wanted} frames in an arena that has at most {most}")]
    TooMany {
        /// Frames asked for.
        wanted: u32,
        /// Frames at its full size.
        most: u32,
    },
    /// The alignment is not a power of two, or above [`MAX_ALIGN_FRAMES`](crate::MAX_ALIGN_FRAMES).
    #[error(
        "an alignment of {align} frames; a power of two from 1 to {} is possible",
        crate::MAX_ALIGN_FRAMES
    )]
    Alignment {
        /// Alignment asked for.
        align: u32,
    },
    /// The tag is above [`MAX_TAG`](crate::MAX_TAG).
    #[error("tag {tag}; the largest is {}", crate::MAX_TAG)]
    Tag {
        /// Tag asked for.
        tag: u16,
    },
}

/// Why an extent could not be adopted. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// There is no such extent: never claimed, released, or given back because its claimer was
    /// found dead.
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
pub enum ReleaseError {
    /// It does not lie among the arena's frames.
    #[error("the {extent} is not within this arena's frames {first} to {last}")]
    Foreign {
        /// The extent given.
        extent: Extent,
        /// The first frame that is handed out.
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
    /// It is a part of an extent, or more than one.
    #[error("the {given} is not what was claimed there: {actual}")]
    Mismatch {
        /// The extent given.
        given: Extent,
        /// The one that holds its first frame.
        actual: Extent,
    },
    /// Another participant holds the arena's lock and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The descriptors contradict themselves; `check()` says how.
    #[error("the arena is damaged at {frame}; its check tells more")]
    Damaged {
        /// Where.
        frame: Frame,
    },
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}

/// Why an arena could not grow. Its size is what it was.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// Beyond the size that the arena's tables were made for.
    #[error("cannot grow to {wanted} bytes: the arena was made for at most {max}")]
    BeyondMax {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes it was made for.
        max: u64,
    },
    /// Another participant holds the arena's lock and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The region could not grow.
    #[error("the region cannot grow")]
    Region(#[from] RegionError),
}

/// Why the remains of the dead could not be repaired, or the arena not be checked. Trying again
/// continues.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Another participant holds the arena's lock and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread could get no slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}
