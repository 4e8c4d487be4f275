//! Determines what a store holds from its ring and tables alone, without reading leaves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, fence};

use zerocopy::{FromZeros, IntoBytes};

use mneme_sys::fault::without;

use crate::checksum::WordStamp;
use crate::committed::Committed;
use crate::layout::{
    CommitRecord, EXTENT_HEADER, EntryHeader, ExtentHeader, FRAME, FileHeader, FrameHeader,
    FrameKind, HeaderProblem, LEAF, LEAVES, LeafHeader, LeafId, Listed, MAX_KEY, RING_SLOTS,
    STATE_UNCOUNTED, TABLE, TreeExtent, UNITS,
};
use crate::leaf::{FreeLeaves, Leaf};
use crate::pages::TreePages;
use crate::reserve::{Dead, ReservePlace};
use crate::space::FreeSpace;
use crate::{StoreError, names};

/// The evaluated tables of a store.
pub(crate) struct Recovered {
    /// Leaves that a version in use has, with the versions that replaced them.
    leaves: Vec<Found>,
    /// Free frames and units.
    pub(crate) space: FreeSpace,
    /// The number of extents in use, and their units.
    pub(crate) extents: (u64, u64),
    /// Unused frames whose table is not zero; it must be zeroed before they are used.
    pub(crate) dirty: Vec<u32>,
    /// Leaves that no version uses.
    pub(crate) free: FreeLeaves,
    /// Dead leaves and extents that kept versions still have.
    pub(crate) dead: Vec<Dead>,
}

/// A leaf of a version in use.
struct Found {
    /// The version that removed the leaf; `None`: the newest version has the leaf.
    death: Option<u64>,
    leaf: Arc<Leaf>,
}

impl Recovered {
    fn add_leaf(&mut self, found: Found, kept: KeptVersions<'_>) {
        let birth = found.leaf.birth;
        if let Some(death) = found.death {
            self.dead.push(Dead {
                place: ReservePlace::Leaf(found.leaf.id),
                birth,
                death,
            });
        }
        if found.death.is_none_or(|death| kept.is_in(birth, death)) {
            self.leaves.push(found);
        }
    }

    /// The number of leaves in the newest version.
    pub(crate) fn live_leaves(&self) -> u64 {
        let live = self.leaves.iter().filter(|found| found.death.is_none());
        live.count() as u64
    }

    /// Every leaf that is not free.
    pub(crate) fn all_leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.iter().map(|found| &found.leaf)
    }

    /// The leaves of a named version, or of the newest one.
    pub(crate) fn leaves_of(&self, version: Option<u64>) -> Vec<Arc<Leaf>> {
        let has = |found: &&Found| match version {
            Some(version) => {
                found.leaf.birth <= version && found.death.is_none_or(|death| version < death)
            }
            None => found.death.is_none(),
        };
        let of = self.leaves.iter().filter(has);
        of.map(|found| found.leaf.clone()).collect()
    }
}

/// Which older versions may be in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptVersions<'k> {
    /// These versions are in use, and each will get a root.
    pub(crate) versions: &'k [u64],
    /// Any other version may be in use, which is checked later.
    pub(crate) any: bool,
}

impl KeptVersions<'_> {
    /// Only the newest version is in use.
    const NONE: KeptVersions<'static> = KeptVersions {
        versions: &[],
        any: false,
    };

    /// Whether a version from `birth` to before `death` may be in use.
    fn may_be_in(self, birth: u64, death: u64) -> bool {
        self.any || self.is_in(birth, death)
    }

    /// Whether a version from `birth` to before `death` will have a root.
    fn is_in(self, birth: u64, death: u64) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|version| (birth..death).contains(version))
    }
}

/// Reads and checks the store's header.
pub(crate) fn file_header(pages: &TreePages) -> Result<FileHeader, StoreError> {
    let mut header = FileHeader::new_zeroed();
    pages.copy(0, header.as_mut_bytes());
    match header.check() {
        Ok(()) => Ok(header),
        Err(HeaderProblem::Foreign) => Err(StoreError::Foreign),
        Err(HeaderProblem::Format(found)) => Err(StoreError::Format {
            found,
            known: crate::layout::FORMAT,
        }),
        Err(HeaderProblem::Damaged) => Err(StoreError::Damaged {
            at: 0,
            what: "the store's header",
        }),
    }
}

