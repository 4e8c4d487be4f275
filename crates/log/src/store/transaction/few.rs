//! Small lists, which most transactions store within themselves, without memory of their own.

use smallvec::SmallVec;

/// The number of items that a transaction stores within itself.
pub(super) const FEW: usize = 8;

/// A list of which most transactions have few items.
pub(super) type Few<T> = SmallVec<[T; FEW]>;

/// A key. The keys of inner records, and most others, need no memory of their own.
pub(super) type OwnedKey = SmallVec<[u8; 24]>;
