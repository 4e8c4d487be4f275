//! Entering a [`FencedGate`](crate::FencedGate) exclusively: the checks before, and the wait
//! afterwards.
//!
//! **After a thread has closed the gate, passed its fence and waited here, no living thread is
//! inside.**

use crate::backoff::Backoff;
use crate::opening::Inner;
use crate::{Holding, Slot, SlotId, Stalled, gate};
use std::time::Duration;

/// Fails for a caller that can never hold gate `index` exclusively: in a forked child, with a slot
/// of another region, or inside the gate itself.
#[inline]
pub(crate) fn may_exclude(inner: &Inner, index: usize, slot: &Slot<'_>) -> Result<(), Stalled> {
    let local = slot.local();
    if local.is_forked() {
        return Err(Stalled::nobody(Holding::Forked));
    }
    if local.opening != inner.opening() {
        return Err(Stalled::nobody(Holding::Foreign));
    }
    if local.inside[index].get() != 0 {
        return Err(inner.stalled(slot.id(), Duration::ZERO, Holding::OwnInside));
    }
    Ok(())
}

/// Waits until no living thread is inside gate `index`, for at most `limit` if one is given, and
/// calls `dead` for each thread that died there. `me` must have closed the gate and passed the
/// barrier.
#[cold]
pub(crate) fn until_empty(
    inner: &Inner,
    index: usize,
    me: SlotId,
    limit: Option<Duration>,
    dead: impl Fn(),
) -> Result<(), Stalled> {
    let bit = 1 << index;
    let is_inside = |id: SlotId| {
        let lines = inner.control().slot(id);
        lines.is_some_and(|lines| gate::is_inside(&lines.inside, bit))
    };
    // Slots found empty stay empty, so only those whose threads are still inside are examined
    // again.
    let mut inside: Vec<SlotId> = inner.control().slots().map(|(id, _)| id).collect();
    let mut backoff = Backoff::new(inner.now(), limit.unwrap_or_default());
    loop {
        inside.retain(|id| *id != me && is_inside(*id));
        if backoff.has_spun() || limit.is_none() {
            inside.retain(|id| {
                let gone = inner.is_dead(*id);
                if gone {
                    dead();
                }
                !gone
            });
        }
        let Some(first) = inside.first() else {
            return Ok(());
        };
        if limit.is_none() || !backoff.wait(|| inner.now()) {
            let waited = backoff.elapsed(inner.now());
            return Err(inner.stalled(*first, waited, Holding::Inside));
        }
    }
}
