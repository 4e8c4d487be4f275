//! **A thread slot has one owner at a time, and every process can tell which and since when**: the
//! word that says so.
//!
//! The word names the owning process' entry, that entry's incarnation, and the *generation*: a
//! number that changes whenever the slot gets a new owner. One exchange both takes the slot and
//! names the taker, so the slot is never taken by an unknown owner; this claim alone needs no
//! intent. A lock holder named by slot and generation is not mistaken for a later owner of the
//! slot.

use crate::atomics::Word;
use crate::layout::LANES;
use crate::{epoch, gate, intent};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Value of an owner word, decoded: process (16 bits, 0: free), generation (16), incarnation of the
/// process entry (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotOwner {
    /// Index of the process' entry, from 1; 0: the slot is free.
    pub(crate) process: u16,
    /// Which owner since the region was built; wraps.
    pub(crate) generation: u16,
    /// Low bits of the incarnation of the process' entry.
    pub(crate) incarnation: u32,
}

impl SlotOwner {
    pub(crate) const fn decode(word: u64) -> SlotOwner {
        SlotOwner {
            process: word as u16,
            generation: (word >> 16) as u16,
            incarnation: (word >> 32) as u32,
        }
    }

    const fn encode(self) -> u64 {
        self.process as u64 | (self.generation as u64) << 16 | (self.incarnation as u64) << 32
    }

    pub(crate) const fn is_free(self) -> bool {
        self.process == 0
    }
}

/// Takes a free slot for `process`; `None` if it is not free, or another thread was faster.
pub(crate) fn claim<W: Word>(owner: &W, process: u16, incarnation: u32) -> Option<SlotOwner> {
    let word = owner.load(Relaxed);
    let last = SlotOwner::decode(word);
    if !last.is_free() {
        return None;
    }
    let mine = SlotOwner {
        process,
        generation: last.generation.wrapping_add(1),
        incarnation,
    };
    // SYNC: pairs with the Release store in `release`: the last owner's words are cleared, and we
    // see them so.
    owner
        .compare_exchange(word, mine.encode(), AcqRel, Relaxed)
        .is_ok()
        .then_some(mine)
}

/// Gives a slot back whose other words are clear. Its owner calls this, or a reaper that holds the
/// dead owner's liveness.
fn release<W: Word>(owner: &W) {
    let last = SlotOwner::decode(owner.load(Relaxed));
    // SYNC: pairs with the exchange in `claim`.
    owner.store(
        SlotOwner {
            process: 0,
            incarnation: 0,
            ..last
        }
        .encode(),
        Release,
    );
}

/// The words of a slot that must be clear before it is free.
pub(crate) struct SlotWords<'a, W> {
    pub(crate) owner: &'a W,
    pub(crate) pin: &'a W,
    pub(crate) inside: &'a W,
    pub(crate) intents: [&'a W; LANES],
}

/// Clears a slot whose counts are moved, and frees it, the owner's name last: a death in between
/// leaves it owned, and the next reaper does it again. The caller is as for [`release`].
pub(crate) fn vacate<W: Word>(slot: &SlotWords<'_, W>) {
    for head in slot.intents {
        intent::clear(head);
    }
    mneme_sys::fault!("sync.vacate.intents");
    gate::leave(slot.inside, u64::MAX);
    mneme_sys::fault!("sync.vacate.inside");
    epoch::leave(slot.pin);
    mneme_sys::fault!("sync.vacate.pin");
    release(slot.owner);
    mneme_sys::fault!("sync.vacate.owner");
}

/// Leaves a slot to the reapers: what its living owner has announced is neither done nor undone.
/// The slot becomes an orphan, see [`is_orphan`]. Its owner calls this, and uses the slot no more.
pub(crate) fn abandon<W: Word>(owner: &W) {
    let last = SlotOwner::decode(owner.load(Relaxed));
    let incarnation = last.incarnation.wrapping_sub(1);
    // SYNC: pairs with the Acquire load in `read`: the reaper sees all that the owner did.
    owner.store(
        SlotOwner {
            incarnation,
            ..last
        }
        .encode(),
        Release,
    );
}

/// The slot's owner.
pub(crate) fn read<W: Word>(owner: &W) -> SlotOwner {
    // SYNC: pairs with the exchange in `claim`.
    SlotOwner::decode(owner.load(Acquire))
}

/// Whether a slot's owner is an earlier incarnation of its process entry. `present` reads which
/// incarnation an entry is now; `None`: there is no such entry.
///
/// Such an owner is dead, for its successor took the entry's liveness lock, or it has
/// [abandoned](abandon) the slot.
pub(crate) fn is_orphan<W: Word>(owner: &W, present: impl Fn(u16) -> Option<u32>) -> bool {
    let found = read(owner);
    // A slot is claimed after the entry says its incarnation: the entry read here is never older
    // than the owner.
    let is_earlier = present(found.process).is_some_and(|now| now != found.incarnation);
    // The owner may have left in between, and a living successor may have its entry and its slot.
    // A process that leaves clears its slots before it gives back its entry. So a slot that still
    // names the owner after the entry names the successor was not cleared, and never will be.
    is_earlier && read(owner) == found
}