/// The newest valid commit record of a store whose length suffices for it. The entries that the
/// record lists must be there: a crash may have kept the record without all of them, and then the
/// version did not happen. The record before it, with everything that belongs to it, was durable
/// before the commit began. A version that was `published` did happen: if something is missing
/// there, that is damage, and is reported as damage.
pub(crate) fn newest_record(
    pages: &TreePages,
    seed: u32,
    published: u64,
) -> Result<CommitRecord, StoreError> {
    let mut newest = newest_in_ring(pages, seed, u64::MAX)?;
    let mut listed = newest.listed.iter();
    let is_there = |listed: &Listed| is_whole(pages, *listed, newest.version);
    if newest.version > published && !listed.all(is_there) && !without("open.listed") {
        newest = newest_in_ring(pages, seed, newest.sequence)?;
    }
    if newest.file_len > pages.len() {
        return Err(StoreError::Truncated {
            len: pages.len(),
            needed: newest.file_len,
        });
    }
    Ok(newest)
}

/// Whether these entries of `version` are there, and the word that ends the leaf after them.
fn is_whole(pages: &TreePages, listed: Listed, version: u64) -> bool {
    if listed.count == 0 {
        return true;
    }
    let id = listed.leaf();
    let mut bytes = vec![0; LEAF];
    pages.copy(id.at(), &mut bytes);
    let mut at = usize::from(listed.from);
    for n in 0..listed.count {
        let entry = bytes.get(at..).unwrap_or_default();
        let header = EntryHeader::read(entry);
        let is_last = n + 1 == listed.count;
        if header.start(id, at) != WordStamp::Version(version)
            || !header.is_whole(entry)
            || is_last && !header.is_followed(entry, version, (id, at))
        {
            return false;
        }
        at += header.size();
    }
    true
}

/// The newest valid record in the ring with a sequence below `before`. The file may end after the
/// ring.
pub(crate) fn newest_in_ring(
    pages: &TreePages,
    seed: u32,
    before: u64,
) -> Result<CommitRecord, StoreError> {
    let mut newest = CommitRecord::empty();
    for slot in 0..RING_SLOTS {
        let mut record = CommitRecord::empty();
        pages.copy(CommitRecord::place(slot), record.as_mut_bytes());
        if record.sequence > newest.sequence
            && record.sequence < before
            && record.sequence % RING_SLOTS == slot
            && record.is_valid(seed)
        {
            newest = record;
        }
    }
    if newest.sequence == 0 {
        return Err(StoreError::Damaged {
            at: CommitRecord::place(0),
            what: "the ring holds no commit record",
        });
    }
    Ok(newest)
}

/// A leaf's header with its fences.
fn read_header(pages: &TreePages, id: LeafId) -> (LeafHeader, Vec<u8>) {
    let mut header = LeafHeader::new_zeroed();
    pages.copy(id.header_at(), header.as_mut_bytes());
    let (low, high) = header.lengths();
    let outside = header.outside().filter(|extent| {
        // A damaged header must not determine what is read.
        extent.len as usize <= 2 * MAX_KEY && pages.has(*extent)
    });
    let fences = match outside {
        Some(extent) => {
            let mut fences = vec![0; extent.len as usize];
            pages.copy(extent.at(), &mut fences);
            fences
        }
        None if header.begins_with_fences() => {
            let mut fences = vec![0; low + high.unwrap_or(0)];
            pages.copy(id.at(), &mut fences);
            fences
        }
        None => header.inline_fences().to_vec(),
    };
    (header, fences)
}

/// The content of a frame.
fn kind_of(pages: &TreePages, seed: u32, frame: u32) -> Option<FrameKind> {
    let mut header = FrameHeader::new_zeroed();
    pages.copy(u64::from(frame) * FRAME, header.as_mut_bytes());
    header.kind(frame, seed)
}

