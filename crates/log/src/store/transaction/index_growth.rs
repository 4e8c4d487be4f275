//! Index growth for what a transaction adds. If that is much, the index grows for all of it at
//! once, between two attempts.
//!
//! **Pages that have grown for a transaction are not shrunk until the transaction is over.** Until
//! its entries come these pages are nearly empty, and a removal in one would shrink it again. So a
//! process does not shrink pages that have grown for its own transactions. Once such a transaction
//! has committed or failed, the process makes up for the shrinking that it has postponed.

use mneme_sync::{Holding, Slot};

use crate::error::WriteError;
use crate::index::bucket::TAG_BITS;
use crate::index::lookup::Lookup;
use crate::index::resize::{Resized, Why};
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::reclaim::free_space::SpaceSearch;
use crate::session::Wait;
use crate::store::components::Store;

/// The maximum number of entries for which the index grows while the attempt that adds them is
/// under way: such growth replaces few blocks.
pub(super) const MANY: usize = 4096;
/// Changes of shape between two checks for what can be freed.
const STEPS: usize = 64;

/// How the index has grown for the entries that a transaction adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// Not at all. An attempt that adds much is abandoned first, so that the index can free the
    /// blocks that it replaces.
    Unprepared,
    /// For all at once.
    Prepared,
    /// There was no space for all at once: the index grows step by step, as it is filled.
    ByStep,
}

/// The result of an attempt to grow the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grown {
    /// There is space, or the index has another shape: look again.
    Yes,
    /// Another thread blocked it, and was waited for: look again.
    Busy,
    /// Pins must be released first, perhaps the caller's own: blocks that were replaced wait for
    /// them.
    GiveWay,
    NoSpace,
}

/// Entries for which the index is to grow, those of one page together.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct ToCome(Vec<(Root, Place)>);

impl ToCome {
    pub fn of(entries: impl Iterator<Item = (Root, Place)>) -> ToCome {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(root, place)| {
            (root.space().index(), place.partition, place.tag)
        });
        ToCome(entries)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The pages that have grown for one transaction. While this lives, this process does not shrink
/// them.
pub(super) struct Growing<'a> {
    store: &'a Store,
    segments: Vec<(Root, Place, SegmentRef)>,
}

impl<'a> Growing<'a> {
    pub fn new(store: &'a Store) -> Self {
        let segments = Vec::new();
        Growing { store, segments }
    }

    fn keep(&mut self, root: Root, place: Place, segment: SegmentRef) {
        if self.store.index().grown_ahead.keep(segment) {
            self.segments.push((root, place, segment));
        }
    }

    /// Releases the pages. Returns those that may have to shrink: all if the transaction did not
    /// commit.
    fn give_back(&mut self, happened: bool) -> Vec<(Root, Place)> {
        let mut due = Vec::new();
        if self.segments.is_empty() || self.store.session().participants.is_forked() {
            return due;
        }
        for (root, place, segment) in self.segments.drain(..) {
            let missed = self.store.index().grown_ahead.give_back(segment);
            if missed.is_some_and(|missed| missed || !happened) {
                due.push((root, place));
            }
        }
        due
    }

    /// Ends the growth of a transaction that is over. Pages that are too large now, because it did
    /// not commit or others have removed much meanwhile, shrink unless a thread blocks that.
    pub fn end(mut self, slot: &Slot<'_>, happened: bool) {
        let store = self.store;
        let due = self.give_back(happened);
        // The transaction's outcome is decided, and an error here does not change it.
        let _ = store.shrink_all(slot, &due);
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.give_back(true);
    }
}

impl Store {
    /// Grows the index for the entries that will be added, and frees the blocks that it replaces on
    /// the way. The caller is not pinned, and so does not wait for itself.
    #[cold]
    pub(super) fn grow_ahead(
        &self,
        slot: &Slot<'_>,
        to_come: &ToCome,
        growing: &mut Growing<'_>,
    ) -> Result<Growth, WriteError> {
        let mut search = SpaceSearch::new(0);
        let (mut wait, mut rest) = (Wait::new(), &to_come.0[..]);
        // If more space was freed than the whole store has, the store cannot hold this.
        let mut refusals = 2 * self.log().segments().count();
        loop {
            let before = rest.len();
            let pin = self.index().enter_all(slot)?;
            let grown = self.grow_for(slot, &mut rest, &mut wait, STEPS, Some(growing))?;
            drop(pin);
            if rest.len() < before {
                // The last wait brought progress: a new search for space begins.
                search = SpaceSearch::new(0);
            }
            match grown {
                Grown::Yes => return Ok(Growth::Prepared),
                Grown::NoSpace if refusals == 0 => return Ok(Growth::ByStep),
                Grown::NoSpace => match (self.session())
                    .with_feed(|| self.reclaim().gain_space(slot, &mut search))
                {
                    Ok(won) => refusals -= usize::from(won),
                    Err(WriteError::OutOfMemory { .. }) => return Ok(Growth::ByStep),
                    // The present shape may be sufficient, and a thread cannot wait for its own
                    // pin.
                    Err(WriteError::Stalled(held)) if held.what == Holding::OwnPin => {
                        return Ok(Growth::ByStep);
                    }
                    Err(other) => return Err(other),
                },
                Grown::Busy | Grown::GiveWay => {}
            }
            self.index().collect_limbo(slot)?;
            self.reclaim().await_limbo(slot, &mut search)?;
        }
    }

    /// Grows the index within an attempt, which is pinned, as far as replaced blocks find a place
    /// in limbo.
    pub(super) fn grow_within(
        &self,
        slot: &Slot<'_>,
        to_come: &ToCome,
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        self.grow_for(slot, &mut &to_come.0[..], wait, usize::MAX, None)
    }

