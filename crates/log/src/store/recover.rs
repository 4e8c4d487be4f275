//! **After the machine restarted, a store that had no half-done operation is put in order before
//! any operation uses it. Any other store is refused, and not changed.**
//!
//! A store may lie in files that outlive the machine. The control region does not: it is rebuilt,
//! slots and their generations start over, and the intents by which a reaper would repair what dead
//! threads left are gone. The first opening, while no other can open the store, looks for half-done
//! work without changing anything. A locked bucket, or a log segment that a thread owns, can only
//! be repaired by an intent, so the store is refused. All other state shows how it must be
//! finished: the locks of heads, shards, the sweep and the swap become those of dead owners and are
//! taken over, each with its repair; segments that were being freed are condemned again; lost large
//! records, unpublished ones and expiring ones are searched for.
//!
//! The arena, whose owners were slots too, is recovered around this. Its last step records this
//! incarnation of the control region, so that after a death in the middle the next opening starts
//! the recovery again.

use mneme_arena::{ExtentState, Frame};
use mneme_sync::{RobustLock, Slot};

use crate::error::{Corrupt, OpenError, WriteError};
use crate::index::lookup::Lookup;
use crate::log::segment::{State, TAG_LOG};
use crate::region::space::KeyspaceId;
use crate::store::components::Store;

impl Store {
    /// Puts a store in order that was left by an earlier incarnation of the control region. No
    /// other opening uses it.
    pub(crate) fn recover(&self) -> Result<(), OpenError> {
        if let Some(what) = self.left_half_done()? {
            return Err(OpenError::NotClean(what));
        }
        mneme_sys::fault!("log.recover.begin");
        self.log()
            .arena
            .recover_around(|| self.settle_all().map_err(unrecovered))
    }

    /// Half-done work that only a lost intent could finish, if there is any. Changes nothing.
    fn left_half_done(&self) -> Result<Option<String>, Corrupt> {
        for i in self.log().frames() {
            let word = self.session().tables.info(Frame(i)).state();
            // The slot of the thread that freed a segment stays in the word.
            if word.owner().is_some() && word.state() != Some(State::Freeing) {
                let state = word.state();
                return Ok(Some(format!(
                    "the log segment at frame {i} was in somebody's hands ({state:?})"
                )));
            }
        }
        for space in KeyspaceId::with_hidden() {
            let Some(root) = self.index().root(space)? else {
                continue;
            };
            for partition in 0..self.index().partitions() as u32 {
                for (_, segment) in self.index().partition_segments(root, partition)? {
                    for i in 0..segment.buckets() {
                        let word = self.session().mem.bucket(segment, i)?.word();
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

    /// Finishes all half-done work whose state shows how.
    fn settle_all(&self) -> Result<(), WriteError> {
        let slot = self.session().participants.slot()?;
        self.locks().for_each(RobustLock::orphan);
        mneme_sys::fault!("log.recover.locks");
        self.index().repair_swap(&slot)?;
        mneme_sys::fault!("log.recover.swap");
        for shard in 0..self.session().tables.geometry.shards {
            self.index().with_shard(&slot, shard, |_| Ok(()))?;
            mneme_sys::fault!("log.recover.shard");
        }
        match self.session().feed.kept() {
            Some(feed) => {
                feed.void_all()?;
                feed.end_all(&slot)?;
            }
            // Its followers are gone.
            None => self.session().feed.clear(),
        }
        self.settle_heads(&slot)?;
        mneme_sys::fault!("log.recover.heads");
        self.settle_segments();
        mneme_sys::fault!("log.recover.segments");
        self.log().suspect_lost();
        self.log().suspect_all();
        self.records().expect_expiries();
        self.index().lose_main(None);
        mneme_sys::fault!("log.recover.end");
        Ok(())
    }

    /// The locks in the data that are not the arena's.
    fn locks(&self) -> impl Iterator<Item = &RobustLock> {
        let (geometry, header) = (
            &self.session().tables.geometry,
            self.session().tables.header(),
        );
        let heads = 0..geometry.all_heads();
        let heads = heads.map(move |i| &self.session().tables.head(i).lock);
        let shards = (0..geometry.shards).map(move |i| &self.session().tables.shard(i).lock);
        heads.chain(shards).chain([&header.sweep, &header.swap])
    }

    fn settle_heads(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        for i in 0..self.session().tables.geometry.all_heads() {
            let head = self.session().tables.head(i);
            let held = head.lock.lock(slot)?;
            drop(self.log().inherit_head(head, held));
        }
        Ok(())
    }

    fn settle_segments(&self) {
        for i in self.log().frames() {
            let frame = Frame(i);
            let (info, arena) = (
                self.session().tables.info(frame),
                self.log().arena.extent_of(frame),
            );
            let word = info.state();
            // The extent was about to be released, and was not.
            if word.state() == Some(State::Freeing)
                && arena.is_some_and(|a| {
                    a.tag == TAG_LOG && a.extent.start == frame && a.state == ExtentState::Held
                })
            {
                self.log().condemn(frame, word);
            }
        }
        self.log().close_abandoned();
        self.predate_segments();
    }

    /// The monotonic clock was reset. The order of segments by age is kept, or eviction would begin
    /// with the youngest.
    fn predate_segments(&self) {
        let closed = self.log().segments().filter(|(.., s)| *s == State::Closed);
        let times = closed.filter(|(_, info, ..)| !info.is_deprioritised());
        let last = times.map(|(_, info, ..)| info.closed()).max().unwrap_or(0);
        let by = last.saturating_sub(self.session().clock.now_ns());
        if by > 0 {
            for (_, info, _, state) in self.log().segments() {
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
