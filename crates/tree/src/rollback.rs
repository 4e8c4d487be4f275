//! Rollback: the commit that gives the newest version the content of a named one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalogue::CatalogueListing;
use crate::catalogue_entry::{dropped_key, name_key, number_key, place_value};
use crate::commit::Also;
use crate::layout::CATALOGUE;
use crate::leaf::Leaf;
use crate::leaf_entry::LeafEntry;
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::roots::{Roots, leaves_of};
use crate::{StoreError, Version};

/// Commits the changes that give the newest version the content of the named one.
pub(crate) fn rollback(core: &Core, name: &str) -> Result<Version, StoreError> {
    core.may_write()?;
    let mut writer = core.writer();
    let named = core.names.with(name, Clone::clone)?;
    // A tree that comes back gets leaves, so none of its own may be left.
    while writer.bury(core)? {}
    let now = core.published(&writer).roots.clone();
    let versions = (named.version, writer.record.version);
    let then_listed = core.catalogue(&named.roots, versions.0).list()?;
    let now_listed = core.catalogue(&now, versions.1).list()?;
    if let Some(tree) = now_listed
        .dropped
        .iter()
        .find(|tree| then_listed.live.contains_key(tree))
    {
        return Err(StoreError::TreeDropped { tree: *tree });
    }
    let gone: Vec<u32> = {
        let now = now_listed.live.keys();
        now.filter(|tree| !then_listed.live.contains_key(tree))
            .copied()
            .collect()
    };
    let catalogue = of_catalogue(&then_listed, &now_listed, |tree| now.of(tree).is_some());
    let changes = catalogue.iter().map(|(key, value)| PlannedChange {
        tree: CATALOGUE,
        key,
        value: value.as_deref(),
    });
    let mut changes: Vec<_> = changes.collect();
    let sides = sides(&named.roots, &now, &gone);
    for (tree, old, new) in &sides {
        differences(core, *tree, (old, new), versions, &mut changes)?;
    }
    let also = Also {
        drops: &gone,
        ..Also::default()
    };
    let version = writer.commit_with(core, &changes, None, also)?;
    drop(writer);
    while core.writer().bury(core)? {}
    Ok(version)
}

/// The changes to the catalogue that make it list what it listed `then`.
fn of_catalogue(
    then: &CatalogueListing,
    now: &CatalogueListing,
    has_leaves: impl Fn(u32) -> bool,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut changes = BTreeMap::new();
    for (tree, (name, _)) in &now.live {
        if !then.live.contains_key(tree) {
            changes.insert(name_key(name), None);
            changes.insert(number_key(*tree), None);
            if has_leaves(*tree) {
                changes.insert(dropped_key(*tree), Some(name.clone().into_bytes()));
            }
        }
    }
    // After the others: a tree may have taken the name of one that comes back.
    for (tree, (name, kind)) in &then.live {
        if !now.live.contains_key(tree) {
            changes.insert(name_key(name), Some(place_value(*tree, *kind)));
            changes.insert(number_key(*tree), Some(name.clone().into_bytes()));
        }
    }
    changes
}

/// The leaves of a tree, in order; none if it is empty.
type Side = Vec<Arc<Leaf>>;

/// The trees that may differ, with their leaves then and now.
fn sides(then: &Roots, now: &Roots, gone: &[u32]) -> Vec<(u32, Side, Side)> {
    let trees: BTreeSet<u32> = then.all().chain(now.all()).map(|(tree, _)| tree).collect();
    let side = |roots: &Roots, tree| roots.of(tree).map_or_else(Vec::new, |root| leaves_of(root));
    let others = |tree: &u32| *tree != CATALOGUE && !gone.contains(tree);
    let differ = trees.into_iter().filter(others);
    differ
        .map(|tree| (tree, side(then, tree), side(now, tree)))
        .collect()
}

/// The changes that give `new` the content of `old`, in key order. Leaves that both have, unchanged
/// since, are skipped.
fn differences<'s>(
    core: &'s Core,
    tree: u32,
    (old, new): (&'s Side, &'s Side),
    (then, now): (u64, u64),
    changes: &mut Vec<PlannedChange<'s>>,
) -> Result<(), StoreError> {
    if old.is_empty() || new.is_empty() {
        let (before, after) = (entries(core, old, then)?, entries(core, new, now)?);
        return differ(core, tree, before, after, changes);
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        let (from_old, from_new) = (i, j);
        // Extend both sides to the same keys.
        while old[i].high != new[j].high {
            match (&old[i].high, &new[j].high) {
                (Some(a), Some(b)) if a < b => i += 1,
                (Some(_), None) => i += 1,
                _ => j += 1,
            }
        }
        (i, j) = (i + 1, j + 1);
        if let ([same], [new]) = (&old[from_old..i], &new[from_new..j])
            && Arc::ptr_eq(same, new)
        {
            same.load(&core.pages, &core.committed)?;
            if same.newest(&core.pages) <= then {
                continue;
            }
        }
        let before = entries(core, &old[from_old..i], then)?;
        let after = entries(core, &new[from_new..j], now)?;
        differ(core, tree, before, after, changes)?;
    }
    Ok(())
}

/// Adds the changes that turn the entries `after` into `before`; both are in key order.
fn differ<'s>(
    core: &'s Core,
    tree: u32,
    before: Vec<LeafEntry<'s>>,
    after: Vec<LeafEntry<'s>>,
    changes: &mut Vec<PlannedChange<'s>>,
) -> Result<(), StoreError> {
    let pages = &core.pages;
    let removal = |extra: LeafEntry<'s>| PlannedChange {
        tree,
        key: extra.key(pages),
        value: None,
    };
    let mut after = after.into_iter().peekable();
    for entry in before {
        let key = entry.key(pages);
        while let Some(extra) = after.next_if(|extra| extra.key(pages) < key) {
            changes.push(removal(extra));
        }
        let same = after.next_if(|other| other.key(pages) == key);
        if same.is_none_or(|same| same.start() != entry.start()) {
            entry.verify(pages)?;
            changes.push(PlannedChange {
                tree,
                key,
                value: entry.value(pages),
            });
        }
    }
    changes.extend(after.map(removal));
    Ok(())
}

/// The live entries of leaves in `version`.
fn entries<'s>(
    core: &'s Core,
    leaves: &'s [Arc<Leaf>],
    version: u64,
) -> Result<Vec<LeafEntry<'s>>, StoreError> {
    let mut found = Vec::new();
    for leaf in leaves {
        leaf.load(&core.pages, &core.committed)?;
        let order = leaf.order_at(&core.pages, version);
        found.extend(order.offsets.iter().map(|at| leaf.entry(&core.pages, *at)));
    }
    Ok(found)
}
