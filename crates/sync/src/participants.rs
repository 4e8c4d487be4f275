//! [`Participants`]: one process's opening of a control region.

use crate::atomics::Barrier;
use crate::layout::TableGeometry;
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

/// The sizes of a control region, fixed when it is created.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// The identity of the data region that the control region serves.
    pub data_uuid: [u8; 16],
    /// The maximum number of processes attached at a time: 1 to 65,535.
    pub max_processes: u32,
    /// The maximum number of threads with a slot at a time, in all processes together: 1 to 65,535.
    pub max_threads: u16,
    /// The size of each slot's undo area in bytes: a multiple of 8, at most 16 MiB.
    pub undo_bytes: usize,
}

impl ControlOptions {
    /// 64 processes, 1,024 threads and undo areas of 8 KiB: about 10 MiB of address space. Memory
    /// is used only for slots that are used.
    #[must_use]
    pub fn new(data_uuid: [u8; 16]) -> ControlOptions {
        ControlOptions {
            data_uuid,
            max_processes: 64,
            max_threads: 1024,
            undo_bytes: 8 << 10,
        }
    }

    /// The size in bytes of a control region with these options.
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

/// One process's opening of a control region, which gives access to slots, pins, epochs and dead
/// threads.
///
/// A clone is another handle to the same opening. When the last one is dropped, all its threads'
/// slots are released and the process is no longer a participant. `Send` and `Sync`; in a forked
/// child, every call that would touch the region returns [`SlotError::Forked`] or does nothing.
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
        // SAFETY: the list holds only live boxes of this thread.
        let local = unsafe { local.as_ref() };
        (local.depth() > 0).then_some(local.slot)
    }

    /// The number of the calling thread's slot.
    #[inline(always)]
    pub(crate) fn slot_number(&self) -> Result<usize, SlotError> {
        // SAFETY: a live one, which belongs to this thread.
        self.local()
            .map(|local| usize::from(unsafe { local.as_ref() }.slot.0))
    }

    /// Sets the function that [reaps](Self::reap) for this opening. If all slots are taken, a
    /// separate thread calls it, with a slot reserved for reapers, before a claim of a slot fails:
    /// the slots may belong to killed processes, or to threads that panicked in the middle of an
    /// operation. Only the first call has an effect. The function must not keep the opening alive.
    pub fn set_reaper(&self, reaper: impl Fn() + Send + Sync + 'static) {
        // An error means that there is one already.
        let _ = self.inner.reaper.set(Box::new(reaper));
    }

    /// Gives the calling thread a slot for its repairs, if necessary one reserved for reapers.
    pub(crate) fn prepare_to_reap(&self) {
        // Without a slot the repairs may still succeed; if not, they return the reason.
        let _ = thread_slots::find_or_claim(&self.inner, true);
    }

    /// The calling thread's [`Local`]. Takes about a nanosecond if the thread used this opening
    /// last.
    #[inline(always)]
    pub(crate) fn local(&self) -> Result<NonNull<Local>, SlotError> {
        // Empty in a forked child.
        match thread_slots::cached(self.opening) {
            Some(local) => Ok(local),
            // Taken apart here; otherwise the frequent case would go through memory as well.
            None => Ok(thread_slots::find_or_claim(&self.inner, false)?),
        }
    }

    /// Whether this process was forked from the one that attached. The region, and the data that it
    /// belongs to, may then not even be mapped.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.inner.is_forked()
    }

    /// The calling thread's slot, which is claimed by the thread's first call and released when the
    /// thread ends or the opening is closed. Takes about a nanosecond.
    ///
    /// # Errors
    /// All slots are taken; this is a forked child; the thread is running its last destructors.
    #[inline(always)]
    pub fn slot(&self) -> Result<Slot<'_>, SlotError> {
        // SAFETY: the `Local` belongs to this thread and this opening.
        self.local()
            .map(|local| unsafe { Slot::new(&self.inner, local) })
    }

    /// Refuses a slot of another opening. A lock taken with it would name another thread of this
    /// region as its owner, or a dead one, and would be taken over.
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
    /// Pinning and unpinning together take 1 to 3 ns.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin(&self) -> Result<Pin<'_>, SlotError> {
        // SAFETY: the `Local` belongs to this thread and to this opening, which the result borrows.
        self.local().map(|local| unsafe { Pin::enter(local) })
    }

    /// Pins revocably: a reclaimer that has waited for a second may revoke the pin, and
    /// [`RevocablePin::leave`] then returns an error. Data read under it must be copied by racing
    /// copies, and may be used only after `leave` has returned `Ok`.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin_revocable(&self) -> Result<RevocablePin<'_>, SlotError> {
        // SAFETY: the `Local` belongs to this thread and to this opening, which the result borrows.
        self.local()
            .map(|local| unsafe { RevocablePin::enter(local) })
    }

    /// Pins revocably for a few loads, at the lowest cost. `None` if this thread is pinned already
    /// or cannot have a slot; then use [`pin_revocable`](Self::pin_revocable), which returns the
    /// reason.
    ///
    /// # Safety
    /// Until it is left, the thread must neither pin nor fork.
    #[inline(always)]
    pub unsafe fn fast_pin(&self) -> Option<FastPin<'_>> {
        let local = self.local().ok()?;
        // SAFETY: the `Local` belongs to this thread, not to a forked child's parent, and to this
        // opening, which the result borrows; the rest is the caller's promise.
        unsafe { FastPin::enter(local.as_ref()) }
    }

    /// The current epoch; 0 in a forked child. An epoch is *over* for everybody once
    /// [`quiescent`](Self::quiescent) returns true for it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        if self.inner.is_forked() {
            return Epoch::from_u64(0);
        }
        // SYNC: pairs with the Release increment in `epoch::advance`.
        Epoch::from_u64(self.inner.control().header().epoch.word.load(Acquire))
    }

    /// Whether the process of that slot is dead, or the slot has no owner. Costs a system call,
    /// unless the slot belongs to this process.
    ///
    /// The answer is about the slot's current owner. To find out about the holder of a lock word,
    /// read the word first, call this, and then change the word by an exchange from the value that
    /// was read.
    #[must_use]
    pub fn is_dead(&self, slot: SlotId) -> bool {
        !self.inner.is_forked() && self.inner.is_dead(slot)
    }

    /// Whether the thread that a lock word names is gone: its process is dead, or the slot has
    /// another owner. Costs a system call, unless the slot belongs to this process; see
    /// [`is_dead`](Self::is_dead).
    #[must_use]
    pub fn is_owner_dead(&self, owner: Owner) -> bool {
        !self.inner.is_forked() && self.inner.is_owner_dead(owner.slot, owner.generation)
    }

    /// The time of the clock that measures waits, which never goes back.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.now()
    }

    /// The process that owns the slot; 0 for none.
    #[must_use]
    pub fn pid_of(&self, slot: SlotId) -> u32 {
        if self.inner.is_forked() {
            0
        } else {
            self.inner.pid_of(slot)
        }
    }

    /// How often the control region has been built or rebuilt. A data region that records this
    /// number can detect that its control region has lost its content.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.me().region
    }

    /// The maximum number of threads with a slot at a time.
    #[must_use]
    pub fn max_threads(&self) -> u16 {
        self.inner.control().geometry().max_threads
    }

    /// Whether the light side of the barrier is free here, rather than a full fence.
    #[must_use]
    pub fn is_asymmetric(&self) -> bool {
        self.inner.is_asymmetric()
    }

    /// The light side of the barrier that the region's participants share. Take a store before it
    /// and a load after a [`heavy_barrier`](Self::heavy_barrier), and a store before that and a
    /// load after this: at least one load sees the other side's store. It is also needed between
    /// announcing an intent and loading a word that is stored before
    /// [`announced`](Self::announced); [`is_watched`](Self::is_watched) contains one.
    #[inline(always)]
    pub fn light_barrier(&self) {
        self.inner.barrier().light();
    }

    /// The heavy side of the barrier: a system call if the light side is free.
    ///
    /// # Errors
    /// The kernel refuses: nothing may be concluded from loads afterwards.
    pub fn heavy_barrier(&self) -> Result<(), BarrierRefused> {
        self.inner.barrier().heavy()
    }

    /// The undo areas of all slots that were ever in use, for hints that others leave there. While
    /// an area's owner is alive, only values that are atomic by themselves are reliable. None in a
    /// forked child.
    pub fn undo_areas(&self) -> impl Iterator<Item = UndoArea<'_>> {
        let map = self.inner.control();
        let slots = (!self.is_forked()).then(|| map.slots());
        let areas = slots.into_iter().flatten();
        areas.map(|(id, _)| UndoArea::new(map.undo(id)))
    }

    /// The offset at which this crate's part of the control region ends, a multiple of 128.
    /// Everything behind it belongs to the region's creator, and is never touched here.
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
