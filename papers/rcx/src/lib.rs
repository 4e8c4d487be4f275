//! NUMA-aware update-side synchronisation for read-copy-update (RCX), and a map of address ranges
//! made of it. A laboratory: the store does not use it
//! (`docs/decisions/020-the-stores-locks-take-no-lanes.md` has the measurements).
//!
//! [`Rcx`] locks several items of a linked structure for an update, in order, with leaders elected
//! on each NUMA node so that a contended item does not wander between them; [`rcx`] says when that
//! pays. [`RangeMap`] is a concurrent map of address ranges whose lookups take no locks.
//! `ProtectedRegion` is memory that knows which of its chunks were written.
//!
//! After Park's dissertation (an HTM-based NUMA-aware RCU extension), §3.3.2 and §3.3.3, over
//! [`mneme_sync`]'s pins and robust locks.

#![deny(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    missing_docs
)]

#[cfg(test)]
mod models;
#[cfg(not(miri))]
pub mod protected_region;
pub mod range_map;
pub mod rcx;

#[cfg(not(miri))]
pub use protected_region::{ProtectedError, ProtectedRegion};
pub use range_map::{FoundRange, RangeError, RangeMap, RangeReader, RangeValue};
pub use rcx::{
    Abort, Item, ItemLock, ItemSet, LANE_ITEMS, LANE_TIMEOUT, LaneSet, NodeLane, Rcx, RcxError,
    RcxGuard, RcxStats, Script, Strategy, TakeLanes,
};

/// The guides' examples are compiled and run with this crate's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/range-map.md")]
struct RangeMapGuide;

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/protected-region.md")]
struct ProtectedRegionGuide;

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/rcu.md")]
struct RcuGuide;
