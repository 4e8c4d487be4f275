//! The arena's part of a region's format, version 1: what lies where.
//!
//! ```text
//! 0      RegionHeader (mneme-sys)            128 B; magic "MnemeArn", version, layout, identity, sizes
//! 128    ArenaHeader                         512 B; geometry, then the words that change
//! 640    ZoneEntry x 256                      16 B each
//! ...    Descriptor x frames of max_len       16 B each: the truth about every frame
//! ...    bitmap, a bit a frame                 derived
//! ...    RunsNode x about frames / 56         64 B each: derived
//! ...    client area                          client_bytes, the tenant's own; zeroed at creation
//! F      frames that are handed out           F is the next multiple of 2 MiB
//! ```
//! The tables are sized for the region's maximum, so that growth moves nothing. Frames are numbered
//! from the region's start: those before F are the arena's own. Every part begins at a multiple of
//! 128 bytes; all integers are atomics in the machine's order. `max_len` and `client_bytes`
//! determine all offsets: [`Geometry::new`] computes them, and what an opened region says must
//! agree with it.

use crate::descriptor::Descriptor;
use crate::frame::{FRAME_BYTES, MAX_FRAMES};
use crate::runs::RunsNode;
use crate::summary::TreeShape;
use crate::zone::{MAX_ZONES, ZoneEntry};
use mneme_sync::RobustLock;
use mneme_sys::{HEADER_LEN, Shared};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Magic of a region that an arena divides.
pub const MAGIC: [u8; 8] = *b"MnemeArn";
/// Version of the format this file describes.
pub const FORMAT: u32 = 1;
/// Changes whenever a size or a constant of the format does.
pub const LAYOUT_HASH: u64 = fnv(&[
    size_of::<ArenaHeader>() as u64,
    size_of::<ZoneEntry>() as u64,
    size_of::<Descriptor>() as u64,
    size_of::<RunsNode>() as u64,
    size_of::<RobustLock>() as u64,
    MAX_ZONES as u64,
    FRAME_BYTES,
]);

/// Unit of placement: two cache lines.
const UNIT: u64 = 128;
/// Where the arena's header lies.
pub(crate) const ARENA_HEADER: u64 = HEADER_LEN as u64;

/// FNV-1a by numbers: finds accidents, not malice.
pub(crate) const fn fnv(numbers: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < numbers.len() {
        hash = (hash ^ numbers[i]).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// A lock with two cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct LoneLock {
    pub lock: RobustLock,
    _rest: [AtomicU64; 15],
}

/// The arena's header.
#[repr(C, align(128))]
pub(crate) struct ArenaHeader {
    // Written at creation, constant afterwards.
    pub client_bytes: AtomicU64,
    /// [`fnv`] over the constants.
    pub checksum: AtomicU64,
    pub max_frames: AtomicU32,
    pub first_frame: AtomicU32,
    pub nodes: AtomicU32,
    _constant: AtomicU32,
    /// Incarnation of the control region whose slots own frames and the lock.
    pub incarnation: AtomicU64,
    _line: [AtomicU64; 11],

    // Change seldom, read by every claim.
    /// The frame behind the last one. Growth takes effect by this store.
    pub end_frame: AtomicU32,
    pub zone_count: AtomicU32,
    /// Frames that ordinary claims leave alone.
    pub reserve_frames: AtomicU32,
    _seldom: AtomicU32,
    _line2: [AtomicU64; 14],

    /// Guards everything but adoption: descriptors, bitmap, tree, zones, growth.
    pub lock: LoneLock,
    _rest: [AtomicU64; 16],
}

const _: () = {
    assert!(size_of::<RobustLock>() == 8);
    assert!(size_of::<LoneLock>() == 128);
    assert!(size_of::<ArenaHeader>() == 512);
    assert!(std::mem::offset_of!(ArenaHeader, end_frame) == 128);
    assert!(std::mem::offset_of!(ArenaHeader, lock) == 256);
    assert!(ARENA_HEADER.is_multiple_of(UNIT));
};

// SAFETY: `repr(C)`, atomics only, and the assertions above leave no padding; any bytes are valid.
unsafe impl Shared for ArenaHeader {}
// SAFETY: `repr(C)`, four `AtomicU32` in 16 bytes; any bytes are valid.
unsafe impl Shared for ZoneEntry {}
// SAFETY: `repr(C)`, two `AtomicU64` in 16 bytes; any bytes are valid.
unsafe impl Shared for Descriptor {}
// SAFETY: `repr(C)`, sixteen `AtomicU32` in 64 bytes; any bytes are valid.
unsafe impl Shared for RunsNode {}

/// Where the parts of a region lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// Frames up to the region's maximum, the arena's own included.
    pub max_frames: u32,
    pub client_bytes: u64,
    pub zones: u64,
    pub descriptors: u64,
    pub bitmap: u64,
    pub tree: u64,
    pub client: u64,
    /// The first frame that is handed out.
    pub first_frame: u32,
    pub shape: TreeShape,
}

