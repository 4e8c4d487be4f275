//! Home buckets of a transaction's keys, and the locks on them, taken in the order of their
//! locations.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use mneme_sync::Slot;

use crate::error::WriteError;
use crate::index::bucket::{Bucket, Held, TryLock};
use crate::index::intent::count_progress;
use crate::index::resize::retired;
use crate::index::shape::{Place, SegmentRef};
use crate::region::mem::Loc;
use crate::session::Wait;
use crate::store::components::Store;

use super::Transaction;
use super::few::Few;

/// The home of a key in this round.
#[derive(Clone, Copy)]
pub(super) struct Home {
    pub segment: SegmentRef,
    /// The home bucket.
    pub loc: Loc,
}

impl Home {
    pub fn of(segment: SegmentRef, place: Place) -> Home {
        let bucket = segment.home(place.tag);
        Home {
            segment,
            loc: segment.bucket_at(bucket),
        }
    }
}

/// The homes of a transaction's keys, and the locks on them once they are held.
pub(super) struct Homes<'c> {
    /// Ascending, each once.
    pub locs: Few<Loc>,
    held: Few<Held<'c>>,
    /// Whether readers wait.
    begun: bool,
}

impl<'c> Homes<'c> {
    pub fn of(loc: impl Iterator<Item = Loc>) -> Homes<'c> {
        let mut locs: Few<Loc> = loc.collect();
        locs.sort_unstable();
        locs.dedup();
        Homes {
            held: Few::with_capacity(locs.len()),
            locs,
            begun: false,
        }
    }

    pub fn lock_of(&mut self, home: Home) -> &mut Held<'c> {
        // Every requested home is one of the list, and all are held.
        let i = self.locs.partition_point(|loc| *loc < home.loc);
        &mut self.held[i]
    }

    pub fn unlock(&mut self, slot: &Slot<'_>) {
        for held in self.held.drain(..) {
            count_progress(slot);
            held.unlock();
            mneme_sys::fault!("txn.unlocked");
        }
    }

    /// Unlocks homes in which nothing was changed.
    pub fn unlock_unchanged(&mut self, slot: &Slot<'_>) {
        for held in self.held.drain(..) {
            count_progress(slot);
            held.unlock_unchanged();
            mneme_sys::fault!("txn.unlocked");
        }
    }

    pub fn are_locked(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether readers of all homes wait. If so, a record that has expired since then is absent to
    /// no thread.
    pub fn have_begun(&self) -> bool {
        self.begun
    }

    /// Makes readers of all homes wait, before the first home is changed and before the clock is
    /// read.
    pub fn begin(&mut self) {
        self.begun = true;
        for held in &mut self.held {
            held.become_transaction();
            mneme_sys::fault!("txn.marked");
        }
        // SYNC: pairs with the fence in `life`: either a reader that finds a record expired sees
        // the bits at its next look, or this thread finds it expired.
        fence(SeqCst);
    }
}

impl<'a> Transaction<'a> {
    /// Locks all homes by locks that readers read past. Returns false if one was replaced
    /// meanwhile.
    pub(super) fn lock(&self, homes: &mut Homes<'a>, wait: &mut Wait) -> Result<bool, WriteError> {
        let store: &'a Store = self.store;
        for loc in &homes.locs {
            let bucket = Bucket::of_words(store.session().mem.words(*loc)?);
            loop {
                match bucket.try_lock(self.slot.id()) {
                    TryLock::Held(held) => {
                        homes.held.push(held);
                        count_progress(self.slot);
                        mneme_sys::fault!("txn.home.locked");
                        break;
                    }
                    TryLock::Retired => {
                        // SYNC: pairs with the Release store in `Held::retire`: the next look finds
                        // another page.
                        let _ = bucket.word();
                        return match wait.found_retired(loc.bits()) {
                            true => Ok(false),
                            false => Err(retired(*loc).into()),
                        };
                    }
                    TryLock::Busy(word) => {
                        store.index().wait_for(self.slot, wait, word)?;
                    }
                }
            }
        }
        Ok(true)
    }
}
