//! **A log store in a named segment**: any number of processes read and write it at once, each may
//! be killed at any instruction, and a restart is an attach.
//!
//! A [`SharedStore`] is a [`LogStore`] whose two regions are a segment's of a [`Registry`]. Its
//! creator gives it a name, a size and a policy. Any process that attaches it by that name has the
//! same records at once, however many they are. Nothing is loaded and nothing is served: a lookup
//! is a lookup in this process.
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
//! A segment's memory is taken as records come, up to the store's capacity, and stays the segment's
//! when they go: it is on tmpfs unless [said otherwise](StoreOptions::backing), outlives every
//! process, and ends with the machine's boot or with [`Registry::remove_segment`].
//!
//! # Processes
//! A process that attaches for reading maps the data read-only: it can damage nothing by mistake.
//! Those that write are trusted with the content. What the dead leave is repaired by the next
//! process that meets it, or by the maintainer. The maintainer runs in one of the processes that
//! attached for writing; if that one goes, another takes over. A forked child is no participant; it
//! attaches for itself.
//!
//! # The serving process
//! [`Served`] is what a server opens: one at a time, with the failed starts counted and a damaged
//! store set aside, never deleted. It may [receive](Served::drain_changes) what the others change.
//! So may any program that takes the server's place, without a server:
//!
//! ```
//! use mneme_shared::{Access, Registry, StoreOptions, Notification, ChangeKind};
//!
//! # let root = format!("/dev/shm/mneme-shared-changes-{}", std::process::id());
//! let registry = Registry::open(&root)?;
//! let options = StoreOptions::new().capacity(64 << 20);
//! let store = options.create(&registry, "sessions")?;
//! let mut listener = store.take_server_role()?.listen();
//!
//! // In another process.
//! let writer = options.attach(&registry, "sessions", Access::ReadWrite)?;
//! writer.put(b"ada", b"logged in")?;
//!
//! // From time to time.
//! let mut changed = Vec::new();
//! listener.drain(1000, |report| match report {
//!     // At the beginning, and whenever too much was changed at once: look at all keys that matter.
//!     Notification::Lost => {}
//!     Notification::Change(change) => {
//!         if let ChangeKind::Stored(key) = change.kind {
//!             changed.extend(key.whole().map(<[u8]>::to_vec));
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
    Change, ChangeKind, ChangeListener, ChangedKey, Evict, LogStore, MIN_CAPACITY, Notification,
    ServerRole, UpdatePolicy,
};
pub use mneme_space::{Access, Backing, Registry, Segment};
