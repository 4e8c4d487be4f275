//! What most transactions have few of lies in the transaction, without memory of its own.

use smallvec::SmallVec;

/// How many of a thing are few.
pub(super) const FEW: usize = 8;

/// The few of something that most transactions have.
pub(super) type Few<T> = SmallVec<[T; FEW]>;

/// A key. Those of inner records, and most others, need no memory of their own.
pub(super) type OwnedKey = SmallVec<[u8; 24]>;
