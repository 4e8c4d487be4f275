//! A walk through everything that a store holds.

use std::sync::Arc;

use crate::layout::{CommitRecord, EntryHeader, LEAF, STATE_UNCOUNTED, UNIT};
use crate::leaf::Leaf;
use crate::leaf_entry::verify_extent;
use crate::open_store::Core;
use crate::roots::{leaves_of, tile};
use crate::snapshot::Snapshot;
use crate::{StoreError, recovery};

/// Counts of what leaves hold in a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LeafCounts {
    pub(crate) leaves: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) extents: u64,
    pub(crate) units: u64,
}

/// Counts what a leaf holds in a version.
pub(crate) type LeafCounter = fn(&Core, &Arc<Leaf>, u64) -> Result<LeafCounts, StoreError>;

impl LeafCounts {
    /// The counts that a commit record gives for its version.
    pub(crate) fn of(record: &CommitRecord) -> Self {
        Self {
            leaves: record.leaves,
            entries: record.entries,
            bytes: record.live_bytes,
            extents: record.extents,
            units: record.extent_units,
        }
    }

    /// The bytes of the file that they take.
    pub(crate) fn size(&self) -> u64 {
        self.leaves * LEAF as u64 + self.units * UNIT
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.leaves += more.leaves;
        self.entries += more.entries;
        self.bytes += more.bytes;
        self.extents += more.extents;
        self.units += more.units;
    }
}

/// Verifies the newest version: the leaves of each tree tile the key space, every entry matches its
/// checksum and lies between the fences, and the counts match the commit record. After each leaf
/// `progress` is called with the bytes read so far and in total.
pub(crate) fn check(
    core: &Arc<Core>,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), StoreError> {
    count_entries(core)?;
    // The snapshot keeps data that is replaced meanwhile.
    let (snapshot, record) = Snapshot::with_record(core)?;
    let counted = LeafCounts::of(&record);
    let mut found = LeafCounts::default();
    let mut verify = |leaf: &Arc<Leaf>| {
        found.add(verify_leaf(core, leaf, record.version)?);
        progress(found.size(), counted.size());
        Ok::<(), StoreError>(())
    };
    for (_, root) in snapshot.roots.all() {
        let leaves = leaves_of(root);
        tile(&leaves)?;
        leaves.iter().try_for_each(&mut verify)?;
    }
    let catalogue = core.catalogue(&snapshot.roots, record.version).list()?;
    if !catalogue.dropped.is_empty() {
        // No root leads to their leaves.
        let committed = core.committed.at(record.version);
        let leaves = recovery::leaves_at(&core.pages, core.seed, &committed)?;
        let dropped = |leaf: &&Arc<Leaf>| catalogue.dropped.contains(&leaf.tree);
        for leaf in leaves.iter().filter(dropped) {
            // The writer's own view of committed versions dates from when it opened the store.
            leaf.load(&core.pages, &committed)?;
            verify(leaf)?;
        }
    }
    if record.state & STATE_UNCOUNTED != 0 {
        // A process that reads knows what the last record counts, and commits since had none.
        (found.entries, found.bytes) = (counted.entries, counted.bytes);
    }
    if found != counted {
        return Err(StoreError::Damaged {
            at: CommitRecord::place(record.sequence),
            what: "the commit record counts other entries than the leaves hold",
        });
    }
    Ok(())
}

/// Counts what the leaves hold, unless the writer's record does: commits without a record may have
/// preceded an unclean end.
pub(crate) fn count_entries(core: &Core) -> Result<(), StoreError> {
    if core.follower.is_some() {
        return Ok(());
    }
    let mut writer = core.writer();
    if writer.record.state & STATE_UNCOUNTED == 0 {
        return Ok(());
    }
    let version = writer.record.version;
    let roots = core.published(&writer).roots.clone();
    let mut leaves: Vec<_> = roots.all().flat_map(|(_, root)| leaves_of(root)).collect();
    leaves.extend(writer.dropping.iter().flat_map(|tree| tree.leaves.clone()));
    let mut found = LeafCounts::default();
    for leaf in &leaves {
        found.add(count(core, leaf, version)?);
    }
    (writer.record.entries, writer.record.live_bytes) = (found.entries, found.bytes);
    writer.record.state &= !STATE_UNCOUNTED;
    Ok(())
}

/// Counts what a leaf holds in a version.
pub(crate) fn count(core: &Core, leaf: &Arc<Leaf>, version: u64) -> Result<LeafCounts, StoreError> {
    leaf.load(&core.pages, &core.committed)?;
    let mut found = LeafCounts {
        leaves: 1,
        ..LeafCounts::default()
    };
    let order = leaf.order_at(&core.pages, version);
    let entries = order.offsets.iter().map(|at| leaf.entry(&core.pages, *at));
    let mut extents: Vec<_> = leaf.outside().into_iter().collect();
    for entry in entries {
        found.entries += 1;
        found.bytes += entry.bytes.len() as u64;
        extents.extend(entry.extent());
    }
    found.extents = extents.len() as u64;
    found.units = extents.iter().map(|extent| extent.smallest_units()).sum();
    Ok(found)
}

/// Verifies a leaf, and counts what it holds in a version.
pub(crate) fn verify_leaf(
    core: &Core,
    leaf: &Arc<Leaf>,
    version: u64,
) -> Result<LeafCounts, StoreError> {
    leaf.load(&core.pages, &core.committed)?;
    verify(core, leaf)?;
    if let Some(extent) = leaf.outside() {
        verify_extent(&core.pages, extent, leaf.birth)?;
    }
    for offset in &leaf.order_at(&core.pages, version).offsets {
        let entry = leaf.entry(&core.pages, *offset);
        entry.verify_extent(&core.pages)?;
        let key = entry.key(&core.pages);
        if key < &*leaf.low || !leaf.ends_after(key) {
            return Err(damaged(
                leaf,
                usize::from(*offset),
                "an entry outside its leaf's fences",
            ));
        }
    }
    count(core, leaf, version)
}

/// Compares the checksums of what the leaf holds now.
pub(crate) fn verify(core: &Core, leaf: &Arc<Leaf>) -> Result<(), StoreError> {
    let end = leaf.end();
    let mut bytes = vec![0; LEAF];
    core.pages.copy(leaf.id.at(), &mut bytes);
    let mut at = leaf.first();
    while at < end {
        let header = EntryHeader::read(&bytes[at..]);
        if !header.is_whole(&bytes[at..]) {
            return Err(damaged(leaf, at, "an entry of a leaf"));
        }
        at += header.size();
    }
    Ok(())
}

fn damaged(leaf: &Leaf, offset: usize, what: &'static str) -> StoreError {
    StoreError::Damaged {
        at: leaf.id.at() + offset as u64,
        what,
    }
}
