//! [`Slot`]: the calling thread's place in the control region.

use crate::layout::SlotLines;
use crate::lock_word::Owner;
use crate::opening::Inner;
use crate::thread_slots::Local;
use crate::undo::UndoArea;
use crate::{IntentLine, Lane, Pin, RevocablePin, SlotId, counter_fold};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The calling thread's slot: its intents, counters and undo area, of which it is the only writer.
///
/// A handle, cheap to get and to clone; it stays with its thread. In a child forked while a handle
/// existed, writes go nowhere.
pub struct Slot<'p> {
    inner: &'p Inner,
    local: NonNull<Local>,
    /// Whether the thread was unwinding when this handle was made: then it is a destructor that
    /// drops the handle, and not a panic. A word, for a byte and what pads it are copied piecemeal
    /// where handles move, and a processor waits for its own stores there.
    unwinding: usize,
    /// Not `Send`, not `Sync`: the slot is its thread's.
    _thread: PhantomData<*const ()>,
}

impl<'p> Slot<'p> {
    /// # Safety
    /// `local` is a live one of the calling thread and of the opening `inner`.
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

    /// Whether a panic has begun since this handle was made.
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
        // SAFETY: alive while a handle is.
        unsafe { self.local.as_ref() }
    }

    /// The slot's lines; a private spare in a forked child, whose writes must go nowhere.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &'p SlotLines {
        if self.local().is_forked() {
            return crate::layout::nowhere();
        }
        // SAFETY: `inner`, the opening, is borrowed for 'p.
        unsafe { self.local().lines() }
    }

    /// The slot's number: what lock words and claims name as their holder.
    #[inline]
    #[must_use]
    pub fn id(&self) -> SlotId {
        self.local().slot
    }

    /// Which owner of the slot this thread is, counted since the region was built, modulo 2^16.
    /// Together with the number it names a thread that is never mistaken for a later one.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u16 {
        self.local().generation
    }

    /// This thread, as lock words name it.
    #[inline(always)]
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            slot: self.id(),
            generation: self.generation(),
        }
    }

    /// Whether this is a child that was forked while the handle existed: it owns nothing.
    #[inline(always)]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.local().is_forked()
    }

    /// Pins firmly; see [`Participants::pin`](crate::Participants::pin).
    #[inline]
    pub fn pin(&self) -> Pin<'p> {
        // SAFETY: the `Local` is this thread's; the opening is borrowed for 'p.
        unsafe { Pin::enter(self.local) }
    }

    /// Pins revocably; see [`Participants::pin_revocable`](crate::Participants::pin_revocable).
    #[inline]
    pub fn pin_revocable(&self) -> RevocablePin<'p> {
        // SAFETY: the `Local` is this thread's; the opening is borrowed for 'p.
        unsafe { RevocablePin::enter(self.local) }
    }

    /// Whether this thread holds a pin, firm or revocable, under any handle.
    ///
    /// A pinned thread that waits for a grace period waits for itself.
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

    /// Adds `delta` to this thread's part of counter `db` (below 128; beyond, nothing happens).
    ///
    /// The counter belongs to the index with identity `root`, not 0. Identities grow and are never
    /// reused: counting for a larger one forgets what was counted for smaller ones. A counter goes
    /// with its index: databases that swap their indices swap their counters' numbers too.
    #[inline]
    pub fn count(&self, db: usize, root: u64, delta: i64) {
        if let Some(counter) = self.lines().counters.get(db) {
            counter_fold::count(&counter.words(), root, delta.cast_unsigned());
        }
    }

    /// What this thread has counted for the index `root` in counter `db`: its part of
    /// [`Participants::counters`](crate::Participants::counters).
    ///
    /// For an intent that must not count twice: it holds the value *to be*, and the thread that
    /// finishes it sets that by [`set_count`](Self::set_count) or
    /// [`DeadSlot::set_count`](crate::DeadSlot::set_count).
    #[must_use]
    pub fn counted(&self, db: usize, root: u64) -> i64 {
        self.lines().counted(db, root)
    }

    /// Sets this thread's part of counter `db`.
    pub fn set_count(&self, db: usize, root: u64, value: i64) {
        if let Some(counter) = self.lines().counters.get(db) {
            counter_fold::set(&counter.words(), root, value.cast_unsigned());
        }
    }

    /// Whether a panic has ended an operation of this thread that had announced an intent in one
    /// of these lanes, while the caller had this handle: it may announce nothing there. The repair
    /// comes when the last handle is dropped.
    #[inline]
    #[must_use]
    pub fn was_left_in(&self, lanes: &[Lane]) -> bool {
        self.local().is_abandoned() && lanes.iter().any(|lane| self.intent(*lane).stands())
    }

    /// Says whether a destructor withdraws the intent in `lane`, and undoes what it announced. Then
    /// a panic that is caught before that destructor runs has not ended the operation.
    pub fn withdraws_on_drop(&self, lane: Lane, withdraws: bool) {
        self.local().withdrawn[lane as usize].set(withdraws);
    }

    /// The slot's undo area.
    #[must_use]
    pub fn undo(&self) -> UndoArea<'p> {
        if self.local().is_forked() {
            return UndoArea::new(0, &[]);
        }
        let map = self.inner.control();
        UndoArea::new(map.undo_offset(self.id()), map.undo(self.id()))
    }
}

impl Clone for Slot<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: `self` proves both.
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
                // SAFETY: the `Local` is this thread's, and lives while a handle does.
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
