//! Gets of many keys whose memory accesses overlap.

use std::sync::Arc;

use crate::StoreError;
use crate::index::Node;
use crate::leaf::Leaf;
use crate::open_store::Core;

/// Keys looked up together: about as many as the memory can serve requests at once.
const GROUP: usize = 32;

/// Calls `f` with the index of each key in `keys` and its value in `version`, in order.
///
/// Each step is done for all keys of a group before the next step, and prefetches what the next one
/// reads.
pub(crate) fn many<'r, K: AsRef<[u8]>>(
    core: &'r Core,
    root: &'r Node,
    version: u64,
    keys: &[K],
    mut f: impl FnMut(usize, Option<&'r [u8]>),
) -> Result<(), StoreError> {
    let pages = &core.pages;
    for (number, group) in keys.chunks(GROUP).enumerate() {
        let mut wanted: [Option<(&'r Arc<Leaf>, Option<usize>)>; GROUP] = [None; GROUP];
        let mut values: [Option<&'r [u8]>; GROUP] = [None; GROUP];
        for (key, wanted) in group.iter().zip(&mut wanted) {
            let leaf = root.find(key.as_ref());
            leaf.prefetch();
            *wanted = Some((leaf, None));
        }
        for (leaf, _) in wanted.iter().flatten() {
            leaf.load(pages, &core.committed)?;
            leaf.prefetch_marks();
        }
        for (key, wanted) in group.iter().zip(&mut wanted) {
            if let Some((leaf, place)) = wanted {
                *place = leaf.prefetch_entry(pages, key.as_ref());
            }
        }
        for ((key, wanted), value) in group.iter().zip(&wanted).zip(&mut values) {
            if let Some((leaf, Some(place))) = wanted {
                let entry = leaf.find_at(pages, key.as_ref(), version, *place);
                *value = match entry {
                    Some(entry) => leaf.value_of(pages, &entry)?,
                    None => None,
                };
                // The first lines of the entry have arrived.
                let rest = value.unwrap_or_default().chunks(64).skip(1).take(16);
                rest.for_each(|line| mneme_sys::prefetch(line.as_ptr()));
            }
        }
        for (i, value) in values[..group.len()].iter().enumerate() {
            f(number * GROUP + i, *value);
        }
    }
    Ok(())
}
