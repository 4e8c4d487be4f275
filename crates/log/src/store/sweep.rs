//! Freeing collections whose mains are gone: removed with their keys, replaced, expired, evicted,
//! or dropped with a whole database.
//!
//! **Whatever removes a main notes that one is gone** ([`Index::note_main_gone`]), after it is
//! gone. The sweep clears the note and looks at all anchors: each says where its main is. A
//! collection whose main is not there is dead for ever, because whatever moves a main stores the
//! anchor again in the same transaction, and ids are never reused. Each inner record is removed
//! before those that lead to it, the anchor last. So a sweep that dies leaves an anchor that leads
//! to the rest, and the repair of its thread notes that mains may be gone.
//!
//! While a store is loaded nothing is swept: a main may come after its elements.
//!
//! [`Index::note_main_gone`]: crate::index::Index::note_main_gone

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use mneme_sync::Slot;
use mneme_sys::fault::without;

use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::walk::HashOrder;
use crate::inner::{Anchor, InnerNumbers, MAINS_LOST, MainPlace, SWEPT, main_of, numbers_of};
use crate::records::scan::Cursor;
use crate::region::mem::Loc;
use crate::region::record::Record;
use crate::region::space::KeyspaceId;
use crate::store::LogStore;
use crate::store::components::Store;
use crate::store::sweep_state::{DeadCollection, SweepLimit, SweepState};
use crate::store::transaction::{LANE, Transaction};

/// The number of inner records that are freed at once: their notes fit a thread's undo area.
const SLICE: usize = 64;

/// How long the sweep pauses after a pass over all anchors, as a multiple of the pass's time,
/// unless space is short.
const REST: u64 = 20;

impl Store {
    /// Whether all anchors are to be checked although space is not short.
    pub(crate) fn sweep_is_due(&self) -> bool {
        let state = self.sweeping.try_lock();
        state.is_ok_and(|state| self.session().clock.now_ns() >= state.rests_until)
    }

    /// Frees collections whose mains are gone: those that this process has removed, and, if it is
    /// to be thorough, all others. Returns whether it has freed anything. If another thread of this
    /// process is doing this, it leaves the work to that one. The caller is not pinned.
    pub(crate) fn sweep_collections(
        &self,
        slot: &Slot<'_>,
        is_thorough: bool,
        mut limit: SweepLimit<'_>,
    ) -> Result<bool, WriteError> {
        if !self.may_sweep(slot) {
            return Ok(false);
        }
        let Ok(mut state) = self.sweeping.try_lock() else {
            return Ok(false);
        };
        let freed = self.free_lost(&mut state, &mut limit);
        if freed || !is_thorough {
            return Ok(freed);
        }
        self.free_dead(slot, &mut state, &mut limit)
    }

    /// Frees all collections whose mains are gone, after any other thread that does so. The caller
    /// is not pinned.
    fn sweep_all(&self, slot: &Slot<'_>) -> Result<bool, WriteError> {
        if !self.may_sweep(slot) {
            return Ok(false);
        }
        let Ok(mut state) = self.sweeping.lock() else {
            return Ok(false);
        };
        let mut limit = SweepLimit {
            slices: u64::MAX,
            stopped: &|| false,
        };
        let freed = self.free_lost(&mut state, &mut limit);
        Ok(self.free_dead(slot, &mut state, &mut limit)? | freed)
    }

    /// Whether mains are gone whose collections this thread may free: a thread in the body of a
    /// transaction leaves them to others.
    fn may_sweep(&self, slot: &Slot<'_>) -> bool {
        let is_due = self.session().tables.header().lost_mains.load(Relaxed) != 0;
        let spares = self.session().spares_collections.load(Relaxed) && !without("load.spares");
        is_due && !spares && slot.intent(LANE).read().is_none()
    }

    /// Frees what this process has removed. Returns whether it has freed anything.
    fn free_lost(&self, state: &mut SweepState, limit: &mut SweepLimit<'_>) -> bool {
        let mut freed = false;
        while !limit.is_reached() {
            let dead = state.unfinished.pop().or_else(|| self.next_lost());
            let Some(dead) = dead else {
                break;
            };
            // If anything fails here, the note stays, and a thorough sweep tries again.
            freed |= matches!(self.free_collection(state, dead, limit), Ok(true));
        }
        freed
    }

