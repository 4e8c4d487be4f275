//! Numbers about a store.

use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::layout::{FRAME, LEAF, UNIT};
use crate::{Holder, StoreError, Version};

const COPIES: &str = "the file system copies each page that is written: a commit writes more, the \
                      file is scattered, and a full disk may stop a commit that needs no space";

/// What a store holds and takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The durable version.
    pub version: Version,
    /// Live keys.
    pub entries: u64,
    /// Bytes of their entries: keys, values up to 3,072 bytes, 24 bytes each, padding to 8.
    pub live_bytes: u64,
    /// Leaves of the newest version.
    pub leaves: usize,
    /// Leaves of older versions, which snapshots and recent readers keep.
    pub retained_leaves: usize,
    /// Leaves that are free.
    pub free_leaves: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Why the file's file system suits it badly, if it does.
    pub warning: Option<&'static str>,
    /// Bytes that leaves and tables take, free ones included.
    pub leaf_bytes: u64,
    /// Values that lie outside of leaves, for they are longer than 3,072 bytes.
    pub extents: u64,
    /// Bytes that these take, in units of 4 KiB.
    pub extent_bytes: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Named versions.
    pub names: u64,
    /// The oldest version that is held, and by what: the store keeps what it shows.
    pub oldest_held: Option<(Version, Holder)>,
    /// Numbers of versions that a crash has left unused and that are still remembered.
    pub dead_versions: usize,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Result<Self, StoreError> {
        let writer = core.writer();
        let mut leaves = 0;
        core.published(&writer).root.each_leaf(&mut |_| leaves += 1);
        let frames = core.pages.len() / FRAME - 1 - writer.reclaimer.space.frames();
        let places = frames as usize * crate::layout::LEAVES as usize;
        let free_leaves = writer.reclaimer.free.len();
        let (snapshots, oldest_held) = core.registered.summary();
        Ok(Self {
            version: Version(writer.record.version),
            entries: writer.record.entries,
            live_bytes: writer.record.live_bytes,
            leaves,
            retained_leaves: places.saturating_sub(leaves + free_leaves),
            free_leaves,
            file_bytes: core.pages.len(),
            warning: core
                .copies_on_write
                .load(Ordering::Relaxed)
                .then_some(COPIES),
            leaf_bytes: (places * LEAF) as u64 + frames * LEAF as u64,
            extents: writer.record.extents,
            extent_bytes: writer.record.extent_units * UNIT,
            snapshots,
            names: writer.record.names,
            oldest_held,
            dead_versions: writer.record.dead().len(),
        })
    }
}
