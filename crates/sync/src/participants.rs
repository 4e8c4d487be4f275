//! [`Participants`]: one process' opening of a control region.

use crate::atomics::Barrier;
use crate::layout::{COUNTERS, TableGeometry};
use crate::lock_word::Owner;
use crate::opening::Inner;
use crate::thread_slots::{self, Local};
use crate::undo::UndoArea;
use crate::{Epoch, FastPin, Holding, Pin, RevocablePin, Slot, SlotError, SlotId, Stalled};
use mneme_sys::Region;
use mneme_sys::barrier::BarrierRefused;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// Sizes of a control region, fixed when it is created.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Identity of the data region that the control region serves.
    pub data_uuid: [u8; 16],
    /// Processes that may be attached at a time: 1 to 65,535.
    pub max_processes: u32,
    /// Threads that may have a slot at a time, all processes together: 1 to 65,535.
    pub max_threads: u16,
    /// Bytes of each slot's undo area: a multiple of 8, at most 16 MiB.
    pub undo_bytes: usize,
}

impl ControlOptions {
    /// 64 processes, 1,024 threads, undo areas of 8 KiB: about 10 MiB of address space, of which
    /// memory is used as slots are.
    #[must_use]
    pub fn new(data_uuid: [u8; 16]) -> ControlOptions {
        ControlOptions {
            data_uuid,
            max_processes: 64,
            max_threads: 1024,
            undo_bytes: 8 << 10,
        }
    }

    /// Bytes that a control region of these options needs.
    #[must_use]
    pub fn region_len(&self) -> usize {
        self.geometry().end()
    }

    pub(crate) fn geometry(&self) -> TableGeometry {
        TableGeometry {
            max_processes: self.max_processes,
            max_threads: self.max_threads,
            undo_bytes: self.undo_bytes,
        }
    }
}

/// One process' opening of a control region: the way to slots, pins, epochs and to the dead.
///
/// A clone is another handle to the same opening. When the last one is dropped, all its threads'
/// slots are given back and the process is a participant no more. `Send` and `Sync`; in a forked
/// child, every call that would touch the region says [`SlotError::Forked`] or does nothing.
#[derive(Clone)]
pub struct Participants {
    opening: u64,
    inner: Arc<Inner>,
}

impl Participants {
    pub(crate) fn from_inner(inner: Arc<Inner>) -> Participants {
        Participants {
            opening: inner.opening(),
            inner,
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The calling thread's slot, if it is pinned.
    pub(crate) fn pinned_slot(&self) -> Option<SlotId> {
        let local = thread_slots::find(self.opening)?;
        // SAFETY: the list holds live boxes of this thread only.
        let local = unsafe { local.as_ref() };
        (local.depth() > 0).then_some(local.slot)
    }

    /// The number of the calling thread's slot.
    #[inline(always)]
    pub(crate) fn slot_number(&self) -> Result<usize, SlotError> {
        // SAFETY: a live one of this thread.
        self.local()
            .map(|local| usize::from(unsafe { local.as_ref() }.slot.0))
    }

    /// Names the call that [reaps](Self::reap) for this opening. When all slots are taken, a thread
    /// of its own makes it, with a slot that is kept back for reapers, before a claim of a slot
    /// fails: the slots may be those of killed processes, or of threads that panicked in the middle
    /// of an operation. The first that is named counts. It must not keep the opening alive.
    pub fn set_reaper(&self, reaper: impl Fn() + Send + Sync + 'static) {
        // An error is that there is one.
        let _ = self.inner.reaper.set(Box::new(reaper));
    }

    /// Gives the calling thread a slot for its repairs, if need be one kept back for reapers.
    pub(crate) fn prepare_to_reap(&self) {
        // Without one the repairs may still succeed; if not, they say why.
        let _ = thread_slots::find_or_claim(&self.inner, true);
    }

    /// The calling thread's [`Local`]; about a nanosecond if it used this opening last.
    #[inline(always)]
    pub(crate) fn local(&self) -> Result<NonNull<Local>, SlotError> {
        // Empty in a forked child.
        match thread_slots::cached(self.opening) {
            Some(local) => Ok(local),
            // Taken apart, or else the frequent case would go through memory as well.
            None => Ok(thread_slots::find_or_claim(&self.inner, false)?),
        }
    }

    /// Whether this is a child that was forked from the process that attached. The region, and the
    /// data that it belongs to, may then not even be mapped.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.inner.is_forked()
    }

    /// The calling thread's slot, claimed on its first call and given back when the thread ends
    /// or the opening is closed. About a nanosecond.
    ///
    /// # Errors
    /// All slots taken; a forked child; a thread in its last destructors.
    #[inline(always)]
    pub fn slot(&self) -> Result<Slot<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening.
        self.local()
            .map(|local| unsafe { Slot::new(&self.inner, local) })
    }

    /// Refuses a slot of another opening. A lock that it took would name another thread of this
    /// region as its owner, or a dead one, and be taken over.
    ///
    /// # Errors
    /// [`Holding::Foreign`].
    #[inline]
    pub fn admit(&self, slot: &Slot<'_>) -> Result<(), Stalled> {
        match slot.local().opening == self.opening {
            true => Ok(()),
            false => Err(Stalled::nobody(Holding::Foreign)),
        }
    }

