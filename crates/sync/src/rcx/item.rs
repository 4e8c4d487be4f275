//! What [`Rcx`](super::Rcx) locks: items, by their ids.

use super::RcxError;
use super::protocol::Items;
use crate::{RobustLock, Slot, Stalled, lock_word};
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
}

impl ItemLock for RobustLock {
    #[inline]
    fn try_lock(&self, slot: &Slot<'_>) -> Option<bool> {
        let acquired = self.try_lock_free(slot)?;
        Some(acquired.owner_died()).inspect(|_| acquired.into_inner().keep())
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

/// Puts items into the order in which they are locked.
pub(crate) fn sort<L>(items: &mut [Item<'_, L>]) -> Result<(), RcxError> {
    items.sort_unstable_by_key(|item| item.id);
    let differ = |pair: &&[Item<'_, L>]| {
        pair[0].id == pair[1].id && !std::ptr::eq(pair[0].lock, pair[1].lock)
    };
    match items.windows(2).find(differ) {
        Some(pair) => Err(RcxError::SameId(pair[0].id)),
        None => Ok(()),
    }
}

/// Items that a guard holds without an allocation: the paper's list takes three at a time.
const INLINE: usize = 3;

/// The items that are held, in the order in which they were taken.
pub(crate) struct Taken<'a, L: ItemLock> {
    slot: Slot<'a>,
    first: [Option<Item<'a, L>>; INLINE],
    more: Vec<Item<'a, L>>,
    len: usize,
    owner_died: bool,
}

impl<'a, L: ItemLock> Taken<'a, L> {
    #[inline]
    pub(crate) fn new(slot: Slot<'a>) -> Taken<'a, L> {
        Taken {
            slot,
            first: [None; INLINE],
            more: Vec::new(),
            len: 0,
            owner_died: false,
        }
    }

    #[inline]
    fn push(&mut self, item: Item<'a, L>, owner_died: bool) {
        match self.first.get_mut(self.len) {
            Some(place) => *place = Some(item),
            None => self.more.push(item),
        }
        self.len += 1;
        self.owner_died |= owner_died;
    }

    pub(crate) fn items(&self) -> impl DoubleEndedIterator<Item = &Item<'a, L>> {
        self.first.iter().flatten().chain(&self.more)
    }

    /// Whether an owner of one of them had died.
    #[inline]
    pub(crate) fn owner_died(&self) -> bool {
        self.owner_died
    }

    pub(crate) fn repaired(&self) {
        for item in self.items() {
            // SAFETY: what is here is held.
            unsafe { item.lock.repaired(&self.slot) };
        }
    }

    /// Lets go of all, the last first.
    #[inline]
    fn clear(&mut self) {
        // Each is forgotten before it is unlocked: if the unlocking panics, `Drop` goes on with the
        // next.
        while let Some(item) = self.pop() {
            // SAFETY: it was held, and is forgotten.
            unsafe { item.lock.unlock(&self.slot) };
        }
        self.owner_died = false;
    }

    #[inline]
    fn pop(&mut self) -> Option<Item<'a, L>> {
        self.len = self.len.checked_sub(1)?;
        match self.first.get_mut(self.len) {
            Some(place) => place.take(),
            None => self.more.pop(),
        }
    }
}

impl<L: ItemLock> Drop for Taken<'_, L> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

/// The items of one call, in ascending order, and what is held of them.
pub(crate) struct Wanted<'i, 'a, L: ItemLock> {
    pub(crate) items: &'i [Item<'a, L>],
    pub(crate) limit: Duration,
    pub(crate) taken: &'i mut Taken<'a, L>,
}

impl<L: ItemLock> Wanted<'_, '_, L> {
    /// Whether the item is the one before once more.
    fn is_repeated(&self, item: usize) -> bool {
        item > 0 && self.items[item - 1].id == self.items[item].id
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
        if self.is_repeated(item) {
            return true;
        }
        let item = self.items[item];
        let locked = item.lock.try_lock(&self.taken.slot);
        locked
            .map(|owner_died| self.taken.push(item, owner_died))
            .is_some()
    }

    fn lock(&mut self, item: usize) -> Result<(), Stalled> {
        if self.is_repeated(item) {
            return Ok(());
        }
        let item = self.items[item];
        let owner_died = item.lock.lock_within(&self.taken.slot, self.limit)?;
        self.taken.push(item, owner_died);
        Ok(())
    }

    fn release(&mut self) {
        self.taken.clear();
    }
}
