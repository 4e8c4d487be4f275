//! Statistics of a store.

use std::sync::atomic::Ordering;

use mneme_arena::DiscardableStats;

use crate::layout::{FRAME, LEAF, UNIT};
use crate::open_store::Core;
use crate::record_cache::Copies;
use crate::{Holder, StoreError, Version, check, recovery, registered};

const COPIES: &str = "the file system copies each page that is written: a commit writes more, the \
                      file is scattered, and a full disk may stop a commit that needs no space";

/// The content of a store and the space that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The durable version.
    pub version: Version,
    /// The number of live keys. After an unclean end the first call counts them, which reads all
    /// leaves. A process that only reads gets the number of the last commit record, which is at
    /// most 62 commits old.
    pub entries: u64,
    /// Bytes of their entries: keys, values up to 1,920 bytes, 24 bytes each, padding to 8.
    pub live_bytes: u64,
    /// The number of leaves in the newest version.
    pub leaves: usize,
    /// The number of leaves that only older versions have, kept for snapshots and recent readers.
    pub retained_leaves: usize,
    /// The number of free leaves. A process that only reads counts them in the tables, including
    /// leaves that only recent readers keep.
    pub free_leaves: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Why the file's file system is a bad choice, if it is.
    pub warning: Option<&'static str>,
    /// Bytes of leaves and tables, free leaves included.
    pub leaf_bytes: u64,
    /// The number of extents outside of leaves: values longer than 1,920 bytes, keys longer than
    /// 1,024, and the fences of leaves between long keys.
    pub extents: u64,
    /// The bytes of these, in units of 4 KiB.
    pub extent_bytes: u64,
    /// The number of live snapshots.
    pub snapshots: usize,
    /// The number of named versions.
    pub names: u64,
    /// The oldest held version and its holder: the store keeps the data of that version.
    pub oldest_held: Option<(Version, Holder)>,
    /// The process that has been reading for longest, by its id in its own namespace: the store
    /// keeps everything replaced since it began.
    pub oldest_reader: Option<u32>,
    /// The number of version numbers that a crash left unused and that are still remembered.
    pub dead_versions: usize,
    /// The memory of its [record cache](crate::Builder::record_cache), and the gets of this opening
    /// that used it.
    pub cache: Option<DiscardableStats>,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Result<Self, StoreError> {
        // What a damaged leaf holds is not known; `check` names it.
        let _ = check::count_entries(core);
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
