//! Errors, one enum for each family of operations.

use std::time::Duration;

use mneme_sync::{SlotError, Stalled};
use thiserror::Error;

use crate::region::kind::WrongKind;
use crate::region::record::{MAX_KEY, MAX_VALUE};

/// The region's bytes contradict themselves.
///
/// It is one word: functions that can find damage are called at every step of an operation, and
/// return their results in registers.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "damaged region: at byte {}: {}; run check(), then restore or recreate the store", .0.offset, .0.what
)]
pub struct Corrupt(Box<Damage>);

#[derive(Clone, PartialEq, Eq)]
struct Damage {
    offset: u64,
    what: String,
}

impl Corrupt {
    #[cold]
    pub(crate) fn at(offset: u64, what: impl Into<String>) -> Corrupt {
        let what = what.into();
        Corrupt(Box::new(Damage { offset, what }))
    }
}

impl std::fmt::Debug for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Corrupt")
            .field("offset", &self.0.offset)
            .field("what", &self.0.what)
            .finish()
    }
}

/// Why a read failed. A key that is absent is not an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// This thread cannot become a participant (too many threads, or a forked child).
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A transaction, or an overwriting in place, holds the key's bucket, and its thread neither
    /// makes progress nor dies. Reads wait for nothing else, and a second at most.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The region is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// For a second, the value was patched each time it was being copied. Only an opening that may
    /// only read fails in this way; any other seals the value.
    #[error(
        "the value changed whenever it was read, for {0:?}; read it in parts, or attach the store for writing"
    )]
    Overtaken(Duration),
    /// The system refuses this process memory for a copy of the value: this number of further
    /// bytes.
    #[error("this process has no memory for {0} bytes more")]
    NoMemory(usize),
    /// The key holds a value of another kind.
    #[error(transparent)]
    WrongKind(#[from] WrongKind),
    /// The database number is beyond the store's.
    #[error("database {0} is out of range: a store has databases 0 to 63")]
    NoSuchDatabase(usize),
    /// What a killed participant left blocks this and could not be repaired now.
    #[error("what a dead participant left could not be repaired: {0}")]
    Reap(String),
}

/// Why a write failed. Nothing of it is visible, and everything stored before is untouched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store is full: live records, index, heads and the compaction reserve fill its capacity.
    #[error(
        "out of memory: {live} of {capacity} bytes are live, and {wanted} more do not fit; remove records or open a larger store"
    )]
    OutOfMemory {
        /// Bytes that the write needs.
        wanted: u64,
        /// Bytes of live records.
        live: u64,
        /// Bytes of the store's capacity.
        capacity: u64,
    },
    /// The key is longer than [`MAX_KEY`](crate::MAX_KEY), so nothing can be stored under it.
    /// Lookups and removals find it absent.
    #[error("the key has {0} bytes; at most {MAX_KEY} are allowed")]
    KeyTooLong(usize),
    /// The value is longer than [`MAX_VALUE`](crate::MAX_VALUE).
    #[error("the value has {0} bytes; at most {MAX_VALUE} are allowed")]
    ValueTooLong(usize),
    /// The key holds a value of another kind.
    #[error(transparent)]
    WrongKind(#[from] WrongKind),
    /// A live thread that makes no progress holds what the write needs: a lock for a second, or a
    /// pin for two. If it is the calling thread's own pin, the error comes at once. Try again.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread cannot become a participant (too many threads, or a forked child).
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The region is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The database number is beyond the store's.
    #[error("database {0} is out of range: a store has databases 0 to 63")]
    NoSuchDatabase(usize),
    /// The store has a [change feed](crate::ChangeFeed) that is full: for ten seconds, or for one
    /// second in which nobody drains it, none of its entries has become durable. Try again later.
    #[error("the change feed is full, and what it holds does not become durable")]
    FeedFull,
    /// What a killed participant left blocks this and could not be repaired now.
    #[error("what a dead participant left could not be repaired: {0}")]
    Reap(String),
    /// In an opening that may only read, a transaction read a value that was patched each time it
    /// was being copied, for a second.
    #[error("the value changed whenever it was read, for {0:?}; attach the store for writing")]
    Overtaken(Duration),
    /// The system refuses this process, not the store, memory for a copy of the value: this number
    /// of further bytes.
    #[error("this process has no memory for {0} bytes more")]
    NoMemory(usize),
    /// This opening of the store may only read, see [`Builder::open_in`](crate::Builder::open_in).
    #[error(
        "this opening of the store may only read; open it with a data region that may be written"
    )]
    ReadOnly,
}

impl WriteError {
    /// This error, for an operation that reads.
    pub(crate) fn while_reading(self) -> ReadError {
        match self {
            WriteError::Slot(e) => ReadError::Slot(e),
            WriteError::Stalled(e) => ReadError::Stalled(e),
            WriteError::Corrupt(e) => ReadError::Corrupt(e),
            WriteError::NoSuchDatabase(i) => ReadError::NoSuchDatabase(i),
            WriteError::Overtaken(since) => ReadError::Overtaken(since),
            WriteError::NoMemory(bytes) => ReadError::NoMemory(bytes),
            WriteError::WrongKind(e) => ReadError::WrongKind(e),
            other => ReadError::Reap(other.to_string()),
        }
    }
}