/// Every frame with a table, and its content; `None` if it has none. If there is a writer `beside`
/// this process, a run may extend beyond the last frame known here.
fn frames(pages: &TreePages, seed: u32, beside: bool) -> Vec<(u32, Option<FrameKind>)> {
    let end = u32::try_from(pages.len() / FRAME).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    let mut frame = 1;
    while frame < end {
        let kind = match kind_of(pages, seed, frame) {
            // Growth that did not become durable: nothing that was committed needs it.
            Some(FrameKind::Extents { run }) if run > end - frame && !beside => None,
            kind => kind,
        };
        found.push((frame, kind));
        frame += match kind {
            // The other frames of a run hold only the value.
            Some(FrameKind::Extents { run }) => run.min(end - frame),
            _ => 1,
        };
    }
    found
}

/// Divides the leaves and extents of all frames into free ones, those of the committed version, and
/// those of `kept` versions.
pub(crate) fn tables(
    pages: &TreePages,
    seed: u32,
    committed: &Committed,
    kept: KeptVersions<'_>,
) -> Result<Recovered, StoreError> {
    let mut found = Recovered {
        leaves: Vec::new(),
        space: FreeSpace::default(),
        extents: (0, 0),
        dirty: Vec::new(),
        free: FreeLeaves::default(),
        dead: Vec::new(),
    };
    let mut unused = Vec::new();
    for (frame, kind) in frames(pages, seed, false) {
        match kind {
            None => {
                let mut table = vec![0; TABLE];
                pages.copy(u64::from(frame) * FRAME, &mut table);
                if table.iter().any(|byte| *byte != 0) {
                    found.dirty.push(frame);
                }
                found.space.add_unused([frame]);
            }
            Some(FrameKind::Leaves) => {
                for slot in 0..LEAVES {
                    let id = LeafId::new(frame, slot);
                    match used_leaf(pages, id, committed, kept)? {
                        Some(leaf) => found.add_leaf(leaf, kept),
                        None => unused.push(id),
                    }
                }
            }
            Some(FrameKind::Extents { run }) => {
                extents(pages, (frame, run), committed, kept, &mut found)?;
            }
        }
    }
    // The last one is taken first, so the lowest goes last.
    unused.reverse();
    found.free.add(unused);
    Ok(found)
}

/// Marks the units of a run's extents in use.
fn extents(
    pages: &TreePages,
    (frame, run): (u32, u32),
    committed: &Committed,
    kept: KeptVersions<'_>,
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let mut table = vec![0; TABLE];
    pages.copy(u64::from(frame) * FRAME, &mut table);
    let damaged = |extent: TreeExtent, what| StoreError::Damaged {
        at: extent.header_at(),
        what,
    };
    let mut in_use = Vec::new();
    for unit in TreeExtent::first(run)..UNITS {
        let header = ExtentHeader::read(&table[unit as usize * EXTENT_HEADER..]);
        let extent = TreeExtent {
            frame,
            run,
            unit,
            len: header.len,
        };
        if !header.is_valid(extent.place()) || !committed.contains(header.birth()) {
            continue;
        }
        let birth = header.birth();
        let death = match header.death(extent) {
            WordStamp::Version(death) if death > birth && committed.contains(death) => {
                if !kept.may_be_in(birth, death) || without("names.extents") {
                    continue;
                }
                Some(death)
            }
            WordStamp::Bad => return Err(damaged(extent, "the death word of an extent")),
            WordStamp::Version(_) | WordStamp::Zero => None,
        };
        in_use.push((birth, death, extent));
    }
    found.space.add_map(frame, run);
    // Newest first: an older extent that overlaps a newer one is no longer in use.
    in_use.sort_by_key(|(birth, ..)| std::cmp::Reverse(*birth));
    let mut used = [false; UNITS as usize];
    for (birth, death, extent) in in_use {
        let range = extent.unit as usize..(extent.unit + extent.units()) as usize;
        match used.get_mut(range).filter(|_| extent.is_inside()) {
            Some(units) if !units.contains(&true) => units.fill(true),
            Some(_) if death.is_some() => continue,
            _ => return Err(damaged(extent, "an extent that overlaps another")),
        }
        found.space.mark(extent, true);
        match death {
            Some(death) => found.dead.push(Dead {
                place: ReservePlace::Extent(extent),
                birth,
                death,
            }),
            None => {
                found.extents.0 += 1;
                found.extents.1 += extent.smallest_units();
            }
        }
    }
    Ok(())
}

