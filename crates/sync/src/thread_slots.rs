//! A thread's own record of its slots, which lets it find one in about a nanosecond without reading
//! shared memory.
//!
//! Each thread keeps one [`Local`] for each control region in which it has a slot, and a cache of
//! the last one used: two words of const-initialised thread-local storage without a destructor,
//! which cost one segment-relative load. The list behind it has a destructor, which releases the
//! slots of an ending thread.
//!
//! A `Local` never moves and is freed only when no handle to it ([`Slot`](crate::Slot),
//! [`Pin`](crate::Pin), guards) is left. If a handle outlives the thread's list (because it is kept
//! in another thread-local), its slot stays taken too, until the region is closed or the process
//! ends.

use crate::epoch::{self, PinKind};
use crate::layout::{GATES, LANES, SlotLines};
use crate::opening::{Inner, Machine};
use crate::{SlotError, SlotId, intent};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Once, Weak};

/// A flag in [`Local::pins`]. If it is set, pins check whether this is a forked child and whether
/// the slot is abandoned, and pass the barrier that the region needs. Otherwise they need no check,
/// which saves each a comparison.
pub(crate) const UNUSUAL: usize = 1 << (usize::BITS - 1);

/// One thread's state in one opening of a control region.
pub(crate) struct Local {
    /// The identity of the opening; never reused.
    pub(crate) opening: u64,
    /// The fork generation in which the slot was claimed.
    pub(crate) fork_generation: u32,
    pub(crate) barrier: Machine,
    pub(crate) slot: SlotId,
    pub(crate) generation: u16,
    lines: NonNull<SlotLines>,
    epoch: NonNull<AtomicU64>,
    inner: Weak<Inner>,
    /// The number of nested pins, and the flag [`UNUSUAL`].
    pub(crate) pins: Cell<usize>,
    /// The pin word that the outermost pin wrote.
    pub(crate) entered: Cell<u64>,
    /// The number of revocations that this thread has noticed.
    pub(crate) lost: Cell<u32>,
    /// The number of handles other than pins.
    pub(crate) handles: Cell<usize>,
    /// How often this thread is inside each gate.
    pub(crate) inside: [Cell<usize>; GATES],
    /// Whether a panic has ended an operation of this slot that outer handles survive. The slot
    /// then counts one more pin: what the operation has left must not be freed before its repair.
    abandoned: Cell<bool>,
    /// The lanes whose intents a destructor withdraws.
    pub(crate) withdrawn: [Cell<bool>; LANES],
    /// The number of handles that were created while the thread unwound, and the lanes that had
    /// intents when the first of them was created.
    in_destructor: Cell<usize>,
    stood: Cell<[bool; LANES]>,
}

impl Local {
    /// The slot's lines.
    ///
    /// # Safety
    /// The opening must still be alive: a handle with the opening's lifetime must exist.
    #[inline(always)]
    pub(crate) unsafe fn lines<'a>(&self) -> &'a SlotLines {
        // SAFETY: it leads into the opening's region, which lives by the caller's promise.
        unsafe { self.lines.as_ref() }
    }

