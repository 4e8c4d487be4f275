//! The format of a store, byte for byte. `docs/design/tree.md` draws it.
//!
//! A store is a row of frames of 2 MiB. Frame 0 holds the [`FileHeader`] and the ring of commit
//! [`Record`]s; every other frame holds a table of [`LeafHeader`]s and 127 leaves of 16 KiB, or a
//! table of [`ExtentHeader`]s and 508 units of 4 KiB.

mod entry;
mod extent;
mod header;
mod leaf_header;
mod name;
mod record;

pub(crate) use entry::{
    ENTRY_HEADER, EntryHeader, KEY_PREFIX, Kind, entry_size, long_key_sum, move_entry, outside,
    write_entry,
};
pub(crate) use extent::{EXTENT_HEADER, Extent, ExtentHeader, UNIT, UNITS};
pub(crate) use header::{FORMAT, FileHeader, FrameHeader, FrameKind, HeaderProblem};
pub(crate) use leaf_header::{FencesIn, LeafHeader};
pub use name::MAX_NAME;
pub(crate) use name::{NAME_SLOTS, NameSlot};
pub(crate) use record::{Listed, MAX_DEAD, MAX_LISTED, Record, STATE_CLEAN};

/// Bytes of a frame.
pub(crate) const FRAME: u64 = 2 << 20;
/// Bytes of a leaf.
pub(crate) const LEAF: usize = 16 << 10;
/// Bytes at the beginning of a frame that describe what it holds.
pub(crate) const TABLE: usize = 16 << 10;
/// Leaves of a frame. The first 16 KiB of the frame are their headers.
pub(crate) const LEAVES: u32 = 127;
/// Bytes of a leaf's header, and of a frame's.
pub(crate) const LEAF_HEADER: usize = 128;
/// Where the ring of commit records begins.
pub(crate) const RING_AT: u64 = 4096;
/// Slots of the ring.
pub(crate) const RING_SLOTS: u64 = 256;
/// Bytes of a commit record: a sector.
pub(crate) const RECORD: usize = 512;

/// The longest key in bytes.
pub const MAX_KEY: usize = 65_536;
/// Longer keys lie in extents. A leaf of the longest keys below that has about ten of them, beside
/// two fences as long; see `docs/decisions/017-long-keys-begin-at-1024-bytes.md`.
pub(crate) const MAX_INLINE_KEY: usize = 1024;
/// The number of the tree that has the store's keys outside of all named trees.
pub(crate) const MAIN: u32 = 1;
/// The longest value in bytes.
pub const MAX_VALUE: usize = 1 << 30;
/// Longer values lie in extents. In units of 4 KiB they take no more of the file from here on than
/// in leaves, a half of which is free or of older versions, and are not copied when a leaf is
/// rewritten; see `docs/decisions/016-long-values-begin-at-1920-bytes.md`.
pub(crate) const MAX_INLINE: usize = 1920;

const _: () = {
    assert!((LEAVES as usize + 1) * LEAF_HEADER == TABLE && LEAF == TABLE);
    assert!((LEAVES as u64 + 1) * LEAF as u64 == FRAME);
    assert!(RING_AT + RING_SLOTS * RECORD as u64 <= FRAME);
};

/// The number of a leaf in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeafId(pub(crate) u32);

impl LeafId {
    /// The `slot`-th leaf of a frame; frame 0 has none.
    pub(crate) fn new(frame: u32, slot: u32) -> Self {
        Self((frame - 1) * LEAVES + slot)
    }

    /// The frame that holds it.
    #[inline]
    pub(crate) fn frame(self) -> u32 {
        self.0 / LEAVES + 1
    }

    #[inline]
    fn slot(self) -> u64 {
        u64::from(self.0 % LEAVES) + 1
    }

    /// Where its entries begin.
    #[inline]
    pub(crate) fn at(self) -> u64 {
        u64::from(self.frame()) * FRAME + self.slot() * LEAF as u64
    }

    /// Where its header is.
    #[inline]
    pub(crate) fn header_at(self) -> u64 {
        u64::from(self.frame()) * FRAME + self.slot() * LEAF_HEADER as u64
    }
}

/// The next multiple of 8.
pub(crate) const fn align8(n: usize) -> usize {
    n.next_multiple_of(8)
}
