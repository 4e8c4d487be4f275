//! What [`Rcx`](super::Rcx) locks: items, by their ids.

use super::RcxError;
use super::protocol::Items;
use crate::{Acquired, Guard, RobustLock, Slot, Stalled};
use std::time::Duration;

/// The lock of an item. **It alone excludes**, so an implementation must be a lock by itself.
pub trait ItemLock {
    /// What holds it; dropping it lets go.
    type Guard<'a>
    where
        Self: 'a;

    /// Takes it if it is free. That of a dead owner may count as taken.
    fn try_lock<'a>(&'a self, slot: &Slot<'a>) -> Option<Acquired<Self::Guard<'a>>>;

    /// Takes it, waiting at most `limit` for each owner that lives.
    ///
    /// # Errors
    /// [`Stalled`] names an owner that lives and does not let go.
    fn lock_within<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
    ) -> Result<Acquired<Self::Guard<'a>>, Stalled>;

    /// Declares the item whole again after [`Acquired::OwnerDied`].
    fn repaired(guard: &Self::Guard<'_>);
}

impl ItemLock for RobustLock {
    type Guard<'a> = Guard<'a>;

    #[inline]
    fn try_lock<'a>(&'a self, slot: &Slot<'a>) -> Option<Acquired<Guard<'a>>> {
        self.try_lock_free(slot)
    }

    fn lock_within<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
    ) -> Result<Acquired<Guard<'a>>, Stalled> {
        RobustLock::lock_within(self, slot, limit)
    }

    fn repaired(guard: &Guard<'_>) {
        guard.repaired();
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

/// Items that a guard holds without an allocation. The paper's list takes three at a time.
const INLINE: usize = 4;

/// One that is held.
pub(crate) struct Held<G> {
    pub(crate) id: u64,
    pub(crate) guard: G,
    pub(crate) owner_died: bool,
}

/// Those that are held, in the order in which they were taken.
pub(crate) struct Taken<G> {
    first: [Option<Held<G>>; INLINE],
    more: Vec<Held<G>>,
    len: usize,
}

impl<G> Taken<G> {
    pub(crate) fn new() -> Taken<G> {
        Taken {
            first: [const { None }; INLINE],
            more: Vec::new(),
            len: 0,
        }
    }

    #[inline]
    fn push(&mut self, id: u64, acquired: Acquired<G>) {
        let owner_died = acquired.owner_died();
        let held = Held {
            id,
            guard: acquired.into_inner(),
            owner_died,
        };
        match self.first.get_mut(self.len) {
            Some(place) => *place = Some(held),
            None => self.more.push(held),
        }
        self.len += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held<G>> {
        self.first.iter().flatten().chain(&self.more)
    }

    /// Lets go of all, the last first.
    #[inline]
    fn clear(&mut self) {
        while self.more.pop().is_some() {}
        for place in self.first[..self.len.min(INLINE)].iter_mut().rev() {
            *place = None;
        }
        self.len = 0;
    }
}

impl<G> Drop for Taken<G> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

/// The items of one call and what is held of them.
pub(crate) struct Wanted<'i, 'a, L: ItemLock> {
    /// In ascending order.
    pub(crate) items: &'i [Item<'a, L>],
    pub(crate) slot: &'i Slot<'a>,
    pub(crate) limit: Duration,
    pub(crate) taken: Taken<L::Guard<'a>>,
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
        let Item { id, lock } = self.items[item];
        let acquired = lock.try_lock(self.slot);
        acquired
            .map(|acquired| self.taken.push(id, acquired))
            .is_some()
    }

    fn lock(&mut self, item: usize) -> Result<(), Stalled> {
        if self.is_repeated(item) {
            return Ok(());
        }
        let Item { id, lock } = self.items[item];
        let acquired = lock.lock_within(self.slot, self.limit)?;
        self.taken.push(id, acquired);
        Ok(())
    }

    fn release(&mut self) {
        self.taken.clear();
    }
}
