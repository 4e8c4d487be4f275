//! What [`Rcx`](super::Rcx) locks: items, by their ids.

use super::RcxError;
use super::protocol::Items;
use crate::lock_word::{self, Attempt};
use crate::robust_lock::me;
use crate::{RobustLock, Slot, Stalled};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The lock of an item. **It alone excludes**, so an implementation must be a lock by itself.
pub trait ItemLock {
    /// Takes it if it is free, and says whether its owner had died. That of a dead owner may count
    /// as taken.
    fn try_lock(&self, slot: &Slot<'_>) -> Option<bool>;

    /// Takes it, waiting at most `limit` for each owner that lives, and says whether its owner had
    /// died.
    ///
    /// # Errors
    /// [`Stalled`] names an owner that lives and does not let go.
    fn lock_within(&self, slot: &Slot<'_>, limit: Duration) -> Result<bool, Stalled>;

    /// Lets go.
    ///
    /// # Safety
    /// The calling thread holds it by one of the above.
    unsafe fn unlock(&self, slot: &Slot<'_>);

    /// Whether an owner has died and nobody has [repaired](Self::repaired) since.
    fn owner_died(&self) -> bool {
        false
    }

    /// Declares the item whole again.
    ///
    /// # Safety
    /// The calling thread holds it.
    unsafe fn repaired(&self, slot: &Slot<'_>) {
        let _ = slot;
    }

    /// Declares the item half changed: a panic has ended its owner's change. As after an owner's
    /// death, the next one is informed.
    ///
    /// # Safety
    /// The calling thread holds it.
    unsafe fn needs_repair(&self, slot: &Slot<'_>) {
        let _ = slot;
    }
}

impl ItemLock for RobustLock {
    #[inline]
    fn try_lock(&self, slot: &Slot<'_>) -> Option<bool> {
        if slot.local().is_forked() {
            return None;
        }
        match lock_word::acquire(self.word(), me(slot)) {
            Attempt::Clean => Some(false),
            Attempt::OwnerDied => Some(true),
            Attempt::Busy(_) => None,
        }
    }

    fn lock_within(&self, slot: &Slot<'_>, limit: Duration) -> Result<bool, Stalled> {
        let acquired = RobustLock::lock_within(self, slot, limit)?;
        let owner_died = acquired.owner_died();
        acquired.into_inner().keep();
        Ok(owner_died)
    }

    #[inline]
    unsafe fn unlock(&self, slot: &Slot<'_>) {
        if !slot.local().is_forked() {
            lock_word::release(self.word());
        }
    }

    fn owner_died(&self) -> bool {
        lock_word::look(self.word()).owner_died()
    }

    unsafe fn repaired(&self, slot: &Slot<'_>) {
        if !slot.local().is_forked() {
            lock_word::repaired(self.word());
        }
    }

    unsafe fn needs_repair(&self, slot: &Slot<'_>) {
        if !slot.local().is_forked() {
            lock_word::needs_repair(self.word());
        }
    }
}

/// An item to be changed: its lock, and the id that says where in the order it is locked.
///
/// An id is one item's, and never changes. All that is locked together, nested sets included,
/// lies in one order of ids.
#[derive(Debug)]
pub struct Item<'a, L = RobustLock> {
    pub(crate) id: u64,
    pub(crate) lock: &'a L,
}

impl<'a, L> Item<'a, L> {
    /// The item `id`, which `lock` guards.
    pub fn new(id: u64, lock: &'a L) -> Item<'a, L> {
        Item { id, lock }
    }
}

impl<L> Clone for Item<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Item<'_, L> {}

/// Puts items into the order in which they are locked; returns them, each once.
#[inline]
pub(crate) fn sort<'i, 'a, L>(items: &'i mut [Item<'a, L>]) -> Result<&'i [Item<'a, L>], RcxError> {
    match items {
        // The most frequent cases, without a call.
        [] | [_] => return Ok(items),
        [one, other] if one.id != other.id => {
            if one.id > other.id {
                std::mem::swap(one, other);
            }
            return Ok(items);
        }
        _ => {}
    }
    items.sort_unstable_by_key(|item| item.id);
    let mut once = 1;
    for at in 1..items.len() {
        let (last, item) = (items[once - 1], items[at]);
        if last.id != item.id {
            items.swap(once, at);
            once += 1;
        } else if !std::ptr::eq(last.lock, item.lock) {
            return Err(RcxError::SameId(item.id));
        }
    }
    Ok(&items[..once])
}

/// The items of one call, in ascending order and each once. The first so many are held, until it is
/// dropped or [kept](Self::keep).
pub(crate) struct Wanted<'i, 'a, L: ItemLock> {
    items: &'i [Item<'a, L>],
    slot: &'i Slot<'a>,
    limit: Duration,
    held: usize,
    owner_died: bool,
}

