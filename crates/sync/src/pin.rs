//! [`Pin`] and [`RevocablePin`]: while one exists, nothing that could be reached is freed.
//!
//! Pins nest, with a depth that is private to the thread: only the outermost one enters, and only
//! the last one to be dropped leaves, in whatever order guards are dropped. A firm pin within a
//! revocable one makes the thread's pin firm until all are gone.

use crate::Revoked;
use crate::atomics::Barrier;
use crate::epoch::{self, PinKind};
use crate::opening::{Asymmetric, Machine};
use crate::thread_slots::{Local, UNUSUAL};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A firm pin. Stays with its thread; dropping it unpins.
///
/// It delays reclamation for all participants while it lives, so keep it short.
#[must_use = "dropping it unpins at once"]
pub struct Pin<'p> {
    local: NonNull<Local>,
    /// The opening outlives the pin. Makes the type neither `Send` nor `Sync`.
    _opening: PhantomData<(&'p (), *const ())>,
}

impl Pin<'_> {
    /// # Safety
    /// `local` must be alive and belong to the calling thread, and its opening must outlive the
    /// result.
    #[inline(always)]
    pub(crate) unsafe fn enter(local: NonNull<Local>) -> Self {
        // SAFETY: alive by the caller's promise.
        unsafe { enter(local.as_ref(), PinKind::Firm) };
        Pin {
            local,
            _opening: PhantomData,
        }
    }
}

impl Drop for Pin<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: a `Local` lives as long as one of its pins, and so does the opening.
        unsafe { leave(self.local) };
    }
}

impl std::fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// A pin that a reclaimer may revoke after a second.
///
/// Under it, read only by racing copies, and use what was read only after [`leave`](Self::leave)
/// has returned `Ok`. Dropping it leaves without that check.
#[must_use = "what is read under it counts only if leaving succeeds"]
pub struct RevocablePin<'p> {
    local: NonNull<Local>,
    /// The number of revocations that the thread had noticed when this pin began.
    lost: u32,
    _opening: PhantomData<(&'p (), *const ())>,
}

impl RevocablePin<'_> {
    /// # Safety
    /// As [`Pin::enter`].
    #[inline(always)]
    pub(crate) unsafe fn enter(local: NonNull<Local>) -> Self {
        // SAFETY: alive by the caller's promise.
        let lost = unsafe {
            enter(local.as_ref(), PinKind::Revocable);
            local.as_ref().lost.get()
        };
        RevocablePin {
            local,
            lost,
            _opening: PhantomData,
        }
    }

    /// Ends the pin, and returns whether it held until now.
    ///
    /// # Errors
    /// [`Revoked`]: what was read is not valid.
    #[inline]
    pub fn leave(self) -> Result<(), Revoked> {
        // The drop leaves.
        if self.is_valid() {
            Ok(())
        } else {
            Err(Revoked)
        }
    }

    /// Whether everything read so far is valid. For long reads that can stop early.
    #[inline]
    #[must_use]
    pub fn is_valid(&self) -> bool {
        // SAFETY: a `Local` lives while one of its pins does, and so does the opening.
        let local = unsafe { self.local.as_ref() };
        if local.is_forked() || local.lost.get() != self.lost {
            return false;
        }
        // SAFETY: as above.
        epoch::still_held(
            unsafe { &local.lines().pin },
            local.entered.get(),
            &local.barrier,
        )
    }
}

impl Drop for RevocablePin<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: a `Local` lives while one of its pins does, and so does the opening.
        unsafe { leave(self.local) };
    }
}

impl std::fmt::Debug for RevocablePin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevocablePin")
            .field("valid", &self.is_valid())
            .finish()
    }
}

/// A revocable pin for a few loads, which writes only the thread's pin word. It has no support for
/// nesting and does not check for a fork in between.
///
/// If it is dropped without being [left](Self::leave), the word stays until the thread pins again,
/// and may be revoked meanwhile.
#[must_use = "what is read under it counts only if leaving succeeds"]
pub struct FastPin<'p> {
    pin: &'p AtomicU64,
    entered: u64,
    barrier: Machine,
    /// Makes the type neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

impl FastPin<'_> {
    /// `None` if the thread is pinned already.
    ///
    /// # Safety
    /// The calling thread must have claimed `local` in this process, and its opening must outlive
    /// the result. Until it is left, the thread must neither pin nor fork.
    #[inline(always)]
    pub(crate) unsafe fn enter(local: &Local) -> Option<Self> {
        if local.depth() != 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        let (region_epoch, lines) = unsafe { (local.epoch(), local.lines()) };
        let entered = epoch::enter(region_epoch, &lines.pin, PinKind::Revocable, &local.barrier);
        Some(FastPin {
            pin: &lines.pin,
            entered,
            barrier: local.barrier,
            _thread: PhantomData,
        })
    }

    /// Ends the pin, and returns whether it held until now.
    ///
    /// # Errors
    /// [`Revoked`]: what was read is not valid.
    #[inline(always)]
    pub fn leave(self) -> Result<(), Revoked> {
        let held = epoch::still_held(self.pin, self.entered, &self.barrier);
        epoch::leave(self.pin);
        if held { Ok(()) } else { Err(Revoked) }
    }
}