    /// Pins firmly: until the guard is dropped, nothing that could be reached is freed. Nests.
    /// Pin and unpin together take 1 to 3 ns.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin(&self) -> Result<Pin<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening, which the result borrows.
        self.local().map(|local| unsafe { Pin::enter(local) })
    }

    /// Pins revocably: a reclaimer that has waited for a second may take the pin away, and
    /// [`RevocablePin::leave`] then says so. What is read under it must be copied by racing
    /// copies and believed only after that.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin_revocable(&self) -> Result<RevocablePin<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening, which the result borrows.
        self.local()
            .map(|local| unsafe { RevocablePin::enter(local) })
    }

    /// Pins revocably for a few loads, as cheaply as can be. `None`: this thread is pinned already,
    /// or can have no slot; look under [`pin_revocable`](Self::pin_revocable), which says why not.
    ///
    /// # Safety
    /// Until it is left, the thread neither pins nor forks.
    #[inline(always)]
    pub unsafe fn fast_pin(&self) -> Option<FastPin<'_>> {
        let local = self.local().ok()?;
        // SAFETY: it is this thread's, not that of a forked child's parent, and of this opening,
        // which the result borrows; the rest is the caller's promise.
        unsafe { FastPin::enter(local.as_ref()) }
    }

    /// The current epoch; 0 in a forked child. An epoch is *over* for everybody once
    /// [`quiescent`](Self::quiescent) says so.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        if self.inner.is_forked() {
            return Epoch::from_u64(0);
        }
        // SYNC: pairs with the Release increment in `epoch::advance`.
        Epoch::from_u64(self.inner.control().header().epoch.word.load(Acquire))
    }

    /// Whether the process of that slot is dead, or the slot has no owner. A system call, unless
    /// the slot is this process'.
    ///
    /// The answer is about the slot's present owner. To judge the holder of a lock word, read the
    /// word first, ask, and then change the word by an exchange from what was read.
    #[must_use]
    pub fn is_dead(&self, slot: SlotId) -> bool {
        !self.inner.is_forked() && self.inner.is_dead(slot)
    }

    /// Whether the thread that a lock word names is gone: its process is dead, or the slot has
    /// another owner. A system call, unless the slot is this process'; see
    /// [`is_dead`](Self::is_dead).
    #[must_use]
    pub fn is_owner_dead(&self, owner: Owner) -> bool {
        !self.inner.is_forked() && self.inner.is_owner_dead(owner.slot, owner.generation)
    }

    /// The time by the clock that waits are measured by, which does not go back.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.now()
    }

    /// The process that the slot belongs to; 0 if nobody has it.
    #[must_use]
    pub fn pid_of(&self, slot: SlotId) -> u32 {
        if self.inner.is_forked() {
            0
        } else {
            self.inner.pid_of(slot)
        }
    }

    /// How often the control region was built or rebuilt. A data region that remembers the number
    /// notices that its control region has lost what it knew.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.me().region
    }

    /// Threads that may have a slot at a time.
    #[must_use]
    pub fn max_threads(&self) -> u16 {
        self.inner.control().geometry().max_threads
    }

    /// Number of counters in a slot: indices below it are valid.
    pub const COUNTERS: usize = COUNTERS;

    /// Whether the cheap side of the barrier is free here, as opposed to a full fence.
    #[must_use]
    pub fn is_asymmetric(&self) -> bool {
        self.inner.is_asymmetric()
    }

    /// The cheap side of the barrier that the region's participants share: of a store before it
    /// and a load after a [`heavy_barrier`](Self::heavy_barrier), and a store before that and a
    /// load after this, at least one load sees the other side's store. It also stands between the
    /// announcement by an intent and the load of a word that is stored before
    /// [`announced`](Self::announced); [`is_watched`](Self::is_watched) has one.
    #[inline(always)]
    pub fn light_barrier(&self) {
        self.inner.barrier().light();
    }

    /// The dear side of the barrier: a system call where the cheap one is free.
    ///
    /// # Errors
    /// The kernel refuses: nothing may be concluded from what is loaded afterwards.
    pub fn heavy_barrier(&self) -> Result<(), BarrierRefused> {
        self.inner.barrier().heavy()
    }

    /// The undo areas of all slots that were ever in use: for hints that others leave there. Only
    /// what is atomic by itself can be believed of an area whose owner lives. None in a forked
    /// child.
    pub fn undo_areas(&self) -> impl Iterator<Item = UndoArea<'_>> {
        let map = self.inner.control();
        let slots = (!self.is_forked()).then(|| map.slots());
        let areas = slots.into_iter().flatten();
        areas.map(|(id, _)| UndoArea::new(map.undo_offset(id), map.undo(id)))
    }

    /// Where in the control region that ends which is this crate's, a multiple of 128: what lies
    /// behind is its creator's own, and never touched here.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.inner.control().geometry().end() as u64
    }

    /// The control region.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.inner.control().region()
    }
}

impl std::fmt::Debug for Participants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Participants")
            .field("me", &self.inner.me())
            .field("geometry", &self.inner.control().geometry())
            .finish_non_exhaustive()
    }
}
