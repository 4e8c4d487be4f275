//! Frames and extents: the units in which a region is handed out.
//!
//! A frame is 2 MiB, the size of a huge page on the machines we run on. It is numbered by its place
//! in the region, so that the frame of any byte is `offset >> 21` and needs nobody's table; the
//! first frames hold the arena's own state and the tenant's client area and are never handed out.

use std::fmt;

/// Bytes of a frame: 2 MiB.
pub const FRAME_BYTES: u64 = 1 << 21;

/// The largest alignment a claim may ask for, in frames (8 GiB).
///
/// Each node of the search tree keeps the longest run for every alignment up to this one; 13
/// alignments make it one cache line.
pub const MAX_ALIGN_FRAMES: u32 = 1 << (crate::runs::ALIGNMENTS - 1);

/// The most frames a region may ever have: 32 TiB, what the 42-bit locations of the log reach.
pub const MAX_FRAMES: u32 = 1 << 24;

/// The largest tag a claim may carry (12 bits of the frame descriptor).
pub const MAX_TAG: u16 = (1 << 12) - 2;

/// A frame by its number: the 2 MiB that begin at byte `number * FRAME_BYTES` of the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

impl Frame {
    /// Where the frame begins, in bytes from the region's start.
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

/// A run of adjacent frames that was claimed, and is released, as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    /// The first frame.
    pub start: Frame,
    /// How many frames; never 0 in an extent that an arena returned.
    pub frames: u32,
}

impl Extent {
    /// Where the extent begins, in bytes from the region's start.
    #[inline]
    pub fn offset(self) -> u64 {
        self.start.offset()
    }

    /// Bytes in the extent.
    // An extent is never empty, so the usual companion `is_empty` would be a constant.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }

    /// The byte after the last, from the region's start.
    #[inline]
    pub fn end(self) -> u64 {
        self.offset() + self.len()
    }

    /// Whether the frame is one of the extent's.
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
