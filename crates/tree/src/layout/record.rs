//! Commit records: what makes a version durable.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{LeafId, RECORD, RING_AT, RING_SLOTS};
use crate::checksum::crc32c;

/// Numbers of dead versions that a record can hold.
pub(crate) const MAX_DEAD: usize = 40;

/// Rows of entries that a record can list.
pub(crate) const MAX_LISTED: usize = 4;

/// Set in [`CommitRecord::state`]: the store was closed, and nothing has been stored since.
pub(crate) const STATE_CLEAN: u32 = 1;

/// Entries of a version, one behind the other in a leaf.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub(crate) struct Listed {
    leaf: u32,
    /// Where the first begins.
    pub(crate) from: u16,
    /// None: it lists nothing.
    pub(crate) count: u16,
}

impl Listed {
    pub(crate) fn new(leaf: LeafId, from: usize, count: usize) -> Self {
        Self {
            leaf: leaf.0,
            from: from as u16,
            count: count as u16,
        }
    }

    pub(crate) fn leaf(self) -> LeafId {
        LeafId(self.leaf)
    }
}

/// One commit record. The newest one whose checksum is right says what the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct CommitRecord {
    /// Of what follows up to the last dead number.
    crc: u32,
    /// [`STATE_CLEAN`] or 0; bits 8..16 hold the durability that the writer had chosen.
    pub(crate) state: u32,
    /// One more than in the record before. Orders the records.
    pub(crate) sequence: u64,
    /// The version that is durable.
    pub(crate) version: u64,
    /// The highest number that a version has had, dead ones included. The next is one more.
    pub(crate) last: u64,
    /// Bytes of the file that belong to the store.
    pub(crate) file_len: u64,
    /// Live entries.
    pub(crate) entries: u64,
    /// Bytes of the live entries.
    pub(crate) live_bytes: u64,
    /// The boot in which it was written.
    pub(crate) boot: [u8; 16],
    /// Bytes of the caller, committed with the version.
    pub(crate) caller: [u8; 32],
    /// Extents that live entries name.
    pub(crate) extents: u64,
    /// Units that these take.
    pub(crate) extent_units: u64,
    /// Named versions.
    pub(crate) names: u64,
    /// Leaves of the version, those of dropped trees included that have not died yet.
    pub(crate) leaves: u64,
    /// The number of the next tree. Numbers are never reused.
    pub(crate) next_tree: u64,
    /// All that the version has stored, if that may have become durable after the record.
    pub(crate) listed: [Listed; MAX_LISTED],
    dead_count: u64,
    dead: [u64; MAX_DEAD],
    reserved: u64,
}

const _: () = assert!(size_of::<CommitRecord>() == RECORD);

impl CommitRecord {
    /// A record of nothing.
    pub(crate) fn empty() -> Self {
        Self::new_zeroed()
    }

    /// Numbers of versions that were never committed and left traces, ascending.
    pub(crate) fn dead(&self) -> &[u64] {
        &self.dead[..(self.dead_count as usize).min(MAX_DEAD)]
    }

    /// Replaces the dead numbers; at most [`MAX_DEAD`].
    pub(crate) fn set_dead(&mut self, dead: &[u64]) {
        self.dead = [0; MAX_DEAD];
        self.dead[..dead.len()].copy_from_slice(dead);
        self.dead_count = dead.len() as u64;
    }

    /// Computes the checksum of a record of the store that `seed` belongs to.
    pub(crate) fn seal(&mut self, seed: u32) {
        self.crc = self.sum(seed);
    }

    pub(crate) fn is_valid(&self, seed: u32) -> bool {
        self.sequence != 0 && self.dead_count <= MAX_DEAD as u64 && self.crc == self.sum(seed)
    }

    /// What is stored of it: all that its checksum covers. What lies behind that in its slot means
    /// nothing.
    pub(crate) fn stored(&self) -> &[u8] {
        let end = std::mem::offset_of!(Self, dead) + size_of_val(self.dead());
        &self.as_bytes()[..end]
    }

    fn sum(&self, seed: u32) -> u32 {
        crc32c(seed, &self.stored()[4..])
    }

    /// Where the record with this sequence lies.
    pub(crate) fn place(sequence: u64) -> u64 {
        RING_AT + sequence % RING_SLOTS * RECORD as u64
    }
}
