//! Spare frames: free ones whose memory is still there, and how it goes back to the machine.
//!
//! **A frame that is given back is free or its giver's, never both, and a claim that gets it
//! has its memory.** The steps of [`Arena::give_back_spare`], each a fault point:
//!
//! 1. *Taken*: the giver claims the frame, under the arena's lock as any claim, with a tag that no
//!    other claim has. From here on, whoever frees the frame frees it as *bare*: the giver, the
//!    repair of a dead giver, or the next owner of the lock.
//! 2. *Emptied*: the memory goes.
//! 3. *Freed*: the extent is released. The frame is free and bare.
//!
//! A bare frame is as good as any to a claim. In a file that gets its space as it is used, the
//! claim takes its space first (see `backed`), as that of a frame that nobody had. A giver that
//! dies before *emptied* leaves a bare frame that has its memory, which costs the next claim a
//! call.
//!
//! **Readers that may still look at the frame.** Its extent was released, so the grace period
//! of whoever had it is over: no pin that was there before counts any more. A revoked reader
//! may be in the middle of a copy all the same. It finds zeros, and on leaving that its pin is
//! gone. In a file that gets its space as it is used such a look could find no space, which is
//! fatal; so there, nothing is given back while the control region shows a pin that has been
//! revoked and not left. The look comes after *taken*: a pin that is revoked later was begun
//! after the frame was free. Readers of the second class have no pins; there, a frame that was
//! ever lent is not given back.

use std::ops::Range;

use crate::arena::Arena;
use crate::descriptor::{State, Status, TAG_BARE, Unexpected};
use crate::error::{ClaimError, ReleaseError};
use crate::frame::{Extent, FRAME_BYTES, Frame};
use crate::repair::ArenaIntent;
use mneme_sync::{Lane, Slot, Stalled};
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::Ordering::Relaxed;

/// The free frames of a node, by whether they have their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spare {
    /// Frames that somebody had, and that have their memory.
    pub resident: u32,
    /// Frames whose memory was given back.
    pub bare: u32,
    /// Frames that nobody had yet.
    pub fresh: u32,
}

/// Why a frame's memory was not given back. It is as it was then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GiveBackError {
    /// A reader whose pin was revoked has not gone on yet.
    #[error("a reader whose pin was revoked has not gone on yet")]
    Reader,
    /// Another participant holds the arena's lock and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The descriptors contradict themselves; `check()` says how.
    #[error("the arena is damaged at {frame}; its check tells more")]
    Damaged {
        /// Where.
        frame: Frame,
    },
    /// The system refuses.
    #[error("the memory cannot be given back")]
    Region(#[from] RegionError),
}

impl From<ClaimError> for GiveBackError {
    fn from(error: ClaimError) -> GiveBackError {
        match error {
            ClaimError::Stalled(stalled) => GiveBackError::Stalled(stalled),
            ClaimError::Backing(error) => GiveBackError::Region(error),
            _ => GiveBackError::Damaged { frame: Frame(0) },
        }
    }
}

impl Arena {
    /// The free frames of a node. Looks at the descriptor of each frame, without a lock: some
    /// nanoseconds a frame.
    pub fn spare(&self, node: NodeId) -> Spare {
        let mut spare = Spare::default();
        let (Ok(table), Ok(zones)) = (self.table(), self.zones()) else {
            return spare;
        };
        for zone in zones.filter(|zone| zone.node == node.0) {
            for (_, status) in table.statuses(zone.range()) {
                spare.resident += u32::from(status.is_spare());
                spare.bare += u32::from(status.is_bare());
                spare.fresh += u32::from(status.is_fresh());
            }
        }
        spare
    }

    /// Gives the memory of the highest spare frame of a node back to the machine. The frame stays
    /// free. `None`: there is none, or none that may be given back.
    ///
    /// # Errors
    /// See [`GiveBackError`]. Where the region does not [give back](mneme_sys::Region::gives_back),
    /// the answer is `None`.
    pub fn give_back_spare(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
    ) -> Result<Option<Frame>, GiveBackError> {
        if !self.region.gives_back() {
            return Ok(None);
        }
        match self.take_spare(slot, node, None)? {
            Some(frame) => self.empty_and_free(slot, frame).map(Some),
            None => Ok(None),
        }
    }