impl<'i, 'a, L: ItemLock> Wanted<'i, 'a, L> {
    #[inline]
    pub(crate) fn new(items: &'i [Item<'a, L>], slot: &'i Slot<'a>, limit: Duration) -> Self {
        Wanted {
            items,
            slot,
            limit,
            held: 0,
            owner_died: false,
        }
    }

    /// Holds them no more: the caller does. Says whether an owner of one of them had died.
    #[inline]
    pub(crate) fn keep(mut self) -> bool {
        self.held = 0;
        self.owner_died
    }

    #[inline]
    fn has(&mut self, owner_died: bool) {
        self.held += 1;
        self.owner_died |= owner_died;
    }
}

impl<L: ItemLock> Items for Wanted<'_, '_, L> {
    type Error = Stalled;

    #[inline]
    fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    fn try_lock(&mut self, item: usize) -> bool {
        let locked = self.items[item].lock.try_lock(self.slot);
        locked.map(|owner_died| self.has(owner_died)).is_some()
    }

    #[inline(always)]
    fn lock(&mut self, item: usize) -> Result<(), Stalled> {
        if !self.try_lock(item) {
            let lock = self.items[item].lock;
            self.has(lock.lock_within(self.slot, self.limit)?);
        }
        Ok(())
    }

    #[inline(always)]
    fn release(&mut self) {
        // Each is forgotten before it is unlocked: if the unlocking panics, `Drop` goes on with the
        // next.
        while let Some(last) = self.held.checked_sub(1) {
            self.held = last;
            // SAFETY: it was held, and is forgotten.
            unsafe { self.items[last].lock.unlock(self.slot) };
        }
        self.owner_died = false;
    }
}

impl<L: ItemLock> Drop for Wanted<'_, '_, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.release();
    }
}

/// Items that a guard holds without an allocation: the paper's list takes three at a time.
const INLINE: usize = 3;

/// The items that a guard holds. Its pin keeps the slot.
pub(crate) struct Taken<'a, L: ItemLock> {
    slot: ManuallyDrop<Slot<'a>>,
    first: [Option<Item<'a, L>>; INLINE],
    more: Option<Box<[Item<'a, L>]>>,
}

impl<'a, L: ItemLock> Taken<'a, L> {
    /// Those, which the caller holds.
    #[inline]
    pub(crate) fn new(items: &[Item<'a, L>], slot: ManuallyDrop<Slot<'a>>) -> Taken<'a, L> {
        let more = items.get(INLINE..).filter(|more| !more.is_empty());
        Taken {
            slot,
            first: std::array::from_fn(|at| items.get(at).copied()),
            more: more.map(Box::from),
        }
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &Item<'a, L>> {
        let more = self.more.as_deref().unwrap_or_default();
        self.first.iter().flatten().chain(more)
    }

    pub(crate) fn repaired(&self) {
        for item in self.items() {
            // SAFETY: what is here is held.
            unsafe { item.lock.repaired(&self.slot) };
        }
    }

    /// The guard is dropped by a panic, which has ended a change that may be half made.
    #[cold]
    fn need_repair(&self) {
        for item in self.items() {
            // SAFETY: what is here is held.
            unsafe { item.lock.needs_repair(&self.slot) };
        }
    }
}

impl<L: ItemLock> Drop for Taken<'_, L> {
    /// Lets go of all, the last first.
    #[inline]
    fn drop(&mut self) {
        if self.slot.is_unwinding() {
            self.need_repair();
        }
        // SAFETY: it is held, and each is unlocked once.
        let unlock = |item: &Item<'_, L>| unsafe { item.lock.unlock(&self.slot) };
        if let Some(more) = &self.more {
            more.iter().rev().for_each(unlock);
        }
        self.first.iter().rev().flatten().for_each(unlock);
    }
}
