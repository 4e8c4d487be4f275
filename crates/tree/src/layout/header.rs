//! The first bytes of a store, and of each of its frames.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{FRAME, LEAF};
use crate::checksum::crc32c;

/// `mnemtree`.
const MAGIC: u64 = u64::from_le_bytes(*b"mnemtree");
/// `leaves`, for frames of leaves.
const LEAVES_MAGIC: u64 = u64::from_le_bytes(*b"leaves\0\0");
/// `extents`, for frames of extents.
const EXTENTS_MAGIC: u64 = u64::from_le_bytes(*b"extents\0");
/// The version of the format.
pub(crate) const FORMAT: u32 = 9;
/// The one before: no entry is alone, and a dead number stands for itself. A writer that has the
/// file for itself makes it [`FORMAT`].
const BEFORE: u32 = 8;

/// Written once, when the store is created.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct FileHeader {
    magic: u64,
    format: u32,
    crc: u32,
    frame: u32,
    leaf: u32,
    /// The store's identity; a backup keeps it.
    pub(crate) uuid: [u8; 16],
    /// The identity of this file among the copies of a store. The shared control region is named
    /// after it.
    pub(crate) instance: [u8; 16],
}

/// Why a file is not a store that this program can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderProblem {
    /// The file is not a store.
    Foreign,
    /// A store of this version of the format.
    Format(u32),
    /// A store whose header is damaged.
    Damaged,
}

impl FileHeader {
    pub(crate) fn new(uuid: [u8; 16], instance: [u8; 16]) -> Self {
        let mut header = Self {
            magic: MAGIC,
            format: FORMAT,
            crc: 0,
            frame: FRAME as u32,
            leaf: LEAF as u32,
            uuid,
            instance,
        };
        header.crc = header.sum();
        header
    }

    fn sum(&self) -> u32 {
        crc32c(self.format, &self.as_bytes()[16..])
    }

    /// Whether it has the previous format.
    pub(crate) fn is_of_before(&self) -> bool {
        self.format == BEFORE
    }

    /// Where the word of a header lies that makes it one of [`FORMAT`], and that word.
    pub(crate) fn upgrade(mut self) -> (u64, u64) {
        self.format = FORMAT;
        self.crc = self.sum();
        let at = std::mem::offset_of!(Self, format);
        (
            at as u64,
            u64::from(self.crc) << 32 | u64::from(self.format),
        )
    }

    pub(crate) fn check(&self) -> Result<(), HeaderProblem> {
        if self.magic != MAGIC {
            return Err(HeaderProblem::Foreign);
        }
        if self.format != FORMAT && self.format != BEFORE {
            return Err(HeaderProblem::Format(self.format));
        }
        if self.crc != self.sum() || (self.frame, self.leaf) != (FRAME as u32, LEAF as u32) {
            return Err(HeaderProblem::Damaged);
        }
        Ok(())
    }

    /// The initial value for the checksums of this store's records.
    pub(crate) fn seed(&self) -> u32 {
        crc32c(0, &self.uuid)
    }
}

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// It holds 127 leaves.
    Leaves,
    /// Extents. If `run` is above 1, the other frames of the run have no table.
    Extents {
        /// The number of frames in the run.
        run: u32,
    },
}

/// The header of a frame in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct FrameHeader {
    magic: u64,
    number: u32,
    run: u32,
    crc: u32,
    reserved: u32,
}

impl FrameHeader {
    /// The header of frame `number` in the store with this `seed`.
    pub(crate) fn new(number: u32, kind: FrameKind, seed: u32) -> Self {
        let (magic, run) = match kind {
            FrameKind::Leaves => (LEAVES_MAGIC, 1),
            FrameKind::Extents { run } => (EXTENTS_MAGIC, run),
        };
        let mut header = Self {
            magic,
            number,
            run,
            crc: 0,
            reserved: 0,
        };
        header.crc = crc32c(seed, &header.as_bytes()[..16]);
        header
    }

    /// The content of frame `number`; `None` if this is not its header.
    pub(crate) fn kind(&self, number: u32, seed: u32) -> Option<FrameKind> {
        let kind = match self.magic {
            LEAVES_MAGIC => FrameKind::Leaves,
            EXTENTS_MAGIC => FrameKind::Extents { run: self.run },
            _ => return None,
        };
        (self.run > 0 && *self == Self::new(number, kind, seed)).then_some(kind)
    }
}