impl From<ReadError> for WriteError {
    fn from(e: ReadError) -> WriteError {
        match e {
            ReadError::Slot(e) => WriteError::Slot(e),
            ReadError::Stalled(e) => WriteError::Stalled(e),
            ReadError::Corrupt(e) => WriteError::Corrupt(e),
            ReadError::NoSuchDatabase(i) => WriteError::NoSuchDatabase(i),
            ReadError::Overtaken(since) => WriteError::Overtaken(since),
            ReadError::NoMemory(bytes) => WriteError::NoMemory(bytes),
            ReadError::WrongKind(e) => WriteError::WrongKind(e),
            ReadError::Reap(what) => WriteError::Reap(what),
        }
    }
}

/// A batch stopped half-way: its first `done` items took place, in order, the others did not.
#[derive(Debug, Error)]
#[error("after {done} items of the batch: {source}")]
pub struct BatchError {
    /// How many items, from the batch's start, were stored or are absent now.
    pub done: usize,
    /// How many keys a batch of removals has removed; the others were absent. 0 for a batch that
    /// stores.
    pub removed: usize,
    /// Why the next item failed.
    #[source]
    pub source: WriteError,
}

/// Why a store could not grow. It is as large as before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The store was created with a smaller maximum.
    #[error(
        "cannot grow to {asked} bytes: the store was made for at most {max}; create it with a larger max_capacity"
    )]
    BeyondMax {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the store may grow to.
        max: u64,
    },
    /// The machine does not have so much memory.
    #[error("cannot grow to {asked} bytes: this machine has {machine} bytes of memory")]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes the machine has.
        machine: u64,
    },
    /// The system refused.
    #[error(transparent)]
    Region(#[from] mneme_sys::RegionError),
    /// A thread that is stopped, but not dead, holds what this needs.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// This thread cannot become a participant.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// This opening of the store may only read.
    #[error(
        "this opening of the store may only read; open it with a data region that may be written"
    )]
    ReadOnly,
}

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The capacity is below the minimum.
    #[error("a capacity of {0} bytes is too small; the minimum is {min} (64 MiB)", min = crate::region::layout::MIN_CAPACITY)]
    CapacityTooSmall(u64),
    /// The capacity is more than the machine has.
    #[error("a capacity of {asked} bytes is more than this machine's {machine} bytes of memory")]
    CapacityTooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes the machine has.
        machine: u64,
    },
    /// The maximum capacity is below the initial one.
    #[error("a store of {capacity} bytes cannot have a max_capacity of {max}")]
    MaxBelowCapacity {
        /// The initial size in bytes.
        capacity: u64,
        /// The requested maximum in bytes.
        max: u64,
    },
    /// The index of the cache to which the store was to lend frames takes too much of the store.
    #[error(
        "an index of {bytes} bytes for what is lent is more than an eighth of {capacity} bytes of capacity; ask for fewer records"
    )]
    LentIndex {
        /// Bytes of the index.
        bytes: u64,
        /// Bytes of the store.
        capacity: u64,
    },
    /// The region could not be created or mapped.
    #[error(transparent)]
    Region(#[from] mneme_sys::RegionError),
    /// The region is laid out by another version of this crate.
    #[error(
        "the region's log format is {found}, and this library reads {expected}; open it with the version that wrote it"
    )]
    Format {
        /// What the region says.
        found: u64,
        /// What this library reads.
        expected: u64,
    },
    /// The region is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The arena could not be laid out.
    #[error("the store's frames cannot be laid out: {0}")]
    Arena(#[from] mneme_arena::CreateError),
    /// The region's frames could not be opened.
    #[error("the store's frames cannot be opened: {0}")]
    Frames(#[from] mneme_arena::OpenError),
    /// The control region could not be laid out.
    #[error("the control region cannot be laid out: {0}")]
    CreateControl(#[from] mneme_sync::CreateError),
    /// The control region could not be opened.
    #[error("the control region cannot be opened: {0}")]
    Control(#[from] mneme_sync::OpenError),
    /// The system has no randomness for the store's identity and hash seed.
    #[error("no randomness for the store's identity and seed")]
    Random(#[source] std::io::Error),
    /// A participant died in the store, and the machine was restarted before its operation was
    /// repaired. The restart has lost the control region, which the repair needs. Nothing was
    /// changed.
    #[error(
        "the machine restarted while what a dead participant had left in the store was not repaired: {0}; remove the store, \
         and load it anew"
    )]
    NotClean(String),
    /// The machine has restarted since the store was last open. Nothing was changed.
    #[error(
        "the machine restarted since the store was last open, and this opening may only read; open it once for writing"
    )]
    NotRecovered,
    /// The maintainer thread could not be started.
    #[error("the maintainer thread could not be started: {0}")]
    Maintainer(#[source] std::io::Error),
}

impl OpenError {
    /// Whether the regions' content contradicts itself, as opposed to being of another version, in
    /// use, or unavailable.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use mneme_arena::OpenError as Frames;
        use mneme_sync::OpenError as Control;
        match self {
            OpenError::Corrupt(_)
            | OpenError::Frames(Frames::Damaged(_) | Frames::Torn { .. })
            | OpenError::Control(Control::Damaged(_) | Control::Torn { .. }) => true,
            OpenError::Control(Control::Header(header)) => header.is_damage(),
            _ => false,
        }
    }
}
