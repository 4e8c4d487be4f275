//! Upgrades a store: lays it out again, larger than it could grow, or with another policy.
//!
//! **The old segment keeps its name until the new one is complete, and its content until the caller
//! removes it.** The new one is created beside it as `NAME~upgrade`, all records of all databases
//! are copied with their expiries, and two renames follow: the old one's to `NAME~old`, the new
//! one's to `NAME`. A process that attaches the old store meanwhile may write data that the copy
//! lacks; in that case the names are not changed. A death before the first rename leaves a copy,
//! which the next upgrade discards; one between the two leaves no `NAME`, and the next upgrade
//! completes it.
//!
//! A note beside the copy records the identity of the store that it was copied from, so no other
//! store named `NAME~old` is mistaken for that one. Until a check of the renamed store has shown
//! that no process came, the note also records how many processes had attached: the next upgrade
//! then makes that check itself, and gives the old store its name back if a process came.
//!
//! The new store has a change feed if the options say so, or do not say and the old one has one.
//! That feed is empty: none of the copied records is in it, and the entries in the old one's feed
//! stay there. So a journal of the old store can continue with the new one only after a copy of all
//! records.

use mneme_log::{Cursor, DATABASES, Evict, ReadError, RoleError, WriteError};
use mneme_space::{
    Access, Name, NameError, OpenError, Registry, RegistryError, RemoveError, Segment, Uuid,
};

use crate::StoreOptions;
use crate::error::{AttachError, CreateError};
use crate::store::SharedStore;

/// The number of keys that are looked up at once.
const AT_ONCE: usize = 256;

/// The name of a copy's note, which stays with it.
const NOTE: &str = "copied";

/// The content of the note.
struct Copied {
    /// The identity of the old store.
    of: Uuid,
    /// The number of processes that had attached it when it was copied; `None` once it is known
    /// that no others came.
    arrivals: Option<u64>,
}

impl Copied {
    fn read(registry: &Registry, new: &str) -> Result<Option<Self>, RegistryError> {
        let text = registry.note(new, NOTE)?.unwrap_or_default();
        let mut words = text.split_whitespace();
        Ok(words.next().and_then(Uuid::parse).map(|of| Self {
            of,
            arrivals: words.next().and_then(|word| word.parse().ok()),
        }))
    }

    fn write(&self, registry: &Registry, new: &str) -> Result<(), RegistryError> {
        let text = match self.arrivals {
            Some(arrivals) => format!("{} {arrivals}\n", self.of),
            None => format!("{}\n", self.of),
        };
        registry.set_note(new, NOTE, Some(&text))
    }
}

/// Why a store was not upgraded. It is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The store cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The store is being served.
    #[error("nobody may use the store meanwhile: {0}")]
    Role(#[from] RoleError),
    /// Other processes are attached, and could write meanwhile.
    #[error(
        "{0} other processes are attached to the store, and could write meanwhile; end them first"
    )]
    Attached(usize),
    /// A process has attached the store meanwhile.
    #[error(
        "a process has attached the store while it was copied, and may have changed it; end it and begin again"
    )]
    Visited,
    /// The copy of an earlier upgrade, or the old store, cannot be removed or is in use.
    #[error("what an earlier upgrade left cannot be removed: {0}")]
    Leftover(#[source] RemoveError),
    /// The old store of an earlier upgrade still exists.
    #[error(
        "there is a segment `{0}` from an earlier upgrade: remove it if it is not needed any more"
    )]
    OldIsThere(String),
    /// The new store cannot be created.
    #[error("the new store cannot be created: {0}")]
    Create(#[from] CreateError),
    /// The old store's records cannot be read.
    #[error("the old store cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The new store cannot hold the records.
    #[error("the new store cannot hold the records: {0}")]
    Write(#[from] WriteError),
    /// The store's name is too long for those of the copy and of the old store.
    #[error(
        "the name `{name}` is too long: the copy is made as `NAME~upgrade` and the old store kept as `NAME~old`, so that \
         NAME may have {most} bytes"
    )]
    NameTooLong {
        /// The segment's name.
        name: String,
        /// The maximum length of the name of a store that is upgraded.
        most: usize,
    },
    /// The segments could not be renamed.
    #[error("the segments cannot be renamed: {0}")]
    Rename(#[from] RemoveError),
    /// The copy's note could not be read or written.
    #[error("the copy's note: {0}")]
    Note(#[from] RegistryError),
}

/// The result of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgraded {
    /// The number of records that were copied.
    pub records: u64,
    /// The new name of the old store.
    pub old: String,
}

