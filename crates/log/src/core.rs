//! What all parts of an open store share: the region, the tables, the participants, and waiting.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mneme_arena::{Arena, ClaimError, Class, Extent, InvalidClaim, ReleaseError};
use mneme_sync::{Holding, Lane, Participants, Slot, SlotId, Stalled};
use mneme_sys::{Clock, NodeId, Topology};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::compact::Candidates;
use crate::error::{Corrupt, WriteError};
use crate::layout::Tables;
use crate::mem::{Loc, Mem};

/// The lane of intents for one operation on a key.
pub(crate) const OPERATION_LANE: Lane = Lane::Log;
/// The lane of intents for changes of the index' shape.
pub(crate) const INDEX_LANE: Lane = Lane::Index;

/// How long an operation waits for a holder that is alive but does not go on.
const PATIENCE: Duration = Duration::from_secs(1);

/// An open store, without its maintainer thread.
pub(crate) struct Core {
    pub mem: Mem,
    pub tables: Tables,
    pub arena: Arena,
    pub participants: Participants,
    pub topology: Arc<dyn Topology>,
    pub clock: Arc<dyn Clock>,
    pub secrets: RapidSecrets,
    /// Victims that this process has in view, by node.
    pub candidates: Vec<Mutex<Candidates>>,
}

impl Core {
    /// The keyed hash of a key. Its values are part of the region's format.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
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
            Ok(extent) => Ok(Some(extent)),
            Err(
                ClaimError::OutOfMemory { .. }
                | ClaimError::NoContiguousRun { .. }
                | ClaimError::Invalid(InvalidClaim::TooMany { .. }),
            ) => Ok(None),
            Err(ClaimError::Stalled(stalled)) => Err(stalled.into()),
            Err(other) => Err(Corrupt::at(0, format!("the arena refused a claim: {other}")).into()),
        }
    }

    /// Makes a claimed extent the log's own.
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

    /// Where in the region a word of the tables lies.
    pub fn loc_of(&self, word: &AtomicU64) -> Loc {
        let base = self.mem.region().base() as usize;
        Loc::of_byte((std::ptr::from_ref(word) as usize - base) as u64)
    }

    /// One round of waiting for `holder`'s lock: repairs what it left if it is dead, gives up on it
    /// after a second if it is not.
    #[cold]
    pub fn wait_for(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        holder: SlotId,
    ) -> Result<(), WriteError> {
        self.wait_on(slot, wait, holder, Holding::Lock)
    }

    /// The same for whatever `holder` holds.
    #[cold]
    pub fn wait_on(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        holder: SlotId,
        what: Holding,
    ) -> Result<(), WriteError> {
        wait.rounds += 1;
        // Time counts from the first round on: what the caller does between two may itself take long.
        let now = self.clock.now_ns();
        let began = *wait.began.get_or_insert(now);
        let since = Duration::from_nanos(now.saturating_sub(began));
        if wait.rounds < 128 && since <= PATIENCE {
            if wait.rounds < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            return Ok(());
        }
        let dead = holder.is_some() && self.participants.is_dead(holder);
        if dead && self.reap(slot)? > 0 {
            return Ok(());
        }
        if since > PATIENCE {
            let pid = self.participants.pid_of(holder);
            if dead {
                return Err(WriteError::Reap(format!(
                    "thread slot {holder} (process {pid}) is dead, and whoever repairs what it left does not go on"
                )));
            }
            return Err(Stalled {
                pid,
                slot: holder,
                since,
                what,
            }
            .into());
        }
        std::thread::sleep(Duration::from_micros(
            u64::from((wait.rounds - 127).min(20)) * 50,
        ));
        Ok(())
    }

    /// The thread whose pin holds up reclamation most, if there is one.
    #[cold]
    pub fn oldest_pin(&self) -> SlotId {
        let oldest = self.participants.stats().oldest_pin;
        oldest.map_or(SlotId::NONE, |pin| pin.slot)
    }
}

/// How long somebody has waited.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    rounds: u32,
    began: Option<u64>,
    retired: u64,
}

impl Wait {
    pub fn new() -> Wait {
        Wait::default()
    }

    /// Notes that the index segment of this word was found retired; false: it was the one before
    /// too.
    pub fn found_retired(&mut self, segment: u64) -> bool {
        std::mem::replace(&mut self.retired, segment) != segment
    }
}
