//! Reading beside a writer in another process.
//!
//! **A reading process sees the version that is durable when it asks, completely, and the writer
//! neither waits for it nor knows of it.** It keeps its own index, and updates it to the durable
//! version before each read, under a pin: the feed tells which leaves were born since, and their
//! headers tell which keys they hold and whether they live. The live leaves tile the key space, so
//! the new leaves take the places of those that are gone. If the feed was overwritten before it was
//! read, the index is rebuilt from the tables.
//!
//! The pin precedes the load of the durable version, so while the pin lives no leaf of that version
//! is reused and no frame with such a leaf changes its use.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use mneme_sync::Retired;

use crate::committed::Committed;
use crate::control_region::{AnnouncedVersion, SharedControl};
use crate::index::Edit;
use crate::layout::CommitRecord;
use crate::leaf::Leaf;
use crate::open_store::{Core, PublishedVersion};
use crate::recovery;
use crate::roots::{self, Roots};
use crate::{StoreError, Version};

/// What a reading process knows of the writer.
#[derive(Debug)]
pub(crate) struct Follower {
    /// The number of the next birth to process.
    next_birth: u64,
    /// Replaced indexes that other threads of this process may still use.
    retired: Retired<PublishedVersion>,
}

/// The number of births searched for the newest durable one.
const LOOK_BACK: u64 = (mneme_sync::FEED_ENTRIES / 2) as u64;

impl Core {
    /// Updates the index of a reading process to the durable version. The caller is pinned.
    #[inline]
    pub(crate) fn follow(&self) -> Result<(), StoreError> {
        match &self.follower {
            Some(follower) => self.follow_writer(follower),
            None => Ok(()),
        }
    }

    fn follow_writer(&self, follower: &Mutex<Follower>) -> Result<(), StoreError> {
        mneme_sys::fault!("tree.follow.pinned");
        // SAFETY: the caller is pinned, and what was replaced is freed after the pins of its epoch.
        let is_there = |version| unsafe { self.is_published(version) };
        let durable = self.shared.durable();
        if is_there(durable) {
            return Ok(());
        }
        let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
        if is_there(durable) {
            return Ok(());
        }
        if self.shared.file_len() > self.pages.len() {
            self.pages.follow()?;
        }
        self.committed.advance(durable, &self.shared.dead());
        let from = follower.next_birth;
        let (roots, next) = match self.shared.births_since(from) {
            Some(births) => {
                let known = births.partition_point(|[version, _]| *version <= durable);
                (self.follow_births(&births[..known])?, from + known as u64)
            }
            None => (
                Some(index_of(self, durable)?),
                next_birth(&self.shared, durable),
            ),
        };
        follower.next_birth = next;
        // SAFETY: the follower is locked: nobody else replaces it.
        let current = unsafe { &*self.published.load(Ordering::Relaxed) };
        match roots {
            // SYNC: pairs with the Acquire load in `Core::read`.
            None => current.version.store(durable, Ordering::Release),
            Some(roots) => {
                let new = Box::into_raw(PublishedVersion::new(durable, roots));
                // SYNC: pairs with the Acquire load in `Core::read`.
                let old = self.published.swap(new, Ordering::AcqRel);
                if let Some(old) = NonNull::new(old) {
                    // SAFETY: it came from a box, and only this thread has unlinked it. Pins that
                    // begin from now on find the new one.
                    unsafe { follower.retired.retire(old) };
                }
            }
        }
        Ok(())
    }

    /// Whether a version, or a later one, is published in this process.
    ///
    /// # Safety
    /// The caller is pinned.
    unsafe fn is_published(&self, version: u64) -> bool {
        // SYNC: pairs with the AcqRel swap in `follow`.
        let published = self.published.load(Ordering::Acquire);
        // SAFETY: the pin precedes the load.
        unsafe { (*published).version.load(Ordering::Acquire) >= version }
    }

