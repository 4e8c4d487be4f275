//! [`DurableOptions`]: where a store is kept, and in which form.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mneme_sys::medium::RecordingDirectory;
use mneme_sys::{Clock, SystemClock};

/// When a writer gets its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum SyncPolicy {
    /// When the change is durable: a power loss undoes nothing that was acknowledged.
    Always = 0,
    /// When the change is in memory. It is synced within a second: a power loss undoes at most the
    /// last two seconds.
    #[default]
    EverySecond = 1,
    /// When the change is in memory. It is synced when a quarter of the change feed is full, or
    /// when the system chooses.
    No = 2,
}

impl SyncPolicy {
    pub(crate) fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Always,
            1 => Self::EverySecond,
            _ => Self::No,
        }
    }
}

/// The form in which a directory holds a store. Both forms give the same promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DurabilityMode {
    /// A journal, to which changes are appended, and base files, which keep it short. A commit is
    /// one sequential write and one sync: right for disks.
    #[default]
    Journal,
    /// A [`mneme_tree`] store, changed in place by one commit after another. There is no journal,
    /// nothing is written twice, and a recovery reads only the records: right where a sync is
    /// cheap, as on file systems in memory.
    Tree,
}

impl std::fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Journal => "journal",
            Self::Tree => "tree",
        })
    }
}

/// The progress of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes to read in total, computed from the sizes of the files.
    pub total: u64,
    /// Records and changes loaded so far.
    pub loaded: u64,
}

/// Called with the progress of a recovery after each 16 MiB, and while it waits for its first look
/// at the journal. [`ControlFlow::Break`] ends the recovery with
/// [`DurableError::Stopped`](crate::DurableError::Stopped); the files stay as they are.
pub type ProgressListener = Arc<dyn Fn(RecoveryProgress) -> ControlFlow<()> + Send + Sync>;

/// Called with the progress of a load.
pub(crate) type Listen<'l> = dyn Fn(RecoveryProgress) -> ControlFlow<()> + Send + Sync + 'l;

#[derive(Clone)]
pub(crate) enum StorePlace {
    Path(PathBuf),
    Recorded(RecordingDirectory),
}

/// On large disks: the size of a file of the journal, the spare files that are kept, and the length
/// of the journal at which a checkpoint begins.
const FILE: u64 = 64 << 20;
const SPARES: u64 = 1 << 30;
const CHECKPOINT: u64 = 1 << 30;
/// The largest parts of a small disk that these may take, as one over the number. Writers are
/// slowed down when the journal is four times as long as intended; it then takes a quarter of the
/// disk, which leaves space for two checkpoints.
const FILE_PART: u64 = 32;
const SPARES_PART: u64 = 16;
const CHECKPOINT_PART: u64 = 16;
/// The lower bound of each of these sizes.
const LEAST: u64 = 1 << 20;

/// When base files are written, and at which rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The least length of the journal at which a checkpoint begins.
    pub journal: u64,
    /// Bytes a second that a checkpoint writes.
    pub rate: u64,
}

/// Where a durable store is kept, and how. See [the crate](crate).
#[derive(Clone)]
#[must_use = "nothing happens before `open_private` or `serve`"]
pub struct DurableOptions {
    pub(crate) place: StorePlace,
    /// The lock of the directory, handed over by the process that held it.
    pub(crate) lock: Arc<Mutex<Option<OwnedFd>>>,
    pub(crate) policy: SyncPolicy,
    pub(crate) mode: DurabilityMode,
    file_bytes: Option<u64>,
    recycled: Option<u64>,
    checkpoint_after: Option<u64>,
    checkpoint_rate: u64,
    /// Bytes of preallocated space for the journal; twice the ring by default.
    pub(crate) reserve: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) progress: Option<ProgressListener>,
}

