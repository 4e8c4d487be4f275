//! Limbo: blocks that the index no longer leads to, and that readers may still be using. Each waits
//! there for a grace period.
//!
//! A shard's limbo is a ring. Grace periods end in the order in which blocks were retired, so
//! blocks are freed in that order too: three counters move, and nothing is searched.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use mneme_sync::{Epoch, Slot};

use super::{Block, HeldShard};
use crate::error::{Corrupt, WriteError};
use crate::index::Index;
use crate::region::layout::{LIMBO, Shard};

/// Retired blocks that start a grace period together.
const BATCH: u64 = 64;

/// Blocks that a change of shape retires at most, and some more.
const RETIRED: u64 = 8;

impl Index {
    /// Frees the blocks in limbo whose readers have unpinned, and begins the grace period of the
    /// rest.
    pub(crate) fn collect_limbo(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        (0..self.session().tables.geometry.shards)
            .try_for_each(|shard| self.with_shard(slot, shard, |held| Ok(held.collect(true)?)))
    }

    /// Frees blocks in limbo, in every shard whose limbo is too full for a change of shape. `None`:
    /// there was no such shard. Otherwise returns whether all have free places now. The caller is
    /// not pinned.
    pub(crate) fn clear_limbo(&self, slot: &Slot<'_>) -> Result<Option<bool>, WriteError> {
        let mut cleared = None;
        for shard in 0..self.session().tables.geometry.shards {
            if is_full(self.session().tables.shard(shard)) {
                let is_clear = self.with_shard(slot, shard, |held| {
                    held.collect(true)?;
                    Ok(!held.limbo_is_full())
                })?;
                cleared = Some(is_clear && cleared != Some(false));
            }
        }
        Ok(cleared)
    }
}

impl HeldShard<'_> {
    /// Whether limbo may lack places for the blocks that a change of shape retires.
    pub fn limbo_is_full(&self) -> bool {
        is_full(self.shard)
    }

    /// The blocks in limbo, from the one that has waited longest.
    pub fn limbo(&self) -> Result<impl Iterator<Item = Result<Block, Corrupt>>, Corrupt> {
        Ok(self.waiting()?.map(|n| self.retired(n)))
    }

    /// Puts a block that readers may still see into limbo. Idempotent until the next change of
    /// shape. The caller has made sure of a free place.
    pub fn retire(&self, block: Block) {
        let Range { start, end } = waiting(self.shard);
        let last = start.max(end.saturating_sub(RETIRED))..end;
        if last
            .into_iter()
            .any(|n| self.retired(n).ok() == Some(block))
        {
            return;
        }
        let [word, epoch] = place(self.shard, end);
        word.store(block.word(), Relaxed);
        epoch.store(0, Relaxed);
        self.shard.retired.store(end.wrapping_add(1), Release);
    }

    /// Frees the retired blocks whose readers have unpinned, and starts a grace period for those
    /// that have none once there are enough of them (or `all`).
    pub fn collect(&self, all: bool) -> Result<(), Corrupt> {
        let (shard, participants) = (self.shard, &self.index.session().participants);
        let Range { start, end } = self.waiting()?;
        let begun = shard.begun.load(Relaxed);
        // Without the barrier they wait for another process, or for a later call.
        if (end - begun >= BATCH || (all && begun < end))
            && let Ok(epoch) = participants.advance()
        {
            for n in begun..end {
                place(shard, n)[1].store(epoch.to_u64(), Relaxed);
            }
            shard.begun.store(end, Release);
        }
        let last = participants.epoch();
        for n in start..shard.begun.load(Relaxed) {
            let epoch = Epoch::from_u64(place(shard, n)[1].load(Relaxed));
            let block = match self.retired(n) {
                Ok(block) if epoch <= last => block,
                // The pair is damaged: its block is lost, which a check reports. Others are not.
                _ => {
                    self.leave(n);
                    continue;
                }
            };
            if !participants.quiescent(epoch) {
                break;
            }
            self.journal().note_free(Some(block));
            mneme_sys::fault!("index.limbo.noted");
            self.leave(n);
            mneme_sys::fault!("index.limbo.struck");
            self.free(block)?;
            self.journal().note_free(None);
        }
        Ok(())
    }

    /// Frees the block that a dead thread was freeing, if there is one.
    pub(super) fn finish_free(&self) -> Result<(), Corrupt> {
        let Some(block) = self.journal().freed_block() else {
            return Ok(());
        };
        // The block is also removed from limbo; otherwise it would be freed again after its next
        // use began.
        let Range { start, end } = self.waiting()?;
        if start < end && self.retired(start).ok() == Some(block) {
            self.leave(start);
        }
        mneme_sys::fault!("index.repair.struck");
        self.free(block)?;
        self.journal().note_free(None);
        Ok(())
    }

    /// The `n`th block, the first that waits, leaves limbo. A counter that is damaged later leads
    /// to no block that is in use again: its word is gone.
    fn leave(&self, n: u64) {
        self.shard.freed.store(n + 1, Release);
        place(self.shard, n)[0].store(0, Relaxed);
    }

    /// The block that was retired as the `n`th.
    fn retired(&self, n: u64) -> Result<Block, Corrupt> {
        let word = place(self.shard, n)[0].load(Relaxed);
        Block::of_word(word).ok_or_else(|| self.damaged())
    }

    /// The numbers of the retired blocks that wait, if the counters are plausible.
    fn waiting(&self) -> Result<Range<u64>, Corrupt> {
        let Range { start, end } = waiting(self.shard);
        let begun = self.shard.begun.load(Relaxed);
        match (start..=end).contains(&begun) && end - start <= LIMBO as u64 {
            true => Ok(start..end),
            false => Err(self.damaged()),
        }
    }

    #[cold]
    fn damaged(&self) -> Corrupt {
        let at = self.index.session().loc_of(&self.shard.freed);
        Corrupt::at(at.byte(), "the index' limbo is damaged")
    }
}

/// The numbers of the retired blocks that wait. Without the shard's lock, the counters may be from
/// different moments.
fn waiting(shard: &Shard) -> Range<u64> {
    shard.freed.load(Relaxed)..shard.retired.load(Relaxed)
}

fn is_full(shard: &Shard) -> bool {
    let Range { start, end } = waiting(shard);
    end.saturating_sub(start).saturating_add(RETIRED) > LIMBO as u64
}

fn place(shard: &Shard, n: u64) -> &[AtomicU64; 2] {
    &shard.limbo[(n % LIMBO as u64) as usize]
}