    /// As [`give_back_spare`](Self::give_back_spare), but of `frame`, which nobody had yet: its
    /// memory was populated ahead of the claims. False: somebody has or had it, or it may not be
    /// given back.
    ///
    /// # Errors
    /// See [`GiveBackError`].
    pub fn give_back_fresh(&self, slot: &Slot<'_>, frame: Frame) -> Result<bool, GiveBackError> {
        if !self.region.gives_back() {
            return Ok(false);
        }
        match self.take_spare(slot, self.node_of(frame), Some(frame))? {
            Some(frame) => self.empty_and_free(slot, frame).map(|_| true),
            None => Ok(false),
        }
    }

    /// Gives the memory of a frame that was taken back to the machine, and frees it.
    fn empty_and_free(&self, slot: &Slot<'_>, frame: Frame) -> Result<Frame, GiveBackError> {
        mneme_sys::fault!("arena.give.taken");
        let emptied = match self.region.is_lazy() && self.participants.has_revoked() {
            true => Err(GiveBackError::Reader),
            false => {
                let start = frame.offset() as usize;
                let bytes = start..start + FRAME_BYTES as usize;
                self.region.give_back(bytes).map_err(GiveBackError::from)
            }
        };
        mneme_sys::fault!("arena.give.emptied");
        let extent = Extent {
            start: frame,
            frames: 1,
        };
        self.release(slot, extent).map_err(|error| match error {
            ReleaseError::Stalled(stalled) => GiveBackError::Stalled(stalled),
            ReleaseError::Region(error) => GiveBackError::Region(error),
            _ => GiveBackError::Damaged { frame },
        })?;
        mneme_sys::fault!("arena.give.freed");
        if let Err(error) = emptied {
            // It has its memory still, which asking for it notes.
            let _ = self.back(frame);
            return Err(error);
        }
        Ok(frame)
    }

    /// Claims the highest spare frame of a node, or the `fresh` one that is named, to give its
    /// memory back.
    fn take_spare(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        fresh: Option<Frame>,
    ) -> Result<Option<Frame>, GiveBackError> {
        let guard = self.lock::<ClaimError>(slot)?;
        self.mask_filling()?;
        let table = self.table()?;
        let lending = self.lending()?;
        let lazy = self.region.is_lazy();
        let mapped = (self.region.len() as u64 / FRAME_BYTES) as u32;
        let status_of = |frame: u32| table.get(frame).and_then(|descriptor| descriptor.status());
        // It was taken by this thread before, and could not be freed then.
        let is_taken = |frame: u32| {
            status_of(frame).is_some_and(|status| {
                let own = status.owner == slot.id().0 && status.tag == TAG_BARE;
                own && status.state == State::Claimed
            })
        };
        let is_meant = |frame: &u32| {
            let status = status_of(*frame);
            let was_lent = || {
                let used = lending.and_then(|lending| lending.uses(*frame));
                used.is_some_and(|used| used.born.load(Relaxed) > 0)
            };
            let is_wanted = |status: Status| match fresh {
                Some(fresh) => *frame == fresh.0 && status.is_fresh(),
                None => status.is_spare(),
            };
            *frame < mapped
                && (is_taken(*frame) || (status.is_some_and(is_wanted) && !(lazy && was_lent())))
        };
        let zones: Vec<Range<u32>> = self
            .zones()?
            .filter(|zone| zone.node == node.0)
            .map(|zone| zone.range())
            .collect();
        let Some(frame) = zones.into_iter().rev().flat_map(Range::rev).find(is_meant) else {
            return Ok(None);
        };
        if is_taken(frame) {
            return Ok(Some(Frame(frame)));
        }
        let range = frame..frame + 1;
        let damaged = |_| GiveBackError::Damaged {
            frame: Frame(frame),
        };
        let generation = match table.next_generation(range.clone()) {
            // A tenant took it.
            Err(Unexpected::Raced { .. }) => return Ok(None),
            generation => generation.map_err(damaged)?,
        };
        let summary = self.summary()?;
        let intent = slot.intent(Lane::Arena);
        let words = [u64::from(frame), 1, u64::from(generation)];
        intent.begin(ArenaIntent::Claim as u16, &words);
        mneme_sys::fault!("arena.give.intent");
        let written = table.write_run(range.clone(), TAG_BARE, slot.id().0, generation, |_| ());
        if let Err(at) = written {
            intent.clear();
            return match at {
                Unexpected::Raced { .. } => Ok(None),
                at => Err(damaged(at)),
            };
        }
        mneme_sys::fault!("arena.give.descriptor");
        if let Some(lending) = lending {
            lending.mark_idle(&range, false);
        }
        summary.mark(range.clone(), false);
        summary.refresh(range);
        drop(guard);
        intent.clear();
        Ok(Some(Frame(frame)))
    }
}
