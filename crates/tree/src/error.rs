//! What can go wrong.

use std::io;
use std::path::PathBuf;

use mneme_arena::{LendingError, PrivateError};
use mneme_sync::{CreateError, SlotError};
use mneme_sys::LivenessError;
use mneme_sys::medium::MediumError;

use crate::attach::JoinError;

/// Why there is no cache of records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The arena lends nothing.
    #[error(transparent)]
    Lending(#[from] LendingError),
    /// No arena can be made of the budget.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The kernel has no randomness.
    #[error("the kernel gives no randomness")]
    Random(#[source] io::Error),
}

/// Why an operation on a store failed. Unless the variant says otherwise nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key is longer than [`MAX_KEY`](crate::MAX_KEY).
    #[error("a key of {len} bytes exceeds the limit of {max}")]
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value is longer than [`MAX_VALUE`](crate::MAX_VALUE).
    #[error("a value of {len} bytes exceeds the limit of {max}")]
    ValueTooLong {
        /// Its length in bytes.
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
    /// The tree of this name is a hash table, and was opened as an ordered tree, or the other way
    /// round.
    #[error("the tree {name:?} is of the other kind: ordered, or a hash table")]
    OtherKind {
        /// The name.
        name: String,
    },
    /// The tree is of another store. Nothing was stored.
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
    /// As many versions have names as can.
    #[error("{max} versions are kept already")]
    TooManyVersions {
        /// How many can.
        max: usize,
    },
    /// The file system, or the store's maximum, has no space for this. Nothing was stored; the same
    /// operation succeeds once there is space.
    #[error("no space to grow the store to {wanted} bytes")]
    NoSpace {
        /// The length of the file that was needed.
        wanted: u64,
    },
    /// A sync failed, so it is unknown whether this commit is durable: the next opening finds
    /// either the version before it or this one, whole. The store takes no more writes.
    #[error("a sync failed: whether the commit is durable shows when the store is opened again")]
    OutcomeUnknown(#[source] MediumError),
    /// An earlier sync failed; the store takes no more writes. Reads are answered.
    #[error("an earlier sync failed: the store takes no writes until it is opened again")]
    Poisoned,
    /// Another opening, in this process or another, writes the store.
    #[error("{} is open elsewhere{}", path.display(), by(*pid))]
    Locked {
        /// The store's file.
        path: PathBuf,
        /// The process, as it knows itself, if it can be found out.
        pid: Option<u32>,
    },
    /// Other processes have the store open, but this one cannot take part in what they share: they
    /// run in a container with another `/dev/shm`, or as another user, or are as many as can be.
    #[error(
        "{} is open in processes that cannot be joined by {}", path.display(), region.display()
    )]
    Elsewhere {
        /// The store's file.
        path: PathBuf,
        /// What they would share with this one.
        region: PathBuf,
        /// Why not.
        #[source]
        source: JoinError,
    },
    /// What processes that have the store open share cannot be made.
    #[error("the control region {} cannot be made", path.display())]
    ControlRegion {
        /// The region.
        path: PathBuf,
        /// Why not.
        #[source]
        source: MediumError,
    },
    /// The store is open to read only. Nothing was stored.
    #[error("the store is open to read only")]
    ReadOnly,
    /// As many snapshots live as can, in all processes together.
    #[error("{max} snapshots of the store live already")]
    TooManySnapshots {
        /// How many can.
        max: usize,
    },
    /// The kernel refuses a lock on the store's file.
    #[error(transparent)]
    Lock(#[from] LivenessError),
    /// There is a file of this name already.
    #[error("{} exists", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// Power was lost, or the system crashed, while the store was written with
    /// [`Durability::Process`](crate::Durability::Process), which does not survive that. Restore
    /// a backup.
    #[error("the system stopped while the store was written without durability against that")]
    NotClean,
    /// The file would lie on a file system of the network, where neither locks nor mappings are
    /// what they are on this machine. See
    /// [`Builder::allow_network`](crate::Builder::allow_network).
    #[error("{} lies on a file system of the network", path.display())]
    Network {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is no store.
    #[error("not a store of mneme-tree")]
    Foreign,
    /// The store has another format.
    #[error("the store has format {found}, this program knows format {known}")]
    Format {
        /// The file's.
        found: u32,
        /// This program's.
        known: u32,
    },
    /// The file is shorter than its last commit says.
    #[error("the store is {len} bytes long, but its last commit needs {needed}")]
    Truncated {
        /// The file's length in bytes.
        len: u64,
        /// The length that the last commit record names.
        needed: u64,
    },
    /// Something in the file contradicts its checksum or its neighbours.
    #[error("damaged at offset {at}: {what}")]
    Damaged {
        /// Where, in bytes from the file's beginning.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The bytes of a value that lies outside of its leaf, or of a long key, contradict their
    /// checksum. Removing the key, or setting it again, is possible.
    #[error("the value of key \"{}\" is damaged, at offset {at}", shown(key))]
    DamagedValue {
        /// The key; of one above 1,024 bytes the first 64 bytes.
        key: Vec<u8>,
        /// Where, in bytes from the file's beginning.
        at: u64,
    },
    /// This machine cannot give what was asked for.
    #[error("not supported: {what}")]
    Unsupported {
        /// What was asked for.
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
    /// The memory in which readers announce themselves cannot be had.
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
    /// Whether bytes of the file are damaged or missing.
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

/// What makes the kernel's answer to `what` an error of the store.
pub(crate) fn os(what: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Os { what, source }
}

/// Bytes of a key that a message shows at most.
const SHOWN: usize = 128;

/// A key, for a message.
fn shown(key: &[u8]) -> String {
    let begin = key[..key.len().min(SHOWN)].escape_ascii().to_string();
    let rest = if key.len() > SHOWN { "..." } else { "" };
    begin + rest
}

/// The process that a message names.
fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(", by process {pid}"))
}