/// The leaf, if it was born and has not died in the committed version, or a kept version has it.
fn used_leaf(
    pages: &TreePages,
    id: LeafId,
    committed: &Committed,
    kept: KeptVersions<'_>,
) -> Result<Option<Found>, StoreError> {
    let (header, mut fences) = read_header(pages, id);
    if !header.is_valid(id, &fences) || !committed.contains(header.birth()) {
        return Ok(None);
    }
    let birth = header.birth();
    let death = match header.death(id) {
        WordStamp::Version(death) if death > birth && committed.contains(death) => {
            if !kept.may_be_in(birth, death) {
                return Ok(None);
            }
            Some(death)
        }
        WordStamp::Bad => {
            return Err(StoreError::Damaged {
                at: id.header_at() + LeafHeader::DEATH,
                what: "the death word of a leaf",
            });
        }
        WordStamp::Version(_) | WordStamp::Zero => None,
    };
    let (low, high) = header.lengths();
    if fences.len() != low + high.unwrap_or(0) {
        return Err(StoreError::Damaged {
            at: id.header_at(),
            what: "the place of the fences of a leaf",
        });
    }
    let upper = fences.split_off(low);
    let high = high.map(|_| upper.into_boxed_slice());
    let leaf = Leaf::new(id, birth, fences.into(), high).of(header.tree, header.outside());
    Ok(Some(Found {
        death,
        leaf: Arc::new(leaf),
    }))
}

/// The frames that hold leaves, while a writer runs.
pub(crate) fn frames_of_leaves(pages: &TreePages, seed: u32) -> impl Iterator<Item = u32> {
    let frames = frames(pages, seed, true).into_iter();
    frames.filter_map(|(frame, kind)| (kind == Some(FrameKind::Leaves)).then_some(frame))
}

/// The leaf, if it was born and has not died in the committed version. A writer may be storing to
/// the table meanwhile.
pub(crate) fn live_leaf(
    pages: &TreePages,
    seed: u32,
    id: LeafId,
    committed: &Committed,
) -> Result<Option<Arc<Leaf>>, StoreError> {
    let found = used_leaf(pages, id, committed, KeptVersions::NONE);
    if matches!(found, Ok(None)) {
        return Ok(None);
    }
    // The bytes may stem from two users of the place, or from a value that lies there now. Neither
    // happens at a place that the durable version uses.
    // SYNC: pairs with the barriers between the uses of a place.
    fence(Acquire);
    if kind_of(pages, seed, id.frame()) != Some(FrameKind::Leaves) {
        return Ok(None);
    }
    let mut header = LeafHeader::new_zeroed();
    pages.copy(id.header_at(), header.as_mut_bytes());
    let found = found?.map(|found| found.leaf);
    Ok(found.filter(|leaf| leaf.birth == header.birth()))
}

/// The leaves of the newest committed version, while a writer runs.
pub(crate) fn leaves_at(
    pages: &TreePages,
    seed: u32,
    committed: &Committed,
) -> Result<Vec<Arc<Leaf>>, StoreError> {
    let mut leaves = Vec::new();
    for frame in frames_of_leaves(pages, seed) {
        for slot in 0..LEAVES {
            leaves.extend(live_leaf(pages, seed, LeafId::new(frame, slot), committed)?);
        }
    }
    // A frame with a leaf of the version does not change its use. Another frame may have become
    // part of a run since, and hold bytes of a value that look like leaves; the run's header was
    // written before them.
    let still: BTreeSet<u32> = frames_of_leaves(pages, seed).collect();
    leaves.retain(|leaf: &Arc<Leaf>| still.contains(&leaf.id.frame()));
    // If the last header of a tree were lost, the tree would look empty, so compare the counts. The
    // record is missing if the writer has gone once around the ring since.
    match record_of(pages, seed, committed, committed.version()) {
        Some(record) if record.leaves != leaves.len() as u64 => Err(StoreError::Damaged {
            at: CommitRecord::place(record.sequence),
            what: "the commit record counts other leaves than the tables hold",
        }),
        _ => Ok(leaves),
    }
}

