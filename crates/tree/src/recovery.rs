//! What a store holds, from its ring and its tables alone. No leaf is read.

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use crate::breakage::without;
use crate::checksum::Stamp;
use crate::layout::{
    EXTENT_HEADER, Extent, ExtentHeader, FRAME, FileHeader, FrameHeader, FrameKind, HeaderProblem,
    LEAVES, LeafHeader, LeafId, RING_SLOTS, Record, TABLE, UNITS,
};
use crate::leaf::{Committed, FreeLeaves, Leaf};
use crate::pages::Pages;
use crate::reserve::{Dead, Place};
use crate::space::Space;
use crate::{StoreError, names};

/// The tables of a store, sorted out.
pub(crate) struct Recovered {
    /// Leaves that a version in use has, with their death.
    leaves: Vec<Found>,
    /// Free frames and units.
    pub(crate) space: Space,
    /// Extents in use, and their units.
    pub(crate) extents: (u64, u64),
    /// Unused frames whose table is not zero, so that it must become so before they are used.
    pub(crate) dirty: Vec<u32>,
    /// Leaves that nothing uses.
    pub(crate) free: FreeLeaves,
    /// What is dead, but in versions that are kept.
    pub(crate) dead: Vec<Dead>,
}

/// A leaf of some version in use.
struct Found {
    /// `None`: the newest version has it.
    death: Option<u64>,
    leaf: Arc<Leaf>,
}

impl Recovered {
    fn add_leaf(&mut self, found: Found) {
        if let Some(death) = found.death {
            self.dead.push(Dead {
                place: Place::Leaf(found.leaf.id),
                birth: found.leaf.birth,
                death,
            });
        }
        self.leaves.push(found);
    }

    /// Every leaf that is not free.
    pub(crate) fn all_leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.iter().map(|found| &found.leaf)
    }

    /// The leaves of a named version, or of the newest one, in order. They tile the key space.
    pub(crate) fn leaves_of(&self, version: Option<u64>) -> Result<Vec<Arc<Leaf>>, StoreError> {
        let has = |found: &&Found| match version {
            Some(version) => {
                found.leaf.birth <= version && found.death.is_none_or(|death| version < death)
            }
            None => found.death.is_none(),
        };
        let of = self.leaves.iter().filter(has);
        let mut leaves: Vec<_> = of.map(|found| found.leaf.clone()).collect();
        leaves.sort_by(|a, b| a.low.cmp(&b.low));
        tile(&leaves)?;
        Ok(leaves)
    }
}

/// Whether a version that is kept lies from `birth` to before `death`.
fn is_kept(kept: &[u64], birth: u64, death: u64) -> bool {
    kept.iter().any(|version| (birth..death).contains(version))
}

/// Reads and checks the store's header.
pub(crate) fn file_header(pages: &Pages) -> Result<FileHeader, StoreError> {
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

/// The newest valid commit record, of a store that is as long as it says.
pub(crate) fn newest_record(pages: &Pages, seed: u32) -> Result<Record, StoreError> {
    let newest = newest_in_ring(pages, seed)?;
    if newest.file_len > pages.len() {
        return Err(StoreError::Truncated {
            len: pages.len(),
            needed: newest.file_len,
        });
    }
    Ok(newest)
}

/// The newest valid record of the ring; nothing behind the ring need be there.
pub(crate) fn newest_in_ring(pages: &Pages, seed: u32) -> Result<Record, StoreError> {
    let mut newest = Record::empty();
    for slot in 0..RING_SLOTS {
        let mut record = Record::empty();
        pages.copy(Record::place(slot), record.as_mut_bytes());
        if record.sequence > newest.sequence
            && record.sequence % RING_SLOTS == slot
            && record.is_valid(seed)
        {
            newest = record;
        }
    }
    if newest.sequence == 0 {
        return Err(StoreError::Damaged {
            at: Record::place(0),
            what: "the ring holds no commit record",
        });
    }
    Ok(newest)
}

/// A leaf's header with its fences.
fn read_header(pages: &Pages, id: LeafId) -> (LeafHeader, Vec<u8>) {
    let mut header = LeafHeader::new_zeroed();
    pages.copy(id.header_at(), header.as_mut_bytes());
    let (low, high) = header.lengths();
    let fences = if header.has_long_fences() {
        let mut fences = vec![0; (low + high.unwrap_or(0)).min(crate::layout::LEAF)];
        pages.copy(id.at(), &mut fences);
        fences
    } else {
        header.inline_fences().to_vec()
    };
    (header, fences)
}

/// Every frame that has a table, and what it holds: `None` if nothing.
fn frames(pages: &Pages, seed: u32) -> Vec<(u32, Option<FrameKind>)> {
    let end = u32::try_from(pages.len() / FRAME).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    let mut frame = 1;
    while frame < end {
        let mut header = FrameHeader::new_zeroed();
        pages.copy(u64::from(frame) * FRAME, header.as_mut_bytes());
        let kind = match header.kind(frame, seed) {
            // Growth that did not become durable: nothing committed needs it.
            Some(FrameKind::Extents { run }) if run > end - frame => None,
            kind => kind,
        };
        found.push((frame, kind));
        frame += match kind {
            // The other frames of a run are filled by the value.
            Some(FrameKind::Extents { run }) => run,
            _ => 1,
        };
    }
    found
}

/// Sorts the leaves and extents of all frames into free ones, those of the committed version and
/// those of the versions that are `kept`.
pub(crate) fn tables(
    pages: &Pages,
    seed: u32,
    committed: &Committed,
    kept: &[u64],
) -> Result<Recovered, StoreError> {
    let mut found = Recovered {
        leaves: Vec::new(),
        space: Space::default(),
        extents: (0, 0),
        dirty: Vec::new(),
        free: FreeLeaves::default(),
        dead: Vec::new(),
    };
    let mut unused = Vec::new();
    for (frame, kind) in frames(pages, seed) {
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
                        Some(leaf) => found.add_leaf(leaf),
                        None => unused.push(id),
                    }
                }
            }
            Some(FrameKind::Extents { run }) => {
                extents(pages, (frame, run), committed, kept, &mut found)?;
            }
        }
    }
    // The last is taken first: the lowest.
    unused.reverse();
    found.free.add(unused);
    Ok(found)
}

