//! Mneme: a memory-centric storage engine, as an embeddable library and as a Redis-compatible
//! server.
//!
//! [`LogStore`] is the store: concurrent, in memory, compacted instead of fragmenting.
//!
//! ```
//! use mneme::{Decision, LogStore};
//!
//! let store = LogStore::builder().capacity(64 << 20).open_private()?;
//! store.put(b"user:1", b"Ada")?;
//!
//! // A value is read where it lies; it stays valid while it is held.
//! let name = store.get(b"user:1")?.ok_or("just stored")?;
//! assert_eq!(&*name, b"Ada");
//! drop(name);
//!
//! // Batches hash and prefetch together, which is several times faster than one call a key.
//! let mut found = 0;
//! store.get_many(&[b"user:1", b"user:2"], |_, value| found += usize::from(value.is_some()))?;
//! assert_eq!(found, 1);
//!
//! // Read, decide and write as one step.
//! store.update(b"visits", |old| match old {
//!     None => Decision::Replace(b"1".to_vec()),
//!     Some(_) => Decision::Keep,
//! })?;
//! assert!(store.remove(b"user:1")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What survives power loss
//! With the feature `durable` (on by default) the same store is kept in a directory, too:
//!
//! ```
//! # #[cfg(feature = "durable")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mneme::LogStore;
//! use mneme::durable::DurableOptions;
//!
//! # let dir = std::env::temp_dir().join(format!("mneme-doc-durable-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&dir);
//! let open = || DurableOptions::new(&dir).open_private(LogStore::builder().capacity(64 << 20));
//! let store = open()?;
//! store.put(b"user:1", b"Ada")?;
//! store.sync()?; // From here on it survives a power loss.
//! drop(store);
//! assert_eq!(open()?.get(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "durable"))]
//! # fn main() {}
//! ```
//!
//! With the feature `tree` (on by default) there is a store for what need not fit into memory:
//! ordered, with snapshots and versions, in one file.
//!
//! ```
//! # #[cfg(feature = "tree")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mneme::tree::Store;
//!
//! # let path = std::env::temp_dir().join(format!("mneme-doc-tree-{}", std::process::id()));
//! let store = Store::builder().open(&path)?;
//! store.put(b"user:1", b"Ada")?; // durable on return
//! drop(store);
//! assert_eq!(Store::builder().open(&path)?.get(b"user:1")?, Some(b"Ada".to_vec()));
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tree"))]
//! # fn main() {}
//! ```
//!
//! # The server beside the program
//! With the feature `server` (on by default) a program can serve its own store to Redis clients:
//!
//! ```
//! # #[cfg(feature = "server")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! let store = Arc::new(mneme::LogStore::builder().capacity(64 << 20).open_private()?);
//! let server = mneme::server::Server::builder().store(Arc::clone(&store)).port(0).start()?;
//! println!("redis-cli -p {}", server.addresses()[0].port());
//! store.put(b"seen by", b"clients, too")?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "server"))]
//! # fn main() {}
//! ```
//!
//! `docs/embedding.md` explains how to choose a policy, size a store and handle its errors.
//!
//! The feature `command`, also on by default, is the `mneme` command; programs that only embed the
//! store can switch the default features off.

pub use mneme_log::{
    BatchError, Builder, Change, ChangeKind, ChangeListener, CompactionWait, Corrupt, Cursor,
    DATABASES, Database, Decision, Draw, Drawn, Evict, Expiry, FillPolicy, GrowError, Life,
    LocalPrograms, LogStore, MAX_KEY, MAX_VALUE, MIN_CAPACITY, Notification, OpenError, PageKind,
    PagePolicy, PageReport, Part, Patch, Process, ProcessPin, ProcessState, ReadError, Report,
    RoleError, ServerRole, SlotError, Stalled, Stats, Stored, Transaction, TransactionOn,
    UpdatePolicy, Updated, Value, ValueChange, ValueKind, Watch, Work, WriteError, WrongKind,
};

pub use mneme_collections::{
    CollectionError, Damage, EditError, End, Hash, HashEdit, List, ListEdit, PackedHash,
    PackedList, PackedSet, ScoredMembers, Set, SetChange, SetEdit, SortedRange, SortedSet,
    SortedSetChange, SortedSetView,
};

pub use mneme_log::lent;

pub use mneme_shared::{
    Access, AttachError, Backing, CreateError, Registry, SharedStore, StoreOptions,
};

pub use mneme_sys::{Classified, ErrorKind, with_causes};

/// Attaches a store for reading that a server serves or another program has made; its name is
/// `default` unless another was chosen. Lookups then run in this process, without a socket, while
/// the server serves its clients.
///
/// The registry is `$MNEME_DIR`, or else `/dev/shm/mneme-<uid>-registry`, as for the `mneme`
/// command; use [`SharedStore`] for another.
///
/// ```no_run
/// let store = mneme::attach("default")?;
/// if let Some(name) = store.get(b"user:1")? {
///     println!("{}", String::from_utf8_lossy(&name));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`AttachError`] has a variant for each part that may be missing, unexpected or damaged.
pub fn attach(name: &str) -> Result<SharedStore, AttachError> {
    SharedStore::attach(&Registry::open_default()?, name)
}

/// Attaches a store for reading and writing. The server's clients see the changes at once.
///
/// # Errors
/// As [`attach`], and if the segment's permissions forbid writing.
pub fn attach_writable(name: &str) -> Result<SharedStore, AttachError> {
    SharedStore::attach_writable(&Registry::open_default()?, name)
}

/// A log store that survives power loss.
#[cfg(feature = "durable")]
pub use mneme_durable as durable;

/// A durable, ordered, versioned store in one file.
#[cfg(feature = "tree")]
pub use mneme_tree as tree;

/// The Redis-compatible server, for programs that use a store themselves and also serve it to
/// clients.
#[cfg(feature = "server")]
pub mod server {
    pub use mneme_server::{
        DataMemory, Ended, Found, Handover, HandoverError, HandoverSocket, Listeners, Opening,
        Request, Running, ServeError, Server, StartError, Stopper, StoreOptions, StoreOrigin,
        TakenOver, resp, settings,
    };
}

/// The example of the package's README.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct PackageReadme;

/// The example of the book's first page.
#[doc = include_str!("../../../docs/README.md")]
#[cfg(doctest)]
pub struct FirstPage;

/// The README's example.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
pub struct Readme;

/// The examples of the embedder's guide.
#[doc = include_str!("../../../docs/embedding.md")]
#[cfg(doctest)]
pub struct Embedding;

/// The examples of the guide to stores in memory that survive power loss.
#[doc = include_str!("../../../docs/guides/durable-memory.md")]
#[cfg(all(doctest, feature = "durable"))]
pub struct DurableMemory;

/// The examples of the guide to durable stores in a file.
#[doc = include_str!("../../../docs/guides/durable-store.md")]
#[cfg(all(doctest, feature = "tree"))]
pub struct DurableFile;

/// The example of the guide to job queues.
#[doc = include_str!("../../../docs/guides/job-queue.md")]
#[cfg(doctest)]
pub struct JobQueue;

/// The examples of the guide to local clients.
#[doc = include_str!("../../../docs/guides/local-clients.md")]
#[cfg(doctest)]
pub struct LocalClients;
