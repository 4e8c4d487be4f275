//! Which bytes of a region are whose: contiguous extents of 2 MiB frames, claimed and released by
//! any number of processes, any of which may be killed at any instruction.
//!
//! # What it promises
//!
//! * A [claim](Arena::claim) gets a run of *adjacent* frames, of any length and any power-of-two
//!   alignment, whenever there is one (lowest address first, nearest NUMA node first), in O(log
//!   frames).
//! * What is not granted has a typed error, and nothing has changed.
//! * [`Class::Ordinary`] leaves a reserve alone, so that compaction, which frees space, can always
//!   begin.
//! * A death at any point loses no frame: who dies with the lock is cleared up after by the lock's
//!   next owner, and what the dead had claimed but not [adopted](Arena::adopt) comes back by
//!   [`Arena::repair`].
//! * [`Arena::extent_of`] tells the extent of any frame, without a lock, in a few loads.
//!
//! * Frames that nobody has may be [given back](Arena::give_back_spare) to the machine, one by one.
//! * In a file that gets its space as it is used ([`Reserve::Lazy`](mneme_sys::Reserve)), an extent
//!   that is handed out has it: touching it is safe on a full file system.
//!
//! The arena does not know what its extents hold, and neither zeroes nor populates them.
//!
//! # How
//!
//! Each frame has a descriptor in the region, changed by compare-and-swap; they are the truth. A
//! bitmap with a tree of free runs above it is derived from them, and is what the search uses. One
//! robust lock guards claims, releases and growth; adoption is one compare-and-swap; everything
//! else reads without it. All positions are offsets, so that the region may be open at several
//! addresses at once. The modules `layout` (format), `descriptor` (runs), `summary` (search),
//! `repair` (deaths) and `zone` (nodes and growth) tell the rest.
//!
//! # The second class
//!
//! Guaranteed contiguous memory for a first class of clients is the idea of GCMA (SeongJae Park's
//! dissertation, ch. 2). What the first class leaves idle is lent to a second one, which may lose
//! it at any moment: [`Discardable`], a cache of clean copies whose truth lies elsewhere. Whether
//! an arena lends is fixed when it is created ([`ArenaOptions::lending`]). One that does not has
//! the format and the speed that it had without all this. In one that does:
//!
//! * a rented frame is as good as a free one: `claim` may have it, and [`stats`](Arena::stats)
//!   counts it as free; one frame a node may be being filled, which is neither free nor capacity;
//! * no tenant of the second class delays a claim, be it slow, stopped or dead;
//! * **the first class writes its frames by [`racy`](mneme_sys::racy) stores or by atomics of 8
//!   bytes**, for a reader of the second class may still be copying what was there, and throws it
//!   away afterwards;
//! * lent memory is resident: the process grows to what the first class ever had, or to
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

/// The guide's examples are compiled and run with this crate's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/discardable-cache.md")]
struct Guide;
