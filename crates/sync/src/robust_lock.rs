//! [`RobustLock`]: mutual exclusion in shared memory that survives the death of its owners.
//!
//! **At most one guard exists at a time, and if the last owner died, the next one learns it.** The
//! lock is one word that names its owner (see `lock_word`); it may lie in any region, zeroed memory
//! is a free lock, and nothing is registered anywhere. A waiter spins, yields and sleeps, and from
//! time to time asks the kernel whether the owner is alive; if not, it takes the lock over.

use crate::backoff::Backoff;
use crate::lock_word::{self, Attempt, LockState, RobustLock};
use crate::{Holding, Slot, Stalled};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How long [`RobustLock::lock`] waits for an owner that is alive but does not release the lock.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// A lock that was taken.
#[derive(Debug)]
pub enum Acquired<G> {
    /// The guarded data are consistent.
    Clean(G),
    /// An owner died holding the lock, and nobody has declared the data repaired since: they may be
    /// half changed. Repair them, then call `repaired()`; until an owner does, every owner gets
    /// this variant.
    OwnerDied(G),
}

impl<G> Acquired<G> {
    /// The guard, for callers to whom it makes no difference.
    pub fn into_inner(self) -> G {
        match self {
            Acquired::Clean(guard) | Acquired::OwnerDied(guard) => guard,
        }
    }

    /// Whether an owner died and nobody has repaired the data since.
    #[must_use]
    pub fn owner_died(&self) -> bool {
        matches!(self, Acquired::OwnerDied(_))
    }
}

/// Holds a [`RobustLock`] that no owner has left half-way, while the caller's handle is borrowed;
/// dropping it releases the lock. If a panic drops it, the next owner gets [`Acquired::OwnerDied`].
#[must_use = "dropping it unlocks at once"]
pub struct BriefGuard<'a> {
    word: &'a AtomicU64,
    slot: &'a Slot<'a>,
}

/// Holds a [`RobustLock`]; dropping it releases the lock.
#[must_use = "dropping it unlocks at once"]
pub struct Guard<'a> {
    word: &'a AtomicU64,
    slot: Slot<'a>,
}

