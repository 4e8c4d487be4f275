//! The log: frames of the arena, the log segments made of them, and the heads that append to these.
//!
//! [`Log`] knows where records lie, not what leads to them. It is built on the [session](Session):
//! the threads, and how they wait for each other.

mod cpu_heads;
pub(crate) mod growth;
pub(crate) mod head;
pub(crate) mod prefault;
pub(crate) mod segment;
pub(crate) mod spare;

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

    #[inline(always)]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Claims frames; `None` if the arena has none.
    pub fn claim(
        &self,
        slot: &Slot<'_>,
        frames: u32,
        node: NodeId,
        class: Class,
        tag: u16,
    ) -> Result<Option<Extent>, WriteError> {
        // If segments of one length each lie at a multiple of it, no gap between them is too short
        // for another one. If there is no such place, any other will do.
        let align = match frames <= self.session().tables.geometry.segment_frames as u32 {
            true => frames.next_power_of_two(),
            false => 1,
        };
        let claim = |align| self.arena.claim(slot, frames, align, node, class, tag);
        let claimed = match claim(align) {
            Err(ClaimError::NoContiguousRun { .. }) if align > 1 => claim(1),
            claimed => claimed,
        };
        match claimed {
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

    /// A run of free frames may begin anywhere, for a segment or a large record.
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

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use mneme_arena::{Class, Extent};
    use mneme_sys::NodeId;

    use crate::log::segment::TAG_LOG;
    use crate::store::LogStore;

    /// Free frames that begin anywhere serve a segment, or a large record.
    #[test]
    fn a_run_of_frames_need_not_be_aligned() {
        let builder = LogStore::builder().capacity(1 << 30).maintainer(false);
        let store = builder.open_private().unwrap();
        let log = store.inner().log();
        let slot = log.session().writer().unwrap();
        let claim = |frames| {
            let claimed = log.claim(&slot, frames, NodeId(0), Class::Reserved, TAG_LOG);
            claimed.unwrap()
        };
        assert_eq!(log.session().tables.geometry.segment_frames, 2);
        let singles: Vec<Extent> = std::iter::from_fn(|| claim(1)).collect();
        for single in &singles {
            // Two of every four frames, the first of them odd.
            if matches!(single.start.0 % 4, 1 | 2) {
                log.release(&slot, *single).unwrap();
            }
        }
        let claimed = claim(2).unwrap();
        assert_eq!((claimed.frames, claimed.start.0 % 4), (2, 1));
    }
}