impl Geometry {
    /// `None` if the region's maximum is above what the format can number, or too small for its own
    /// tables and one frame.
    pub fn new(max_len: u64, client_bytes: u64) -> Option<Geometry> {
        let max_frames = u32::try_from(max_len / FRAME_BYTES)
            .ok()
            .filter(|frames| *frames <= MAX_FRAMES)?;
        let shape = TreeShape::over(max_frames);
        let zones = ARENA_HEADER + size_of::<ArenaHeader>() as u64;
        let descriptors = place_after(zones, size_of::<ZoneEntry>(), MAX_ZONES as u64)?;
        let bitmap = place_after(descriptors, size_of::<Descriptor>(), u64::from(max_frames))?;
        let tree = place_after(bitmap, size_of::<AtomicU64>(), shape.words() as u64)?;
        let client = place_after(tree, size_of::<RunsNode>(), shape.nodes() as u64)?;
        let end = client.checked_add(client_bytes)?;
        let first_frame = u32::try_from(end.div_ceil(FRAME_BYTES))
            .ok()
            .filter(|first| *first < max_frames)?;
        Some(Geometry {
            max_frames,
            client_bytes,
            zones,
            descriptors,
            bitmap,
            tree,
            client,
            first_frame,
            shape,
        })
    }

    /// The checksum of the header's constants.
    pub fn checksum(&self, nodes: u32) -> u64 {
        fnv(&[
            self.client_bytes,
            u64::from(self.max_frames),
            u64::from(self.first_frame),
            u64::from(nodes),
        ])
    }
}

/// The first place after `count` things of `size` bytes at `offset`.
fn place_after(offset: u64, size: usize, count: u64) -> Option<u64> {
    offset
        .checked_add((size as u64).checked_mul(count)?)?
        .checked_next_multiple_of(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_neither_overlap_nor_leave_the_first_frames() {
        for (max_len, client) in [
            (4 << 20, 0),
            (64 << 20, 4096),
            (8 << 30, 5 << 20),
            (32 << 40, 1 << 30),
        ] {
            let g = Geometry::new(max_len, client).unwrap();
            let frames = u64::from(g.max_frames);
            assert!(g.zones >= 640 && g.zones + 16 * MAX_ZONES as u64 <= g.descriptors);
            assert!(g.descriptors + 16 * frames <= g.bitmap);
            assert!(g.bitmap + frames.div_ceil(64) * 8 <= g.tree);
            assert!(g.tree + g.shape.nodes() as u64 * 64 <= g.client);
            assert!(g.client + client <= u64::from(g.first_frame) * FRAME_BYTES);
            assert!(g.first_frame < g.max_frames);
        }
    }

    #[test]
    fn what_cannot_hold_one_frame_or_be_numbered_has_no_geometry() {
        assert_eq!(Geometry::new(2 << 20, 0), None);
        assert_eq!(Geometry::new(4 << 20, 3 << 20), None);
        assert_eq!(Geometry::new(4 << 20, u64::MAX), None);
        assert_eq!(Geometry::new((32 << 40) + FRAME_BYTES, 0), None);
        assert_eq!(Geometry::new(u64::MAX, 0), None);
    }
}
