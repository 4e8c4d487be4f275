//! The table entry for a leaf.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{LEAF_HEADER, LeafId, MAX_INLINE_KEY, TreeExtent};
use crate::checksum::{WordStamp, crc32c, stamp, unstamp};

/// Bytes of both fences that fit into the header.
const FENCES_INLINE: usize = 96;
/// The most bytes of both fences that lie at the beginning of the leaf; longer fences lie in an
/// extent.
const FENCES_IN_LEAF: usize = 2 * MAX_INLINE_KEY;
/// The stored length of the upper fence of the last leaf, which has none.
const NO_HIGH: u16 = u16::MAX;
/// Replaces the length of the lower fence if both lie in an extent.
const IN_EXTENT: u16 = u16::MAX;
/// Bytes of the header that refer to fences in an extent: its place and both lengths.
const OUTSIDE: usize = 16;

/// The places of a leaf's fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FencesIn {
    Header,
    /// At the beginning of the leaf.
    Leaf,
    Extent,
}

impl FencesIn {
    /// The place for fences of this many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        if bytes <= FENCES_INLINE {
            Self::Header
        } else if bytes <= FENCES_IN_LEAF {
            Self::Leaf
        } else {
            Self::Extent
        }
    }
}

/// The table entry for a leaf. Immutable except for the death word.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct LeafHeader {
    /// Covers everything except itself and `death`, and the fences wherever they lie.
    crc: u32,
    id: u32,
    birth: u64,
    /// The stamped version that replaced the leaf. If it is not above `birth`, it belongs to an
    /// earlier user of the place.
    pub(crate) death: u64,
    low_len: u16,
    high_len: u16,
    /// The tree that the leaf belongs to.
    pub(crate) tree: u32,
    fences: [u8; FENCES_INLINE],
}

const _: () = assert!(size_of::<LeafHeader>() == LEAF_HEADER);

impl LeafHeader {
    /// Offset of [`death`](Self::death) in the header.
    pub(crate) const DEATH: u64 = 16;

    /// A leaf of `tree` born at `birth` for keys from `low` to below `high`. Fences too long for
    /// the header must be written by the caller: to the beginning of the leaf, or to the extent
    /// `outside`.
    pub(crate) fn new(
        (tree, id): (u32, LeafId),
        birth: u64,
        (low, high): (&[u8], Option<&[u8]>),
        outside: Option<TreeExtent>,
    ) -> Self {
        let mut header = Self {
            crc: 0,
            id: id.0,
            birth,
            death: 0,
            low_len: low.len() as u16,
            high_len: high.map_or(NO_HIGH, |key| key.len() as u16),
            tree,
            fences: [0; FENCES_INLINE],
        };
        let joined = [low, high.unwrap_or_default()].concat();
        match outside {
            Some(extent) => {
                (header.low_len, header.high_len) = (IN_EXTENT, 0);
                let high_len = high.map_or(u32::MAX, |key| key.len() as u32);
                header.fences[..8].copy_from_slice(&extent.word().to_le_bytes());
                header.fences[8..12].copy_from_slice(&(low.len() as u32).to_le_bytes());
                header.fences[12..OUTSIDE].copy_from_slice(&high_len.to_le_bytes());
            }
            None if FencesIn::of(joined.len()) == FencesIn::Header => {
                header.fences[..joined.len()].copy_from_slice(&joined);
            }
            None => {}
        }
        header.crc = header.sum(&joined);
        header
    }

    /// The bytes that are written to the table: those before the death word, and those after it.
    pub(crate) fn around_death(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_bytes();
        (&bytes[..16], &bytes[24..])
    }

    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// The lengths of the fences; `None` for the missing upper fence of the last leaf.
    pub(crate) fn lengths(&self) -> (usize, Option<usize>) {
        if self.low_len == IN_EXTENT {
            let high = (self.outside_word(12) != u32::MAX).then(|| self.outside_word(12) as usize);
            return (self.outside_word(8) as usize, high);
        }
        let high = (self.high_len != NO_HIGH).then_some(usize::from(self.high_len));
        (usize::from(self.low_len), high)
    }

    fn outside_word(&self, at: usize) -> u32 {
        let word = self.fences[at..].first_chunk();
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Whether the fences lie at the beginning of the leaf.
    pub(crate) fn begins_with_fences(&self) -> bool {
        let (low, high) = self.lengths();
        FencesIn::of(low + high.unwrap_or(0)) == FencesIn::Leaf
    }

    /// The extent with the fences, if they lie in one.
    pub(crate) fn outside(&self) -> Option<TreeExtent> {
        let (low, high) = self.lengths();
        let len = u32::try_from(low + high.unwrap_or(0)).ok()?;
        let word = self
            .fences
            .first_chunk()
            .map(|word| u64::from_le_bytes(*word))?;
        (self.low_len == IN_EXTENT).then(|| TreeExtent::at_word(word, len))
    }

    /// Both fences, if they lie in the header.
    pub(crate) fn inline_fences(&self) -> &[u8] {
        let (low, high) = self.lengths();
        &self.fences[..(low + high.unwrap_or(0)).min(FENCES_INLINE)]
    }

    /// Whether this is the header of leaf `id` with these `fences`, the lower one first.
    pub(crate) fn is_valid(&self, id: LeafId, fences: &[u8]) -> bool {
        self.id == id.0 && self.birth != 0 && self.crc == self.sum(fences)
    }

    fn sum(&self, fences: &[u8]) -> u32 {
        let (before, after) = self.around_death();
        let fixed = match self.low_len == IN_EXTENT {
            true => 8 + OUTSIDE,
            false => 8,
        };
        let crc = crc32c(crc32c(self.id, &before[4..]), &after[..fixed]);
        crc32c(crc, fences)
    }

    /// The death word of a leaf that `version` replaces.
    pub(crate) fn death_word(id: LeafId, version: u64) -> u64 {
        stamp(version, u64::from(id.0) | 1 << 40)
    }

    /// Decodes the death word.
    pub(crate) fn death(&self, id: LeafId) -> WordStamp {
        unstamp(self.death, u64::from(id.0) | 1 << 40)
    }
}
