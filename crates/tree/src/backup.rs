//! Copies of one version of a store, in files of their own.

use std::path::Path;
use std::sync::Arc;

use crate::core::Core;
use crate::open::{Builder, make};
use crate::plan::Change;
use crate::snapshot::Snapshot;
use crate::{StoreError, Version, recovery};

/// Keys that a backup commits at a time.
const BATCH: usize = 4096;
/// Bytes of values after which it does not wait for that many.
const BYTES: usize = 8 << 20;

/// Writes the newest version, and no other, into the new file `path`: the same store by its UUID,
/// without the names of versions. Each entry and each value is verified before it is copied.
pub(crate) fn backup(core: &Arc<Core>, path: &Path) -> Result<Version, StoreError> {
    let (snapshot, record) = Snapshot::with_record(core)?;
    let caller = record.caller;
    let mut leaves = Vec::new();
    snapshot
        .root
        .each_leaf(&mut |leaf| leaves.push(leaf.clone()));
    let builder = Builder::new().uuid(recovery::file_header(&core.pages)?.uuid);
    make(path, |temporary| {
        let copy = builder.open_file(temporary)?;
        let mut writer = copy.core.writer();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for leaf in &leaves {
            leaf.load(&core.pages, &core.committed)?;
            for offset in &leaf.order_at(&core.pages, snapshot.version).offsets {
                let entry = leaf.entry(&core.pages, *offset);
                entry.verify(&core.pages)?;
                let value = entry.value(&core.pages);
                bytes += value.map_or(0, <[u8]>::len);
                changes.push(Change {
                    key: entry.key(&core.pages),
                    value,
                });
                if changes.len() == BATCH || bytes > BYTES {
                    writer.commit(&copy.core, &std::mem::take(&mut changes), Some(caller))?;
                    bytes = 0;
                }
            }
        }
        writer.commit(&copy.core, &changes, Some(caller))?;
        drop(writer);
        copy.close()
    })?;
    Ok(snapshot.version())
}
