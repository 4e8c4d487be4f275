//! [`FencedGate`]: a lock for many readers or one writer that is fast for both.
//!
//! **While a [`Sole`] exists, no [`OpPin`] of its gate does**, in any thread of any attached
//! process, and both cost tens of nanoseconds. The protocol is in `gate`; the gates lie in the
//! control region. Both sides pass a full fence, so a writer needs no system call to interrupt the
//! readers. Readers do not write to shared cache lines.
//!
//! Threads that share the gate *only read*. A reader that dies inside leaves nothing half done, so
//! its death is not reported; a writer's death is.

use crate::atomics::Barrier;
use crate::layout::GATES;
use crate::lock_word::RobustLock;
use crate::op_pin::{OpPin, enter_or_wait};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::robust_lock::{Acquired, Guard, LOCK_TIMEOUT};
use crate::{GateError, Holding, Slot, SlotId, Stalled, exclusion, gate};
use mneme_sys::barrier::BarrierRefused;
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// One of the control region's gates, below [`GATES`].
#[derive(Clone)]
pub struct FencedGate {
    participants: Participants,
    index: usize,
}

/// The gate's barrier: a full fence on either side.
#[derive(Clone, Copy)]
pub(crate) struct Fence;

impl Barrier for Fence {
    #[inline(always)]
    fn light(&self) {
        // SYNC: pairs with the fence in `heavy`.
        std::sync::atomic::fence(SeqCst);
    }

    #[inline(always)]
    fn heavy(&self) -> Result<(), BarrierRefused> {
        // SYNC: pairs with the fence in `light`.
        std::sync::atomic::fence(SeqCst);
        Ok(())
    }
}

impl Participants {
    /// The gate with that number, below 16; `None` for other numbers.
    #[must_use]
    pub fn fenced_gate(&self, index: usize) -> Option<FencedGate> {
        (index < GATES).then(|| FencedGate {
            participants: self.clone(),
            index,
        })
    }
}

impl FencedGate {
    fn inner(&self) -> &Inner {
        self.participants.inner()
    }

    fn lock(&self) -> &RobustLock {
        &self.inner().control().header().gates[self.index].lock
    }

    /// Enters together with other readers, waiting at most a second for a writer. Nests: a thread
    /// that is inside can enter again even while a writer waits.
    ///
    /// # Errors
    /// [`GateError::Stalled`] if a writer is alive and does not leave; [`GateError::OwnerDied`] at
    /// once if a writer died, until another writer has declared the guarded data
    /// [`repaired`](Sole::repaired).
    #[inline]
    pub fn shared<'a>(&'a self, slot: &Slot<'a>) -> Result<OpPin<'a>, GateError> {
        self.shared_within(slot, LOCK_TIMEOUT)
    }

    /// Enters together with other readers, waiting at most `limit` for a writer.
    ///
    /// # Errors
    /// As [`shared`](Self::shared).
    #[inline]
    pub fn shared_within<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
    ) -> Result<OpPin<'a>, GateError> {
        let opening = self.inner().opening();
        enter_or_wait(opening, self.index, self.lock(), slot, limit)
    }

    /// Enters exclusively: until the result is dropped, no other thread is inside or can enter.
    /// Waits at most a second.
    ///
    /// [`Acquired::OwnerDied`] means that a writer died inside and the data have not been repaired
    /// since.
    ///
    /// # Errors
    /// [`Stalled`] names the writer, or one of the readers, that is alive and does not leave; the
    /// gate is then unchanged.
    #[inline]
    pub fn sole<'a>(&'a self, slot: &Slot<'a>) -> Result<Acquired<Sole<'a>>, Stalled> {
        self.sole_or_wait(slot, Some(LOCK_TIMEOUT))
    }

    /// Enters exclusively, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`sole`](Self::sole).
    #[inline]
    pub fn sole_within<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
    ) -> Result<Acquired<Sole<'a>>, Stalled> {
        self.sole_or_wait(slot, Some(limit))
    }

    /// Enters exclusively, without waiting for a living thread.
    ///
    /// # Errors
    /// As [`sole`](Self::sole).
    #[inline]
    pub fn try_sole<'a>(&'a self, slot: &Slot<'a>) -> Result<Acquired<Sole<'a>>, Stalled> {
        self.sole_or_wait(slot, None)
    }

    /// Waits at most `limit`, if one is given.
    #[inline]
    fn sole_or_wait<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Option<Duration>,
    ) -> Result<Acquired<Sole<'a>>, Stalled> {
        exclusion::may_exclude(self.inner(), self.index, slot)?;
        let (guard, limit) = match self.lock().try_lock_free(slot) {
            Some(acquired) => (acquired.into_inner(), limit),
            None => self.wait_for_writer(slot, limit)?,
        };
        mneme_sys::fault!("sync.fenced.raised");
        // SYNC: pairs with the fence in `Fence::light`.
        std::sync::atomic::fence(SeqCst);
        let me = slot.id();
        let mut others = self.inner().control().slots();
        let (bit, met_dead) = (1 << self.index, Cell::new(false));
        if others.any(|(id, lines)| id != me && gate::is_inside(&lines.inside, bit)) {
            // A dead reader does no harm. On failure the guard opens the gate again.
            exclusion::until_empty(self.inner(), self.index, me, limit, || met_dead.set(true))?;
        }
        mneme_sys::fault!("sync.fenced.empty");
        Ok(guard.report_with(|guard| Sole {
            guard,
            met_dead: met_dead.get(),
        }))
    }

    /// Takes over a dead writer's lock, or waits for a living writer to leave. Returns how much of
    /// the limit is left.
    #[cold]
    fn wait_for_writer<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Option<Duration>,
    ) -> Result<(Guard<'a>, Option<Duration>), Stalled> {
        let Some(limit) = limit else {
            let acquired = self.lock().try_lock(slot).ok_or_else(|| {
                let holder = self.lock().owner().unwrap_or(SlotId::NONE);
                self.inner().stalled(holder, Duration::ZERO, Holding::Gate)
            })?;
            return Ok((acquired.into_inner(), None));
        };
        let began = self.inner().now();
        let acquired = self.lock().acquire(slot, limit, Holding::Gate)?;
        let waited = self.inner().now().saturating_sub(began);
        Ok((acquired.into_inner(), Some(limit.saturating_sub(waited))))
    }
}

impl std::fmt::Debug for FencedGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedGate")
            .field("gate", &self.index)
            .finish_non_exhaustive()
    }
}

/// Exclusive access to the inside of a [`FencedGate`]. Dropping it leaves.
#[derive(Debug)]
#[must_use = "dropping it leaves at once"]
pub struct Sole<'a> {
    guard: Guard<'a>,
    met_dead: bool,
}

impl Sole<'_> {
    /// Whether a dead reader was found inside. Until it is [reaped](Participants::reap), every
    /// writer checks it again, which takes microseconds.
    #[must_use]
    pub fn met_dead(&self) -> bool {
        self.met_dead
    }

    /// Declares the guarded data repaired: others may enter once this is dropped.
    pub fn repaired(&self) {
        self.guard.repaired();
    }
}
