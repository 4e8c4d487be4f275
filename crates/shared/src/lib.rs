//! **A log store in a named segment**: any number of processes read and write it at once, each may
//! be killed at any instruction, and a restart only attaches it again.
//!
//! A [`SharedStore`] is a [`LogStore`] whose two regions are a segment of a [`Registry`]. Its
//! creator gives it a name, a size and a policy. Any process that attaches it by that name has the
//! same records at once, however many there are. Nothing is loaded, and no server is involved: a
//! lookup runs in the calling process.
//!
//! # Use
//!
//! ```
//! use mneme_shared::{Registry, SharedStore, StoreOptions};
//!
//! # let root = format!("/dev/shm/mneme-shared-doc-{}", std::process::id());
//! let registry = Registry::open(&root)?;                  // or open_default()
//! let store = StoreOptions::new().capacity(64 << 20).create(&registry, "sessions")?;
//! store.put(b"ada", b"logged in")?;
//!
//! // In another process, or later.
//! let reader = SharedStore::attach(&registry, "sessions")?;
//! assert_eq!(reader.get(b"ada")?.as_deref(), Some(&b"logged in"[..]));
//! assert!(reader.put(b"ada", b"?").is_err(), "it was attached for reading");
//! # drop((store, reader));
//! # registry.remove_segment("sessions")?;
//! # std::fs::remove_dir_all(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//! A segment's memory is allocated as records are stored, up to the store's capacity, and stays
//! with the segment when they are removed. By default it is on tmpfs ([other
//! backings](StoreOptions::backing)), outlives every process, and is freed at a reboot or by
//! [`Registry::remove_segment`].
//!
//! # Processes
//! A process that attaches for reading maps the data read-only, so it cannot damage them by
//! mistake. Processes that write are trusted with the content. What a dead process leaves is
//! repaired by the next process that comes across it, or by the maintainer. The maintainer runs in
//! one of the processes that attached for writing; if that one ends, another takes over. A forked
//! child is no participant; it must attach for itself.
//!
//! # The serving process
//! [`Served`] is what a server opens: at most one process serves a store at a time. It counts
//! failed starts, and sets a damaged store aside instead of deleting it. It may
//! [receive](Served::drain_changes) the changes of other processes. Any program may do the same:
//!
//! ```
//! use mneme_shared::{Access, Registry, StoreOptions, Notification, ChangeKind};
//!
//! # let root = format!("/dev/shm/mneme-shared-changes-{}", std::process::id());
//! let registry = Registry::open(&root)?;
//! let options = StoreOptions::new().capacity(64 << 20);
//! let store = options.create(&registry, "sessions")?;
//! let mut listener = store.listen()?;
//!
//! // In another process.
//! let writer = options.attach(&registry, "sessions", Access::ReadWrite)?;
//! writer.put(b"ada", b"logged in")?;
//!
//! // Whenever `listener.sleep()` has ended.
//! let mut changed = Vec::new();
//! listener.drain(1000, |report| match report {
//!     // At the beginning, and whenever too much was changed at once: look at all keys that matter.
//!     Notification::Lost => {}
//!     Notification::Change(change) => {
//!         if let ChangeKind::Stored(key) = change.kind {
//!             changed.push(key.to_vec());
//!         }
//!     }
//! })?;
//! assert_eq!(changed, [b"ada"]);
//! # drop((listener, store, writer));
//! # registry.remove_segment("sessions")?;
//! # std::fs::remove_dir_all(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod error_kind;
mod options;
mod serve;
mod starts;
mod store;
mod upgrade;

pub use error::{AttachError, CreateError, ServeError};
pub use options::StoreOptions;
pub use serve::{Found, Opening, QUARANTINE, Served};
pub use starts::Withdrawal;
pub use store::{CONTENTS, CONTENTS_LENDING, SharedStore};
pub use upgrade::{UpgradeError, Upgraded};

pub use mneme_log::{
    Change, ChangeKind, ChangeListener, Evict, LogStore, MIN_CAPACITY, Notification, ServerRole,
    Sleep, UpdatePolicy, ValueChange,
};
pub use mneme_space::{Access, Backing, Registry, Segment};