impl RobustLock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> RobustLock {
        RobustLock {
            word: AtomicU64::new(0),
        }
    }

    /// Takes the lock, waiting at most a second for each owner that has it meanwhile. If this
    /// opening has already waited a second for an owner, and that owner has made no progress since,
    /// it does not wait again.
    ///
    /// Announce an intent first if repairing after the owner's death needs more information than
    /// which lock it held.
    ///
    /// # Errors
    /// [`Stalled`] names an owner that is alive but does not release the lock, or this thread
    /// itself.
    pub fn lock<'a>(&'a self, slot: &Slot<'a>) -> Result<Acquired<Guard<'a>>, Stalled> {
        self.lock_within(slot, LOCK_TIMEOUT)
    }

    /// Takes the lock, waiting at most `limit` for each living owner.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_within<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
    ) -> Result<Acquired<Guard<'a>>, Stalled> {
        self.acquire(slot, limit, Holding::Lock)
    }

    /// Waits at most `limit` for each owner; an error says that the owner holds `what`.
    pub(crate) fn acquire<'a>(
        &'a self,
        slot: &Slot<'a>,
        limit: Duration,
        what: Holding,
    ) -> Result<Acquired<Guard<'a>>, Stalled> {
        if slot.local().is_forked() {
            return Err(Stalled::nobody(Holding::Forked));
        }
        if let Ok(acquired) = self.attempt(slot) {
            return Ok(acquired);
        }
        let inner = slot.inner();
        let mut backoff = Backoff::new(inner.now(), limit);
        // The word that it waits for, and what its owner was doing when that wait began.
        let mut awaited = None;
        loop {
            let busy = match self.try_or_take_over(slot, backoff.has_spun()) {
                Ok(acquired) => return Ok(acquired),
                Err(busy) => busy,
            };
            let Some(owner) = busy.owner() else {
                // Free again, between two checks.
                continue;
            };
            if owner == slot.owner() {
                return Err(inner.stalled(owner.slot, Duration::ZERO, Holding::OwnLock));
            }
            let lock = Some((std::ptr::from_ref(&self.word) as usize, busy.0));
            if backoff.has_spun() {
                let stalled = inner.stalled_for(owner.slot, lock);
                if let Some(waited) = stalled.filter(|waited| *waited >= limit) {
                    return Err(inner.stalled(owner.slot, waited, what));
                }
                if awaited.is_none_or(|(word, _)| word != busy.0) {
                    awaited = Some((busy.0, inner.progress_of(owner.slot)));
                }
            }
            if !backoff.wait_for(busy.0, || inner.now()) {
                let waited = backoff.elapsed(inner.now());
                if let Some((_, then)) = awaited {
                    inner.note_stalled(owner.slot, lock, then, waited);
                }
                return Err(inner.stalled(owner.slot, waited, what));
            }
        }
    }

    /// Takes the lock if it is free or its owner dead.
    pub fn try_lock<'a>(&'a self, slot: &Slot<'a>) -> Option<Acquired<Guard<'a>>> {
        if slot.local().is_forked() {
            // The child owns nothing and takes nothing over.
            return None;
        }
        self.try_or_take_over(slot, true).ok()
    }

    /// Takes the lock if it is free. A dead owner's lock counts as taken: the kernel is not asked,
    /// so a busy lock costs only a load. For callers that have an alternative.
    #[inline]
    pub fn try_lock_free<'a>(&'a self, slot: &Slot<'a>) -> Option<Acquired<Guard<'a>>> {
        if slot.local().is_forked() {
            return None;
        }
        self.attempt(slot).ok()
    }

    /// Takes the lock if it is free and no owner has died, in one attempt. Costs less than
    /// [`try_lock_free`](Self::try_lock_free), because the guard borrows the caller's handle
    /// instead of cloning it. For a few instructions that nearly every operation executes.
    #[inline(always)]
    pub fn try_lock_clean<'a>(&'a self, slot: &'a Slot<'_>) -> Option<BriefGuard<'a>> {
        if slot.local().is_forked() || !lock_word::acquire_clean(&self.word, slot.owner()) {
            return None;
        }
        let word = &self.word;
        Some(BriefGuard { word, slot })
    }

    /// Releases the lock for an owner of an earlier incarnation of the control region: the next
    /// owner learns that this owner died. A free lock is unchanged. Only for a process that is
    /// alone, see [`Participants::open_and`](crate::Participants::open_and): by then slots have
    /// been reassigned, and the thread that the lock names may seem alive.
    pub fn orphan(&self) {
        lock_word::orphan(&self.word);
    }

    /// The slot that currently holds the lock.
    #[must_use]
    pub fn owner(&self) -> Option<crate::SlotId> {
        lock_word::look(&self.word).owner().map(|owner| owner.slot)
    }

    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.word
    }

    /// Whether an owner has died and nobody has declared the repair done since.
    #[must_use]
    pub fn owner_died(&self) -> bool {
        lock_word::look(&self.word).owner_died()
    }

    /// As [`try_lock_free`](Self::try_lock_free), without a guard: returns whether an owner had
    /// died. [`unlock`](Self::unlock) releases the lock.
    #[inline]
    pub fn try_lock_unguarded(&self, slot: &Slot<'_>) -> Option<bool> {
        if slot.is_forked() {
            return None;
        }
        match lock_word::acquire(&self.word, slot.owner()) {
            Attempt::Clean => Some(false),
            Attempt::OwnerDied => Some(true),
            Attempt::Busy(_) => None,
        }
    }

    /// Releases a lock that was taken without a guard, or whose guard was [kept](Guard::keep). Does
    /// nothing in a forked child.
    ///
    /// # Safety
    /// The calling thread must hold the lock, and no guard of it may exist.
    #[inline]
    pub unsafe fn unlock(&self, slot: &Slot<'_>) {
        if !slot.is_forked() {
            lock_word::release(&self.word);
        }
    }

    /// As [`Guard::repaired`], for a lock without a guard.
    ///
    /// # Safety
    /// The calling thread must hold the lock.
    pub unsafe fn repaired(&self, slot: &Slot<'_>) {
        if !slot.is_forked() {
            lock_word::repaired(&self.word);
        }
    }

    /// As [`Guard::needs_repair`], for a lock without a guard.
    ///
    /// # Safety
    /// The calling thread must hold the lock.
    pub unsafe fn needs_repair(&self, slot: &Slot<'_>) {
        if !slot.is_forked() {
            lock_word::needs_repair(&self.word);
        }
    }

    #[inline]
    fn attempt<'a>(&'a self, slot: &Slot<'a>) -> Result<Acquired<Guard<'a>>, LockState> {
        let guard = || Guard {
            word: &self.word,
            slot: slot.clone(),
        };
        match lock_word::acquire(&self.word, slot.owner()) {
            Attempt::Clean => Ok(Acquired::Clean(guard())),
            Attempt::OwnerDied => Ok(Acquired::OwnerDied(guard())),
            Attempt::Busy(seen) => Err(seen),
        }
    }

    fn try_or_take_over<'a>(
        &'a self,
        slot: &Slot<'a>,
        ask: bool,
    ) -> Result<Acquired<Guard<'a>>, LockState> {
        let busy = match self.attempt(slot) {
            Ok(acquired) => return Ok(acquired),
            Err(busy) => busy,
        };
        let Some(owner) = busy.owner() else {
            return Err(busy);
        };
        if !ask
            || owner == slot.owner()
            || !slot.inner().is_owner_dead(owner.slot, owner.generation)
        {
            return Err(busy);
        }
        mneme_sys::fault!("sync.lock.judged");
        match lock_word::take_over(&self.word, busy, slot.owner()) {
            Attempt::Busy(now) => Err(now),
            _ => {
                mneme_sys::fault!("sync.lock.taken_over");
                Ok(Acquired::OwnerDied(Guard {
                    word: &self.word,
                    slot: slot.clone(),
                }))
            }
        }
    }
}

