//! Frames and extents: the units in which a region is divided.
//!
//! A frame is 2 MiB, the size of a huge page on the supported machines. It is numbered by its place
//! in the region, so the frame of any byte is `offset >> 21` and needs no table. The first frames
//! hold the arena's own tables and the tenant's client area, and cannot be claimed.

use std::fmt;

/// The size of a frame in bytes: 2 MiB.
pub const FRAME_BYTES: u64 = 1 << 21;

/// The largest alignment of a claim, in frames (8 GiB).
///
/// Each node of the search tree records the longest run for every alignment up to this one; with 13
/// alignments a node fills one cache line.
pub const MAX_ALIGN_FRAMES: u32 = 1 << (crate::runs::ALIGNMENTS - 1);

/// The maximum number of frames of a region: 32 TiB, the limit of the log's 42-bit locations.
pub const MAX_FRAMES: u32 = 1 << 24;

/// The largest tag of a claim (12 bits of the frame descriptor).
pub const MAX_TAG: u16 = (1 << 12) - 2;

/// A frame, by its number: the 2 MiB that begin at byte `number * FRAME_BYTES` of the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

impl Frame {
    /// The offset of the frame from the region's start, in bytes.
    #[inline]
    pub fn offset(self) -> u64 {
        u64::from(self.0) * FRAME_BYTES
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}

/// A run of adjacent frames that is claimed and released as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    /// The first frame.
    pub start: Frame,
    /// The number of frames; never 0 in an extent returned by an arena.
    pub frames: u32,
}

impl Extent {
    /// The offset of the extent from the region's start, in bytes.
    #[inline]
    pub fn offset(self) -> u64 {
        self.start.offset()
    }

    /// The length of the extent in bytes.
    // An extent is never empty, so the usual companion `is_empty` would be a constant.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }

    /// The offset of the byte after the last one.
    #[inline]
    pub fn end(self) -> u64 {
        self.offset() + self.len()
    }

    /// Whether the frame belongs to the extent.
    #[inline]
    pub fn contains(self, frame: Frame) -> bool {
        frame.0 >= self.start.0
            && u64::from(frame.0) < u64::from(self.start.0) + u64::from(self.frames)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "extent of {} frames at frame {}",
            self.frames, self.start.0
        )
    }
}