/// # Safety
/// The local's opening must be alive.
#[inline(always)]
unsafe fn enter(local: &Local, kind: PinKind) {
    let pins = local.pins.get();
    if pins == 0 {
        // Stored as a constant, here and in `leave`: if it were incremented, each pin would wait
        // for the previous one's store, 3 ns more than everything else takes.
        local.pins.set(1);
        // SAFETY: the caller's promise. Neither forked nor in need of a fence: either would be
        // flagged as `UNUSUAL` in `pins`.
        unsafe { enter_outermost(local, kind, &Asymmetric(&local.barrier)) };
    } else if pins < UNUSUAL
        && kind == PinKind::Firm
        && epoch::kind_of(local.entered.get()) == PinKind::Firm
    {
        // The usual case in an update: the caller has pinned for its search.
        local.pins.set(pins + 1);
    } else {
        // SAFETY: the caller's promise.
        unsafe { enter_otherwise(local, kind) };
    }
}

/// # Safety
/// As [`enter`].
#[inline(never)]
unsafe fn enter_otherwise(local: &Local, kind: PinKind) {
    let outermost = local.depth() == 0;
    local.pins.set(local.pins.get() + 1);
    if local.is_forked() {
        return;
    }
    match outermost {
        // SAFETY: the caller's promise.
        true => unsafe { enter_outermost(local, kind, &local.barrier) },
        // SAFETY: the caller's promise, and not forked.
        false => unsafe { enter_nested(local, kind) },
    }
}

/// # Safety
/// The local's opening must be alive, and this process the one that claimed the slot.
#[inline(always)]
unsafe fn enter_outermost(local: &Local, kind: PinKind, barrier: &impl Barrier) {
    // SAFETY: the caller's promise.
    let (region_epoch, lines) = unsafe { (local.epoch(), local.lines()) };
    local
        .entered
        .set(epoch::enter(region_epoch, &lines.pin, kind, barrier));
}

/// # Safety
/// As [`enter_outermost`].
unsafe fn enter_nested(local: &Local, kind: PinKind) {
    let entered = local.entered.get();
    if epoch::kind_of(entered) == PinKind::Firm {
        return;
    }
    // SAFETY: the caller's promise.
    let pin = unsafe { &local.lines().pin };
    let kept = if kind == PinKind::Firm {
        let firm = epoch::make_firm(pin, entered);
        if let Some(firm) = firm {
            local.entered.set(firm);
        }
        firm.is_some()
    } else {
        epoch::still_held(pin, entered, &local.barrier)
    };
    if !kept {
        // The outer pins are lost, and will report that; this one begins a new pin.
        local.lost.set(local.lost.get().wrapping_add(1));
        // SAFETY: the caller's promise.
        unsafe { enter_outermost(local, kind, &local.barrier) };
    }
}

/// # Safety
/// As for [`enter`], and the caller must not use the local any more.
#[inline(always)]
unsafe fn leave(left: NonNull<Local>) {
    // SAFETY: the caller's promise.
    let local = unsafe { left.as_ref() };
    let pins = local.pins.get();
    if pins == 1 && !std::thread::panicking() {
        local.pins.set(0);
        // SAFETY: the caller's promise. Not forked: see `enter`.
        epoch::leave(unsafe { &local.lines().pin });
    } else if pins > 1 && pins < UNUSUAL {
        local.pins.set(pins - 1);
    } else {
        // SAFETY: the caller's promise.
        unsafe { leave_otherwise(left) };
    }
}

/// # Safety
/// As for [`leave`].
#[inline(never)]
unsafe fn leave_otherwise(left: NonNull<Local>) {
    // SAFETY: the caller's promise.
    let local = unsafe { left.as_ref() };
    let depth = local.depth();
    if depth > 0 {
        local.pins.set(local.pins.get() - 1);
    }
    if depth != 1 {
        if local.is_abandoned() {
            crate::thread_slots::release_abandoned();
        }
    } else if std::thread::panicking() {
        // SAFETY: the caller's promise.
        unsafe { leave_unwinding(left) };
    } else if !local.is_forked() {
        // SAFETY: the caller's promise.
        epoch::leave(unsafe { &local.lines().pin });
    }
}

/// A thread that unwinds from an operation that it has announced stays pinned, like a dead thread:
/// the repair reads what the pin protects, and the reaper ends the pin.
///
/// # Safety
/// As for [`leave`].
#[cold]
unsafe fn leave_unwinding(left: NonNull<Local>) {
    // SAFETY: the caller's promise.
    let local = unsafe { left.as_ref() };
    if local.is_forked() {
        return;
    }
    // SAFETY: the caller's promise.
    let lines = unsafe { local.lines() };
    if !lines.is_announcing() {
        epoch::leave(&lines.pin);
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { crate::thread_slots::unwound(left) };
}