impl DurableOptions {
    /// A store in this directory of a local file system, synced every second. The directory is
    /// created if it does not exist.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self::at(StorePlace::Path(directory.as_ref().to_owned()))
    }

    /// A store in a simulated directory, for tests.
    #[doc(hidden)]
    pub fn on(directory: RecordingDirectory) -> Self {
        Self::at(StorePlace::Recorded(directory))
    }

    fn at(place: StorePlace) -> Self {
        Self {
            place,
            lock: Arc::default(),
            policy: SyncPolicy::default(),
            mode: DurabilityMode::default(),
            file_bytes: None,
            recycled: None,
            reserve: None,
            checkpoint_after: None,
            checkpoint_rate: 256 << 20,
            clock: Arc::new(SystemClock),
            progress: None,
        }
    }

    /// When writes become durable. It can be changed while the store is open
    /// ([`Durability::set_policy`](crate::Durability::set_policy)).
    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The form in which the directory holds the store; by default a journal. A directory keeps its
    /// first form.
    pub fn mode(mut self, mode: DurabilityMode) -> Self {
        self.mode = mode;
        self
    }

    /// The size of a file of the journal: a multiple of 4 KiB, and at least 256 KiB. By default 64
    /// MiB, or a 32nd of a smaller disk.
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = Some(bytes.next_multiple_of(4096).max(256 << 10));
        self
    }

    /// Bytes of removed files that are kept as spares. By default 1 GiB, or a 16th of a smaller
    /// disk.
    pub fn recycled(mut self, bytes: u64) -> Self {
        self.recycled = Some(bytes);
        self
    }

    /// The length of the journal in bytes at which a checkpoint begins, if that is more than twice
    /// the bytes of the records. By default 1 GiB, or a 16th of a smaller disk.
    pub fn checkpoint_after(mut self, bytes: u64) -> Self {
        self.checkpoint_after = Some(bytes.max(1 << 20));
        self
    }

    /// The value that was set; otherwise the value for large disks, bounded by a part of a smaller
    /// disk.
    fn sized(&self, set: Option<u64>, most: u64, part: u64) -> u64 {
        let disk = match &self.place {
            StorePlace::Path(path) => mneme_sys::files::whole_space(path).unwrap_or(u64::MAX),
            StorePlace::Recorded(_) => u64::MAX,
        };
        let fits = || (disk / part).max(LEAST).min(most) & !4095;
        set.unwrap_or_else(fits)
    }

    /// The size of a file of the journal, for a directory that exists.
    pub(crate) fn bytes_of_file(&self) -> u64 {
        self.sized(self.file_bytes, FILE, FILE_PART)
    }

    /// Bytes of spare files that are kept, for a directory that exists.
    pub(crate) fn bytes_of_spares(&self) -> u64 {
        self.sized(self.recycled, SPARES, SPARES_PART)
    }

    /// When base files are written to the directory, and at which rate.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            journal: self.sized(self.checkpoint_after, CHECKPOINT, CHECKPOINT_PART),
            rate: self.checkpoint_rate,
        }
    }

    /// Bytes a second that a checkpoint writes, so that the disk has time for the journal; 256 MiB
    /// by default. The limit does not apply while the journal is more than twice as long as
    /// intended.
    pub fn checkpoint_rate(mut self, bytes: u64) -> Self {
        self.checkpoint_rate = bytes.max(1 << 20);
        self
    }

    /// Bytes of preallocated files that the journal must have; for tests, whose rings hold less
    /// than they might.
    #[doc(hidden)]
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.reserve = Some(bytes);
        self
    }

    /// The clock, also of the store; by default the system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the listener that is called while a store is rebuilt from its files.
    pub fn progress(mut self, listener: ProgressListener) -> Self {
        self.progress = Some(listener);
        self
    }

    /// The lock of the directory. The process that held it has handed it over
    /// ([`Durability::directory_lock`](crate::Durability::directory_lock)) and closed its journal.
    /// Only the first opening uses it.
    pub fn lock(self, lock: OwnedFd) -> Self {
        *crate::gate::lock(&self.lock) = Some(lock);
        self
    }
}

impl std::fmt::Debug for DurableOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("DurableOptions");
        if let StorePlace::Path(path) = &self.place {
            debug.field("directory", path);
        }
        debug
            .field("policy", &self.policy)
            .field("mode", &self.mode)
            .field("file_bytes", &self.file_bytes)
            .field("recycled", &self.recycled)
            .finish_non_exhaustive()
    }
}
