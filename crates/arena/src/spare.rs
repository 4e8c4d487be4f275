//! Spare frames: free frames that still have memory, and how that memory is returned to the
//! machine.
//!
//! **While its memory is returned, a frame either is free or belongs to the returning thread, never
//! both, and a claim that gets it afterwards has its memory.** The steps of
//! [`Arena::give_back_spare`], each with a fault point:
//!
//! 1. *Taken*: the thread claims the frame, under the arena's lock like any claim, with a tag that
//!    no other claim has. From here on, the frame becomes *bare* whoever frees it: this thread, the
//!    repair if it dies, or the next owner of the lock.
//! 2. *Emptied*: the memory is released.
//! 3. *Freed*: the extent is released. The frame is free and bare.
//!
//! A claim may take a bare frame like any other. In a file whose space is allocated on use, the
//! claim first allocates its space (see `backed`), as for a frame that was never claimed. A thread
//! that dies before *emptied* leaves a bare frame that still has its memory, which costs the next
//! claim a system call.
//!
//! **Readers that may still access the frame.** Its extent was released, so the grace period is
//! over: no pin from before counts any more. But a reader whose pin was revoked may be in the
//! middle of a copy. It reads zeros, and learns when it leaves that its pin is gone. In a file
//! whose space is allocated on use, such a read could find no space, which is fatal (`SIGBUS`); so
//! there, nothing is given back while the control region shows a pin that was revoked and not left.
//! That check comes after *taken*: a pin that is revoked later was begun after the frame was free.
//! Readers of the second class have no pins; there, a frame that was ever lent is not given back.

use std::ops::Range;

use crate::arena::Arena;
use crate::descriptor::{State, Status, TAG_BARE, Unexpected};
use crate::error::{ClaimError, ReleaseError};
use crate::frame::{Extent, FRAME_BYTES, Frame};
use crate::repair::ArenaIntent;
use mneme_sync::{Lane, Slot, Stalled};
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::Ordering::Relaxed;

/// A node's free frames, by the state of their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spare {
    /// The number of frames that were claimed before and have memory.
    pub resident: u32,
    /// The number of frames whose memory was returned.
    pub bare: u32,
    /// The number of frames that were never claimed.
    pub fresh: u32,
}

/// Why a frame's memory was not returned. It is then unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GiveBackError {
    /// A reader whose pin was revoked has not noticed that yet.
    #[error("a reader whose pin was revoked has not left yet")]
    Reader,
    /// Another participant holds the arena's lock and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The descriptors contradict each other; `check()` reports how.
    #[error("the arena is damaged at {frame}; check it for details")]
    Damaged {
        /// The frame.
        frame: Frame,
    },
    /// The operating system refuses.
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
    /// The free frames of a node. Reads the descriptor of each frame, without a lock: some
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

    /// Returns the memory of a node's highest spare frame to the machine. The frame stays free.
    /// `None` if there is none, or none whose memory may be returned.
    ///
    /// # Errors
    /// See [`GiveBackError`]. If the region does not [support](mneme_sys::Region::gives_back) it,
    /// the result is `None`.
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

    /// As [`give_back_spare`](Self::give_back_spare), for the given `frame`, which was never
    /// claimed but was populated ahead of claims. Returns false if it has been claimed, or its
    /// memory may not be returned.
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

    /// Returns the memory of a frame that this thread has taken, and frees the frame.
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
            // It still has its memory; this call records that.
            let _ = self.back(frame);
            return Err(error);
        }
        Ok(frame)
    }

    /// Claims the highest spare frame of a node, or the given `fresh` one, to return its memory.
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
        // This thread took it before, and could not free it then.
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