    /// The region's epoch.
    ///
    /// # Safety
    /// As [`lines`](Self::lines).
    #[inline(always)]
    pub(crate) unsafe fn epoch<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { self.epoch.as_ref() }
    }

    /// Whether this process was forked from the one that claimed the slot.
    #[inline(always)]
    pub(crate) fn is_forked(&self) -> bool {
        self.pins.get() & UNUSUAL != 0 && self.fork_generation != mneme_sys::fork::generation()
    }

    /// The number of nested pins.
    #[inline(always)]
    pub(crate) fn depth(&self) -> usize {
        self.pins.get() & !UNUSUAL
    }

    fn set_unusual(&self) {
        self.pins.set(self.pins.get() | UNUSUAL);
    }

    fn has_handles(&self) -> bool {
        self.depth() != usize::from(self.abandoned.get()) || self.handles.get() != 0
    }

    /// The lanes that have an intent, in the slot's `lines`, which no destructor withdraws.
    fn announced(&self, lines: &SlotLines) -> [bool; LANES] {
        std::array::from_fn(|lane| {
            let stands = || intent::standing(&lines.intents[lane].head).is_some();
            !self.withdrawn[lane].get() && stands()
        })
    }

    /// Called when a handle is created while the thread unwinds.
    #[cold]
    pub(crate) fn begin_in_destructor(&self, lines: &SlotLines) {
        let others = self.in_destructor.get();
        if others == 0 {
            self.stood.set(self.announced(lines));
        }
        self.in_destructor.set(others + 1);
    }

    /// Called when a handle that was created while the thread unwound is dropped. Returns whether a
    /// panic has ended operations of a destructor, which has caught it or will. The thread is
    /// unwinding either way; but when all such handles are gone, an operation that has ended
    /// normally has left no intent.
    #[cold]
    pub(crate) fn ends_in_destructor(&self, lines: &SlotLines) -> bool {
        let others = self.in_destructor.get().saturating_sub(1);
        self.in_destructor.set(others);
        let stood = self.stood.get();
        let mut new = self.announced(lines).into_iter().zip(stood);
        others == 0 && new.any(|(stands, stood)| stands && !stood)
    }

    /// Whether a panic has ended an operation of this slot, so that no other may begin there.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }
}

/// Makes forked children notice that their thread's slots belong to their parent.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| mneme_sys::fork::in_children(in_child));
}

/// In the child, marks this thread's locals, so that the fast path is not taken any more: it would
/// write where the parent pins.
///
/// A list is in use here, and its slots are not marked, only if a signal handler has forked while
/// this thread claimed or released a slot.
extern "C" fn in_child() {
    CACHE.with(|cache| {
        cache.opening.set(0);
        cache.local.set(None);
    });
    // SAFETY: the lists hold only live boxes of this thread.
    let mark = |local: &NonNull<Local>| unsafe { local.as_ref() }.set_unusual();
    let _ = CLAIMS.try_with(|claims| {
        let claims = claims.0.try_borrow().ok()?;
        claims.iter().for_each(|(_, local)| mark(local));
        Some(())
    });
    let _ = ABANDONED.try_with(|abandoned| {
        abandoned.0.try_borrow().ok()?.iter().for_each(mark);
        Some(())
    });
}

struct Cache {
    opening: Cell<u64>,
    local: Cell<Option<NonNull<Local>>>,
}

/// The thread's locals, each with its opening, by which they are sorted: a thread that uses many
/// openings in turn finds each without touching the others. The boxes are owned as raw pointers,
/// because handles point to them.
struct Claims(RefCell<Vec<(u64, NonNull<Local>)>>);

/// Locals that panics have removed from that list, and that handles still point to.
struct Abandoned(RefCell<Vec<NonNull<Local>>>);

thread_local! {
    static CACHE: Cache = const { Cache { opening: Cell::new(0), local: Cell::new(None) } };
    static CLAIMS: Claims = const { Claims(RefCell::new(Vec::new())) };
    static ABANDONED: Abandoned = const { Abandoned(RefCell::new(Vec::new())) };
}

/// This thread's local for the opening, if it was the last one used. `opening` must be alive.
#[inline(always)]
pub(crate) fn cached(opening: u64) -> Option<NonNull<Local>> {
    CACHE.with(|cache| {
        if cache.opening.get() == opening {
            cache.local.get()
        } else {
            None
        }
    })
}

/// This thread's local for the opening, if it has one. `opening` must be alive.
pub(crate) fn find(opening: u64) -> Option<NonNull<Local>> {
    CLAIMS
        .try_with(|claims| find_in(&claims.0.borrow(), opening))
        .ok()?
}

fn find_in(claims: &[(u64, NonNull<Local>)], opening: u64) -> Option<NonNull<Local>> {
    let at = claims.binary_search_by_key(&opening, |(opening, _)| *opening);
    at.ok().map(|at| claims[at].1)
}