/// The number of dead leaves that one of these versions has, while a writer runs.
pub(crate) fn retained(
    pages: &TreePages,
    seed: u32,
    committed: &Committed,
    held: &[u64],
) -> Result<usize, StoreError> {
    let mut retained = 0;
    let kept = KeptVersions {
        versions: held,
        any: false,
    };
    for frame in frames_of_leaves(pages, seed) {
        for slot in 0..LEAVES {
            let id = LeafId::new(frame, slot);
            let found = used_leaf(pages, id, committed, kept)?;
            retained += usize::from(found.is_some_and(|found| found.death.is_some()));
        }
    }
    Ok(retained)
}

/// The newest record up to `version`, with that version number, if it is in the ring. The commits
/// after it had no record, so its count of entries may be out of date.
pub(crate) fn record_of(
    pages: &TreePages,
    seed: u32,
    committed: &Committed,
    version: u64,
) -> Option<CommitRecord> {
    let records = (0..RING_SLOTS).map(|slot| {
        let mut record = CommitRecord::empty();
        pages.copy(CommitRecord::place(slot), record.as_mut_bytes());
        record
    });
    let of = records.filter(|record| {
        record.version <= version && record.is_valid(seed) && !committed.is_dead(record.version)
    });
    let mut newest = of.max_by_key(|record| record.sequence)?;
    if newest.version < version {
        newest.version = version;
        newest.state |= STATE_UNCOUNTED;
    }
    Some(newest)
}

/// Removes every trace of dead versions, so that their numbers need not be kept: each leaf then
/// ends after its last committed entry, and headers name committed versions only. May be
/// interrupted and repeated.
pub(crate) fn sweep(
    pages: &TreePages,
    seed: u32,
    committed: &Committed,
    found: &Recovered,
) -> Result<(), StoreError> {
    names::sweep(pages, committed);
    for leaf in found.all_leaves() {
        leaf.load(pages, committed)?;
        let end = leaf.end();
        if end < crate::layout::LEAF {
            pages.store_word(leaf.id.at() + end as u64, 0);
        }
    }
    let is_dead = |version| committed.is_dead(version);
    let dies = |death| matches!(death, WordStamp::Version(version) if is_dead(version));
    for (frame, kind) in frames(pages, seed, false) {
        match kind {
            None => {}
            Some(FrameKind::Leaves) => {
                for slot in 0..LEAVES {
                    let id = LeafId::new(frame, slot);
                    let (header, _) = read_header(pages, id);
                    if is_dead(header.birth()) {
                        pages.store_word(id.header_at() + 8, 0);
                    }
                    if dies(header.death(id)) {
                        pages.store_word(id.header_at() + LeafHeader::DEATH, 0);
                    }
                }
            }
            Some(FrameKind::Extents { run }) => {
                for unit in TreeExtent::first(run)..UNITS {
                    let extent = TreeExtent {
                        frame,
                        run,
                        unit,
                        len: 0,
                    };
                    let mut bytes = [0; EXTENT_HEADER];
                    pages.copy(extent.header_at(), &mut bytes);
                    let header = ExtentHeader::read(&bytes);
                    if is_dead(header.birth()) {
                        pages.store_word(extent.header_at() + 8, 0);
                    }
                    if dies(header.death(extent)) {
                        pages.store_word(extent.header_at() + ExtentHeader::DEATH, 0);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Zeroes the tables of frames without content; durable after the next barrier.
pub(crate) fn clean(pages: &TreePages, frames: &[u32]) {
    for frame in frames {
        pages.store(u64::from(*frame) * FRAME, &[0; TABLE]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use mneme_sys::medium::{Medium, MemoryMedium};

    /// A reader's mapping ends within a run: the frames after its first one hold bytes of a value.
    #[test]
    fn no_table_is_looked_for_within_a_run() {
        let medium = MemoryMedium::new(8 * FRAME).unwrap();
        medium.grow(4 * FRAME).unwrap();
        let pages = TreePages::new(Box::new(medium), Durability::Process);
        let kinds = [
            FrameKind::Leaves,
            FrameKind::Extents { run: 5 },
            FrameKind::Leaves,
        ];
        for (frame, kind) in (1..).zip(kinds) {
            let header = FrameHeader::new(frame, kind, 7);
            pages.store(u64::from(frame) * FRAME, header.as_bytes());
        }
        assert!(frames_of_leaves(&pages, 7).eq([1]));
    }
}
