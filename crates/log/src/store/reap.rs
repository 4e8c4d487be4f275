//! Reaping: repairing what participants left that were killed in the middle of an operation.
//!
//! Idempotent, and safe to run from any number of threads and processes: `mneme-sync` gives the
//! slots of a dead process to one reaper at a time. For each slot the innermost state comes last: a
//! swap of databases, the shape of the index, the operation on a bucket, the log segments, and
//! finally the arena, which takes back everything that was claimed and not adopted.

use mneme_arena::RepairError;
use mneme_sync::{DeadSlot, ReapError, Slot, SlotId};
use mneme_sys::fault::without;

use crate::error::{Corrupt, WriteError};
use crate::feed::area::Binds;
use crate::index::intent::{INDEX_LANE, IndexIntent};
use crate::index::journal::ShardJournal;
use crate::index::root::ROOT_SHARD;
use crate::store::components::Store;

impl Store {
    /// Releases the heads that the dead thread held, so that their log segments can be closed and
    /// compacted.
    fn release_heads(&self, slot: &Slot<'_>, dead: SlotId) {
        for heads in self.log().head_groups() {
            let first = self.session().tables.head(heads.start);
            if first.lock.owner() == Some(dead)
                && let Some(held) = first.lock.try_lock(slot)
            {
                drop(
                    self.log()
                        .inherit_heads(heads.map(|head| self.session().tables.head(head)), held),
                );
            }
        }
    }

    /// Whether the dead thread may have left something in the shard: it had its lock, or another
    /// thread has taken that over and may not have finished. A thread that died while it waited for
    /// the lock left nothing, and its reaper does not wait for the lock's holder.
    fn left_in_shard(&self, shard: u64, dead: SlotId) -> bool {
        let shard = self.session().tables.shard(shard);
        // A dead holder whose lock was taken over is the journal's owner until the change is
        // finished.
        shard.lock.owner() == Some(dead) || ShardJournal::of(shard).is_left_by(dead)
    }

    /// Repairs what dead threads left and frees their slots. Returns the number of slots.
    pub(crate) fn reap(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        let reaped = (self.session().participants).reap(|dead| self.repair_slot(slot, dead));
        match reaped {
            Ok(reaped) => Ok(reaped.slots as usize),
            Err(ReapError::Repair { source, .. }) => Err(source),
            Err(other) => Err(WriteError::Reap(other.to_string())),
        }
    }

    fn repair_slot(&self, slot: &Slot<'_>, dead: &DeadSlot<'_>) -> Result<(), WriteError> {
        mneme_sys::fault!("log.reap.begin");
        let has_bound = |binds| self.session().feed.has_bound(binds, dead.id());
        // Another thread may have taken the lock over without having finished the repair.
        let in_swap = has_bound(Binds::Swapping);
        if in_swap || self.session().tables.header().swap.owner() == Some(dead.id()) {
            self.index().repair_swap(slot)?;
        }
        mneme_sys::fault!("log.reap.swap");
        if let Some(IndexIntent::Reshape { shard }) = IndexIntent::of_dead(dead, INDEX_LANE)?
            && shard < self.session().tables.geometry.shards
            && self.left_in_shard(shard, dead.id())
        {
            // Taking the lock over repairs what it guards; a free lock left nothing to repair.
            self.index().with_shard(slot, shard, |_| Ok(()))?;
        }
        if has_bound(Binds::Dropping) {
            self.index().with_shard(slot, ROOT_SHARD, |_| Ok(()))?;
        }
        mneme_sys::fault!("log.reap.index");
        self.records().repair_operation(dead)?;
        self.repair_transaction(dead)?;
        // What has happened is whole by now.
        self.records().settle_change_of(dead, false)?;
        self.records().end_feeding_of(slot, dead)?;
        mneme_sys::fault!("log.reap.operation");
        self.log().repair_segments(slot, dead.id())?;
        self.release_heads(slot, dead.id());
        // A dead sweeper's steps are repaired with their shards. Only its lock is left, which would
        // look like that of a stopped sweeper.
        let sweep = &self.session().tables.header().sweep;
        if sweep.owner() == Some(dead.id()) {
            drop(sweep.try_lock(slot));
        }
        mneme_sys::fault!("log.reap.heads");
        // Before the slot is freed, so that another reaper follows one that dies here.
        self.log().suspect_lost();
        if dead.is_pinned() {
            self.log().suspect_unpublished();
        }
        // The thread may have stored an expiring record, or abandoned a sweep, without setting the
        // note.
        self.records().expect_expiries();
        // It may have removed a main, or have been in the middle of a sweep.
        if !without("reap.mains") {
            self.index().lose_main(None);
        }
        mneme_sys::fault!("log.reap.segments");
        match self.log().arena.repair(dead) {
            Ok(_) => Ok(()),
            Err(RepairError::Stalled(stalled)) => Err(stalled.into()),
            Err(RepairError::Slot(error)) => Err(error.into()),
            Err(other) => Err(Corrupt::at(0, format!("the arena's repair: {other}")).into()),
        }
    }
}
