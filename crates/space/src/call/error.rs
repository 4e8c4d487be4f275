//! What can go wrong with a call.

use std::time::Duration;

use mneme_sync::SlotError;
use mneme_sys::{HeaderError, RegionError};

use crate::{AttachError, FileError, MapError, SpaceChangeError, SpaceOpenError};

/// Why there is no reply, or no residence.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody lives in the space.
    #[error("no process lives in the space")]
    NoResident,
    /// The resident died in the call, which may have run or not.
    #[error("process {pid}, which ran the call, died")]
    Died {
        /// It.
        pid: u32,
    },
    /// The resident lives and does not answer. The call may run still, unless nobody has begun it.
    #[error("process {pid} has not answered within {waited:?}")]
    Stalled {
        /// The process that runs the call; 0: none has begun it, and none will.
        pid: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// The function panicked; what it was changing is poisoned.
    #[error("the function panicked")]
    Panicked,
    /// The resident has no function of that name.
    #[error("the resident has no function {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The resident could not enter the space, for instance because a segment is poisoned.
    #[error("the resident could not enter the space: {why}")]
    Refused {
        /// Its error.
        why: String,
    },
    /// A request or a reply is longer than a mailbox can hold. A function whose reply is too
    /// long has run.
    #[error("a message has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// All slots are taken by living callers.
    #[error("all {max} slots of the mailbox are taken")]
    Busy {
        /// Slots there are.
        max: usize,
    },
    /// As many threads serve the space as can.
    #[error("{max} threads serve the space already")]
    Full {
        /// As many.
        max: usize,
    },
    /// The space cannot be opened.
    #[error(transparent)]
    Space(#[from] SpaceOpenError),
    /// The space cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The mailbox cannot be made.
    #[error(transparent)]
    Make(#[from] SpaceChangeError),
    /// This process cannot take part in the space.
    #[error(transparent)]
    Map(#[from] MapError),
    /// No thread slot in the space's control region.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The mailbox is damaged; the next one to live there makes it anew.
    #[error("the space's mailbox is not usable")]
    Header(#[from] HeaderError),
    /// The mailbox cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
}
