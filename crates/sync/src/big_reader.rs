//! [`BigReader`]: many operations run at once, or one has everything to itself.
//!
//! **While an [`Exclusive`] exists, no [`OpPin`] of its gate does**, in any thread of any attached
//! process. Entering costs what a pin costs; excluding costs the heavy barrier and the wait for
//! those inside. The gates lie in the control region; the protocol is in `gate`.

use crate::layout::GATES;
use crate::local::Local;
use crate::opening::Inner;
use crate::participants::Participants;
use crate::patience::Patience;
use crate::robust_lock::{Acquired, Guard, LOCK_PATIENCE, RobustLock};
use crate::word::Barrier;
use crate::{Holding, Slot, Stalled, exclusion, gate};
use std::time::Duration;

/// One of the control region's gates, below [`GATES`].
#[derive(Clone)]
pub struct BigReader {
    participants: Participants,
    index: usize,
}

/// Why an operation could not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Somebody excludes all others and does not finish.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// Somebody died excluding all others, or inside when he was to be excluded: call
    /// [`BigReader::exclude`], which hands over the news, and repair.
    #[error("what the gate guards may be half changed: exclude all others and repair it")]
    OwnerDied,
    /// The slot is one of another control region than the gate.
    #[error("the slot is one of another control region")]
    Foreign,
    /// This process was forked from the one that attached.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
}

impl Participants {
    /// The gate of that number, below 16; `None` beyond.
    #[must_use]
    pub fn big_reader(&self, index: usize) -> Option<BigReader> {
        (index < GATES).then(|| BigReader {
            participants: self.clone(),
            index,
        })
    }
}

impl BigReader {
    fn inner(&self) -> &Inner {
        self.participants.inner()
    }

    fn lock(&self) -> &RobustLock {
        &self.inner().map().header().gates[self.index].lock
    }

    /// Begins an operation: until the result is dropped, nobody excludes it. Nests: a thread that
    /// is inside enters again even while somebody waits to exclude it.
    ///
    /// # Errors
    /// [`GateError::Stalled`] after a second behind somebody who excludes and does not finish;
    /// [`GateError::OwnerDied`] at once if he is dead.
    #[inline]
    pub fn shared<'a>(&'a self, slot: &Slot<'a>) -> Result<OpPin<'a>, GateError> {
        let barrier = slot.inner().barrier();
        let (opening, limit) = (self.inner().opening(), Some(LOCK_PATIENCE));
        enter_or_wait(opening, self.index, self.lock(), slot, &barrier, limit)
    }

    /// Raises the gate and waits until everybody is outside, at most a second.
    ///
    /// The news that comes with it is that somebody died excluding, or that a dead thread was found
    /// inside: its operation may be half done.
    ///
    /// # Errors
    /// [`Stalled`] names who excludes, or who is inside, and does not leave; then the gate is open
    /// again.
    pub fn exclude<'a>(&'a self, slot: &Slot<'a>) -> Result<Acquired<Exclusive<'a>>, Stalled> {
        let inner = self.inner();
        exclusion::may_exclude(inner, self.index, slot)?;
        let acquired = self.lock().acquire(slot, LOCK_PATIENCE, Holding::Gate)?;
        mneme_sys::fault!("sync.gate.raised");
        let guard = acquired.into_inner();
        if inner.barrier().heavy().is_err() {
            return Err(Stalled::nobody(Holding::Inside));
        }
        let limit = Some(LOCK_PATIENCE);
        exclusion::until_empty(inner, self.index, slot.id(), limit, || guard.give_news())?;
        mneme_sys::fault!("sync.gate.empty");
        Ok(guard.with_news(|guard| Exclusive { guard }))
    }
}

/// Enters gate `index` of the opening, whose lock is `lock`; waits at most `limit`, if one is given.
#[inline]
pub(crate) fn enter_or_wait<'a>(
    opening: u64,
    index: usize,
    lock: &RobustLock,
    slot: &Slot<'a>,
    barrier: &impl Barrier,
    limit: Option<Duration>,
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
        if gate::enter(inside, bit, lock.word(), barrier).is_err() {
            wait_and_enter(lock, slot, bit, barrier, limit)?;
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
    barrier: &impl Barrier,
    limit: Option<Duration>,
) -> Result<(), GateError> {
    let inner = slot.inner();
    let inside = &slot.lines().inside;
    let mut patience = Patience::new(inner.now(), limit.unwrap_or_default());
    loop {
        let Err(seen) = gate::enter(inside, bit, lock.word(), barrier) else {
            return Ok(());
        };
        let Some(owner) = seen.owner() else {
            return Err(GateError::OwnerDied);
        };
        if owner.slot == slot.id() && owner.tenancy == slot.tenancy() {
            return Err(inner
                .stalled(owner.slot, Default::default(), Holding::OwnLock)
                .into());
        }
        let ask = patience.is_tried() || limit.is_none();
        if ask && inner.is_owner_dead(owner.slot, owner.tenancy) {
            return Err(GateError::OwnerDied);
        }
        if limit.is_none() || !patience.wait(|| inner.now()) {
            let waited = patience.elapsed(inner.now());
            return Err(inner.stalled(owner.slot, waited, Holding::Gate).into());
        }
    }
}

impl std::fmt::Debug for BigReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BigReader")
            .field("gate", &self.index)
            .finish_non_exhaustive()
    }
}

/// A place inside a gate: nobody excludes this thread while it lives. Dropping it leaves.
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
        if depth == 0 {
            // In a forked child these lines are nobody's.
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

/// Everybody else is outside the gate while this lives. Dropping it opens the gate.
#[derive(Debug)]
#[must_use = "dropping it opens the gate at once"]
pub struct Exclusive<'a> {
    guard: Guard<'a>,
}

impl Exclusive<'_> {
    /// Declares what the gate guards whole again: others may enter once this is dropped.
    pub fn repaired(&self) {
        self.guard.repaired();
    }
}
