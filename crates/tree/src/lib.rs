//! A durable, ordered, versioned store that maps byte strings to byte strings, in one file that is
//! changed in place without a log.
//!
//! A commit appends entries to the leaves of a B+tree, makes them durable, and then makes one
//! record of 512 bytes durable; nothing else is written. Each entry carries the version that wrote
//! it, so readers and snapshots see one version for as long as they look, and never wait for the
//! writer.
//!
//! # Usage
//!
//! ```
//! use mneme_tree::{Batch, Store};
//! # let path = std::env::temp_dir().join(format!("mneme-doc-lib-{}", std::process::id()));
//! let db = Store::builder().open(&path)?;
//! db.put(b"user:1", b"Ada")?;                       // durable on return
//!
//! let mut batch = Batch::new();
//! batch.put(b"user:2", b"Grace").remove(b"user:1");
//! db.apply(&batch)?;                                // all or nothing, combined with other threads'
//!
//! let mut tx = db.write();                          // reads what it writes, excludes other writers
//! if tx.get(b"user:2")?.is_some() {
//!     tx.put(b"user:3", b"Barbara")?;
//! }
//! tx.commit()?;
//!
//! let snapshot = db.snapshot()?;
//! for pair in snapshot.range(&b"user:"[..]..&b"user;"[..]) {
//!     let (key, value) = pair?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # drop((snapshot, db));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! Any number of named trees in a store, and hash tables; keys of up to 64 KiB and values of up to
//! 1 GiB; puts, removals, batches, exclusive transactions, gets, gets of many keys at once,
//! snapshots, versions kept under names and rollback to them, backups, ranges in both directions,
//! commits of several threads combined, recovery after the death of the process or of the machine,
//! `stats` and `check`. One process writes a store at a time, and its threads share it; other
//! processes [read](Builder::read_only) it meanwhile, with snapshots of their own, and neither side
//! waits for the other.
//!
//! # Durability
//!
//! [`Durability::File`] survives power loss at the cost of one or two `fdatasync` per commit;
//! [`Durability::Process`] survives the death of the process. **A failed sync poisons the store**:
//! the commit returns [`StoreError::OutcomeUnknown`] and every later one [`StoreError::Poisoned`].
//! Reads still work, and the next opening reads the medium anew and finds the commit complete or
//! not at all.
//!
//! # How it is tested
//!
//! Every store goes through [`Medium`](mneme_sys::medium::Medium). Tests record the operations of a
//! history, crash it at every point in every way that the failure model allows, recover (and crash
//! during recovery), and compare with a model. They must detect each omitted sync and each changed
//! order. `docs/design/tree.md` argues case by case.
//!
//! After *Consistent and Durable Data Structures* (CDDS), chapters 4 to 6.

#![deny(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    missing_docs
)]

mod attach;
mod backup;
mod batch;
#[cfg(feature = "fault")]
pub mod breakage;
mod catalogue;
mod catalogue_changes;
mod catalogue_entry;
mod check;
mod checksum;
mod commit;
mod committed;
mod control_region;
mod durability;
mod error;
mod fingerprints;
mod follow;
mod group;
mod hash_table;
mod index;
mod layout;
mod leaf;
mod leaf_entry;
mod lookup;
mod names;
mod open;
mod open_store;
mod order;
mod pages;
mod plan;
mod range;
mod record_cache;
mod recovery;
mod registered;
mod reserve;
mod rollback;
mod roots;
mod scrub;
mod snapshot;
mod space;
mod stats;
mod store;
mod transaction;
mod tree;

pub use attach::JoinError;
pub use batch::Batch;
pub use durability::{Durability, Version};
pub use error::{CacheError, StoreError};
pub use hash_table::{HashTable, HashTablePairs};
pub use layout::{MAX_KEY, MAX_NAME, MAX_VALUE};
pub use mneme_arena::{ClaimTimes, DiscardableStats};
pub use open::Builder;
pub use range::{Keys, Range};
pub use record_cache::RecordCache;
pub use registered::Holder;
pub use scrub::Scrub;
pub use snapshot::{Snapshot, View};
pub use stats::Stats;
pub use store::Store;
pub use transaction::Transaction;
pub use tree::{Tree, TreeStats};
