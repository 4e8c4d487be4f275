//! A log store that survives power loss: **what was acknowledged as durable is there again** after
//! any death of the process and any loss of power.
//!
//! ```
//! use mneme_durable::{DurableOptions, LogStore};
//!
//! # let dir = std::env::temp_dir().join(format!("mneme-durable-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&dir);
//! let open = || {
//!     let builder = LogStore::builder().capacity(64 << 20);
//!     DurableOptions::new(&dir).open_private(builder)
//! };
//! let store = open()?;
//! store.put(b"muse", b"Clio")?;
//! store.sync()?;          // From here on it survives a power loss.
//! drop(store);
//! assert_eq!(open()?.get(b"muse")?.as_deref(), Some(&b"Clio"[..]));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The store itself lies in memory and is used like any [`LogStore`]. Every change is entered into
//! its change feed, and one thread appends the feed to a journal in a directory.
//! `docs/design/durable.md` describes the formats and argues why they are safe.

#![deny(unsafe_code)]

#[cfg(feature = "fault")]
#[doc(hidden)]
pub mod breakage;
mod checkpoint;
mod checkpoint_schedule;
mod compare;
mod directory;
mod disk;
mod durability;
mod error;
mod gate;
mod gathering;
mod groups;
mod home;
mod options;
mod pairing;
mod pump;
mod recover;
mod replay;
mod restore;
mod salvage;
mod serve;
mod sink;
#[doc(hidden)]
pub mod stepped;
mod store;
mod tree;

pub use checkpoint::CheckpointReport;
pub use checkpoint_schedule::{CheckpointStats, ScrubStats};
pub use durability::{Durability, DurabilityStats, Origin};
pub use error::DurableError;
pub use gate::{Gate, GateState, Refusal, Subscription};
pub use options::{DurabilityMode, DurableOptions, ProgressListener, RecoveryProgress, SyncPolicy};
pub use pairing::Unpaired;
pub use store::DurableStore;

pub use mneme_journal::JournalStats;
pub use mneme_log::LogStore;
pub use mneme_shared::{Opening, Registry, Served};
