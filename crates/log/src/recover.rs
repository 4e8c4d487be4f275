//! **After the machine restarted, a store that everybody had left in order is in order again before
//! anybody uses it; any other is refused, and nothing of it changed.**
//!
//! A store may lie in files that outlive the machine. What says who holds what does not: the
//! control region is built anew, slots and their tenancies begin anew, and the intents of the dead,
//! by which a reaper would repair what they left, are gone. The first who opens the store then, and
//! while nobody else can, looks at what is half done without changing anything: a bucket that is
//! locked, or a log segment that is in somebody's hands, can only be judged by an intent, and the
//! store is refused. All else says itself how it is to be ended: the locks of heads, shards, the
//! sweep and the swap become those of dead owners and are taken over, each with the repair that
//! belongs to it; segments that were being freed are condemned again; large records and expiries
//! are looked for.
//!
//! The arena, whose owners were slots too, is recovered around it, and says last that it is of this
//! incarnation of the control region: who dies in the middle is followed by one who begins again.

use mneme_arena::{ExtentState, Frame};
use mneme_sync::{RobustLock, Slot};

use crate::core::Core;
use crate::error::{Corrupt, OpenError, WriteError};
use crate::index::Lookup;
use crate::segment::{State, TAG_LOG};
use crate::spaces::Space;

impl Core {
    /// Puts a store in order that an earlier incarnation of the control region has left. Nobody
    /// else has it open.
    pub(crate) fn recover(&self) -> Result<(), OpenError> {
        if let Some(what) = self.left_half_done()? {
            return Err(OpenError::NotClean(what));
        }
        mneme_sys::fault!("log.recover.begin");
        // Of what was entered before the reboot nobody is told any more.
        self.effects.clear();
        self.arena
            .recover_around(|| self.settle_all().map_err(unrecovered))
    }

    /// What only its intent could tell how to end, if anything is. Changes nothing.
    fn left_half_done(&self) -> Result<Option<String>, Corrupt> {
        for i in self.frames() {
            let word = self.tables.info(Frame(i)).state();
            // The name of who freed a segment stays.
            if word.owner().is_some() && word.state() != Some(State::Freeing) {
                let state = word.state();
                return Ok(Some(format!(
                    "the log segment at frame {i} was in somebody's hands ({state:?})"
                )));
            }
        }
        for space in Space::all() {
            let Some(root) = self.root(space)? else {
                continue;
            };
            for partition in 0..self.partitions() as u32 {
                for (_, segment) in self.partition_segments(root, partition)? {
                    for i in 0..segment.buckets() {
                        let word = self.mem.bucket(segment, i)?.word();
                        if word.locked() && !word.retired() {
                            return Ok(Some(format!(
                                "in space {space}, partition {partition}, bucket {i} was locked"
                            )));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Ends all that says itself how it is to be ended.
    fn settle_all(&self) -> Result<(), WriteError> {
        let slot = self.participants.slot()?;
        self.locks().for_each(RobustLock::orphan);
        mneme_sys::fault!("log.recover.locks");
        self.repair_swap(&slot)?;
        mneme_sys::fault!("log.recover.swap");
        for shard in 0..self.tables.geometry.shards {
            self.with_shard(&slot, shard, |_| Ok(()))?;
            mneme_sys::fault!("log.recover.shard");
        }
        self.settle_heads(&slot)?;
        mneme_sys::fault!("log.recover.heads");
        self.settle_segments();
        mneme_sys::fault!("log.recover.segments");
        self.suspect_lost();
        self.expect_expiries();
        mneme_sys::fault!("log.recover.end");
        Ok(())
    }

    /// The locks in the data that are not the arena's.
    fn locks(&self) -> impl Iterator<Item = &RobustLock> {
        let (geometry, header) = (&self.tables.geometry, self.tables.header());
        let heads = 0..geometry.heads + geometry.survivors;
        let heads = heads.map(move |i| &self.tables.head(i).lock);
        let shards = (0..geometry.shards).map(move |i| &self.tables.shard(i).lock);
        heads.chain(shards).chain([&header.sweep, &header.swap])
    }

    fn settle_heads(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        for i in 0..self.tables.geometry.heads + self.tables.geometry.survivors {
            let head = self.tables.head(i);
            let held = head.lock.lock(slot)?;
            drop(self.inherit_head(head, held));
        }
        Ok(())
    }

    fn settle_segments(&self) {
        for i in self.frames() {
            let frame = Frame(i);
            let (info, arena) = (self.tables.info(frame), self.arena.extent_of(frame));
            let word = info.state();
            // It was about to be given back, and was not.
            if word.state() == Some(State::Freeing)
                && arena.is_some_and(|a| {
                    a.tag == TAG_LOG && a.extent.start == frame && a.state == ExtentState::Held
                })
            {
                self.condemn(frame, word);
            }
        }
        self.close_abandoned();
        self.predate_segments();
    }

    /// The monotonic clock began anew. What is oldest stays so, or eviction would begin with the
    /// youngest.
    fn predate_segments(&self) {
        let closed = self.segments().filter(|(.., s)| *s == State::Closed);
        let times = closed.filter(|(_, info, ..)| !info.is_shunned());
        let last = times.map(|(_, info, ..)| info.closed()).max().unwrap_or(0);
        let by = last.saturating_sub(self.clock.now_ns());
        if by > 0 {
            for (_, info, _, state) in self.segments() {
                info.predate(state, by);
            }
        }
    }
}

fn unrecovered(error: WriteError) -> OpenError {
    match error {
        WriteError::Corrupt(corrupt) => OpenError::Corrupt(corrupt),
        WriteError::Stalled(stalled) => OpenError::Frames(stalled.into()),
        WriteError::Slot(slot) => OpenError::Frames(slot.into()),
        other => OpenError::Corrupt(Corrupt::at(0, format!("its recovery: {other}"))),
    }
}
