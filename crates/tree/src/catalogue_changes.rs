//! The writer's changes to the catalogue of trees: new trees, and the end of dropped ones.

use std::sync::Arc;

use mneme_sys::fault::without;

use crate::catalogue_entry::{TreeKind, dropped_key, name_key, number_key, place_value};
use crate::commit::{Also, Writer};
use crate::layout::{CATALOGUE, MAX_NAME};
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::{StoreError, Version};

/// Leaves of a dropped tree that die with one commit: few enough that no commit takes long.
const BURIED: usize = 16;

/// The number of the tree with this name. If there is none, the tree is made, provided that it
/// `may_create`.
pub(crate) fn open(
    core: &Core,
    name: &str,
    kind: TreeKind,
    may_create: bool,
) -> Result<u32, StoreError> {
    let of_kind = |(tree, found)| match found == kind {
        true => Ok(tree),
        false => Err(StoreError::OtherKind {
            name: name.to_owned(),
        }),
    };
    let found = core.read(|roots, version| core.catalogue(roots, version).find(name))??;
    if let Some(found) = found {
        return of_kind(found);
    }
    if !may_create || core.follower.is_some() {
        return Err(none(name));
    }
    if name.len() > MAX_NAME {
        return Err(StoreError::KeyTooLong {
            len: name.len(),
            max: MAX_NAME,
        });
    }
    let mut writer = core.writer();
    let (roots, version) = (&core.published(&writer).roots, writer.record.version);
    if let Some(found) = core.catalogue(roots, version).find(name)? {
        return of_kind(found);
    }
    let Ok(tree) = u32::try_from(writer.record.next_tree) else {
        return Err(StoreError::Unsupported {
            what: "more than four billion trees in the life of a store",
        });
    };
    let (by_name, by_number) = (name_key(name), number_key(tree));
    let place = place_value(tree, kind);
    let changes = [
        change(&by_name, Some(&place)),
        change(&by_number, Some(name.as_bytes())),
    ];
    let also = Also {
        creates: true,
        ..Also::default()
    };
    writer.commit_with(core, &changes, None, also)?;
    Ok(tree)
}

fn change<'b>(key: &'b [u8], value: Option<&'b [u8]>) -> PlannedChange<'b> {
    PlannedChange {
        tree: CATALOGUE,
        key,
        value,
    }
}

/// The error if there is no tree with this name.
pub(crate) fn none(name: &str) -> StoreError {
    StoreError::NoSuchTree {
        name: name.to_owned(),
    }
}

/// Drops the tree with this name. Its leaves die a few at a time, with later commits.
pub(crate) fn drop_tree(core: &Core, name: &str) -> Result<Version, StoreError> {
    core.may_write()?;
    let mut writer = core.writer();
    let (roots, version) = (&core.published(&writer).roots, writer.record.version);
    let found = core.catalogue(roots, version).find(name)?;
    let (tree, _) = found.ok_or_else(|| none(name))?;
    let has_leaves = roots.of(tree).is_some();
    let keys = [dropped_key(tree), name_key(name), number_key(tree)];
    let mut changes = keys.each_ref().map(|key| change(key, None));
    if has_leaves && !without("tree.dropped") {
        changes[0].value = Some(name.as_bytes());
    }
    let also = Also {
        drops: &[tree],
        ..Also::default()
    };
    writer.commit_with(core, &changes, None, also)
}

impl Writer {
    /// Lets some leaves of dropped trees die, if there are any. Returns whether that succeeded.
    pub(crate) fn bury(&mut self, core: &Core) -> Result<bool, StoreError> {
        let left = |writer: &Self| -> usize {
            let dropping = writer.dropping.iter();
            dropping.map(|dropping| 1 + dropping.leaves.len()).sum()
        };
        let before = left(self);
        if before > 0 {
            self.commit_and_bury(core, &[], None)?;
        }
        Ok(left(self) < before)
    }

    /// As [`commit`](Self::commit), if there are leaves of dropped trees that must die.
    pub(crate) fn commit_and_bury(
        &mut self,
        core: &Core,
        changes: &[PlannedChange<'_>],
        caller: Option<[u8; 32]>,
    ) -> Result<Version, StoreError> {
        let Some(dropping) = self.dropping.last() else {
            return self.commit_with(core, changes, caller, Also::default());
        };
        let rest = dropping.leaves.len().saturating_sub(BURIED);
        let dead: Vec<Arc<_>> = dropping.leaves[rest..].to_vec();
        let key = dropped_key(dropping.tree);
        // The catalogue's changes come before those of all other trees.
        let is_over = (rest == 0).then(|| change(&key, None));
        let all: Vec<_> = is_over.into_iter().chain(changes.iter().copied()).collect();
        let also = Also {
            dead: &dead,
            ..Also::default()
        };
        match self.commit_with(core, &all, caller, also) {
            Ok(version) => {
                match self.dropping.last_mut() {
                    Some(dropping) if rest > 0 => dropping.leaves.truncate(rest),
                    _ => drop(self.dropping.pop()),
                }
                Ok(version)
            }
            // If the changes succeed without it, the damage is in the dropped tree, whose remains
            // stay until the next opening. Otherwise it is in a leaf that the changes concern, and
            // the second error names it.
            Err(StoreError::Damaged { .. }) => {
                let version = self.commit_with(core, changes, caller, Also::default())?;
                self.dropping.pop();
                Ok(version)
            }
            Err(StoreError::NoSpace { .. }) => {
                self.commit_with(core, changes, caller, Also::default())
            }
            Err(error) => Err(error),
        }
    }
}
