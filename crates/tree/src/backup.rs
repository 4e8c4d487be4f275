//! Copies of one version of a store, in files of their own.

use std::path::Path;
use std::sync::Arc;

use crate::attach::TreeAttachment;
use crate::catalogue_entry::is_dropped_key;
use crate::check::{self, LeafCounts};
use crate::commit::Also;
use crate::layout::CATALOGUE;
use crate::open::{Builder, make};
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::roots::leaves_of;
use crate::snapshot::Snapshot;
use crate::{StoreError, Version, recovery};

/// Keys that a backup commits at once.
const BATCH: usize = 4096;
/// Bytes of values at which it commits earlier.
const BYTES: usize = 8 << 20;

/// Writes the newest version, and no other, to the new file `path`: a store with the same UUID,
/// without named versions. Each entry and value is verified before it is copied. After each leaf
/// `progress` is called with the bytes read so far and in total.
pub(crate) fn backup(
    core: &Arc<Core>,
    path: &Path,
    mut progress: impl FnMut(u64, u64),
) -> Result<Version, StoreError> {
    let (snapshot, record) = Snapshot::with_record(core)?;
    let caller = record.caller;
    let trees = snapshot.roots.all();
    let trees: Vec<_> = trees.map(|(tree, root)| (tree, leaves_of(root))).collect();
    let leaves = || {
        let trees = trees.iter();
        trees.flat_map(|(tree, leaves)| leaves.iter().map(move |leaf| (*tree, leaf)))
    };
    let builder = Builder::new().uuid(recovery::file_header(&core.pages)?.uuid);
    // The copy has the same permissions as the store's file.
    let mode = core
        ._lock
        .as_ref()
        .map_or(Ok(0o600), TreeAttachment::mode)?;
    make(path, mode, |temporary| {
        let copy = builder.open_file(temporary)?;
        let mut writer = copy.core.writer();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let (total, mut read) = (LeafCounts::of(&record).size(), 0);
        writer.record.next_tree = record.next_tree;
        for (tree, leaf) in leaves() {
            read += check::count(core, leaf, snapshot.version)?.size();
            for offset in &leaf.order_at(&core.pages, snapshot.version).offsets {
                let entry = leaf.entry(&core.pages, *offset);
                entry.verify(&core.pages)?;
                let (key, value) = (entry.key(&core.pages), entry.value(&core.pages));
                if tree == CATALOGUE && is_dropped_key(key) {
                    // Nothing of that tree is copied.
                    continue;
                }
                bytes += value.map_or(0, <[u8]>::len);
                changes.push(PlannedChange { tree, key, value });
                if changes.len() == BATCH || bytes > BYTES {
                    let changes = std::mem::take(&mut changes);
                    writer.commit_with(&copy.core, &changes, Some(caller), Also::default())?;
                    bytes = 0;
                }
            }
            progress(read, total);
        }
        writer.commit_with(&copy.core, &changes, Some(caller), Also::default())?;
        // Leaves of dropped trees are counted in the total but not copied.
        progress(total, total);
        drop(writer);
        copy.close()
    })?;
    Ok(snapshot.version())
}
