//! An asymmetric memory barrier between processes: free on the side that runs all the time,
//! a system call on the side that runs seldom.
//!
//! A [`light`] barrier and a [`heavy`] barrier together order memory as two sequentially
//! consistent fences would. Store-then-load on either side (a reader publishes its pin, then
//! reads a pointer; a reclaimer unlinks, then reads the pins) can then never miss the other.
//!
//! `membarrier(GLOBAL_EXPEDITED)` interrupts every CPU that runs a registered process; the
//! `PRIVATE` form does not reach other processes, which is why it is not used. It takes 0.2 us while no
//! other thread of theirs runs, and microseconds for each CPU that has to be interrupted.
//! A process that cannot register (an old kernel, a sandbox) must [`register`] all the same and
//! is told [`Mechanism::Fence`]: its light side then issues a real fence, and it **must not
//! reclaim** on behalf of processes that are registered, since its heavy side reaches nobody.
//!
//! Neither loom nor shuttle models `membarrier`: the crates above test it by litmus.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// What stands behind the barrier in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// The light side is free; the heavy side interrupts the others.
    Asymmetric,
    /// Both sides are sequentially consistent fences; this process' heavy side does not reach
    /// the light side of an `Asymmetric` one.
    Fence,
}

const ASYMMETRIC: u8 = 1;
const FENCE: u8 = 2;

/// 0 (not registered) is treated as `FENCE` on the light side: safe, only slower.
static MECHANISM: AtomicU8 = AtomicU8::new(0);

/// Registers this process with the kernel, once; later calls return the same answer.
///
/// Must have returned before the first [`light`] that another process' [`heavy`] is to reach.
pub fn register() -> Mechanism {
    // SYNC: pairs with the Release store below; a second caller sees the registration done.
    match MECHANISM.load(Ordering::Acquire) {
        ASYMMETRIC => return Mechanism::Asymmetric,
        FENCE => return Mechanism::Fence,
        _ => {}
    }
    let (value, mechanism) = if register_with_kernel() {
        (ASYMMETRIC, Mechanism::Asymmetric)
    } else {
        (FENCE, Mechanism::Fence)
    };
    // SYNC: pairs with the Acquire load above.
    MECHANISM.store(value, Ordering::Release);
    mechanism
}

/// The cheap side: a compiler fence where the kernel helps, else a real fence.
#[inline(always)]
pub fn light() {
    // Relaxed: the value is a constant once set; a thread that still sees the old one fences.
    if MECHANISM.load(Ordering::Relaxed) == ASYMMETRIC {
        // SYNC: pairs with `heavy` in any registered process.
        compiler_fence(Ordering::SeqCst);
    } else {
        // SYNC: pairs with `heavy` in any process.
        fence(Ordering::SeqCst);
    }
}

/// The dear side: on return, every registered process' threads have passed a full fence.
///
/// A system call with [`Mechanism::Asymmetric`] (see [the module](self)); else a full fence, which
/// suffices only among processes that fence on the light side too.
pub fn heavy() {
    // SYNC: pairs with `light`.
    fence(Ordering::SeqCst);
    // SYNC: pairs with the Release store in `register`.
    if MECHANISM.load(Ordering::Acquire) == ASYMMETRIC {
        interrupt_all();
    }
    // SYNC: pairs with `light`.
    fence(Ordering::SeqCst);
}

#[cfg(miri)]
fn register_with_kernel() -> bool {
    false
}

#[cfg(miri)]
fn interrupt_all() {}

#[cfg(not(miri))]
fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: `membarrier` takes integers only and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

#[cfg(not(miri))]
fn register_with_kernel() -> bool {
    let known = membarrier(libc::MEMBARRIER_CMD_QUERY);
    known >= 0
        && known & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0
        && membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0
}

#[cfg(not(miri))]
fn interrupt_all() {
    // The only error left after a successful registration is a lack of kernel memory for the
    // set of CPUs. The plain command needs none and orders more, in milliseconds.
    while membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 {
        if membarrier(libc::MEMBARRIER_CMD_GLOBAL) == 0 {
            return;
        }
        std::thread::yield_now();
    }
}