    /// A collection whose main this process has removed, if there is one.
    fn next_lost(&self) -> Option<DeadCollection> {
        loop {
            let id = self.index().lost_mains.lock().ok()?.pop()?;
            if let Ok(Some(Some(anchor))) = self.transaction(None, &[], |t| t.anchor(id)) {
                return Some(DeadCollection::new(id, anchor));
            }
        }
    }

    /// Checks all anchors, and frees the collections whose mains are gone.
    fn free_dead(
        &self,
        slot: &Slot<'_>,
        state: &mut SweepState,
        limit: &mut SweepLimit<'_>,
    ) -> Result<bool, WriteError> {
        let header = self.session().tables.header();
        // SYNC: pairs with the Release store in `Index::lose_main`. It is changed before the first
        // anchor is checked: a main that is removed later is noted again.
        let taken = (header.lost_mains).compare_exchange(MAINS_LOST, SWEPT, AcqRel, Acquire);
        if taken == Err(0) {
            return Ok(false);
        }
        mneme_sys::fault!("sweep.collections.begun");
        let began = self.session().clock.now_ns();
        let swept = self.sweep_dead(slot, state, limit);
        let now = self.session().clock.now_ns();
        state.rests_until = now.saturating_add(now.saturating_sub(began).saturating_mul(REST));
        match swept {
            // Relaxed: nothing is read by it. It fails where a main has been lost since.
            Ok((_, true)) => {
                let _ = (header.lost_mains).compare_exchange(SWEPT, 0, Relaxed, Relaxed);
            }
            _ => self.index().lose_main(None),
        }
        Ok(swept?.0)
    }

    /// Returns whether it has freed anything, and whether it has checked all anchors.
    fn sweep_dead(
        &self,
        slot: &Slot<'_>,
        state: &mut SweepState,
        limit: &mut SweepLimit<'_>,
    ) -> Result<(bool, bool), WriteError> {
        let (mut at, mut freed) = (HashOrder::default(), false);
        let mut failed = None;
        loop {
            let mut dead = Vec::new();
            let is_over = self.anchors_from(slot, &mut at, |found| {
                mneme_sys::fault!("sweep.collections.anchor");
                // A damaged one does not prevent others from being freed. A check reports it.
                if let Ok((id, anchor)) = found
                    && !self.has_main(id, anchor.owner)?
                {
                    dead.push(DeadCollection::new(id, anchor));
                }
                Ok(())
            })?;
            for dead in dead {
                if limit.is_reached() {
                    break;
                }
                // A collection that cannot be freed now does not prevent others from being freed.
                match self.free_collection(state, dead, limit) {
                    Ok(is_freed) => freed |= is_freed,
                    // Nor is it tried for ever if one of its records is damaged.
                    Err(WriteError::Corrupt(_)) => {}
                    Err(error) => failed = Some(error),
                }
            }
            let is_cut = limit.is_reached();
            if is_over || is_cut {
                return match failed {
                    Some(error) if !freed => Err(error),
                    Some(_) => Ok((freed, false)),
                    None => Ok((freed, !is_cut)),
                };
            }
        }
    }

    /// Hands out the anchors of some buckets from `at` on, and moves `at` past them. Returns
    /// whether those were the last ones. `visit` runs pinned.
    pub(super) fn anchors_from(
        &self,
        slot: &Slot<'_>,
        at: &mut HashOrder,
        mut visit: impl FnMut(Result<(u64, Anchor), Corrupt>) -> Result<(), ReadError>,
    ) -> Result<bool, ReadError> {
        self.hidden_from(slot, KeyspaceId::ANCHORS, at, |loc, record| {
            let id = record.key().try_into().map(u64::from_be_bytes);
            let anchor = Anchor::decode(record.value(), self.log().most_bytes());
            visit(match (id, anchor) {
                (Ok(id), Some(anchor)) => Ok((id, anchor)),
                _ => {
                    let what = "the record of an anchor that is none";
                    Err(Corrupt::at(loc.byte(), what))
                }
            })
        })
    }

