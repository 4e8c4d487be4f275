//! **A thread slot has one owner at a time, and every process can tell which one**: the word that
//! names the owner.
//!
//! The word names the entry of the owning process, that entry's incarnation, and the *generation*:
//! a number that changes whenever the slot gets a new owner. One exchange both takes the slot and
//! names its owner, so a slot never has an unknown owner; this claim therefore needs no intent. A
//! lock holder named by slot and generation is not mistaken for a later owner of the slot.

use crate::atomics::Word;
use crate::layout::LANES;
use crate::{epoch, gate, intent};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A decoded owner word: process (16 bits, 0: free), generation (16), incarnation of the process
/// entry (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotOwner {
    /// The index of the process's entry, from 1; 0: the slot is free.
    pub(crate) process: u16,
    /// The number of the owner since the region was built; wraps.
    pub(crate) generation: u16,
    /// The low bits of the incarnation of the process's entry.
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
    // SYNC: pairs with the Release store in `release`: the last owner's words are cleared, and this
    // thread sees that.
    owner
        .compare_exchange(word, mine.encode(), AcqRel, Relaxed)
        .is_ok()
        .then_some(mine)
}

/// Releases a slot whose other words are clear. Only its owner may call this, or a reaper that
/// holds the dead owner's liveness lock.
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

/// Clears a slot whose counts have been moved, and frees it, the owner's name last: after a death
/// in between it still has an owner, and the next reaper repeats this. Callers are those of
/// [`release`].
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
/// The slot becomes an orphan, see [`is_orphan`]. Only its owner may call this, and must not use
/// the slot any more.
pub(crate) fn abandon<W: Word>(owner: &W) {
    let last = SlotOwner::decode(owner.load(Relaxed));
    let incarnation = last.incarnation.wrapping_sub(1);
    // SYNC: pairs with the Acquire load in `read`: the reaper sees everything that the owner did.
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

/// Whether a slot's owner is an earlier incarnation of its process entry. `present` returns an
/// entry's current incarnation; `None` if there is no such entry.
///
/// Such an owner is dead, because its successor took the entry's liveness lock, or it has
/// [abandoned](abandon) the slot.
pub(crate) fn is_orphan<W: Word>(owner: &W, present: impl Fn(u16) -> Option<u32>) -> bool {
    let found = read(owner);
    // A slot is claimed after its process's entry has the new incarnation, so the entry read here
    // is never older than the owner.
    let is_earlier = present(found.process).is_some_and(|now| now != found.incarnation);
    // The owner may have left in between, and a living successor may have its entry and its slot. A
    // process that leaves clears its slots before it releases its entry. So if the slot still names
    // the owner after the entry names the successor, it was not cleared by the owner, and never
    // will be.
    is_earlier && read(owner) == found
}
