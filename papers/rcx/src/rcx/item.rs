//! What [`Rcx`](super::Rcx) locks: items, by their ids.

use super::RcxError;
use super::protocol::Items;
use mneme_sync::{RobustLock, Slot, Stalled};
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
        self.try_lock_unguarded(slot)
    }

    fn lock_within(&self, slot: &Slot<'_>, limit: Duration) -> Result<bool, Stalled> {
        let acquired = RobustLock::lock_within(self, slot, limit)?;
        let owner_died = acquired.owner_died();
        acquired.into_inner().keep();
        Ok(owner_died)
    }

    #[inline]
    unsafe fn unlock(&self, slot: &Slot<'_>) {
        // SAFETY: the caller's promise; the guard was kept or never made.
        unsafe { RobustLock::unlock(self, slot) };
    }

    fn owner_died(&self) -> bool {
        RobustLock::owner_died(self)
    }

    unsafe fn repaired(&self, slot: &Slot<'_>) {
        // SAFETY: the caller's promise.
        unsafe { RobustLock::repaired(self, slot) };
    }

    unsafe fn needs_repair(&self, slot: &Slot<'_>) {
        // SAFETY: the caller's promise.
        unsafe { RobustLock::needs_repair(self, slot) };
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

mod sealed {
    /// What a guard holds must be what was locked, so nobody else says what a set has.
    pub trait Sealed {}
}

/// Items to lock together: an array, a vector, or a mutable borrow of either or of a slice. An
/// array costs least, because it makes a guard of just its size.
pub trait ItemSet<'a>: sealed::Sealed {
    /// What locks each.
    type Lock: ItemLock + 'a;

    /// The items.
    fn items(&self) -> &[Item<'a, Self::Lock>];
    /// The items, to be sorted.
    fn items_mut(&mut self) -> &mut [Item<'a, Self::Lock>];
}

macro_rules! item_set {
    ([$($generics:tt)*] $set:ty) => {
        impl<'a, L, $($generics)*> sealed::Sealed for $set {}

        impl<'a, L: ItemLock + 'a, $($generics)*> ItemSet<'a> for $set {
            type Lock = L;

            #[inline(always)]
            fn items(&self) -> &[Item<'a, L>] {
                self
            }

            #[inline(always)]
            fn items_mut(&mut self) -> &mut [Item<'a, L>] {
                self
            }
        }
    };
}

item_set!([const N: usize] [Item<'a, L>; N]);
item_set!([] [Item<'a, L>]);
item_set!([] Vec<Item<'a, L>>);

impl<I: sealed::Sealed + ?Sized> sealed::Sealed for &mut I {}

impl<'a, I: ItemSet<'a> + ?Sized> ItemSet<'a> for &mut I {
    type Lock = I::Lock;

    #[inline(always)]
    fn items(&self) -> &[Item<'a, I::Lock>] {
        (**self).items()
    }

    #[inline(always)]
    fn items_mut(&mut self) -> &mut [Item<'a, I::Lock>] {
        (**self).items_mut()
    }
}

/// Puts items into the order in which they are locked, each once; returns how many these are.
#[inline(always)]
pub(crate) fn sort<L>(items: &mut [Item<'_, L>]) -> Result<usize, RcxError> {
    match items {
        // The most frequent cases, without a call.
        [] | [_] => return Ok(items.len()),
        [one, other] if one.id != other.id => {
            if one.id > other.id {
                std::mem::swap(one, other);
            }
            return Ok(2);
        }
        _ => {}
    }
    sort_many(items)
}

fn sort_many<L>(items: &mut [Item<'_, L>]) -> Result<usize, RcxError> {
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
    Ok(once)
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

/// The items that a guard holds: the first so many of a set.
pub(crate) struct Taken<'a, I: ItemSet<'a>> {
    slot: Slot<'a>,
    set: I,
    held: usize,
}

impl<'a, I: ItemSet<'a>> Taken<'a, I> {
    /// The first `held` of the set, which the caller holds.
    #[inline(always)]
    pub(crate) fn new(set: I, held: usize, slot: Slot<'a>) -> Taken<'a, I> {
        Taken { slot, set, held }
    }

    #[inline(always)]
    pub(crate) fn items(&self) -> &[Item<'a, I::Lock>] {
        let items = self.set.items();
        &items[..self.held.min(items.len())]
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

impl<'a, I: ItemSet<'a>> Drop for Taken<'a, I> {
    /// Lets go of all, the last first.
    #[inline]
    fn drop(&mut self) {
        if self.slot.is_unwinding() {
            self.need_repair();
        }
        for item in self.items().iter().rev() {
            // SAFETY: it is held, and each is unlocked once.
            unsafe { item.lock.unlock(&self.slot) };
        }
    }
}
