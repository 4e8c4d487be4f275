//! Commit records: what makes a version durable.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{LeafId, RECORD, RING_AT, RING_SLOTS};
use crate::checksum::crc32c;

/// The most numbers of dead versions in a record.
pub(crate) const MAX_DEAD: usize = 40;

/// The most runs of entries that a record can list.
pub(crate) const MAX_LISTED: usize = 4;

/// Set in [`CommitRecord::state`]: the store was closed, and nothing has been stored since.
pub(crate) const STATE_CLEAN: u32 = 1;

/// Set in [`CommitRecord::state`]: commits may follow that have no record, each of one entry that
/// is [alone](super::EntryHeader::is_alone).
pub(crate) const STATE_ALONE: u32 = 2;

/// Set in [`CommitRecord::state`]: such commits had followed when a writer ended, and nobody has
/// counted their entries since.
pub(crate) const STATE_UNCOUNTED: u32 = 4;

/// Numbers of a row: a dead number stands for so many from it on. Commits that followed the last
/// record of a writer that was interrupted may have left traces with them, and those that entries
/// alone have left count even so. The last of these commits has a record.
pub(crate) const NUMBERS: u64 = 63;

/// Consecutive entries of a version in a leaf.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub(crate) struct Listed {
    leaf: u32,
    /// The offset of the first.
    pub(crate) from: u16,
    /// The number of entries; 0: nothing is listed.
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

/// A commit record. The newest one with a correct checksum determines the content of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct CommitRecord {
    /// Covers what follows up to the last dead number.
    crc: u32,
    /// [`STATE_CLEAN`], [`STATE_ALONE`], [`STATE_UNCOUNTED`]; bits 8..16 hold the writer's
    /// durability.
    pub(crate) state: u32,
    /// One more than in the previous record. Orders the records.
    pub(crate) sequence: u64,
    /// The durable version.
    pub(crate) version: u64,
    /// The highest version number so far, including dead ones. The next version is one more.
    pub(crate) last: u64,
    /// The bytes of the file that belong to the store.
    pub(crate) file_len: u64,
    /// The number of live entries.
    pub(crate) entries: u64,
    /// The bytes of live entries.
    pub(crate) live_bytes: u64,
    /// The boot during which it was written.
    pub(crate) boot: [u8; 16],
    /// Bytes of the caller that are committed with the version.
    pub(crate) caller: [u8; 32],
    /// The number of extents that live entries name.
    pub(crate) extents: u64,
    /// The units that they take.
    pub(crate) extent_units: u64,
    /// The number of named versions.
    pub(crate) names: u64,
    /// The number of leaves in the version, including leaves of dropped trees that have not died
    /// yet.
    pub(crate) leaves: u64,
    /// The number of the next tree. Numbers are never reused.
    pub(crate) next_tree: u64,
    /// Everything that the version has stored, if that may become durable after the record.
    pub(crate) listed: [Listed; MAX_LISTED],
    dead_count: u64,
    dead: [u64; MAX_DEAD],
    reserved: u64,
}

const _: () = assert!(size_of::<CommitRecord>() == RECORD);

impl CommitRecord {
    /// A record without content.
    pub(crate) fn empty() -> Self {
        Self::new_zeroed()
    }

    /// The first of each row of [`NUMBERS`] that may have left traces and were never committed,
    /// ascending.
    pub(crate) fn dead(&self) -> &[u64] {
        &self.dead[..(self.dead_count as usize).min(MAX_DEAD)]
    }

    /// Sets the dead numbers; at most [`MAX_DEAD`].
    pub(crate) fn set_dead(&mut self, dead: &[u64]) {
        self.dead = [0; MAX_DEAD];
        self.dead[..dead.len()].copy_from_slice(dead);
        self.dead_count = dead.len() as u64;
    }

    /// Computes the checksum, for the store with this `seed`.
    pub(crate) fn seal(&mut self, seed: u32) {
        self.crc = self.sum(seed);
    }

    pub(crate) fn is_valid(&self, seed: u32) -> bool {
        self.sequence != 0 && self.dead_count <= MAX_DEAD as u64 && self.crc == self.sum(seed)
    }

    /// The bytes that are stored: those that the checksum covers. The rest of the slot has no
    /// meaning.
    pub(crate) fn stored(&self) -> &[u8] {
        let end = std::mem::offset_of!(Self, dead) + size_of_val(self.dead());
        &self.as_bytes()[..end]
    }

    fn sum(&self, seed: u32) -> u32 {
        crc32c(seed, &self.stored()[4..])
    }

    /// The offset of the record with this sequence number.
    pub(crate) fn place(sequence: u64) -> u64 {
        RING_AT + sequence % RING_SLOTS * RECORD as u64
    }
}