    /// As [`anchors_from`](Self::anchors_from), for the records of a hidden keyspace.
    pub(super) fn hidden_from(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
        at: &mut HashOrder,
        mut visit: impl FnMut(Loc, Record<'_>) -> Result<(), ReadError>,
    ) -> Result<bool, ReadError> {
        let _pin = self
            .index()
            .enter_all(slot)
            .map_err(WriteError::while_reading)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(true);
        };
        for _ in 0..64 {
            if at.is_over(self.index().partitions()) {
                return Ok(true);
            }
            let mut entries = Vec::new();
            self.index()
                .entries_here(root, at, |entry| entries.push(entry))?;
            for entry in entries {
                // No thread overwrites such a record.
                visit(entry.loc(), self.session().mem.record(entry.loc())?)?;
            }
        }
        Ok(false)
    }

    /// Whether the main of collection `id` is where its anchor says. The caller is pinned by
    /// [`enter_all`](crate::index::Index::enter_all).
    fn has_main(&self, id: u64, owner: MainPlace) -> Result<bool, ReadError> {
        let Some(root) = self.root_with_id(owner.root)? else {
            return Ok(false);
        };
        let (place, main) = (owner.place(), main_of(id));
        let segment = self.session().mem.index_segment(root, place)?;
        let seen = self.index().look(root, place, segment, |segment, word| {
            let home = segment.home(place.tag);
            for distance in 0..=word.reach().min(segment.max_reach()) {
                let bucket =
                    (self.session().mem).bucket(segment, segment.behind(home, distance))?;
                for (_, entry) in bucket.entries_of(place.tag) {
                    let record = self.session().mem.record(entry.loc())?;
                    if record.header().kind().is_large() && *record.value() == main {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })?;
        Ok(seen.is_some_and(|(has, _)| has))
    }

    /// The index with this id, if a database has it. The caller is pinned.
    fn root_with_id(&self, id: u64) -> Result<Option<Root>, ReadError> {
        for space in KeyspaceId::all() {
            if let Some(root) = self.index().root(space)?
                && self.index().root_id(root)? == id
            {
                return Ok(Some(root));
            }
        }
        Ok(None)
    }

    /// Frees a collection that was found dead, unless that is no longer true, as far as it may.
    /// Returns whether it has freed anything.
    fn free_collection(
        &self,
        state: &mut SweepState,
        mut dead: DeadCollection,
        limit: &mut SweepLimit<'_>,
    ) -> Result<bool, WriteError> {
        let mut freed = false;
        loop {
            if limit.is_reached() {
                state.unfinished.push(dead);
                return Ok(freed);
            }
            limit.slices -= 1;
            let slice = self.transaction(None, &[], |t| {
                if !t.is_dead(dead.id, &dead.anchor)? {
                    return Ok::<_, WriteError>(None);
                }
                if !dead.is_begun {
                    t.say_swept(dead.id);
                }
                Ok(Some(t.free_slice(dead.id, dead.numbers.clone())?))
            })?;
            let Some((is_over, next)) = slice.flatten() else {
                return Ok(freed);
            };
            mneme_sys::fault!("sweep.collections.slice");
            (freed, dead.is_begun, dead.numbers) = (true, true, next);
            if is_over {
                return Ok(true);
            }
        }
    }

    /// See [`LogStore::scan_collections`].
    pub(crate) fn visit_collections(
        &self,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(u64, Anchor),
    ) -> Result<Cursor, ReadError> {
        let slot = self.session().participants.slot()?;
        let (mut at, mut visited) = (cursor.place(), 0);
        loop {
            let mut found = Vec::new();
            let is_over = self.anchors_from(&slot, &mut at, |anchor| {
                found.push(anchor?);
                Ok(())
            })?;
            visited += found.len();
            found.into_iter().for_each(|(id, anchor)| visit(id, anchor));
            if is_over {
                return Ok(Cursor::END);
            }
            if visited >= count {
                return Ok(Cursor::new(at.partition, at.tag));
            }
        }
    }
}

impl Transaction<'_> {
    /// Frees the next [`SLICE`] inner records of a collection, or its anchor if there are none.
    /// Returns whether that was all, and what comes next.
    fn free_slice(
        &mut self,
        id: u64,
        mut numbers: InnerNumbers,
    ) -> Result<(bool, InnerNumbers), WriteError> {
        for nth in 0..SLICE {
            let Some(number) = self.next_inner(id, &mut numbers)? else {
                if nth == 0 {
                    self.remove_anchor(id)?;
                }
                return Ok((nth == 0, numbers));
            };
            self.remove_inner(id, number)?;
        }
        Ok((false, numbers))
    }

    /// The next number of the collection's inner records.
    fn next_inner(
        &mut self,
        id: u64,
        numbers: &mut InnerNumbers,
    ) -> Result<Option<u64>, WriteError> {
        numbers.next(|number| {
            self.read_inner(id, number, |image| {
                numbers_of(image.unwrap_or_default()).collect()
            })
        })
    }

    /// Whether the collection is unchanged since it was found, and dead.
    fn is_dead(&mut self, id: u64, found: &Anchor) -> Result<bool, WriteError> {
        // If the anchor is the same when this commits, its owner was the same all the time.
        if self.anchor(id)?.as_ref() != Some(found) && !without("sweep.anchor") {
            return Ok(false);
        }
        Ok(!self.store().has_main(id, found.owner)?)
    }
}

impl LogStore {
    /// Visits about `count` collections from `cursor` on, by their ids and anchors, and returns
    /// where to continue. From [`Cursor::START`] to [`Cursor::END`] each one that is present
    /// throughout is visited at least once. `visit` does not run pinned.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_collections(
        &self,
        cursor: Cursor,
        count: usize,
        visit: impl FnMut(u64, Anchor),
    ) -> Result<Cursor, ReadError> {
        self.store.visit_collections(cursor, count, visit)
    }

    /// Sets whether collections whose keys are absent are kept: while a store is rebuilt a key may
    /// come after its collection. No other opening uses the store meanwhile. When they are no
    /// longer kept, collections without a key are freed.
    pub fn spare_collections(&self, spares: bool) {
        // Relaxed: set by the thread that loads.
        (self.store.session().spares_collections).store(spares, Relaxed);
        if !spares && !self.store.session().read_only {
            self.store.index().lose_main(None);
        }
    }

    /// Frees a collection, whether or not a key leads to it: for a store that is being rebuilt.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn drop_collection(&self, id: u64) -> Result<(), WriteError> {
        let Some(anchor) = self.transaction(|t| t.anchor(id))? else {
            return Ok(());
        };
        let mut numbers = InnerNumbers::of(&anchor);
        loop {
            let (is_over, next) = self.transaction(|t| t.free_slice(id, numbers.clone()))?;
            numbers = next;
            if is_over {
                return Ok(());
            }
        }
    }