    /// The roots with the leaves that were born and are live. `None`: nothing has changed.
    fn follow_births(&self, announced: &[[u64; 2]]) -> Result<Option<Roots>, StoreError> {
        let mut leaves: Vec<(usize, Arc<Leaf>)> = Vec::with_capacity(announced.len());
        let mut ends = BTreeMap::new();
        for (number, [version, word]) in announced.iter().enumerate() {
            match AnnouncedVersion::of(*word) {
                AnnouncedVersion::Birth(id) => {
                    let found = recovery::live_leaf(&self.pages, self.seed, id, &self.committed)?;
                    let found = found.filter(|leaf| leaf.birth == *version);
                    leaves.extend(found.map(|leaf| (number, leaf)));
                }
                // The announcement of a commit that did not happen has no effect.
                AnnouncedVersion::End(tree) if self.committed.contains(*version) => {
                    ends.insert(tree, number);
                }
                AnnouncedVersion::End(_) => {}
            }
        }
        // Remaining leaves of a dropped tree belong to no tree.
        leaves.retain(|(number, leaf)| ends.get(&leaf.tree).is_none_or(|end| end < number));
        if leaves.is_empty() && ends.is_empty() {
            return Ok(None);
        }
        let mut leaves: Vec<_> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        leaves.sort_by(|a, b| (a.tree, &a.low).cmp(&(b.tree, &b.low)));
        // SAFETY: the follower is locked: nobody else replaces it.
        let current = unsafe { &*self.published.load(Ordering::Relaxed) };
        let mut changed: Vec<_> = ends.keys().map(|tree| (*tree, None)).collect();
        for of in leaves.chunk_by(|a, b| a.tree == b.tree) {
            let tree = of[0].tree;
            let before = current.roots.of(tree).filter(|_| !ends.contains_key(&tree));
            let root = match before {
                Some(root) => {
                    // Groups of adjacent leaves.
                    let rows = of.chunk_by(|a, b| a.high.as_deref() == Some(&b.low));
                    let edits = rows.map(|row| Edit {
                        low: &row[0].low,
                        high: row[row.len() - 1].high.as_deref(),
                        new: row,
                    });
                    root.replace(&edits.collect::<Vec<_>>())
                }
                None => roots::build(of)?,
            };
            changed.push((tree, Some(root)));
        }
        Ok(Some(current.roots.with(changed)))
    }

    /// The version that a name refers to in the durable version.
    pub(crate) fn name_of(&self, name: &str, durable: u64) -> Result<u64, StoreError> {
        let names = self.names_at(durable)?;
        let found = names.into_iter().find(|(other, _)| other == name);
        let (_, version) = found.ok_or_else(|| StoreError::NoSuchVersion {
            name: name.to_owned(),
        })?;
        Ok(version)
    }

    /// The names in the durable version, read from the file.
    fn names_at(&self, durable: u64) -> Result<Vec<(String, u64)>, StoreError> {
        let committed = Committed::new(durable, self.shared.dead());
        let names = crate::names::read(&self.pages, &committed)?.into_iter();
        Ok(names.map(|(name, _, version)| (name, version)).collect())
    }

    /// All names and their versions, in order of the names.
    pub(crate) fn all_names(&self) -> Result<Vec<(String, Version)>, StoreError> {
        if self.follower.is_none() {
            return Ok(self.names.list());
        }
        let mut names = self.read(|_, durable| self.names_at(durable))??;
        names.sort();
        Ok(names
            .into_iter()
            .map(|(name, v)| (name, Version(v)))
            .collect())
    }

    /// The newest record of a published version.
    pub(crate) fn record(&self) -> Result<CommitRecord, StoreError> {
        if self.follower.is_none() {
            return Ok(self.writer().record);
        }
        let _pin = self.shared.participants.pin()?;
        let mut durable = self.shared.durable();
        loop {
            if let Some(record) =
                recovery::record_of(&self.pages, self.seed, &self.committed, durable)
            {
                return Ok(record);
            }
            // The writer has gone once around the ring meanwhile.
            let now = self.shared.durable();
            if now == durable {
                return Err(StoreError::Damaged {
                    at: CommitRecord::place(0),
                    what: "the ring holds no record of the durable version",
                });
            }
            durable = now;
        }
    }
}

/// Builds the index of a version from the tables. The version is held, or the caller is pinned and
/// the version became durable after that.
pub(crate) fn index_of(core: &Core, version: u64) -> Result<Roots, StoreError> {
    let committed = Committed::new(version, core.shared.dead());
    let leaves = recovery::leaves_at(&core.pages, core.seed, &committed)?;
    let (roots, _) = roots::assemble(&core.pages, &core.committed, version, leaves)?;
    Ok(roots)
}

/// The number of the first birth after those of a version that was durable a moment ago. If
/// unknown, zero, which is too old to be available.
fn next_birth(shared: &SharedControl, durable: u64) -> u64 {
    let from = shared.births().saturating_sub(LOOK_BACK);
    let births = shared.births_since(from).unwrap_or_default();
    match births.partition_point(|[version, _]| *version <= durable) as u64 {
        0 if from > 0 => 0,
        known => from + known,
    }
}

impl Follower {
    /// A follower that has processed all births of a version that was durable a moment ago.
    pub(crate) fn at(shared: &SharedControl, durable: u64) -> Self {
        Self {
            next_birth: next_birth(shared, durable),
            retired: Retired::new(&shared.participants),
        }
    }
}