    /// Makes the index pages as large as the new entries need, by at most `steps` changes of shape.
    /// After those, pins must be released. `rest` are the entries that have no space yet. `growing`
    /// keeps the pages that have grown. The caller is pinned.
    fn grow_for(
        &self,
        slot: &Slot<'_>,
        rest: &mut &[(Root, Place)],
        wait: &mut Wait,
        mut steps: usize,
        mut growing: Option<&mut Growing<'_>>,
    ) -> Result<Grown, WriteError> {
        while let Some(&(root, place)) = rest.first() {
            let is_there = self.index().root(root.space())? == Some(root);
            let segment = match is_there {
                true => self.session().mem.index_segment(root, place)?,
                // The database was cleared.
                false => None,
            };
            let Some(segment) = segment else {
                *rest = &rest[1..];
                continue;
            };
            let prefix = |place: Place| {
                let unused = TAG_BITS - segment.depth();
                (place.partition, place.tag >> unused)
            };
            let is_inside = |(of, at): &(Root, Place)| *of == root && prefix(*at) == prefix(place);
            let more = rest.partition_point(is_inside);
            let why = Why::Ahead(more as u64);
            match self.grow_once(slot, root, place, Some(segment), why, wait)? {
                Grown::Yes => *wait = Wait::new(),
                Grown::Busy => continue,
                other => return Ok(other),
            }
            if self.session().mem.index_segment(root, place)? == Some(segment) {
                if let Some(growing) = &mut growing {
                    growing.keep(root, place, segment);
                }
                *rest = &rest[more..];
                continue;
            }
            steps -= 1;
            if steps == 0 {
                return Ok(Grown::GiveWay);
            }
        }
        Ok(Grown::Yes)
    }

    /// Changes a page's shape once, or waits for the thread that blocks that.
    pub(super) fn grow_once(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        seen: Option<SegmentRef>,
        why: Why,
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        match self.index().resize(slot, root, place, seen, why)? {
            Resized::Done => Ok(Grown::Yes),
            Resized::NoSpace => Ok(Grown::NoSpace),
            Resized::LimboFull => Ok(Grown::GiveWay),
            Resized::Busy(holder, what) => {
                self.session().wait_on(slot, wait, holder, what)?;
                Ok(Grown::Busy)
            }
        }
    }

    /// Shrinks the pages at these places as far as their entries allow, and waits for no reader.
    fn shrink_all(&self, slot: &Slot<'_>, places: &[(Root, Place)]) -> Result<(), WriteError> {
        let (mut rest, mut in_vain) = (places, 0);
        while !rest.is_empty() && in_vain < 2 {
            let before = rest.len();
            let pin = self.index().enter_all(slot)?;
            let shrunk = self.shrink_some(slot, &mut rest);
            drop(pin);
            shrunk?;
            // Replaced blocks can be freed now, unless other threads have pins.
            self.index().collect_limbo(slot)?;
            in_vain = if rest.len() < before { 0 } else { in_vain + 1 };
        }
        Ok(())
    }

    /// Shrinks the first pages of `rest`, by some changes of shape, while limbo has places for the
    /// blocks that these replace.
    fn shrink_some(&self, slot: &Slot<'_>, rest: &mut &[(Root, Place)]) -> Result<(), WriteError> {
        let mut steps = 0;
        while let Some(&(root, place)) = rest.first() {
            let mut has_changed = false;
            if self.index().root(root.space())? == Some(root) {
                let seen = self.session().mem.index_segment(root, place)?;
                if self.index().resize(slot, root, place, seen, Why::Sparse)? == Resized::LimboFull
                {
                    return Ok(());
                }
                has_changed = self.session().mem.index_segment(root, place)? != seen;
            }
            if !has_changed {
                *rest = &rest[1..];
                continue;
            }
            steps += 1;
            if steps == STEPS {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::feed::ring::{Author, State};
    use crate::reclaim::evict::Evict;
    use crate::store::{LogStore, MIN_CAPACITY};

    /// Growth evicts if there is no other space, and evictions are entered in the change feed.
    #[test]
    fn growth_ahead_waits_for_a_full_feed() {
        let builder = LogStore::builder().capacity(MIN_CAPACITY).change_feed(true);
        let builder = builder.evict(Evict::Lru).maintainer(false);
        let store = builder.open_private().unwrap();
        let mut feed = store.change_feed().unwrap();
        let mut drain = || {
            let drained = feed.drain(usize::MAX, &mut Vec::new()).unwrap();
            feed.set_durable(drained.end).unwrap();
        };
        let is_full = || store.stats().free_bytes <= store.stats().reserve_bytes;
        for i in (0u32..).take_while(|_| store.evicted() == 0 || !is_full()) {
            store.put(&i.to_le_bytes(), &[7; 600_000]).unwrap();
            drain();
        }
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        let ring = inner.session().feed.ring();
        let by = Author {
            slot: slot.id(),
            process: 1,
        };
        while let Ok(entry) = ring.reserve(by, 8) {
            ring.complete(entry, State::Void);
        }
        let root = inner
            .index()
            .root(inner.index().entered_space(0))
            .unwrap()
            .unwrap();
        let places = (0u32..1_500_000).map(|i| (root, inner.index().place(&i.to_le_bytes())));
        let to_come = ToCome::of(places);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    std::thread::sleep(Duration::from_millis(20));
                    drain();
                }
            });
            let grown = inner.grow_ahead(&slot, &to_come, &mut Growing::new(inner));
            assert_eq!(grown.unwrap(), Growth::Prepared);
        });
    }
}