/// This thread's local for the opening. Claims a slot if it has none; with `reaping`, if necessary
/// one reserved for reapers.
#[inline(never)]
pub(crate) fn find_or_claim(
    inner: &std::sync::Arc<Inner>,
    reaping: bool,
) -> Result<NonNull<Local>, SlotError> {
    if inner.fork_generation() != mneme_sys::fork::generation() {
        return Err(SlotError::Forked);
    }
    let found = CLAIMS
        .try_with(|claims| {
            let mut claims = claims.0.borrow_mut();
            if let Some(local) = find_in(&claims, inner.opening()) {
                return Ok::<_, SlotError>(local);
            }
            forget_closed(&mut claims);
            let (slot, generation) = match inner.claim_slot(reaping) {
                Err(SlotError::TooManyThreads { .. }) if !reaping && reap_apart(inner) => {
                    inner.claim_slot(false)?
                }
                claimed => claimed?,
            };
            // The slot exists, because it was just claimed.
            let lines = inner.control().slot(slot).ok_or(SlotError::ThreadEnding)?;
            let local = Box::new(Local {
                opening: inner.opening(),
                fork_generation: inner.fork_generation(),
                barrier: inner.barrier(),
                slot,
                generation,
                lines: NonNull::from(lines),
                epoch: NonNull::from(&inner.control().header().epoch.word),
                inner: std::sync::Arc::downgrade(inner),
                pins: Cell::new(if inner.barrier().is_asymmetric() {
                    0
                } else {
                    UNUSUAL
                }),
                entered: Cell::new(0),
                lost: Cell::new(0),
                handles: Cell::new(0),
                inside: [const { Cell::new(0) }; GATES],
                abandoned: Cell::new(false),
                withdrawn: [const { Cell::new(false) }; LANES],
                in_destructor: Cell::new(0),
                stood: Cell::new([false; LANES]),
            });
            let local = NonNull::from(Box::leak(local));
            let after = claims.partition_point(|(opening, _)| *opening < inner.opening());
            claims.insert(after, (inner.opening(), local));
            Ok(local)
        })
        .map_err(|_| SlotError::ThreadEnding)??;
    // As long as a slot has yet to be released, each operation takes this path.
    if !release_abandoned() {
        CACHE.with(|cache| {
            cache.opening.set(inner.opening());
            cache.local.set(Some(found));
        });
    }
    Ok(found)
}

/// Lets a separate thread, which releases its own slot at the end, repair dead threads' slots and
/// so free them. Returns false if that is impossible.
#[cold]
fn reap_apart(inner: &std::sync::Arc<Inner>) -> bool {
    let Some(reaper) = inner.reaper.get() else {
        return false;
    };
    let repair = || {
        if find_or_claim(inner, true).is_ok() {
            reaper();
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, repair);
        thread.is_ok_and(|thread| thread.join().is_ok())
    })
}

/// Releases the slots of abandoned locals without handles. Returns whether others are left.
#[cold]
pub(crate) fn release_abandoned() -> bool {
    let released = ABANDONED.try_with(|abandoned| {
        let mut abandoned = abandoned.0.try_borrow_mut().ok()?;
        // SAFETY: the list holds only live boxes of this thread.
        let is_kept = |local: &NonNull<Local>| unsafe { local.as_ref() }.has_handles();
        let released: Vec<_> = abandoned.extract_if(.., |local| !is_kept(local)).collect();
        Some((released, !abandoned.is_empty()))
    });
    let Ok(Some((released, others))) = released else {
        return false;
    };
    for local in released {
        // SAFETY: no handle is left, and it has left the list.
        unsafe { release(local) };
    }
    others
}

/// Releases the slot of a local, and frees the local.
///
/// # Safety
/// It must be a box of the calling thread, without a handle, and in no list.
unsafe fn release(local: NonNull<Local>) {
    // SAFETY: alive by the caller's promise.
    let known = unsafe { local.as_ref() };
    if !known.is_forked()
        && let Some(inner) = known.inner.upgrade()
    {
        match known.is_abandoned() {
            true => inner.abandon_slot(known.slot),
            false => inner.release_slot(known.slot),
        }
    }
    // SAFETY: no handle is left, and no list contains it.
    drop(unsafe { Box::from_raw(local.as_ptr()) });
}

