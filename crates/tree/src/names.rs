//! Named versions, which are kept until they are dropped, even when the store is reopened.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zerocopy::{FromZeros, IntoBytes};

use mneme_sys::fault::without;

use crate::checksum::WordStamp;
use crate::commit::Also;
use crate::committed::Committed;
use crate::layout::{MAX_NAME, NAME_SLOTS, NameSlot};
use crate::open_store::Core;
use crate::pages::TreePages;
use crate::roots::Roots;
use crate::{StoreError, Version};

/// A version with a name.
#[derive(Debug, Clone)]
pub(crate) struct NamedVersion {
    pub(crate) slot: u32,
    pub(crate) version: u64,
    pub(crate) roots: Roots,
}

/// The named versions of an open store.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeMap<String, NamedVersion>>);

/// A commit's change to the names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Naming<'n> {
    /// Gives the version the name, in this slot.
    Keep(u32, &'n str, u64),
    /// Drops the name in this slot.
    Drop(u32),
}

impl Names {
    pub(crate) fn new(names: BTreeMap<String, NamedVersion>) -> Self {
        Self(Mutex::new(names))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NamedVersion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the version of this name, which is not dropped meanwhile.
    pub(crate) fn with<R>(
        &self,
        name: &str,
        f: impl FnOnce(&NamedVersion) -> R,
    ) -> Result<R, StoreError> {
        let names = self.lock();
        names
            .get(name)
            .map(f)
            .ok_or_else(|| StoreError::NoSuchVersion {
                name: name.to_owned(),
            })
    }

    pub(crate) fn list(&self) -> Vec<(String, Version)> {
        let names = self.lock();
        let pairs = names
            .iter()
            .map(|(name, named)| (name.clone(), Version(named.version)));
        pairs.collect()
    }

    fn free_slot(&self) -> Option<u32> {
        let names = self.lock();
        (0..NAME_SLOTS).find(|slot| names.values().all(|named| named.slot != *slot))
    }
}

/// Names the newest version.
pub(crate) fn keep(core: &Core, name: &str) -> Result<Version, StoreError> {
    if name.len() > MAX_NAME {
        return Err(StoreError::KeyTooLong {
            len: name.len(),
            max: MAX_NAME,
        });
    }
    core.may_write()?;
    let mut writer = core.writer();
    if core.names.lock().contains_key(name) {
        return Err(StoreError::VersionExists {
            name: name.to_owned(),
        });
    }
    let slot = core.names.free_slot().ok_or(StoreError::TooManyVersions {
        max: NAME_SLOTS as usize,
    })?;
    let version = writer.record.version;
    let roots = core.published(&writer).roots.clone();
    // Registered before the commit, whose reclamation must not free what the version uses.
    core.registered.add_name(version, name);
    let named = NamedVersion {
        slot,
        version,
        roots,
    };
    let naming = Naming::Keep(slot, name, version);
    let also = Also {
        naming: Some(naming),
        ..Also::default()
    };
    match writer.commit_with(core, &[], None, also) {
        Ok(_) => {
            core.names.lock().insert(name.to_owned(), named);
            Ok(Version(version))
        }
        Err(error) => {
            core.registered.remove_name(version, name);
            Err(error)
        }
    }
}

/// Drops a name.
pub(crate) fn drop_name(core: &Core, name: &str) -> Result<(), StoreError> {
    core.may_write()?;
    let mut writer = core.writer();
    let (slot, version) = core.names.with(name, |named| (named.slot, named.version))?;
    let also = Also {
        naming: Some(Naming::Drop(slot)),
        ..Also::default()
    };
    writer.commit_with(core, &[], None, also)?;
    let named = core.names.lock().remove(name);
    core.registered.remove_name(version, name);
    drop(named);
    Ok(())
}

/// The committed names with their slots and versions.
pub(crate) fn read(
    pages: &TreePages,
    committed: &Committed,
) -> Result<Vec<(String, u32, u64)>, StoreError> {
    let mut found = Vec::new();
    for number in 0..NAME_SLOTS {
        // Most slots are empty, and a slot is long, so read its birth first.
        let mut birth = 0_u64;
        let at = NameSlot::place(number) + NameSlot::BIRTH;
        pages.copy(at, birth.as_mut_bytes());
        if birth == 0 || !committed.contains(birth) {
            continue;
        }
        let slot = read_slot(pages, number);
        let Some(name) = slot.name(number) else {
            continue;
        };
        match slot.death(number) {
            WordStamp::Version(death) if death > slot.birth() && committed.contains(death) => {}
            WordStamp::Bad => {
                return Err(StoreError::Damaged {
                    at: NameSlot::place(number) + NameSlot::DEATH,
                    what: "the death word of a named version",
                });
            }
            WordStamp::Version(_) | WordStamp::Zero => {
                found.push((name.to_owned(), number, slot.version));
            }
        }
    }
    Ok(found)
}

fn read_slot(pages: &TreePages, number: u32) -> NameSlot {
    let mut slot = NameSlot::new_zeroed();
    pages.copy(NameSlot::place(number), slot.as_mut_bytes());
    slot
}

/// Removes the traces of dead versions from the slots.
pub(crate) fn sweep(pages: &TreePages, committed: &Committed) {
    let is_dead = |version| committed.is_dead(version);
    for number in 0..NAME_SLOTS {
        let slot = read_slot(pages, number);
        let at = NameSlot::place(number);
        if is_dead(slot.birth()) {
            pages.store_word(at + NameSlot::BIRTH, 0);
        }
        if matches!(slot.death(number), WordStamp::Version(version) if is_dead(version)) {
            pages.store_word(at + NameSlot::DEATH, 0);
        }
    }
}

/// Stores a change of the names made by the commit of `version`.
pub(crate) fn store(pages: &TreePages, naming: Naming<'_>, version: u64) {
    match naming {
        Naming::Keep(number, name, kept) => {
            let slot = NameSlot::new(number, version, kept, name);
            let (before, after) = slot.around_death();
            let at = NameSlot::place(number);
            if without("name.keep_death") {
                pages.store(at, slot.as_bytes());
                return;
            }
            pages.store(at, before);
            pages.store(at + NameSlot::DEATH + 8, after);
        }
        Naming::Drop(number) => {
            if !without("name.death") {
                let word = NameSlot::death_word(number, version);
                pages.store_word(NameSlot::place(number) + NameSlot::DEATH, word);
            }
        }
    }
}