impl std::fmt::Debug for RobustLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock_word::look(&self.word);
        f.debug_struct("RobustLock")
            .field("owner", &state.owner().map(|owner| owner.slot))
            .field("owner_died", &state.owner_died())
            .finish()
    }
}

impl<'a> Guard<'a> {
    /// Declares the guarded data repaired: later owners get [`Acquired::Clean`].
    pub fn repaired(&self) {
        if !self.slot.local().is_forked() {
            lock_word::repaired(self.word);
        }
    }

    /// Declares the guarded data half changed: the next owner gets [`Acquired::OwnerDied`]. For an
    /// owner that unwinds.
    pub fn needs_repair(&self) {
        if !self.slot.local().is_forked() {
            lock_word::needs_repair(self.word);
        }
    }

    /// Keeps the lock held without a guard, until the holder calls [`RobustLock::unlock`].
    #[inline]
    pub fn keep(self) {
        let mut kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: dropped only once, because the guard around it is never dropped.
        unsafe { std::ptr::drop_in_place(&raw mut kept.slot) };
    }

    /// The result of `wrap` on this guard, with the information whether an owner died.
    #[inline]
    pub(crate) fn report_with<G>(self, wrap: impl FnOnce(Guard<'a>) -> G) -> Acquired<G> {
        if lock_word::look(self.word).owner_died() {
            Acquired::OwnerDied(wrap(self))
        } else {
            Acquired::Clean(wrap(self))
        }
    }
}

impl BriefGuard<'_> {
    /// Releases the lock, as dropping the guard does.
    #[inline(always)]
    pub fn unlock(self) {
        let guard = std::mem::ManuallyDrop::new(self);
        if !guard.slot.local().is_forked() {
            lock_word::release(guard.word);
        }
    }
}

impl Drop for BriefGuard<'_> {
    fn drop(&mut self) {
        if self.slot.local().is_forked() {
            return;
        }
        // A panic has interrupted the owner's change, which may be half made.
        if std::thread::panicking() {
            lock_word::needs_repair(self.word);
        }
        lock_word::release(self.word);
    }
}

impl std::fmt::Debug for BriefGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BriefGuard")
            .field("slot", &self.slot.id())
            .finish_non_exhaustive()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.slot.local().is_forked() {
            return;
        }
        // A panic has interrupted the owner's change, which may be half made.
        if self.slot.is_unwinding() {
            self.needs_repair();
        }
        lock_word::release(self.word);
    }
}

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("slot", &self.slot.id())
            .finish_non_exhaustive()
    }
}
