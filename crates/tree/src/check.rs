//! A walk through everything that a store holds.

use std::sync::Arc;

use crate::StoreError;
use crate::core::Core;
use crate::entry::verify_extent;
use crate::layout::{EntryHeader, LEAF, Record};
use crate::leaf::Leaf;
use crate::snapshot::Snapshot;

/// Verifies the newest version: its leaves tile the key space, every entry has its checksum and its
/// place between the fences, and there are as many as the commit record says.
pub(crate) fn check(core: &Arc<Core>) -> Result<(), StoreError> {
    // The snapshot keeps what is replaced meanwhile.
    let (snapshot, record) = Snapshot::with_record(core)?;

    let mut leaves = Vec::new();
    snapshot
        .root
        .each_leaf(&mut |leaf| leaves.push(leaf.clone()));
    crate::recovery::tile(&leaves)?;
    let (mut found, mut bytes, mut extents, mut units) = (0, 0, 0, 0);
    for leaf in &leaves {
        leaf.load(&core.pages, &core.committed)?;
        verify(core, leaf)?;
        if let Some(extent) = leaf.outside() {
            verify_extent(&core.pages, extent, leaf.birth)?;
            extents += 1;
            units += extent.smallest_units();
        }
        for offset in &leaf.order_at(&core.pages, record.version).offsets {
            let entry = leaf.entry(&core.pages, *offset);
            let key = entry.key(&core.pages);
            if key < &*leaf.low || !leaf.ends_after(key) {
                return Err(damaged(
                    leaf,
                    usize::from(*offset),
                    "an entry outside its leaf's fences",
                ));
            }
            if let Some(extent) = entry.extent() {
                entry.verify_extent(&core.pages)?;
                extents += 1;
                units += extent.smallest_units();
            }
            found += 1;
            bytes += entry.bytes.len() as u64;
        }
    }
    let counted = (
        record.entries,
        record.live_bytes,
        record.extents,
        record.extent_units,
    );
    if (found, bytes, extents, units) != counted {
        return Err(StoreError::Damaged {
            at: Record::place(record.sequence),
            what: "the commit record counts other entries than the leaves hold",
        });
    }
    Ok(())
}

/// Compares the checksums of what the leaf holds now, as far as it has been written.
fn verify(core: &Core, leaf: &Arc<Leaf>) -> Result<(), StoreError> {
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
