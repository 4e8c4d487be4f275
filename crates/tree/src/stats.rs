//! Numbers about a store.

use std::sync::atomic::Ordering;

use mneme_arena::DiscardableStats;

use crate::layout::{FRAME, LEAF, UNIT};
use crate::open_store::Core;
use crate::record_cache::Copies;
use crate::{Holder, StoreError, Version, recovery, registered};

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
    /// Bytes of their entries: keys, values up to 1,920 bytes, 24 bytes each, padding to 8.
    pub live_bytes: u64,
    /// Leaves of the newest version.
    pub leaves: usize,
    /// Leaves of older versions, which snapshots and recent readers keep.
    pub retained_leaves: usize,
    /// Leaves that are free. A process that only reads reads the tables to count them, and counts
    /// those here that only recent readers keep.
    pub free_leaves: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Why the file's file system suits it badly, if it does.
    pub warning: Option<&'static str>,
    /// Bytes that leaves and tables take, free ones included.
    pub leaf_bytes: u64,
    /// What lies outside of leaves: values longer than 1,920 bytes, keys longer than 1,024, and the
    /// fences of leaves between long keys.
    pub extents: u64,
    /// Bytes that these take, in units of 4 KiB.
    pub extent_bytes: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Named versions.
    pub names: u64,
    /// The oldest version that is held, and by what: the store keeps what it shows.
    pub oldest_held: Option<(Version, Holder)>,
    /// The process that has been reading for longest, as it knows itself, if one reads: the store
    /// keeps what was replaced since.
    pub oldest_reader: Option<u32>,
    /// Numbers of versions that a crash has left unused and that are still remembered.
    pub dead_versions: usize,
    /// The memory of its [record cache](crate::Builder::record_cache), and the gets of this opening
    /// that looked there.
    pub cache: Option<DiscardableStats>,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Result<Self, StoreError> {
        let record = core.record()?;
        let leaves = core.read(|roots, _| {
            let mut leaves = 0;
            roots
                .all()
                .for_each(|(_, root)| root.each_leaf(&mut |_| leaves += 1));
            leaves
        })?;
        let frames = match core.follower {
            None => core.pages.len() / FRAME - 1 - core.writer().reclaimer.space.frames(),
            Some(_) => recovery::frames_of_leaves(&core.pages, core.seed).count() as u64,
        };
        let places = frames as usize * crate::layout::LEAVES as usize;
        let holders = registered::holders(core)?;
        let free_leaves = match core.follower {
            None => core.writer().reclaimer.free.len(),
            Some(_) => {
                let held: Vec<u64> = holders.iter().map(|(version, _)| version.0).collect();
                let retained = recovery::retained(&core.pages, core.seed, &core.committed, &held)?;
                places.saturating_sub(leaves + retained)
            }
        };
        let is_snapshot = |holder: &Holder| matches!(holder, Holder::Snapshot { .. });
        let snapshots = holders
            .iter()
            .filter(|(_, holder)| is_snapshot(holder))
            .count();
        Ok(Self {
            version: Version(record.version),
            entries: record.entries,
            live_bytes: record.live_bytes,
            leaves,
            retained_leaves: places.saturating_sub(leaves + free_leaves),
            free_leaves,
            file_bytes: core.pages.len(),
            warning: core
                .copies_on_write
                .load(Ordering::Relaxed)
                .then_some(COPIES),
            leaf_bytes: (places * LEAF) as u64 + frames * LEAF as u64,
            extents: record.extents,
            extent_bytes: record.extent_units * UNIT,
            snapshots,
            names: record.names,
            oldest_held: holders.into_iter().next(),
            oldest_reader: core
                .shared
                .participants
                .stats()
                .oldest_pin
                .map(|pin| pin.pid),
            dead_versions: record.dead().len(),
            cache: core.copies.as_ref().and_then(Copies::stats),
        })
    }
}
