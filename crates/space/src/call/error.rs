//! Errors of calls.

use std::time::Duration;

use mneme_sync::SlotError;
use mneme_sys::{HeaderError, RegionError};

use crate::{EnterError, FileError, MapError, SpaceError};

/// Why a call returned no reply, or a process could not become a resident.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The space has no resident.
    #[error("no process resides in the space")]
    NoResident,
    /// The resident died during the call; the function may or may not have run.
    #[error("process {pid}, which ran the call, died")]
    Died {
        /// The resident's process.
        pid: u32,
    },
    /// The resident is alive but does not answer. The function may still be running, unless no
    /// resident has begun it.
    #[error("process {pid} has not answered within {waited:?}")]
    Stalled {
        /// The process that runs the call; 0 if no process has begun it, in which case none will.
        pid: u32,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The function panicked; the segments that it was changing are poisoned.
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
        /// The resident's error.
        why: String,
    },
    /// A request or a reply is longer than a mailbox can hold. If the reply is too long, the
    /// function has run.
    #[error("a message has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The maximum in bytes.
        max: usize,
    },
    /// Living callers hold all slots.
    #[error("all {max} slots of the mailbox are taken")]
    Busy {
        /// The number of slots.
        max: usize,
    },
    /// The maximum number of threads already serve the space.
    #[error("{max} threads serve the space already")]
    Full {
        /// The maximum.
        max: usize,
    },
    /// The space cannot be opened, or the mailbox cannot be created.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The space cannot be attached.
    #[error(transparent)]
    Attach(#[from] EnterError),
    /// This process cannot become a participant of the space.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The space's control region has no free thread slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The mailbox is damaged; the next process that becomes a resident creates it again.
    #[error("the space's mailbox is not usable")]
    Header(#[from] HeaderError),
    /// The mailbox cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The file system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
}
