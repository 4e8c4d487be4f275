//! [`Slot`]: the calling thread's place in the control region.

use crate::layout::SlotLines;
use crate::lock_word::Owner;
use crate::opening::Inner;
use crate::thread_slots::Local;
use crate::undo::UndoArea;
use crate::{IntentLine, Lane, Pin, SlotId, counter_fold};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The calling thread's slot: its intents, counters and undo area, which only this thread writes.
///
/// A handle that is cheap to get and to clone; it stays with its thread. In a child forked while a
/// handle existed, its writes have no effect.
pub struct Slot<'p> {
    inner: &'p Inner,
    local: NonNull<Local>,
    /// Whether the thread was unwinding when this handle was created: then a destructor drops the
    /// handle, and not a panic. A whole word, because a byte and its padding would be copied
    /// piecemeal when the handle is moved, and the processor would wait for its own stores.
    unwinding: usize,
    /// Makes the type neither `Send` nor `Sync`: the slot belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl<'p> Slot<'p> {
    /// # Safety
    /// `local` must be alive and belong to the calling thread and to the opening `inner`.
    #[inline(always)]
    pub(crate) unsafe fn new(inner: &'p Inner, local: NonNull<Local>) -> Slot<'p> {
        // SAFETY: alive by the caller's promise.
        let handles = unsafe { &local.as_ref().handles };
        handles.set(handles.get() + 1);
        let slot = Slot {
            inner,
            local,
            unwinding: usize::from(std::thread::panicking()),
            _thread: PhantomData,
        };
        if slot.unwinding != 0 {
            slot.local().begin_in_destructor(slot.lines());
        }
        slot
    }

    /// Whether a panic has begun since this handle was created.
    #[inline(always)]
    #[must_use]
    pub fn is_unwinding(&self) -> bool {
        std::thread::panicking() && self.unwinding == 0
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> &'p Inner {
        self.inner
    }

    #[inline(always)]
    pub(crate) fn local(&self) -> &Local {
        // SAFETY: it is alive as long as a handle is.
        unsafe { self.local.as_ref() }
    }

    /// The slot's lines; in a forked child, whose writes must have no effect, a private spare.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &'p SlotLines {
        if self.local().is_forked() {
            return crate::layout::nowhere();
        }
        // SAFETY: `inner`, the opening, is borrowed for 'p.
        unsafe { self.local().lines() }
    }

    /// The slot's number, by which lock words and claims name their holder.
    #[inline]
    #[must_use]
    pub fn id(&self) -> SlotId {
        self.local().slot
    }

    /// This thread's generation in the slot: how many owners the slot has had since the region was
    /// built, modulo 2^16. Together with the slot's number it identifies a thread that is never
    /// mistaken for a later one.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u16 {
        self.local().generation
    }

    /// This thread, in the form in which lock words name it.
    #[inline(always)]
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            slot: self.id(),
            generation: self.generation(),
        }
    }

    /// Whether this process was forked while the handle existed: it then owns nothing.
    #[inline(always)]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.local().is_forked()
    }

    /// Pins firmly; see [`Participants::pin`](crate::Participants::pin).
    #[inline]
    pub fn pin(&self) -> Pin<'p> {
        // SAFETY: the `Local` belongs to this thread; the opening is borrowed for 'p.
        unsafe { Pin::enter(self.local) }
    }

    /// Whether this thread has a pin, firm or revocable, through any handle.
    ///
    /// A pinned thread that waits for an epoch to be over waits for itself.
    #[inline]
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.local().depth() != 0
    }

    /// The intent line of a lane.
    #[inline]
    #[must_use]
    pub fn intent(&self, lane: Lane) -> IntentLine<'p> {
        IntentLine::new(&self.lines().intents[lane as usize])
    }

    /// Adds `delta` to this thread's part of counter `db` (below 128; for others nothing happens).
    ///
    /// The counter belongs to the index with identity `root`, not 0. Identities increase and are
    /// never reused: counting for a larger one forgets the counts for smaller ones. A counter
    /// follows its index: databases that swap their indices swap their counters' numbers too.
    #[inline]
    pub fn count(&self, db: usize, root: u64, delta: i64) {
        if let Some(counter) = self.lines().counters.get(db) {
            counter_fold::count(&counter.words(), root, delta.cast_unsigned());
        }
    }

    /// This thread's count for the index `root` in counter `db`: its part of
    /// [`Participants::counters`](crate::Participants::counters).
    ///
    /// For an intent that must not count twice: it records the value *to be*, and the thread that
    /// repairs after the intent sets that value by
    /// [`DeadSlot::set_count`](crate::DeadSlot::set_count).
    #[must_use]
    pub fn counted(&self, db: usize, root: u64) -> i64 {
        self.lines().counted(db, root)
    }

    /// Whether a panic has ended, while the caller had this handle, an operation of this thread
    /// that had announced an intent in one of these lanes. The caller must then not announce
    /// anything there. The repair happens when the last handle is dropped.
    #[inline]
    #[must_use]
    pub fn was_left_in(&self, lanes: &[Lane]) -> bool {
        self.local().is_abandoned() && lanes.iter().any(|lane| self.intent(*lane).stands())
    }

    /// Sets whether a destructor withdraws the intent in `lane`, and undoes what it announced. If
    /// so, a panic that is caught before that destructor runs has not ended the operation.
    pub fn withdraws_on_drop(&self, lane: Lane, withdraws: bool) {
        self.local().withdrawn[lane as usize].set(withdraws);
    }

    /// The slot's undo area.
    #[must_use]
    pub fn undo(&self) -> UndoArea<'p> {
        if self.local().is_forked() {
            return UndoArea::new(&[]);
        }
        UndoArea::new(self.inner.control().undo(self.id()))
    }
}

impl Clone for Slot<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: the existence of `self` proves both.
        unsafe { Slot::new(self.inner, self.local) }
    }
}

impl Drop for Slot<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let handles = &self.local().handles;
        handles.set(handles.get() - 1);
        if self.unwinding != 0 || std::thread::panicking() {
            let was_left = match self.unwinding != 0 {
                true => self.local().ends_in_destructor(self.lines()),
                false => true,
            };
            if was_left {
                // SAFETY: the `Local` belongs to this thread, and lives as long as a handle.
                unsafe { crate::thread_slots::unwound(self.local) };
            }
        }
    }
}

impl std::fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("id", &self.id())
            .field("generation", &self.generation())
            .finish()
    }
}
