//! The arena's part of a region's format: the offsets of its parts. Version 1; version 2 if the
//! arena lends its idle frames.
//!
//! ```text
//! 0      RegionHeader (mneme-sys)            128 B; magic "MnemeArn", version, layout, identity, sizes
//! 128    ArenaHeader                         512 B; geometry, then the words that change
//! 640    ZoneEntry x 256                      16 B each
//! ...    Descriptor x frames of max_len       16 B each: the truth about every frame
//! ...    bitmap, a bit a frame                 derived
//! ...    RunsNode x about frames / 56         64 B each: derived
//! ...    LendingHeader                      640 B; version 2 only, as all down to the buckets
//! ...    FillNode x nodes                     640 B each: the frame that is being filled
//! ...    idle bitmap, a bit a frame           a hint
//! ...    FrameUse x frames of max_len          16 B each: what the cache's policy knows
//! ...    Bucket x buckets                      64 B each: the cache's index
//! ...    client area                          client_bytes, the tenant's own; zeroed at creation
//! F      frames that are handed out           F is the next multiple of 2 MiB
//! ```
//! The tables are sized for the region's maximum, so growth moves nothing. Frames are numbered from
//! the region's start; those before F belong to the arena. Every part begins at a multiple of 128
//! bytes; all integers are atomics in the machine's byte order. `max_len`, `client_bytes` and, in
//! version 2, `nodes` and `buckets` determine all offsets: [`ArenaGeometry::new`] computes them,
//! and the contents of an opened region must agree.

use crate::descriptor::Descriptor;
use crate::discardable::index::CacheBucket;
use crate::frame::{FRAME_BYTES, MAX_FRAMES};
use crate::free_runs::TreeShape;
use crate::lending::{FillNode, FrameUse, LendingHeader};
use crate::runs::RunsNode;
use crate::zone::{MAX_ZONES, ZoneEntry};
use mneme_sync::RobustLock;
use mneme_sys::{HEADER_LEN, InRegion};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The magic number of an arena's region.
pub const MAGIC: [u8; 8] = *b"MnemeArn";
/// The format version of an arena that does not lend.
pub const FORMAT: u32 = 1;
/// The format version of an arena that lends its idle frames.
pub const FORMAT_LENDING: u32 = 2;
/// Changes whenever a size or a constant of the format changes.
pub const LAYOUT_HASH: u64 = fnv(&[
    size_of::<ArenaHeader>() as u64,
    size_of::<ZoneEntry>() as u64,
    size_of::<Descriptor>() as u64,
    size_of::<RunsNode>() as u64,
    size_of::<RobustLock>() as u64,
    MAX_ZONES as u64,
    FRAME_BYTES,
]);
/// The [`LAYOUT_HASH`] of an arena that lends its idle frames.
pub const LAYOUT_HASH_LENDING: u64 = fnv(&[
    LAYOUT_HASH,
    size_of::<LendingHeader>() as u64,
    size_of::<FillNode>() as u64,
    size_of::<FrameUse>() as u64,
    size_of::<CacheBucket>() as u64,
]);

/// The unit of placement: two cache lines.
const UNIT: u64 = 128;
/// The offset of the arena's header.
pub(crate) const ARENA_HEADER: u64 = HEADER_LEN as u64;

/// FNV-1a of numbers, which detects accidents, not attacks.
pub(crate) const fn fnv(numbers: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < numbers.len() {
        hash = (hash ^ numbers[i]).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// A lock that has 128 bytes to itself.
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
    /// The [`fnv`] of the constants.
    pub checksum: AtomicU64,
    pub max_frames: AtomicU32,
    pub first_frame: AtomicU32,
    pub nodes: AtomicU32,
    _constant: AtomicU32,
    /// The incarnation of the control region whose slots own frames and the lock.
    pub incarnation: AtomicU64,
    /// The number of buckets of the cache's index; 0 in an arena that does not lend.
    pub buckets: AtomicU64,
    _line: [AtomicU64; 10],

    // These change seldom, and every claim reads them.
    /// The frame after the last one. Growth takes effect by storing it.
    pub end_frame: AtomicU32,
    pub zone_count: AtomicU32,
    /// The number of frames that ordinary claims leave alone.
    pub reserve_frames: AtomicU32,
    _seldom: AtomicU32,
    _line2: [AtomicU64; 14],

    /// Guards everything except adoption: descriptors, bitmap, tree, zones, growth.
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
unsafe impl InRegion for ArenaHeader {}
// SAFETY: `repr(C)`, four `AtomicU32` in 16 bytes; any bytes are valid.
unsafe impl InRegion for ZoneEntry {}
// SAFETY: `repr(C)`, two `AtomicU64` in 16 bytes; any bytes are valid.
unsafe impl InRegion for Descriptor {}
// SAFETY: `repr(C)`, sixteen `AtomicU32` in 64 bytes; any bytes are valid.
unsafe impl InRegion for RunsNode {}
// SAFETY: `repr(C)`, atomics only, and the assertions beside it leave no padding; any bytes are
// valid.
unsafe impl InRegion for LendingHeader {}
// SAFETY: as for `LendingHeader`.
unsafe impl InRegion for FillNode {}
// SAFETY: `repr(C)`, two `AtomicU64` in 16 bytes; any bytes are valid.
unsafe impl InRegion for FrameUse {}
// SAFETY: `repr(C)`, eight `AtomicU64` in 64 bytes; any bytes are valid.
unsafe impl InRegion for CacheBucket {}

/// The sizes of the parts that only an arena that lends has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LendingShape {
    pub nodes: u16,
    pub buckets: u64,
}

/// The offsets of those parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LendingPlaces {
    pub shape: LendingShape,
    pub header: u64,
    pub nodes: u64,
    pub idle: u64,
    pub uses: u64,
    pub index: u64,
}