/// Frees the locals of openings that are closed.
fn forget_closed(claims: &mut Vec<(u64, NonNull<Local>)>) {
    claims.retain(|(_, local)| {
        // SAFETY: the list holds only live boxes of this thread.
        let known = unsafe { local.as_ref() };
        if known.inner.strong_count() > 0 {
            return true;
        }
        uncache(known.opening);
        if !known.has_handles() {
            // SAFETY: no handle is left, and this removes it from the list.
            drop(unsafe { Box::from_raw(local.as_ptr()) });
        }
        false
    });
}

/// To be called when a thread that unwinds has dropped a handle. If there is an intent, a panic has
/// ended the operation that announced it. If it was the last handle, a panic has ended an operation
/// that may have claimed something before its intent. The thread gets another slot for its next
/// operation. This slot is left to the reapers once it has no handle, which usually is at once. If
/// the caller of the operation had handles before, a pin releases the slot when it is dropped, and
/// any other handle does so with the thread's next operation.
///
/// # Safety
/// `local` must be alive and belong to the calling thread, which must not use it any more.
#[cold]
pub(crate) unsafe fn unwound(local: NonNull<Local>) {
    // SAFETY: alive by the caller's promise.
    let known = unsafe { local.as_ref() };
    if known.is_forked() {
        return;
    }
    if known.is_abandoned() {
        release_abandoned();
        return;
    }
    let Some(_alive) = known.inner.upgrade() else {
        return;
    };
    // SAFETY: the opening is alive.
    let (epoch, lines) = unsafe { (known.epoch(), known.lines()) };
    let announces = known.announced(lines).contains(&true);
    if !announces && known.has_handles() {
        return;
    }
    let unlisted = CLAIMS.try_with(|claims| {
        let mut claims = claims.0.try_borrow_mut().ok()?;
        let at = claims.binary_search_by_key(&known.opening, |(opening, _)| *opening);
        at.ok().map(|at| claims.remove(at))
    });
    // If the list is gone or in use, the slot stays with the thread until the opening is closed.
    if let Ok(Some(_)) = unlisted {
        uncache(known.opening);
        if announces && epoch::pinned_epoch(lines.pin.load(Relaxed)).is_none() {
            let entered = epoch::enter(epoch, &lines.pin, PinKind::Firm, &known.barrier);
            known.entered.set(entered);
        }
        known.pins.set(known.pins.get() + 1);
        known.abandoned.set(true);
        known.set_unusual();
        // If the list is gone or in use, the slot stays with this thread as well.
        let _ = ABANDONED.try_with(|list| list.0.try_borrow_mut().map(|mut l| l.push(local)));
        release_abandoned();
    }
}

fn uncache(opening: u64) {
    CACHE.with(|cache| {
        if cache.opening.get() == opening {
            cache.opening.set(0);
            cache.local.set(None);
        }
    });
}

impl Drop for Claims {
    fn drop(&mut self) {
        for (_, local) in self.0.take() {
            // SAFETY: the list held only live boxes of this thread.
            let known = unsafe { local.as_ref() };
            uncache(known.opening);
            // Otherwise it will still be used in a later destructor, and keeps its slot. Since it
            // is in no list, it checks for forks itself.
            known.set_unusual();
            if !known.has_handles() {
                // SAFETY: no handle is left, and the list is gone.
                unsafe { release(local) };
            }
        }
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        for local in self.0.take() {
            // SAFETY: the list held only live boxes of this thread.
            let known = unsafe { local.as_ref() };
            known.set_unusual();
            if !known.has_handles() {
                // SAFETY: no handle is left, and the list is gone.
                unsafe { release(local) };
            }
        }
    }
}
