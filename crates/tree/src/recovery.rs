//! What a store holds, from its ring and its tables alone. No leaf is read.

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use crate::StoreError;
use crate::checksum::Stamp;
use crate::layout::{
    FRAME, FileHeader, FrameHeader, HeaderProblem, LEAVES, LeafHeader, LeafId, RING_SLOTS, Record,
};
use crate::leaf::{Committed, FreeLeaves, Leaf};
use crate::pages::Pages;

/// The tables of a store, sorted out.
pub(crate) struct Recovered {
    /// Leaves of the committed version, in order of their keys. They tile the key space.
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Frames whose header is not written yet.
    pub(crate) unformatted: Vec<u32>,
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

/// The newest valid commit record.
pub(crate) fn newest_record(pages: &Pages, seed: u32) -> Result<Record, StoreError> {
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
    if newest.file_len > pages.len() {
        return Err(StoreError::Truncated {
            len: pages.len(),
            needed: newest.file_len,
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

/// Sorts the leaves of all frames into those of the committed version and free ones.
pub(crate) fn leaves(
    pages: &Pages,
    seed: u32,
    committed: &Committed,
    free: &Arc<FreeLeaves>,
) -> Result<Recovered, StoreError> {
    let frames = u32::try_from(pages.len() / FRAME).unwrap_or(u32::MAX);
    let mut found = Recovered {
        leaves: Vec::new(),
        unformatted: Vec::new(),
    };
    let mut unused = Vec::new();
    for frame in (1..frames).rev() {
        if !is_formatted(pages, frame, seed) {
            found.unformatted.push(frame);
            continue;
        }
        for slot in (0..LEAVES).rev() {
            let id = LeafId::new(frame, slot);
            match live_leaf(pages, id, committed, free)? {
                Some(leaf) => found.leaves.push(Arc::new(leaf)),
                None => unused.push(id),
            }
        }
    }
    found.leaves.sort_by(|a, b| a.low.cmp(&b.low));
    tile(&found.leaves)?;
    free.add(unused);
    Ok(found)
}

fn is_formatted(pages: &Pages, frame: u32, seed: u32) -> bool {
    let mut header = FrameHeader::new_zeroed();
    pages.copy(u64::from(frame) * FRAME, header.as_mut_bytes());
    header == FrameHeader::leaves(frame, seed)
}

/// The leaf, if it was born and has not died in what is committed.
fn live_leaf(
    pages: &Pages,
    id: LeafId,
    committed: &Committed,
    free: &Arc<FreeLeaves>,
) -> Result<Option<Leaf>, StoreError> {
    let (header, mut fences) = read_header(pages, id);
    if !header.is_valid(id, &fences) || !committed.contains(header.birth()) {
        return Ok(None);
    }
    match header.death(id) {
        Stamp::Version(death) if death > header.birth() && committed.contains(death) => {
            return Ok(None);
        }
        Stamp::Bad => {
            return Err(StoreError::Damaged {
                at: id.header_at() + LeafHeader::DEATH,
                what: "the death word of a leaf",
            });
        }
        Stamp::Version(_) | Stamp::Zero => {}
    }
    let (low, high) = header.lengths();
    let upper = fences.split_off(low);
    let high = high.map(|_| upper.into_boxed_slice());
    Ok(Some(Leaf::new(id, fences.into(), high, free.clone())))
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
    committed: &Committed,
    leaves: &[Arc<Leaf>],
) -> Result<(), StoreError> {
    for leaf in leaves {
        leaf.load(pages, committed)?;
        let end = leaf.end();
        if end < crate::layout::LEAF {
            pages.store_word(leaf.id.at() + end as u64, 0);
        }
    }
    let frames = u32::try_from(pages.len() / FRAME).unwrap_or(u32::MAX);
    for frame in 1..frames {
        for slot in 0..LEAVES {
            let id = LeafId::new(frame, slot);
            let (header, _) = read_header(pages, id);
            let is_dead = |version| committed.dead.binary_search(&version).is_ok();
            if is_dead(header.birth()) {
                pages.store_word(id.header_at() + 8, 0);
            }
            if let Stamp::Version(death) = header.death(id)
                && is_dead(death)
            {
                pages.store_word(id.header_at() + LeafHeader::DEATH, 0);
            }
        }
    }
    Ok(())
}