impl StoreOptions {
    /// Lays the store of that name out again with these options; the old one is kept as `NAME~old`.
    /// Takes memory for both. The new one has an empty [change feed](Self::change_feed) if one is
    /// requested, or if nothing is requested and the old one has a feed.
    ///
    /// # Errors
    /// One variant of [`UpgradeError`] each. The store is unchanged; a copy may be left as
    /// `NAME~upgrade`.
    pub fn upgrade(&self, registry: &Registry, name: &str) -> Result<Upgraded, UpgradeError> {
        let known = Name::of_new(name).map_err(RemoveError::from)?;
        // The longer of the two suffixes.
        let new = match known.beside(NEW) {
            Err(NameError::TooLong { len, max }) => {
                return Err(UpgradeError::NameTooLong {
                    name: name.to_owned(),
                    most: max - (len - name.len()),
                });
            }
            new => new.map_err(RemoveError::from)?,
        };
        let old = known.beside(OLD).map_err(RemoveError::from)?;
        if let Some(done) = self.complete_upgrade(registry, name)? {
            return Ok(done);
        }
        if Segment::open(registry, old.as_str()).is_ok() {
            return Err(UpgradeError::OldIsThere(old.to_string()));
        }
        match registry.remove_leftover(&new) {
            Ok(()) | Err(RemoveError::NotFound { .. }) => {}
            Err(refused) => return Err(UpgradeError::Leftover(refused)),
        }
        let options = self.clone().maintainer(false).administers(true);
        let from = options.attach(registry, name, Access::ReadWrite)?;
        // From here on no process can begin to serve it, and no other process has it attached.
        let role = from.take_server_role()?;
        let others = from.processes().iter().filter(|one| !one.is_asker).count();
        if others > 0 {
            return Err(UpgradeError::Attached(others));
        }
        let arrivals = from.arrivals();
        // If the records do not fit, that must be an error. With its own policy the new store would
        // evict silently.
        let to = self.with_parts_of(&from).evict(Evict::None);
        let to = to.create_loading(registry, new.as_str())?;
        mneme_sys::fault!("shared.upgrade.made");
        copy(&from, &to)?;
        to.set_eviction(self.evict)?;
        let records = count(&to)?;
        mneme_sys::fault!("shared.upgrade.copied");
        let is_visited = from.arrivals() != arrivals;
        let copied = Copied {
            of: from.segment().uuid(),
            arrivals: Some(arrivals),
        };
        drop((role, from, to));
        if is_visited {
            return Err(UpgradeError::Visited);
        }
        mneme_sys::fault!("shared.upgrade.looked");
        copied.write(registry, new.as_str())?;
        registry.keep_beside(name, OLD)?;
        mneme_sys::fault!("shared.upgrade.renamed");
        if !self.is_unvisited(registry, name)? {
            return Err(UpgradeError::Visited);
        }
        mneme_sys::fault!("shared.upgrade.between");
        registry.rename_segment(new.as_str(), name)?;
        let old = old.to_string();
        Ok(Upgraded { records, old })
    }

