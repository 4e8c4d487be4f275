//! Divides a region into contiguous extents of 2 MiB frames, claimed and released by any number of
//! processes, any of which may be killed at any instruction.
//!
//! # What it promises
//!
//! * A [claim](Arena::claim) gets a run of *adjacent* frames, of any length and any power-of-two
//!   alignment, whenever there is one (lowest address first, nearest NUMA node first), in O(log
//!   frames).
//! * A request that is not granted gives a typed error, and changes nothing.
//! * [`Class::Ordinary`] leaves a reserve alone, so that compaction, which frees space, can always
//!   begin.
//! * A death at any point loses no frame: if a process dies while it holds the lock, the lock's
//!   next owner cleans up, and extents that it had claimed but not [adopted](Arena::adopt) are
//!   freed by [`Arena::repair`].
//! * [`Arena::extent_of`] returns the extent of any frame, without a lock, in a few loads.
//!
//! * The memory of unused frames may be [returned](Arena::give_back_spare) to the machine, one
//!   frame at a time.
//! * In a file whose space is allocated on use ([`Reserve::Lazy`](mneme_sys::Reserve)), a claimed
//!   extent has its space: touching it is safe on a full file system.
//!
//! The arena does not interpret the content of its extents, and neither zeroes nor populates them.
//!
//! # How
//!
//! Each frame has a descriptor in the region, changed by compare-and-swap; the descriptors are
//! authoritative. A bitmap with a tree of free runs above it is derived from them and used for
//! searching. One robust lock guards claims, releases and growth; adoption is one compare-and-swap;
//! everything else reads without a lock. All positions are offsets, so the region may be open at
//! several addresses at once. The modules `layout` (format), `descriptor` (runs), `free_runs`
//! (search), `repair` (deaths) and `zone` (nodes and growth) have the details.
//!
//! # The second class
//!
//! Guaranteed contiguous memory for a first class of clients is the idea of GCMA (SeongJae Park's
//! dissertation, ch. 2). Memory that the first class leaves idle is lent to a second one, which may
//! lose it at any moment: [`Discardable`], a cache of clean copies of data that are kept elsewhere.
//! Whether an arena lends is fixed when it is created ([`ArenaOptions::lending`]); one that does
//! not is unaffected in format and speed. In an arena that lends:
//!
//! * `claim` may take a rented frame, and [`stats`](Arena::stats) counts it as free; for each node
//!   one frame may be being filled, which counts neither as free nor as capacity;
//! * no tenant of the second class delays a claim, whether it is slow, stopped or dead;
//! * **the first class writes its frames by [`racy`](mneme_sys::racy) stores or by 8-byte
//!   atomics**, because a reader of the second class may still be copying the previous content,
//!   which it discards afterwards;
//! * lent memory is resident: the process grows to the most that the first class ever used, or to
//!   [`LendingOptions::max_frames`].
//!
//! # Use
//!
//! ```
//! use mneme_arena::{Arena, ArenaOptions, Class};
//! use mneme_sync::{ControlOptions, Participants};
//! use mneme_sys::{NodeId, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};
//! use std::sync::Arc;
//!
//! let mut uuid = [0; 16];
//! mneme_sys::random_bytes(&mut uuid)?;
//! let control = ControlOptions::new(uuid);
//! let memory = Region::private(control.region_len(), control.region_len(), PagePolicy::Small)?;
//! let liveness = Arc::new(ScriptedLiveness::new().process(1));
//! let participants = Participants::create(memory, control, liveness)?;
//!
//! let region = Arc::new(Region::private(64 << 20, 256 << 20, PagePolicy::Huge)?);
//! let arena = Arena::create(region, participants.clone(), ArenaOptions {
//!     uuid,
//!     client_bytes: 4096,
//!     nodes: 1,
//!     topology: Arc::new(SyntheticTopology::new(1, 2)),
//!     reserve_frames: 2,
//!     lending: None,
//! })?;
//!
//! let slot = participants.slot()?;
//! let extent = arena.claim(&slot, 4, 4, NodeId(0), Class::Ordinary, 7)?; // 8 MiB, aligned to 8 MiB
//! assert_eq!(extent.offset() % (8 << 20), 0);
//! // ... here the tenant links the extent in its own structure, then:
//! arena.adopt(extent)?;
//! assert_eq!(arena.extent_of(extent.start).map(|info| info.tag), Some(7));
//! arena.release(&slot, extent)?;
//! assert!(arena.check()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod backed;
mod check;
mod claim;
mod descriptor;
mod discardable;
mod error;
mod error_kind;
mod frame;
mod free_runs;
mod grow;
mod layout;
mod lending;
mod open;
mod release;
mod repair;
mod runs;
mod spare;
mod stats;
mod zone;

pub use arena::{Arena, ExtentInfo, ExtentState};
pub use backed::SPACE_AHEAD;
pub use check::Problem;
pub use claim::Class;
pub use discardable::{
    CacheLookup, ClaimTimes, Discardable, DiscardableStats, Dropped, LendingError, MAX_RECORD,
    PrivateError, PutError, Stored, Ticket,
};
pub use error::{
    AdoptError, ClaimError, CreateError, GrowError, InvalidClaim, OpenError, ReleaseError,
    RepairError,
};
pub use frame::{Extent, FRAME_BYTES, Frame, MAX_ALIGN_FRAMES, MAX_FRAMES, MAX_TAG};
pub use layout::{FORMAT, FORMAT_LENDING, LAYOUT_HASH, LAYOUT_HASH_LENDING, MAGIC};
pub use lending::LendingOptions;
pub use open::ArenaOptions;
pub use repair::Repaired;
pub use spare::{GiveBackError, Spare};
pub use stats::{ArenaStats, NodeStats};

/// Compiles and runs the guide's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/discardable-cache.md")]
struct Guide;