/// The offsets of the parts of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArenaGeometry {
    /// The number of frames at the region's maximum size, including the arena's own.
    pub max_frames: u32,
    pub client_bytes: u64,
    pub zones: u64,
    pub descriptors: u64,
    pub bitmap: u64,
    pub tree: u64,
    /// `None` in an arena that does not lend.
    pub lending: Option<LendingPlaces>,
    pub client: u64,
    /// The first frame available for claims.
    pub first_frame: u32,
    pub shape: TreeShape,
}

impl ArenaGeometry {
    /// `None` if the region's maximum is more than the format can number, or too small for the
    /// tables and one frame.
    pub fn new(
        max_len: u64,
        client_bytes: u64,
        lending: Option<LendingShape>,
    ) -> Option<ArenaGeometry> {
        let max_frames = u32::try_from(max_len / FRAME_BYTES)
            .ok()
            .filter(|frames| *frames <= MAX_FRAMES)?;
        let shape = TreeShape::over(max_frames);
        let zones = ARENA_HEADER + size_of::<ArenaHeader>() as u64;
        let descriptors = place_after(zones, size_of::<ZoneEntry>(), MAX_ZONES as u64)?;
        let bitmap = place_after(descriptors, size_of::<Descriptor>(), u64::from(max_frames))?;
        let tree = place_after(bitmap, size_of::<AtomicU64>(), shape.words() as u64)?;
        let mut client = place_after(tree, size_of::<RunsNode>(), shape.nodes() as u64)?;
        let mut places = None;
        if let Some(lending) = lending {
            let header = client;
            let nodes = place_after(header, size_of::<LendingHeader>(), 1)?;
            let idle = place_after(nodes, size_of::<FillNode>(), u64::from(lending.nodes))?;
            let uses = place_after(idle, size_of::<AtomicU64>(), shape.words() as u64)?;
            let index = place_after(uses, size_of::<FrameUse>(), u64::from(max_frames))?;
            client = place_after(index, size_of::<CacheBucket>(), lending.buckets)?;
            places = Some(LendingPlaces {
                shape: lending,
                header,
                nodes,
                idle,
                uses,
                index,
            });
        }
        let end = client.checked_add(client_bytes)?;
        let first_frame = u32::try_from(end.div_ceil(FRAME_BYTES))
            .ok()
            .filter(|first| *first < max_frames)?;
        Some(ArenaGeometry {
            max_frames,
            client_bytes,
            zones,
            descriptors,
            bitmap,
            tree,
            lending: places,
            client,
            first_frame,
            shape,
        })
    }

    /// The checksum of the header's constants.
    pub fn checksum(&self, nodes: u32) -> u64 {
        let plain = fnv(&[
            self.client_bytes,
            u64::from(self.max_frames),
            u64::from(self.first_frame),
            u64::from(nodes),
        ]);
        match self.lending {
            Some(places) => fnv(&[plain, places.shape.buckets]),
            None => plain,
        }
    }

    /// The version and layout hash of a region with these parts.
    pub fn format(&self) -> (u32, u64) {
        match self.lending {
            Some(_) => (FORMAT_LENDING, LAYOUT_HASH_LENDING),
            None => (FORMAT, LAYOUT_HASH),
        }
    }
}

/// The first aligned offset after `count` items of `size` bytes at `offset`.
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
            let g = ArenaGeometry::new(max_len, client, None).unwrap();
            let frames = u64::from(g.max_frames);
            assert!(g.zones >= 640 && g.zones + 16 * MAX_ZONES as u64 <= g.descriptors);
            assert!(g.descriptors + 16 * frames <= g.bitmap);
            assert!(g.bitmap + frames.div_ceil(64) * 8 <= g.tree);
            assert!(g.tree + g.shape.nodes() as u64 * 64 <= g.client);
            assert!(g.client + client <= u64::from(g.first_frame) * FRAME_BYTES);
            assert!(g.first_frame < g.max_frames);
            let shape = LendingShape {
                nodes: 3,
                buckets: 1000,
            };
            let Some(g) = ArenaGeometry::new(max_len, client, Some(shape)) else {
                continue;
            };
            let l = g.lending.unwrap();
            assert!(g.tree + g.shape.nodes() as u64 * 64 <= l.header);
            assert!(l.header + size_of::<LendingHeader>() as u64 <= l.nodes);
            assert!(l.nodes + 3 * size_of::<FillNode>() as u64 <= l.idle);
            assert!(l.idle + frames.div_ceil(64) * 8 <= l.uses);
            assert!(l.uses + 16 * frames <= l.index);
            assert!(l.index + 64 * 1000 <= g.client);
            assert!(g.client + client <= u64::from(g.first_frame) * FRAME_BYTES);
        }
    }

    #[test]
    fn a_region_that_is_too_small_or_too_large_has_no_geometry() {
        assert_eq!(ArenaGeometry::new(2 << 20, 0, None), None);
        assert_eq!(ArenaGeometry::new(4 << 20, 3 << 20, None), None);
        assert_eq!(ArenaGeometry::new(4 << 20, u64::MAX, None), None);
        assert_eq!(ArenaGeometry::new((32 << 40) + FRAME_BYTES, 0, None), None);
        assert_eq!(ArenaGeometry::new(u64::MAX, 0, None), None);
    }
}
