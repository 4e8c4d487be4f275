//! Gets of many keys, whose waits for memory overlap.

use std::sync::Arc;

use crate::StoreError;
use crate::core::Core;
use crate::index::Node;
use crate::leaf::Leaf;

/// Keys that are looked up together: as many as the memory has requests in flight, about.
const GROUP: usize = 16;

/// Calls `f` with the place of each key in `keys` and its value in `version`, in order.
///
/// Each step is done for all keys of a group before the next, and begins to load what the next one
/// reads.
pub(crate) fn many<'r, K: AsRef<[u8]>>(
    core: &'r Core,
    root: &'r Node,
    version: u64,
    keys: &[K],
    mut f: impl FnMut(usize, Option<&'r [u8]>),
) -> Result<(), StoreError> {
    let mut leaves: Vec<&'r Arc<Leaf>> = Vec::with_capacity(GROUP);
    for (number, group) in keys.chunks(GROUP).enumerate() {
        leaves.clear();
        for key in group {
            let leaf = root.find(key.as_ref());
            leaf.prefetch();
            leaves.push(leaf);
        }
        for leaf in &leaves {
            leaf.load(&core.pages, &core.committed)?;
            leaf.prefetch_marks();
        }
        for (leaf, key) in leaves.iter().zip(group) {
            leaf.prefetch_entry(&core.pages, key.as_ref());
        }
        for (i, (leaf, key)) in leaves.iter().zip(group).enumerate() {
            let entry = leaf.find(&core.pages, key.as_ref(), version);
            f(number * GROUP + i, entry.and_then(|entry| entry.value));
        }
    }
    Ok(())
}
