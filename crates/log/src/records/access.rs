//! Recent reads: marks in the headers of records, made from samples. Readers write only to memory
//! of their own.
//!
//! A thread notes the places of keys that it finds in a *ring* at the end of its undo area in the
//! control region. Once the ring is full, the thread notes nothing until the maintainer (or a
//! writer that has to evict) has *folded* it: looked the places up and marked the records there. So
//! all reads of a thread that reads seldom are noted. A thread that reads often notes only a
//! sample, at a bounded cost.
//!
//! Marks are hints. The ring of a thread that died, or one that another thread took over, does no
//! harm. Two threads that fold concurrently mark twice.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sync::UndoArea;

use crate::index::bucket::TAG_BITS;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::records::Records;
use crate::region::layout::RING_BYTES;
use crate::region::space::KeyspaceId;

/// Words of the ring: the number of places noted, the number folded (on lines of their own), the
/// places.
const NOTED: usize = 0;
const FOLDED: usize = 8;
const PLACES: usize = 16;
const CAPACITY: u64 = (RING_BYTES / 8 - PLACES) as u64;

fn ring(area: UndoArea<'_>) -> Option<&[AtomicU64; RING_BYTES / 8]> {
    let ring = area.split_at(area.len().saturating_sub(RING_BYTES)).1;
    ring.words().try_into().ok()
}

const PLACE_BIT: u64 = 1 << 63;
const SPACE_SHIFT: u32 = TAG_BITS + 16;

fn place_word(space: KeyspaceId, place: Place) -> u64 {
    PLACE_BIT
        | u64::from(space.number()) << SPACE_SHIFT
        | u64::from(place.partition & 0xffff) << TAG_BITS
        | u64::from(place.tag)
}

pub(crate) fn of_place_word(word: u64) -> (KeyspaceId, Place) {
    let place = Place {
        partition: (word >> TAG_BITS) as u32 & 0xffff,
        tag: word as u32 & ((1 << TAG_BITS) - 1),
    };
    (KeyspaceId::new((word >> SPACE_SHIFT) as u8), place)
}

impl Records {
    /// Notes that the key at `place` was found, if the eviction policy needs samples.
    #[inline(always)]
    pub(crate) fn note_access(&self, root: Root, place: Place) {
        if self.session().tables.header().samples.load(Relaxed) != 0 {
            self.sample(root, place);
        }
    }

    #[inline(never)]
    pub(crate) fn sample(&self, root: Root, place: Place) {
        if root.space().is_hidden() {
            // A read there counts for the main.
            return;
        }
        // A thread that reads has a slot.
        if let Ok(slot) = self.session().participants.slot() {
            push(slot.undo(), place_word(root.space(), place));
        }
    }
}

/// Notes a place. Only the area's own thread calls this.
#[inline]
fn push(area: UndoArea<'_>, word: u64) {
    let Some(ring) = ring(area) else {
        return;
    };
    let noted = ring[NOTED].load(Relaxed);
    // SYNC: pairs with the Release store in `take`: what is overwritten was read.
    if noted.wrapping_sub(ring[FOLDED].load(Acquire)) >= CAPACITY {
        return;
    }
    ring[PLACES + (noted % CAPACITY) as usize].store(word, Relaxed);
    // SYNC: pairs with the Acquire load in `take`.
    ring[NOTED].store(noted.wrapping_add(1), Release);
}

/// Takes the noted places. Any thread may call this.
pub(crate) fn take(area: UndoArea<'_>, places: &mut Vec<u64>) {
    let Some(ring) = ring(area) else {
        return;
    };
    // SYNC: pairs with the Release store in `push`.
    let noted = ring[NOTED].load(Acquire);
    let folded = ring[FOLDED].load(Relaxed);
    for i in 0..noted.wrapping_sub(folded).min(CAPACITY) {
        let word = ring[PLACES + (folded.wrapping_add(i) % CAPACITY) as usize].load(Relaxed);
        if word & PLACE_BIT != 0 {
            places.push(word);
        }
    }
    // SYNC: pairs with the Acquire load in `push`.
    ring[FOLDED].store(noted, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_word() {
        for (space, partition, tag) in [(0, 0, 0), (63, 0xffff, (1 << TAG_BITS) - 1), (5, 77, 12)] {
            let space = KeyspaceId::new(space);
            let place = Place { partition, tag };
            assert_eq!(of_place_word(place_word(space, place)), (space, place));
        }
    }
}