/// Marks the extents of a run that are in use.
fn extents(
    pages: &Pages,
    (frame, run): (u32, u32),
    committed: &Committed,
    kept: &[u64],
    found: &mut Recovered,
) -> Result<(), StoreError> {
    let mut table = vec![0; TABLE];
    pages.copy(u64::from(frame) * FRAME, &mut table);
    let mut live = Vec::new();
    let mut end = 0;
    for unit in Extent::first(run)..UNITS {
        let header = ExtentHeader::read(&table[unit as usize * EXTENT_HEADER..]);
        let extent = Extent {
            frame,
            run,
            unit,
            len: header.len,
        };
        if !header.is_valid(extent.place()) || !committed.contains(header.birth()) {
            continue;
        }
        let damaged = |what| StoreError::Damaged {
            at: extent.header_at(),
            what,
        };
        let birth = header.birth();
        let is_dead = match header.death(extent) {
            Stamp::Version(death) if death > birth && committed.contains(death) => {
                if !is_kept(kept, birth, death) || without("names.extents") {
                    continue;
                }
                found.dead.push(Dead {
                    place: Place::Extent(extent),
                    birth,
                    death,
                });
                true
            }
            Stamp::Bad => return Err(damaged("the death word of an extent")),
            Stamp::Version(_) | Stamp::Zero => false,
        };
        if unit < end || !extent.is_inside() {
            return Err(damaged("an extent that overlaps another"));
        }
        end = unit + extent.units();
        if !is_dead {
            found.extents.0 += 1;
            found.extents.1 += extent.smallest_units();
        }
        live.push(extent);
    }
    found.space.add_map(frame, run);
    live.iter()
        .for_each(|extent| found.space.mark(*extent, true));
    Ok(())
}

/// The leaf, if it was born and has not died in what is committed, or a version that is kept has
/// it.
fn used_leaf(
    pages: &Pages,
    id: LeafId,
    committed: &Committed,
    kept: &[u64],
) -> Result<Option<Found>, StoreError> {
    let (header, mut fences) = read_header(pages, id);
    if !header.is_valid(id, &fences) || !committed.contains(header.birth()) {
        return Ok(None);
    }
    let birth = header.birth();
    let death = match header.death(id) {
        Stamp::Version(death) if death > birth && committed.contains(death) => {
            if !is_kept(kept, birth, death) {
                return Ok(None);
            }
            Some(death)
        }
        Stamp::Bad => {
            return Err(StoreError::Damaged {
                at: id.header_at() + LeafHeader::DEATH,
                what: "the death word of a leaf",
            });
        }
        Stamp::Version(_) | Stamp::Zero => None,
    };
    let (low, high) = header.lengths();
    let upper = fences.split_off(low);
    let high = high.map(|_| upper.into_boxed_slice());
    let leaf = Arc::new(Leaf::new(id, birth, fences.into(), high));
    Ok(Some(Found { death, leaf }))
}

/// Makes sure that sorted leaves tile the key space.
pub(crate) fn tile(leaves: &[Arc<Leaf>]) -> Result<(), StoreError> {
    let mut expected: Option<&[u8]> = Some(&[]);
    for leaf in leaves {
        if expected != Some(&leaf.low) {
            return Err(StoreError::Damaged {
                at: leaf.id.header_at(),
                what: "leaves leave a gap in the key space, or overlap, before this one",
            });
        }
        expected = leaf.high.as_deref();
    }
    match expected {
        None => Ok(()),
        Some(_) => Err(StoreError::Damaged {
            at: leaves.last().map_or(FRAME, |leaf| leaf.id.header_at()),
            what: "no leaf takes the largest keys",
        }),
    }
}

/// Removes every trace of dead versions, so that their numbers need not be kept: leaves end behind
/// their last committed entry, and headers name committed versions only. May be interrupted and
/// begun again.
pub(crate) fn sweep(
    pages: &Pages,
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
    let is_dead = |version| committed.dead.binary_search(&version).is_ok();
    let dies = |death| matches!(death, Stamp::Version(version) if is_dead(version));
    for (frame, kind) in frames(pages, seed) {
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
                for unit in Extent::first(run)..UNITS {
                    let extent = Extent {
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

/// Zeroes the tables of frames that hold nothing, durable after the next barrier.
pub(crate) fn clean(pages: &Pages, frames: &[u32]) {
    for frame in frames {
        pages.store(u64::from(*frame) * FRAME, &[0; TABLE]);
    }
}
