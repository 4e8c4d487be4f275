//! What the table of a frame says of a leaf.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{LEAF_HEADER, LeafId};
use crate::checksum::{Stamp, crc32c, stamp, unstamp};

/// Bytes of both fences that fit into the header; longer ones begin the leaf.
pub(crate) const FENCES_INLINE: usize = 96;
/// The length of the upper fence of the last leaf, which has none.
pub(crate) const NO_HIGH: u16 = u16::MAX;

/// One leaf of a frame's table. Immutable, but for the death word.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct LeafHeader {
    /// Of everything but itself and `death`, and of fences that begin the leaf.
    crc: u32,
    id: u32,
    birth: u64,
    /// The stamped version that replaced the leaf; of an earlier user of the place if it is not
    /// above `birth`.
    pub(crate) death: u64,
    low_len: u16,
    high_len: u16,
    reserved: u32,
    fences: [u8; FENCES_INLINE],
}

const _: () = assert!(size_of::<LeafHeader>() == LEAF_HEADER);

impl LeafHeader {
    /// Offset of [`death`](Self::death) in the header.
    pub(crate) const DEATH: u64 = 16;

    /// A leaf born at `birth` for keys from `low` to below `high`. Fences too long for the header
    /// are the caller's to put at the beginning of the leaf.
    pub(crate) fn new(id: LeafId, birth: u64, low: &[u8], high: Option<&[u8]>) -> Self {
        let mut header = Self {
            crc: 0,
            id: id.0,
            birth,
            death: 0,
            low_len: low.len() as u16,
            high_len: high.map_or(NO_HIGH, |key| key.len() as u16),
            reserved: 0,
            fences: [0; FENCES_INLINE],
        };
        let joined = [low, high.unwrap_or_default()].concat();
        if !header.has_long_fences() {
            header.fences[..joined.len()].copy_from_slice(&joined);
        }
        header.crc = header.sum(&joined);
        header
    }

    /// The bytes that are written into the table: what precedes the death word, and what follows.
    pub(crate) fn around_death(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_bytes();
        (&bytes[..16], &bytes[24..])
    }

    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// Lengths of the fences; the upper one's is `None` for the last leaf.
    pub(crate) fn lengths(&self) -> (usize, Option<usize>) {
        let high = (self.high_len != NO_HIGH).then_some(usize::from(self.high_len));
        (usize::from(self.low_len), high)
    }

    /// Whether the fences begin the leaf.
    pub(crate) fn has_long_fences(&self) -> bool {
        let (low, high) = self.lengths();
        low + high.unwrap_or(0) > FENCES_INLINE
    }

    /// Both fences, if they are in the header.
    pub(crate) fn inline_fences(&self) -> &[u8] {
        let (low, high) = self.lengths();
        &self.fences[..(low + high.unwrap_or(0)).min(FENCES_INLINE)]
    }

    /// Whether this is the header of leaf `id` with these `fences`, the lower and then the upper.
    pub(crate) fn is_valid(&self, id: LeafId, fences: &[u8]) -> bool {
        self.id == id.0 && self.birth != 0 && self.crc == self.sum(fences)
    }

    fn sum(&self, fences: &[u8]) -> u32 {
        let (before, after) = self.around_death();
        let crc = crc32c(crc32c(self.id, &before[4..]), &after[..8]);
        crc32c(crc, fences)
    }

    /// The death word for a leaf that `version` replaces.
    pub(crate) fn death_word(id: LeafId, version: u64) -> u64 {
        stamp(version, u64::from(id.0) | 1 << 40)
    }

    /// What the death word says.
    pub(crate) fn death(&self, id: LeafId) -> Stamp {
        unstamp(self.death, u64::from(id.0) | 1 << 40)
    }
}
