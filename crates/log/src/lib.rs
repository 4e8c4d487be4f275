//! **mneme-log** stores byte strings under byte-string keys, in memory that never fragments.
//!
//! Records are appended to a log with a head for each CPU; an index leads from keys to records; a
//! compactor moves live records together so that free memory becomes contiguous again. The design
//! is that of Nibble (Merritt, Gavrilovska, Chen, Milojicic: *Concurrent Log-Structured Memory for
//! Many-Core Key-Value Stores*; index §3.1, heads and compaction §3.2, epochs §3.3) and Nibble-2
//! (Merritt's dissertation, ch. VI: values overwritten in place), brought up to date: byte-string
//! keys, an index that grows and shrinks in small steps, reads without copying, batches that
//! overlap their cache misses, and a region that several processes may share, any of which may be
//! killed.
//!
//! `docs/embedding.md` explains how to embed it. `docs/design/log.md` gives its format and the
//! argument for its correctness.
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
//! Every operation on one key is atomic and linearisable. `get` waits for no writer, no compaction
//! and no change of the index' shape. It waits only for a [transaction](LogStore::transaction) that
//! is committing a key of the same bucket, for a [swap](LogStore::swap_databases) of its database,
//! and, in a store that [overwrites](UpdatePolicy::InPlace), for the overwriting of a value in the
//! same bucket. A batch is *not* atomic as a whole, which makes it fast: other threads may see a
//! part of it. A transaction is atomic over any number of keys.
//!
//! # Threads and processes
//! [`LogStore`] is `Send` and `Sync`; a [`Value`] stays on its thread. A thread becomes a
//! participant at its first call, one of at most 1,020. A participant may be killed at any
//! instruction: the next participant that finds what it left repairs it. A forked child is not a
//! participant: its calls fail with [`SlotError::Forked`].
//!
//! # Performance
//! A single `get` costs two dependent cache misses, whatever the size of the store. Use the batched
//! calls wherever several keys are known at once.

//!
//! # Inside
//! Components, one upon the other. Each knows those below it and none above; what it needs of one
//! above is a method of `session::Callbacks`, or is passed down. A folder holds one component:
//!
//! | folder | has |
//! |---|---|
//! | `store` | the API: operations, batches, transactions, watches; repair, checks, opening |
//! | `reclaim` | compaction, eviction, the expiry sweep, the search for free space |
//! | `records` | reading, publishing and changing one record |
//! | `index` | roots, pages, lookup, change of shape, databases, counts, intents |
//! | `log` | frames, log segments, heads, growth of the store |
//! | `feed` | the change feed: its ring, its entries |
//! | `session` | the opening's threads: slots, pins, waiting, leases |
//! | `region` | the bytes: header and tables, records, locations; no component |
//!
//! A component is a struct that owns the one below and the state of its own, and has a method for
//! each one below it: `store.index().place(key)` (`store/components.rs`).

#![deny(clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "fault")]
#[doc(hidden)]
pub mod breakage;
mod buffer;
mod error;
mod error_kind;
pub mod feed;
mod index;
mod inner;
mod log;
#[cfg(test)]
mod models;
mod reclaim;
mod records;
mod region;
mod session;
mod store;
/// Deaths within operations that have no name outside this crate, for `tests/deaths.rs`.
#[cfg(feature = "fault")]
#[doc(hidden)]
pub mod within {
    pub use crate::index::pool::passage::a_frame_that_another_shard_owns_by_now_is_left_to_it;
    pub use crate::records::change_set::deaths::{
        a_change_set_over_several_records_is_made_whole_or_not_at_all,
        a_redo_that_fits_no_record_is_damage, its_repairer_dies_too,
    };
}
#[cfg(feature = "fault")]
mod test_processes;

pub use error::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};
pub use inner::{
    Anchor, BRANCH, BRANCH_HEAD, HASH_BITS, MAX_LEAVES, OrderTree, TREE_NUMBERS, collection_of,
    element_key, element_of, hashes_of, leaf_numbers, leaf_of, main_of, numbers_of, split_of,
};
pub use reclaim::evict::Evict;
pub use reclaim::fill::{CompactionWait, FillPolicy};
pub use records::elements::Elements;
pub use records::expiry::{Expiry, Stored};
pub use records::in_place::ValueEdit;
pub use records::keyspace::KeyspaceInfo;
pub use records::random::{Draw, Drawn};
pub use records::scan::Cursor;
pub use records::value::Value;
pub use region::kind::{ValueKind, WrongKind};
pub use region::layout::FORMAT;
pub use region::policy::UpdatePolicy;
pub use region::record::{MAX_KEY, MAX_VALUE};
pub use region::space::DATABASES;
pub use store::check::Report;
pub use store::feed::{ChangeFeed, FeedError, SalvagedFeed};
pub use store::listener::{Change, ChangeKind, ChangeListener, Notification, Sleep, ValueChange};
pub use store::look::Look;
pub use store::ops::{Decision, Updated};
pub use store::part::{Part, Patch};
pub use store::processes::{Process, ProcessPin, Work};
pub use store::role::{LocalPrograms, RoleError, ServerRole};
pub use store::stats::{NodeStats, Stats};
pub use store::transaction::{Transaction, TransactionOn};
pub use store::watch::Watch;
pub use store::{Builder, Database, LogStore, MIN_CAPACITY, RegionKind, control_bytes};

/// What a tenant of a store that [lends](Builder::lend_idle) needs.
pub mod lent {
    pub use mneme_arena::{
        CacheLookup, ClaimTimes, Discardable, DiscardableStats, Dropped, LendingOptions,
        MAX_RECORD, PutError, Stored, Ticket,
    };
    pub use mneme_sys::NodeId;
}

pub use mneme_sync::{Holding, Life, SlotError, Stalled};
pub use mneme_sys::{PageKind, PagePolicy, PageReport, ProcessState};
