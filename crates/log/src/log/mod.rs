//! The log: frames of the arena, the log segments made of them, and the heads that append to these.
//!
//! [`Log`] knows where records lie, not what leads to them. It stands on the [session](Session):
//! the threads, and how they wait for each other.

mod cpu_heads;
pub(crate) mod growth;
pub(crate) mod head;
pub(crate) mod prefault;
pub(crate) mod segment;

use std::ops::Deref;
use std::sync::Arc;

use mneme_arena::{
    Arena, ClaimError, Class, Discardable, Extent, InvalidClaim, LendingError, ReleaseError,
};
use mneme_sync::Slot;
use mneme_sys::{NodeId, RegionError};

use crate::error::{Corrupt, WriteError};
use crate::session::Session;
use cpu_heads::CpuHeads;
use prefault::Claimed;

/// The log of an open store.
pub(crate) struct Log {
    session: Session,
    pub arena: Arc<Arena>,
    /// The cache in its idle frames, if it lends them.
    pub lent: Option<Discardable>,
    /// How far the frames have been claimed.
    pub claimed: Claimed,
    heads: CpuHeads,
}

impl Deref for Log {
    type Target = Session;

    #[inline(always)]
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Log {
    pub fn new(session: Session, arena: Arc<Arena>) -> Result<Log, RegionError> {
        let lent = match Discardable::open(Arc::clone(&arena)) {
            Ok(cache) => Some(cache),
            Err(LendingError::LendsNothing) => None,
            Err(LendingError::Region(error)) => return Err(error),
        };
        Ok(Log {
            claimed: Claimed::new(arena.nodes()),
            heads: CpuHeads::new(&*session.topology, session.tables.geometry.heads),
            session,
            arena,
            lent,
        })
    }

    /// Claims frames; `None` if the arena has none to give.
    pub fn claim(
        &self,
        slot: &Slot<'_>,
        frames: u32,
        node: NodeId,
        class: Class,
        tag: u16,
    ) -> Result<Option<Extent>, WriteError> {
        let align = if frames <= self.tables.geometry.segment_frames as u32 {
            frames.next_power_of_two()
        } else {
            1
        };
        match self.arena.claim(slot, frames, align, node, class, tag) {
            Ok(extent) => {
                let node = self.arena.node_of(extent.start);
                self.claimed.note(node, extent);
                Ok(Some(extent))
            }
            Err(
                ClaimError::OutOfMemory { .. }
                | ClaimError::NoContiguousRun { .. }
                | ClaimError::Invalid(InvalidClaim::TooMany { .. })
                // The file system can be full before the store is.
                | ClaimError::Backing(RegionError::NoSpace { .. } | RegionError::NoMemory { .. }),
            ) => Ok(None),
            Err(ClaimError::Stalled(stalled)) => Err(stalled.into()),
            Err(other) => Err(Corrupt::at(0, format!("the arena refused a claim: {other}")).into()),
        }
    }

    /// Adopts a claimed extent for the log.
    pub fn adopt(&self, extent: Extent) -> Result<(), Corrupt> {
        self.arena.adopt(extent).map_err(|e| {
            Corrupt::at(
                extent.offset(),
                format!("the arena refused to hand over an extent: {e}"),
            )
        })
    }

    /// Gives an extent back.
    pub fn release(&self, slot: &Slot<'_>, extent: Extent) -> Result<(), WriteError> {
        self.arena.release(slot, extent).map_err(|e| match e {
            ReleaseError::Stalled(stalled) => stalled.into(),
            other => Corrupt::at(
                extent.offset(),
                format!("the arena refused to take an extent back: {other}"),
            )
            .into(),
        })
    }
}
