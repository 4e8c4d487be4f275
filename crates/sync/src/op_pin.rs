//! [`OpPin`]: a shared place inside a [`FencedGate`](crate::FencedGate).
//!
//! Entering sets the gate's bit in the thread's slot, passes a fence, and checks the gate (`gate`).
//! It waits for a living writer inside, but never for a dead one.

use crate::RobustLock;
use crate::backoff::Backoff;
use crate::fenced_gate::Fence;
use crate::thread_slots::Local;
use crate::{GateError, Holding, Slot, gate};
use std::time::Duration;

/// Enters gate `index` of the opening, whose lock is `lock`; waits at most `limit`.
#[inline]
pub(crate) fn enter_or_wait<'a>(
    opening: u64,
    index: usize,
    lock: &RobustLock,
    slot: &Slot<'a>,
    limit: Duration,
) -> Result<OpPin<'a>, GateError> {
    if slot.local().opening != opening {
        return Err(GateError::Foreign);
    }
    let nested = &slot.local().inside[index];
    let depth = nested.get();
    if depth == 0 {
        if slot.local().is_forked() {
            return Err(GateError::Forked);
        }
        let inside = &slot.lines().inside;
        let bit = 1 << index;
        if gate::enter(inside, bit, lock.word(), &Fence).is_err() {
            wait_and_enter(lock, slot, bit, limit)?;
        }
    }
    nested.set(depth + 1);
    Ok(OpPin {
        slot: slot.clone(),
        index,
    })
}

#[cold]
fn wait_and_enter(
    lock: &RobustLock,
    slot: &Slot<'_>,
    bit: u64,
    limit: Duration,
) -> Result<(), GateError> {
    let inner = slot.inner();
    let inside = &slot.lines().inside;
    let mut backoff = Backoff::new(inner.now(), limit);
    loop {
        let Err(seen) = gate::enter(inside, bit, lock.word(), &Fence) else {
            return Ok(());
        };
        let Some(owner) = seen.owner() else {
            return Err(GateError::OwnerDied);
        };
        if owner.slot == slot.id() && owner.generation == slot.generation() {
            return Err(inner
                .stalled(owner.slot, Default::default(), Holding::OwnLock)
                .into());
        }
        if backoff.has_spun() && inner.is_owner_dead(owner.slot, owner.generation) {
            return Err(GateError::OwnerDied);
        }
        if !backoff.wait_for(seen.0, || inner.now()) {
            let waited = backoff.elapsed(inner.now());
            return Err(inner.stalled(owner.slot, waited, Holding::Gate).into());
        }
    }
}

/// A shared place inside a [`FencedGate`](crate::FencedGate): while it exists, no writer is inside.
/// Dropping it leaves.
#[must_use = "dropping it leaves at once"]
pub struct OpPin<'a> {
    slot: Slot<'a>,
    index: usize,
}

impl Drop for OpPin<'_> {
    #[inline]
    fn drop(&mut self) {
        let local: &Local = self.slot.local();
        let nested = &local.inside[self.index];
        let depth = nested.get().saturating_sub(1);
        nested.set(depth);
        // If the thread unwinds during an announced operation, the pin stays; see `pin`.
        let stays = || std::thread::panicking() && self.slot.lines().is_announcing();
        if depth == 0 && !stays() {
            // In a forked child these lines belong to nobody.
            gate::leave(&self.slot.lines().inside, 1 << self.index);
        }
    }
}

impl std::fmt::Debug for OpPin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpPin")
            .field("gate", &self.index)
            .finish_non_exhaustive()
    }
}
