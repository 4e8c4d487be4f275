//! What can go wrong.

use std::io;
use std::path::PathBuf;

use mneme_arena::{LendingError, PrivateError};
use mneme_sync::{CreateError, SlotError};
use mneme_sys::LivenessError;
use mneme_sys::medium::MediumError;

use crate::attach::JoinError;

/// Why a cache of records cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The arena does not lend memory.
    #[error(transparent)]
    Lending(#[from] LendingError),
    /// No arena of this size can be made.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The kernel provides no random bytes.
    #[error("the kernel gives no randomness")]
    Random(#[source] io::Error),
}

/// Why an operation on a store failed. Unless the variant says otherwise, nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A key is longer than [`MAX_KEY`](crate::MAX_KEY).
    #[error("a key of {len} bytes exceeds the limit of {max}")]
    KeyTooLong {
        /// The key's length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value is longer than [`MAX_VALUE`](crate::MAX_VALUE).
    #[error("a value of {len} bytes exceeds the limit of {max}")]
    ValueTooLong {
        /// The value's length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// No tree has this name.
    #[error("there is no tree {name:?}")]
    NoSuchTree {
        /// The name.
        name: String,
    },
    /// The tree with this name is a hash table and was opened as an ordered tree, or vice versa.
    #[error("the tree {name:?} is of the other kind: ordered, or a hash table")]
    OtherKind {
        /// The name.
        name: String,
    },
    /// The tree belongs to another store. Nothing was stored.
    #[error("the tree is of another store than the batch or transaction that is to change it")]
    OtherStore,
    /// The tree was dropped. Nothing was stored.
    #[error("tree number {tree} was dropped")]
    TreeDropped {
        /// Its number.
        tree: u32,
    },
    /// No version has this name.
    #[error("no version is kept as {name:?}")]
    NoSuchVersion {
        /// The name.
        name: String,
    },
    /// A version has this name already.
    #[error("a version is kept as {name:?} already")]
    VersionExists {
        /// The name.
        name: String,
    },
    /// No further version can be named.
    #[error("{max} versions are kept already")]
    TooManyVersions {
        /// The largest possible number.
        max: usize,
    },
    /// The file system has no space, or the store has reached its maximum. Nothing was stored; the
    /// same operation succeeds once there is space.
    #[error("no space to grow the store to {wanted} bytes")]
    NoSpace {
        /// The length of the file that was needed.
        wanted: u64,
    },
    /// A sync failed, so it is unknown whether this commit is durable: the next opening finds
    /// either the previous version or this one, complete. The store accepts no more writes.
    #[error("a sync failed: whether the commit is durable shows when the store is opened again")]
    OutcomeUnknown(#[source] MediumError),
    /// An earlier sync failed; the store accepts no more writes. Reads still work.
    #[error("an earlier sync failed: the store takes no writes until it is opened again")]
    Poisoned,
    /// Another opening, in this process or another, has the store open for writing.
    #[error("{} is open elsewhere{}", path.display(), by(*pid))]
    Locked {
        /// The store's file.
        path: PathBuf,
        /// The id of that process in its own namespace, if known.
        pid: Option<u32>,
    },
    /// Other processes have the store open, but this one cannot join their control region: they run
    /// in a container with another `/dev/shm`, or as another user, or the region is full.
    #[error(
        "{} is open in processes that cannot be joined by {}", path.display(), region.display()
    )]
    Elsewhere {
        /// The store's file.
        path: PathBuf,
        /// The control region.
        region: PathBuf,
        /// The reason.
        #[source]
        source: JoinError,
    },
    /// The control region of the processes that have the store open cannot be made.
    #[error("the control region {} cannot be made", path.display())]
    ControlRegion {
        /// The control region.
        path: PathBuf,
        /// The reason.
        #[source]
        source: MediumError,
    },
    /// The store is open for reading only. Nothing was stored.
    #[error("the store is open to read only")]
    ReadOnly,
    /// The store has the largest possible number of snapshots, counting all processes.
    #[error("{max} snapshots of the store live already")]
    TooManySnapshots {
        /// The largest possible number.
        max: usize,
    },
    /// The kernel refused a lock on the store's file.
    #[error(transparent)]
    Lock(#[from] LivenessError),
    /// A file with this name exists.
    #[error("{} exists", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// Power was lost, or the system crashed, while the store was written with
    /// [`Durability::Process`](crate::Durability::Process), which does not survive that. Restore a
    /// backup.
    #[error("the system stopped while the store was written without durability against that")]
    NotClean,
    /// The file would lie on a network file system, where locks and mappings do not work as on this
    /// machine. See [`Builder::allow_network`](crate::Builder::allow_network).
    #[error("{} lies on a file system of the network", path.display())]
    Network {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error("not a store of mneme-tree")]
    Foreign,
    /// The store has another format.
    #[error(
        "the store has format {found}, this program knows format {known}: it opens a file of the \
         format before for writing, with no other process beside, and makes it the new one; from \
         others, read the data by the program that wrote them"
    )]
    Format {
        /// The format of the file.
        found: u32,
        /// The format that this program knows.
        known: u32,
    },
    /// The file is shorter than its last commit requires.
    #[error("the store is {len} bytes long, but its last commit needs {needed}")]
    Truncated {
        /// The file's length in bytes.
        len: u64,
        /// The length that the last commit record names.
        needed: u64,
    },
    /// Data in the file contradicts its checksum or its neighbours.
    #[error("damaged at offset {at}: {what}")]
    Damaged {
        /// The offset from the beginning of the file in bytes.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The bytes of a value outside of its leaf, or of a long key, do not match their checksum. The
    /// key can still be removed or set again.
    #[error("the value of key \"{}\" is damaged, at offset {at}", shown(key))]
    DamagedValue {
        /// The key; only the first 64 bytes of a key above 1,024 bytes.
        key: Vec<u8>,
        /// The offset from the beginning of the file in bytes.
        at: u64,
    },
    /// This machine does not support what was requested.
    #[error("not supported: {what}")]
    Unsupported {
        /// What was requested.
        what: &'static str,
    },
    /// The medium failed before anything was stored.
    #[error(transparent)]
    Medium(MediumError),
    /// The memory of a record cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The thread cannot become a reader.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The memory in which readers announce themselves cannot be allocated.
    #[error(transparent)]
    Readers(#[from] CreateError),
    /// A system call failed.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    /// Whether data in the file is damaged or missing.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. } | Self::DamagedValue { .. } | Self::Truncated { .. }
        )
    }
}

impl From<MediumError> for StoreError {
    fn from(error: MediumError) -> Self {
        match error {
            MediumError::NoSpace { wanted } => Self::NoSpace { wanted },
            other => Self::Medium(other),
        }
    }
}

/// Turns an error of the kernel into an error of the store; `what` was tried.
pub(crate) fn os(what: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Os { what, source }
}

/// The most bytes of a key that a message shows.
const SHOWN: usize = 128;

/// A key in the form that a message shows.
fn shown(key: &[u8]) -> String {
    let begin = key[..key.len().min(SHOWN)].escape_ascii().to_string();
    let rest = if key.len() > SHOWN { "..." } else { "" };
    begin + rest
}

/// The process in the form that a message shows.
fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(", by process {pid}"))
}
