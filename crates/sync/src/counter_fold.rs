//! **A thread's counts are added to the common base exactly once**, whichever process adds them,
//! and wherever that process dies.
//!
//! Each thread counts in its own slot, so counting costs only a store. When the slot is released or
//! its owner is dead, its counts move to the base. The process that moves them holds the region's
//! own lock and handles one counter at a time. It writes to the journal which counter of which slot
//! it moves and *the value that the base will have*; then it writes the base, zeroes the slot's
//! counter, and closes the journal. If it dies, the next holder of the lock finds the open journal
//! and repeats these stores. They write values, not differences, so repeating them changes nothing.
//!
//! Readers take no lock. The journal's word changes with every step, so a sum is consistent if the
//! word was equal before and after. While the journal is open, the base counts as the target and
//! the slot's counter as zero.
//!
//! A count belongs to a *root*, the identity of the index that is counted. Roots increase: of two
//! roots the larger is the newer, and counts for an older one are dropped. So giving a database a
//! new root, which empties it, resets its counts at once, in every slot.

use crate::atomics::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The words of one counter.
pub(crate) struct CounterWords<'a, W> {
    pub(crate) root: &'a W,
    pub(crate) value: &'a W,
}

/// The journal's words.
pub(crate) struct JournalWords<'a, W> {
    pub(crate) entry: &'a W,
    pub(crate) root: &'a W,
    pub(crate) target: &'a W,
}

/// The journal's first word, decoded: slot (16 bits), counter (8), open (1), sequence (39).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoldEntry(u64);

const OPEN: u64 = 1 << 24;
const SEQUENCE: u32 = 25;

impl FoldEntry {
    pub(crate) const fn slot(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn counter(self) -> u8 {
        (self.0 >> 16) as u8
    }

    pub(crate) const fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    const fn next(self, open: Option<(u16, u8)>) -> u64 {
        let sequence = (self.0 >> SEQUENCE).wrapping_add(1) << SEQUENCE;
        match open {
            Some((slot, counter)) => sequence | OPEN | (counter as u64) << 16 | slot as u64,
            None => sequence,
        }
    }
}

/// The count for `root`: the base plus all slots. `Err` if counts were moved meanwhile; its sum may
/// then be wrong by the count that was being moved.
pub(crate) fn sum<'a, W: Word + 'a>(
    journal: &JournalWords<'_, W>,
    base: &CounterWords<'_, W>,
    slots: impl Iterator<Item = (u16, CounterWords<'a, W>)>,
    counter: u8,
    root: u64,
) -> Result<u64, u64> {
    let before = look(journal);
    let moving = (before.is_open() && before.counter() == counter).then(|| before.slot());
    let mut sum = if moving.is_some() {
        // SYNC: published by the journal's entry; Acquire so that the second load of the entry
        // comes later.
        let (of, target) = (journal.root.load(Acquire), journal.target.load(Acquire));
        if of == root { target } else { 0 }
    } else {
        read(base, root).unwrap_or(0)
    };
    for (slot, mine) in slots {
        if moving != Some(slot) {
            sum = sum.wrapping_add(read(&mine, root).unwrap_or(0));
        }
    }
    if look(journal) == before {
        Ok(sum)
    } else {
        Err(sum)
    }
}

/// The journal's state.
pub(crate) fn look<W: Word>(journal: &JournalWords<'_, W>) -> FoldEntry {
    // SYNC: pairs with the Release stores in `open` and `close`.
    FoldEntry(journal.entry.load(Acquire))
}

/// Moves one counter of a slot to the base. The caller must hold the region's own lock and have
/// called [`finish`] since it got it.
pub(crate) fn fold<W: Word>(
    journal: &JournalWords<'_, W>,
    base: &CounterWords<'_, W>,
    mine: &CounterWords<'_, W>,
    slot: u16,
    counter: u8,
) {
    let (root, value) = (mine.root.load(Relaxed), mine.value.load(Relaxed));
    if root == 0 {
        return;
    }
    let base_root = base.root.load(Relaxed);
    let target = match root.cmp(&base_root) {
        std::cmp::Ordering::Less => {
            // Counted for an index that has been replaced.
            mine.root.store(0, Release);
            return;
        }
        std::cmp::Ordering::Equal => base.value.load(Relaxed).wrapping_add(value),
        std::cmp::Ordering::Greater => value,
    };
    if target == base.value.load(Relaxed) && root == base_root {
        mine.root.store(0, Release);
        return;
    }
    journal.root.store(root, Relaxed);
    journal.target.store(target, Relaxed);
    let entry = FoldEntry(journal.entry.load(Relaxed));
    mneme_sys::fault!("sync.fold.intent");
    // SYNC: pairs with the Acquire load in `look`; the two words above are visible with it.
    journal
        .entry
        .store(entry.next(Some((slot, counter))), Release);
    mneme_sys::fault!("sync.fold.open");
    apply(journal, base, mine);
}

/// Performs the step of an open journal, possibly for a second time, and closes the journal.
pub(crate) fn apply<W: Word>(
    journal: &JournalWords<'_, W>,
    base: &CounterWords<'_, W>,
    mine: &CounterWords<'_, W>,
) {
    // The open journal must be visible before any of its effects.
    W::fence(Release);
    base.root.store(journal.root.load(Relaxed), Relaxed);
    mneme_sys::fault!("sync.fold.root");
    base.value.store(journal.target.load(Relaxed), Relaxed);
    mneme_sys::fault!("sync.fold.base");
    mine.root.store(0, Relaxed);
    mneme_sys::fault!("sync.fold.slot");
    let entry = FoldEntry(journal.entry.load(Relaxed));
    // SYNC: pairs with the Acquire load in `look`.
    journal.entry.store(entry.next(None), Release);
}

/// Adds to a thread's own count; only that thread may call this.
pub(crate) fn count<W: Word>(mine: &CounterWords<'_, W>, root: u64, delta: u64) {
    if mine.root.load(Relaxed) == root {
        // SYNC: pairs with the Acquire load in `read`.
        mine.value
            .store(mine.value.load(Relaxed).wrapping_add(delta), Release);
    } else {
        set(mine, root, delta);
    }
}

/// Sets a thread's own count for a root; only that thread may call this.
pub(crate) fn set<W: Word>(mine: &CounterWords<'_, W>, root: u64, value: u64) {
    if mine.root.load(Relaxed) != root {
        // No reader may combine the old root with the new value.
        mine.root.store(0, Relaxed);
        W::fence(Release);
    }
    mine.value.store(value, Relaxed);
    // SYNC: pairs with the Acquire load in `read`.
    mine.root.store(root, Release);
}

/// The count for `root`, if the counter belongs to it.
pub(crate) fn read<W: Word>(counter: &CounterWords<'_, W>, root: u64) -> Option<u64> {
    // SYNC: pairs with the Release stores in `set` and `fold`.
    if counter.root.load(Acquire) != root {
        return None;
    }
    let value = counter.value.load(Acquire);
    // SYNC: pairs with the Release fence in `set`: if the value read above belonged to the next
    // root, this load sees that root.
    (counter.root.load(Acquire) == root).then_some(value)
}
