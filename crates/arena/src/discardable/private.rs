//! A cache in memory that no other process can access.

use super::{Discardable, LendingError};
use crate::{
    Arena, ArenaOptions, ClaimError, Class, CreateError, FRAME_BYTES, LendingOptions, ReleaseError,
};
use mneme_sync::{ControlOptions, Participants, SlotError};
use mneme_sys::{NodeId, PagePolicy, Region, RegionError, SyntheticTopology};
use std::sync::Arc;

/// Why a private cache could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateError {
    /// The number of bytes or records is too small or too large for an arena.
    #[error(transparent)]
    Arena(#[from] CreateError),
    /// There is not enough memory.
    #[error("no memory for the arena of a cache")]
    Region(#[from] RegionError),
    /// There is not enough memory for the participants.
    #[error(transparent)]
    Participants(#[from] mneme_sync::CreateError),
    /// The calling thread cannot be a participant.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The fresh frames could not be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The claimed frames could not be released.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// The cache could not be opened.
    #[error(transparent)]
    Open(#[from] LendingError),
    /// The kernel has no randomness for an identity.
    #[error("the kernel gives no randomness")]
    Random(#[source] std::io::Error),
}

impl Discardable {
    /// Creates a cache in an arena that only this process can access, with `bytes` of memory in
    /// all, at least 4 MiB, including the arena's tables and an index for that many
    /// [records](LendingOptions::records). All frames are lent until they are
    /// [claimed](Arena::claim). Memory is allocated as it is used.
    ///
    /// # Errors
    /// Impossible numbers; not enough memory.
    ///
    /// ```
    /// use mneme_arena::{Discardable, CacheLookup, Stored};
    /// use mneme_sys::NodeId;
    ///
    /// let cache = Discardable::private(64 << 20, 100_000)?;
    /// let slot = cache.arena().participants().slot()?;
    /// assert_eq!(cache.put(&slot, NodeId(0), b"key", b"value")?, Stored::Kept);
    /// let mut value = Vec::new();
    /// assert_eq!(cache.get(b"key", &mut value), CacheLookup::Hit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn private(bytes: u64, records: u64) -> Result<Discardable, PrivateError> {
        let mut uuid = [0; 16];
        mneme_sys::random_bytes(&mut uuid).map_err(PrivateError::Random)?;
        let participants = Participants::private(ControlOptions {
            max_processes: 1,
            ..ControlOptions::new(uuid)
        })?;
        let len = usize::try_from(bytes / FRAME_BYTES * FRAME_BYTES).unwrap_or(usize::MAX);
        let region = Arc::new(Region::private(len, len, PagePolicy::Thp)?);
        let options = ArenaOptions {
            uuid,
            client_bytes: 0,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending: Some(LendingOptions {
                records,
                max_frames: u32::MAX,
            }),
        };
        let arena = Arc::new(Arena::create(region, participants.clone(), options)?);
        // Only frames that were claimed before are lent.
        let slot = participants.slot()?;
        let all = arena.stats().longest_run;
        let all = arena.claim(&slot, all, 1, NodeId(0), Class::Reserved, 0)?;
        arena.release(&slot, all)?;
        drop(slot);
        Ok(Discardable::open(arena)?)
    }
}
