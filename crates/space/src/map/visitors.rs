//! Records which thread of this process visits which set.
//!
//! **A visited segment is not moved, and a visited set is not freed.** Each thread has a cell on a
//! cache line of its own. It announces there what it visits, passes a full fence, and only then
//! checks that the set is still valid and each segment at its address. A thread that wants to move
//! a segment or free a set first makes that check fail, passes a full fence, and then reads all
//! cells: one of the two sees the other. This is how hazard pointers work (Michael, TPDS 2004); one
//! a thread is enough, because sections do not nest.

use std::cell::Cell as Plain;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};

use mneme_sync::SlotError;

use super::{Placed, SegmentSet};
use crate::EnterError;

/// What one thread visits. Cells are never freed; when a thread has ended, another reuses its cell.
#[repr(align(128))]
struct Cell {
    /// Null outside a visit; with [`WAITS`] set while the set must not be freed but its segments
    /// may be moved.
    visits: AtomicPtr<SegmentSet>,
    taken: AtomicBool,
    next: *const Cell,
}

/// A bit in the address of a visited set: its segments may still be moved.
const WAITS: usize = 1;

static CELLS: AtomicPtr<Cell> = AtomicPtr::new(ptr::null_mut());

fn cells() -> impl Iterator<Item = &'static Cell> {
    // SYNC: pairs with the Release exchange in `claim`.
    let mut at = CELLS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or a cell, and cells live for ever.
        let cell = unsafe { at.as_ref() }?;
        at = cell.next;
        Some(cell)
    })
}

/// Claims a cell for the calling thread.
fn claim() -> &'static Cell {
    let free = |cell: &&Cell| {
        // SYNC: Acquire, pairs with the Release store in `Own::drop`.
        let swapped =
            cell.taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        swapped.is_ok()
    };
    if let Some(cell) = cells().find(free) {
        return cell;
    }
    let fresh = Box::leak(Box::new(Cell {
        visits: AtomicPtr::default(),
        taken: AtomicBool::new(true),
        next: ptr::null(),
    }));
    let mut first = CELLS.load(Ordering::Relaxed);
    loop {
        fresh.next = first;
        // SYNC: Release, pairs with the Acquire load in `cells`.
        let swapped =
            CELLS.compare_exchange_weak(first, fresh, Ordering::Release, Ordering::Relaxed);
        match swapped {
            Ok(_) => return fresh,
            Err(now) => first = now,
        }
    }
}

/// The thread's cell, once it has one; released when the thread ends.
struct Own(Plain<Option<&'static Cell>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(cell) = self.0.get()
            // Only this thread writes it. If a later destructor has a visit to end, the cell stays
            // claimed for good.
            && cell.visits.load(Ordering::Relaxed).is_null()
        {
            // SYNC: pairs with the Acquire exchange in `claim`.
            cell.taken.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Plain::new(None)) };
}

/// A thread's visit to a set; ends when it is dropped.
pub(crate) struct SetVisit<'a> {
    cell: &'static Cell,
    set: *const SegmentSet,
    /// Belongs to the thread that began it.
    of: PhantomData<(&'a SegmentSet, *mut ())>,
}

impl<'a> SetVisit<'a> {
    /// Begins a visit of the calling thread. The set may already be gone: the caller must check
    /// that before it uses the set.
    ///
    /// # Errors
    /// [`EnterError::Nested`] if the thread is already visiting a set; [`SlotError::ThreadEnding`]
    /// in the thread's last destructors.
    #[inline]
    pub(crate) fn begin(set: *const SegmentSet) -> Result<Self, EnterError> {
        let cell = OWN.try_with(|own| match own.0.get() {
            Some(cell) => cell,
            None => {
                let cell = claim();
                own.0.set(Some(cell));
                cell
            }
        });
        let Ok(cell) = cell else {
            return Err(SlotError::ThreadEnding.into());
        };
        // Relaxed: only this thread writes it.
        if !cell.visits.load(Ordering::Relaxed).is_null() {
            return Err(EnterError::Nested);
        }
        let visit = Self {
            cell,
            set,
            of: PhantomData,
        };
        visit.say(set);
        Ok(visit)
    }

    #[inline]
    fn say(&self, set: *const SegmentSet) {
        // SYNC: pairs with the Acquire loads below, which may read this store instead of the end of
        // the previous visit.
        self.cell.visits.store(set.cast_mut(), Ordering::Release);
        // SYNC: pairs with the fences in `is_visited` and `is_inside`.
        fence(Ordering::SeqCst);
    }

    /// The visited set.
    ///
    /// # Safety
    /// After the visit began, the caller must have checked that the set was not about to be freed.
    #[inline]
    pub(crate) unsafe fn set(&self) -> &'a SegmentSet {
        // SAFETY: the set is not freed before the visit ends.
        unsafe { &*self.set }
    }

    /// From now on the set is still not freed, but its segments may be moved.
    pub(super) fn wait(&mut self) {
        self.say(self.set.map_addr(|address| address | WAITS));
    }

    /// From now on its segments may not be moved. The caller keeps others from moving them during
    /// this call.
    pub(super) fn stay(&mut self) {
        self.say(self.set);
    }
}

impl Drop for SetVisit<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: pairs with the Acquire loads of threads that move a segment or free a set after the
        // visit.
        self.cell.visits.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Whether a thread visits the set, which can no longer be found.
pub(crate) fn is_visited(set: &SegmentSet) -> bool {
    // SYNC: pairs with the fence in `say`.
    fence(Ordering::SeqCst);
    cells().any(|cell| {
        // SYNC: pairs with the Release store of a visit's end.
        let visits = cell.visits.load(Ordering::Acquire);
        visits.map_addr(|address| address & !WAITS).cast_const() == &raw const *set
    })
}

/// Whether a thread is inside a set with this segment, whose flag `home` has been cleared.
///
/// # Safety
/// A set for which `lives` returns true must live until this returns.
pub(super) unsafe fn is_inside(placed: &Placed, lives: impl Fn(*const SegmentSet) -> bool) -> bool {
    // SYNC: pairs with the fence in `say`.
    fence(Ordering::SeqCst);
    cells().any(|cell| {
        // SYNC: pairs with the Release store of a visit's end.
        let visits = cell.visits.load(Ordering::Acquire).cast_const();
        // For a moment, a visit may name a set that was freed just before the visit began.
        let inside = visits.addr() & WAITS == 0 && lives(visits);
        // SAFETY: the set lives, by the caller's promise.
        inside && unsafe { &*visits }.contains(placed)
    })
}