    /// Copies all collections, as they are, to a new store that [keeps](Self::spare_collections)
    /// them until their mains are stored. No other thread changes either store.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn copy_collections(&self, to: &LogStore) -> Result<(), WriteError> {
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let mut found = Vec::new();
            cursor = self.scan_collections(cursor, 1, |id, anchor| found.push((id, anchor)))?;
            for (id, anchor) in found {
                to.transaction(|t| t.set_anchor(id, &anchor))?;
                let mut numbers = InnerNumbers::of(&anchor);
                while let Some((number, next, image)) = self.transaction(|t| {
                    let mut next = numbers.clone();
                    let Some(number) = t.next_inner(id, &mut next)? else {
                        return Ok::<_, WriteError>(None);
                    };
                    let image = t.read_inner(id, number, |image| image.map(<[u8]>::to_vec))?;
                    Ok(Some((number, next, image)))
                })? {
                    if let Some(image) = image {
                        to.transaction(|t| t.put_inner(id, number, &image))?;
                    }
                    numbers = next;
                }
            }
        }
        Ok(())
    }

    /// Frees the collections whose keys are gone, and returns when they are free, even if another
    /// thread of this process has begun. The maintainer does this.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn sweep_collections(&self) -> Result<bool, WriteError> {
        let slot = self.store.session().writer()?;
        (self.store.session()).with_feed(|| self.store.sweep_all(&slot))
    }
}
