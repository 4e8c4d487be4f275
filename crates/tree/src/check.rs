//! A walk through everything that a store holds.

use std::sync::Arc;

use crate::StoreError;
use crate::core::Core;
use crate::layout::{EntryHeader, LEAF};
use crate::leaf::Leaf;

/// Verifies the newest version: its leaves tile the key space, every entry has its checksum and its
/// place between the fences, and there are as many as the commit record says.
pub(crate) fn check(core: &Core) -> Result<(), StoreError> {
    let writer = core.writer();
    let root = core.published(&writer).root.clone();
    let version = writer.record.version;
    let (entries, live_bytes) = (writer.record.entries, writer.record.live_bytes);
    let sequence = writer.record.sequence;
    drop(writer);

    let mut leaves = Vec::new();
    root.each_leaf(&mut |leaf| leaves.push(leaf.clone()));
    crate::recovery::tile(&leaves)?;
    let (mut found, mut bytes) = (0, 0);
    for leaf in &leaves {
        leaf.load(&core.pages, &core.committed)?;
        verify(core, leaf)?;
        for offset in &leaf.order_at(&core.pages, version).offsets {
            let entry = leaf.entry(&core.pages, *offset);
            if entry.key < &*leaf.low || !leaf.ends_after(entry.key) {
                return Err(damaged(
                    leaf,
                    usize::from(*offset),
                    "an entry outside its leaf's fences",
                ));
            }
            found += 1;
            bytes += entry.bytes.len() as u64;
        }
    }
    if (found, bytes) != (entries, live_bytes) {
        return Err(StoreError::Damaged {
            at: crate::layout::Record::place(sequence),
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
        if !header.is_whole(at, &bytes) {
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
