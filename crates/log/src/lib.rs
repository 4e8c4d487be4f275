//! **mneme-log** keeps byte strings under byte-string keys, in memory that never fragments.
//!
//! Records are appended to a log with a head for each CPU; an index leads from keys to records; a
//! compactor moves live records together so that memory becomes whole again. It is Nibble's design
//! (Merrifield et al.; see the module docs for sections), brought up to date: byte-string keys, an
//! index that grows and shrinks in small steps, reads without copying, batches that overlap their
//! cache misses, and a region that several processes may share and be killed in.
//!
//! # Usage
//! ```
//! use mneme_log::LogStore;
//!
//! let store = LogStore::builder().capacity(64 << 20).open_private()?;
//! store.put(b"hello", b"world")?;
//! let value = store.get(b"hello")?.expect("just stored");
//! assert_eq!(&*value, b"world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Consistency
//! Every operation on one key is atomic and linearisable. `get` never waits: not for writers, not for
//! compaction, not for a change of the index' shape. A batch is as fast as it is because it is *not*
//! atomic as a whole: other threads may see a part of it.
//!
//! # Performance
//! A single `get` costs two dependent cache misses, whatever the size of the store. Use the batched
//! calls wherever several keys are known at once.

#![deny(clippy::undocumented_unsafe_blocks)]

mod access;
mod batch;
mod check;
mod compact;
mod core;
mod error;
mod evict;
mod expiry;
mod grow;
mod head;
mod in_place;
mod index;
mod layout;
mod maintainer;
mod mem;
#[cfg(test)]
mod models;
mod ops;
mod publish;
mod reap;
mod record;
mod room;
mod scan;
mod segment;
mod stats;
mod store;
mod survivors;
mod transaction;
mod vacate;
mod value;

pub use check::Report;
pub use error::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};
pub use evict::Evict;
pub use expiry::{Expiry, Stored};
pub use layout::{DATABASES, FORMAT};
pub use ops::{Decision, Updated};
pub use record::{MAX_KEY, MAX_VALUE};
pub use scan::Cursor;
pub use stats::{NodeStats, Stats};
pub use store::{Builder, Database, LogStore, MIN_CAPACITY, UpdatePolicy, control_bytes};
pub use transaction::{Transaction, TransactionOn};
pub use value::Value;

pub use mneme_sync::{SlotError, Stalled};
pub use mneme_sys::{PageKind, PagePolicy, PageReport};
