//! Which thread of this process visits which set.
//!
//! **What a thread visits is neither moved nor freed.** Each thread has a cell of its own, on a
//! cache line of its own, and says there what it visits, passes a full fence, and only then looks
//! whether that is still what it was to be. A thread that wants to move a segment, or to free a
//! set, first makes that look fail, passes a full fence, and then reads all cells: one of the two
//! sees the other. Hazard pointers (Michael, TPDS 2004) work so; one a thread is enough, since
//! sections do not nest.

use std::cell::Cell as Plain;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};

use mneme_sync::SlotError;

use super::{Placed, Set};
use crate::EnterError;

/// What one thread visits. Cells are never freed, and used again when their thread has ended.
#[repr(align(128))]
struct Cell {
    /// Null outside; with [`WAITS`] while the set is to be kept, but may be moved.
    visits: AtomicPtr<Set>,
    taken: AtomicBool,
    next: *const Cell,
}

/// In the address of a set that is visited: its segments may be moved still.
const WAITS: usize = 1;

static CELLS: AtomicPtr<Cell> = AtomicPtr::new(ptr::null_mut());

fn cells() -> impl Iterator<Item = &'static Cell> {
    // SYNC: pairs with the Release exchange in `claim`.
    let mut at = CELLS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or a cell, which lives for ever.
        let cell = unsafe { at.as_ref() }?;
        at = cell.next;
        Some(cell)
    })
}

/// A cell for the calling thread.
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

/// The thread's cell, once it has one; given back when the thread ends.
struct Own(Plain<Option<&'static Cell>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(cell) = self.0.get()
            // Written by this thread alone. A visit that a later destructor ends keeps its cell,
            // for good.
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

/// A thread's visit to a set. Dropping it ends it.
pub(crate) struct SetVisit<'a> {
    cell: &'static Cell,
    set: *const Set,
    /// Of the thread that began it.
    of: PhantomData<(&'a Set, *mut ())>,
}

impl<'a> SetVisit<'a> {
    /// Begins a visit of the calling thread. The set may be gone already: that is to be looked at
    /// now, before it is used.
    ///
    /// # Errors
    /// [`EnterError::Nested`] if the thread is at a visit; [`SlotError::ThreadEnding`] in its last
    /// destructors.
    #[inline]
    pub(crate) fn begin(set: *const Set) -> Result<Self, EnterError> {
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
        // Relaxed: this thread's own.
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
    fn say(&self, set: *const Set) {
        // SYNC: pairs with the Acquire loads below, which may read this instead of the end of the
        // visit before.
        self.cell.visits.store(set.cast_mut(), Ordering::Release);
        // SYNC: pairs with the fences in `is_visited` and `is_inside`.
        fence(Ordering::SeqCst);
    }

    /// The set.
    ///
    /// # Safety
    /// After the visit began it was looked whether the set was to be freed, and it was not.
    #[inline]
    pub(crate) unsafe fn set(&self) -> &'a Set {
        // SAFETY: freeing it waits for the visit.
        unsafe { &*self.set }
    }

    /// The set is kept still, but its segments may be moved.
    pub(super) fn wait(&mut self) {
        self.say(self.set.map_addr(|address| address | WAITS));
    }

    /// They may no more. The caller keeps everybody from moving them meanwhile.
    pub(super) fn stay(&mut self) {
        self.say(self.set);
    }
}

impl Drop for SetVisit<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: pairs with the Acquire loads of threads that move or free what was visited.
        self.cell.visits.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Whether a thread visits the set, which can no longer be found.
pub(crate) fn is_visited(set: &Set) -> bool {
    // SYNC: pairs with the fence in `say`.
    fence(Ordering::SeqCst);
    cells().any(|cell| {
        // SYNC: pairs with the Release store of a visit's end.
        let visits = cell.visits.load(Ordering::Acquire);
        visits.map_addr(|address| address & !WAITS).cast_const() == &raw const *set
    })
}

/// Whether a thread is inside of a set with this segment, which is no longer said to be home.
///
/// # Safety
/// A set that `lives` says is one lives until this returns.
pub(super) unsafe fn is_inside(placed: &Placed, lives: impl Fn(*const Set) -> bool) -> bool {
    // SYNC: pairs with the fence in `say`.
    fence(Ordering::SeqCst);
    cells().any(|cell| {
        // SYNC: pairs with the Release store of a visit's end.
        let visits = cell.visits.load(Ordering::Acquire).cast_const();
        // A visit may name, for a moment, a set that was freed just before it began.
        let inside = visits.addr() & WAITS == 0 && lives(visits);
        // SAFETY: it lives, by the caller's promise.
        inside && unsafe { &*visits }.contains(placed)
    })
}