    /// Whether no process attached the old store between the copy and the rename. A process that
    /// has left again is noticed too, because openings are counted. If one came, or that cannot be
    /// determined, the old store gets its name back.
    fn is_unvisited(&self, registry: &Registry, name: &str) -> Result<bool, UpgradeError> {
        let (new, old) = (new_of(name), old_of(name));
        let Some(Copied { of, arrivals }) = Copied::read(registry, &new)? else {
            return Ok(false);
        };
        // `None`: an earlier upgrade has made this check.
        let Some(noted) = arrivals else {
            return Ok(true);
        };
        let options = self.clone().maintainer(false).administers(true);
        let again = options.attach(registry, &old, Access::ReadWrite);
        let arrivals = again.map(|again| again.arrivals());
        match &arrivals {
            Ok(now) if *now == noted.wrapping_add(1) => {
                let arrivals = None;
                Copied { of, arrivals }.write(registry, &new)?;
                Ok(true)
            }
            _ => {
                registry.rename_segment(&old, name)?;
                arrivals?;
                Ok(false)
            }
        }
    }

    /// Completes an [upgrade](Self::upgrade) whose process died between the two renames, which left
    /// no store of that name. `None` if there is none, or it must start again.
    ///
    /// # Errors
    /// As [`upgrade`](Self::upgrade).
    pub fn complete_upgrade(
        &self,
        registry: &Registry,
        name: &str,
    ) -> Result<Option<Upgraded>, UpgradeError> {
        if !is_halfway(registry, name) || !self.is_unvisited(registry, name)? {
            return Ok(None);
        }
        registry.rename_segment(&new_of(name), name)?;
        let records = count(&SharedStore::attach(registry, name)?)?;
        let old = old_of(name);
        Ok(Some(Upgraded { records, old }))
    }
}

/// Whether a store has lost its name to an upgrade that has not given it to the new one yet. Nobody
/// else may take the name.
pub(crate) fn is_halfway(registry: &Registry, name: &str) -> bool {
    let there = |name: &str| match Segment::described(registry, name) {
        Err(OpenError::NotFound { .. }) => None,
        found => Some(found.ok().map(|found| found.uuid())),
    };
    // In the order in which names appear and disappear; otherwise a name that changes meanwhile
    // might be missed.
    if there(name).is_some() || there(&new_of(name)).is_none() {
        return false;
    }
    let copied = Copied::read(registry, &new_of(name));
    let of = copied.ok().flatten().map(|copied| copied.of);
    // A store that cannot be described may be the one that is meant.
    there(&old_of(name)).is_some_and(|old| of.is_some() && (old.is_none() || old == of))
}

const NEW: &str = "upgrade";
const OLD: &str = "old";

fn new_of(name: &str) -> String {
    format!("{name}~{NEW}")
}

fn old_of(name: &str) -> String {
    format!("{name}~{OLD}")
}

/// The number of records in all databases.
fn count(store: &SharedStore) -> Result<u64, ReadError> {
    let mut records = 0;
    for number in 0..DATABASES {
        records += store.database(number)?.len();
    }
    Ok(records)
}

/// Copies all records, with one value at a time in this process's own memory: values may be long.
fn copy(from: &SharedStore, to: &SharedStore) -> Result<(), UpgradeError> {
    to.spare_collections(true);
    from.copy_collections(to)?;
    copy_databases(from, to)?;
    to.spare_collections(false);
    Ok(())
}

fn copy_databases(from: &SharedStore, to: &SharedStore) -> Result<(), UpgradeError> {
    for number in 0..DATABASES {
        let (from, to) = (from.database(number)?, to.database(number)?);
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let mut keys = Vec::new();
            cursor = from.scan_keys(cursor, AT_ONCE, |key| keys.push(key.to_vec()))?;
            for key in keys {
                // Records that have expired since are not copied.
                let Some(kind) = from.kind(&key)? else {
                    continue;
                };
                if let (Some(value), Some(expiry)) =
                    (from.get_kind(&key, kind)?, from.expiry(&key)?)
                {
                    match kind.is_large() {
                        // The collection knows where its main is.
                        true => to.transaction_on(&[(number, &key)], |t| {
                            t.database(number)?.put_kind(&key, &value, kind, expiry)
                        })?,
                        false => to.put_kind(&key, &value, kind, expiry)?,
                    }
                }
            }
        }
    }
    Ok(())
}
