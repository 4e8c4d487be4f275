//! An asymmetric memory barrier between threads and processes: free on the side that runs all the
//! time, a system call on the side that runs seldom.
//!
//! A [`light`] barrier and a [`heavy`] barrier together order memory as two sequentially consistent
//! fences would. So if both sides store and then load (a reader publishes its pin, then reads a
//! pointer; a reclaimer unlinks, then reads the pins), at least one sees the other.
//!
//! The caller chooses how far the heavy side must [reach](BarrierReach).
//! `membarrier(PRIVATE_EXPEDITED)` interrupts every CPU that runs a thread of this process,
//! `membarrier(GLOBAL_EXPEDITED)` every CPU that runs a registered process. Either takes 0.2 us if
//! nobody has to be interrupted, and otherwise microseconds for each CPU.
//!
//! **The kernel registers a process incompletely for the global form.** It decides whom to
//! interrupt by a flag for each CPU, which is loaded when a CPU switches from one process to
//! another. Registering sets the flag on the CPUs that run the process at that moment. A CPU that
//! ran the process before and has idled since gets neither: it returns to the process without a
//! switch, its flag still clear, and is not interrupted until some other process has run there
//! (observed on Linux 6.18; `tests/registration.rs` shows it). Therefore [`register`] lets another
//! process, a child that does nothing else, visit every CPU. On busy CPUs the child waits for its
//! turn, milliseconds for each. Nobody waits for the child: until it has finished, the light side
//! of this process is a fence, as it is without the kernel's help.
//!
//! A process that cannot register (because of an old kernel or a sandbox) must still call
//! [`register`], and gets [`Mechanism::Fence`]: its light side then executes a real fence. It
//! **must not reclaim** on behalf of registered processes, because its heavy side reaches nobody.
//!
//! Neither loom nor shuttle models `membarrier`: the crates above test it by litmus tests.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// The threads that a heavy barrier reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BarrierReach {
    /// The threads of this process.
    Process,
    /// Every process that is registered with this reach.
    Machine,
}

/// How the barrier works in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// The light side is free; the heavy side interrupts the others.
    Asymmetric,
    /// Both sides are sequentially consistent fences; this process's heavy side does not reach the
    /// light side of an `Asymmetric` process.
    Fence,
}

const ASYMMETRIC: u8 = 1;
const FENCE: u8 = 2;
/// Registered, but not every CPU knows it yet: the heavy side interrupts, the light side is a
/// fence.
const BECOMING_ASYMMETRIC: u8 = 3;

/// By reach. 0 (not registered) is treated as `FENCE` on the light side, which is safe and only
/// slower.
static MECHANISMS: [AtomicU8; 2] = [const { AtomicU8::new(0) }; 2];
static FENCED: AtomicU8 = AtomicU8::new(FENCE);

/// The light side of a barrier, looked up once and passed many times.
#[derive(Debug, Clone, Copy)]
pub struct Light(&'static AtomicU8);

impl Light {
    /// The light side for this reach.
    #[must_use]
    pub fn of(reach: BarrierReach) -> Light {
        Light(&MECHANISMS[reach as usize])
    }

    /// A light side that is always a fence, for participants some of which need one.
    #[must_use]
    pub fn fence() -> Light {
        Light(&FENCED)
    }

    /// Whether it is only a compiler fence. Once it is, it remains one.
    #[must_use]
    pub fn is_free(self) -> bool {
        self.0.load(Ordering::Relaxed) == ASYMMETRIC
    }

    /// See [`light`].
    #[inline(always)]
    pub fn pass(self) {
        // Relaxed: a thread that still sees an older value executes a fence.
        if self.0.load(Ordering::Relaxed) == ASYMMETRIC {
            // SYNC: pairs with `heavy` in any thread that the reach names.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SYNC: pairs with `heavy` in any thread.
            fence(Ordering::SeqCst);
        }
    }
}

/// Registers this process with the kernel, once; later calls return the same result.
///
/// It must have returned before the first [`light`] that another thread's [`heavy`] is to reach.
/// With [`BarrierReach::Machine`] the first call starts a thread, which forks a child, waits for it
/// and ends. The child copies the page tables, so call this before much memory is in use.
pub fn register(reach: BarrierReach) -> Mechanism {
    let known = &MECHANISMS[reach as usize];
    // SYNC: pairs with the Release store below; a second caller sees the registration done.
    match known.load(Ordering::Acquire) {
        ASYMMETRIC | BECOMING_ASYMMETRIC => return Mechanism::Asymmetric,
        FENCE => return Mechanism::Fence,
        _ => {}
    }
    let value = match (kernel::register(reach), reach) {
        (false, _) => FENCE,
        (true, BarrierReach::Process) => ASYMMETRIC,
        (true, BarrierReach::Machine) => BECOMING_ASYMMETRIC,
    };
    // SYNC: pairs with the Acquire load above.
    let first = known.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire);
    if first.is_ok() && value == BECOMING_ASYMMETRIC {
        kernel::visit_all_cpus(|| {
            // SYNC: pairs with the Acquire loads above and in `heavy`.
            MECHANISMS[BarrierReach::Machine as usize].store(ASYMMETRIC, Ordering::Release);
        });
    }
    register(reach)
}

/// The light side: a compiler fence if the kernel helps, otherwise a real fence.
#[inline(always)]
pub fn light(reach: BarrierReach) {
    Light::of(reach).pass();
}

/// The kernel refuses the heavy barrier, although it accepted the registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel refuses the memory barrier between threads that it granted before (membarrier: \
     OS error {0}); has a sandbox been entered since?"
)]
pub struct BarrierRefused(pub i32);

/// The heavy side: when it returns, all threads in `reach` have passed a full fence.
///
/// A system call with [`Mechanism::Asymmetric`] (see [the module](self)); otherwise a full fence,
/// which suffices only among processes whose light side is a fence too.
///
/// # Errors
/// The kernel refuses the call now, and a bounded number of retries did not help. Other threads may
/// not have passed a fence then: nothing may be concluded from later loads.
pub fn heavy(reach: BarrierReach) -> Result<(), BarrierRefused> {
    // SYNC: pairs with `light`.
    fence(Ordering::SeqCst);
    // SYNC: pairs with the exchange in `register`.
    let mechanism = MECHANISMS[reach as usize].load(Ordering::Acquire);
    if matches!(mechanism, ASYMMETRIC | BECOMING_ASYMMETRIC) {
        kernel::interrupt(reach)?;
    }
    // SYNC: pairs with `light`.
    fence(Ordering::SeqCst);
    Ok(())
}

/// Miri does not support the system call: both sides are fences.
#[cfg(miri)]
mod kernel {
    pub(super) fn register(_: super::BarrierReach) -> bool {
        false
    }

    pub(super) fn visit_all_cpus(_: impl FnOnce() + Send + 'static) {}

    pub(super) fn interrupt(_: super::BarrierReach) -> Result<(), super::BarrierRefused> {
        Ok(())
    }
}

#[cfg(not(miri))]
mod kernel {
    use super::{BarrierReach, BarrierRefused};
    use libc::{c_int, c_long};

    fn membarrier(command: c_int) -> c_long {
        // SAFETY: `membarrier` takes only integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    pub(super) fn register(reach: BarrierReach) -> bool {
        let (command, registration) = match reach {
            BarrierReach::Process => (
                libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
                libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
            ),
            BarrierReach::Machine => (
                libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
                libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
            ),
        };
        let known = membarrier(libc::MEMBARRIER_CMD_QUERY);
        known >= 0 && known & i64::from(command) != 0 && membarrier(registration) == 0
    }

    /// The number of retries if the call fails for lack of memory. The kernel needs some hundred
    /// bytes, so anybody who frees a page meanwhile ends the shortage.
    const TRIES: usize = 1_000;

    pub(super) fn interrupt(reach: BarrierReach) -> Result<(), BarrierRefused> {
        let command = match reach {
            BarrierReach::Process => libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
            BarrierReach::Machine => libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
        };
        for _ in 0..TRIES {
            if membarrier(command) == 0 {
                return Ok(());
            }
            let error = last_error();
            // The plain command needs no memory and orders even more, but takes milliseconds.
            if membarrier(libc::MEMBARRIER_CMD_GLOBAL) == 0 {
                return Ok(());
            }
            // A filter of system calls was installed after the registration; it is permanent.
            if error.0 != libc::ENOMEM {
                return Err(error);
            }
            std::thread::yield_now();
        }
        Err(BarrierRefused(libc::ENOMEM))
    }

    fn last_error() -> BarrierRefused {
        BarrierRefused(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Lets another process run on every CPU on which this one may run, and calls `visited`
    /// afterwards; never, if there can be no such process.
    pub(super) fn visit_all_cpus(visited: impl FnOnce() + Send + 'static) {
        let visit = move || {
            let cpus = possible_cpus();
            if close_all_of_this_thread() && all_were_visited(cpus) {
                visited();
            }
        };
        // If no thread can be started, fences remain. A thread needs little memory.
        let thread = std::thread::Builder::new().name("mneme-visit".to_owned());
        drop(thread.stack_size(128 << 10).spawn(visit));
    }

    /// Gives the calling thread an empty file table of its own, for a child to share. Locks on
    /// files show others which processes are alive. If the child inherited such a file and waited
    /// for its turn on some CPU, this process would seem alive until then, even after it was
    /// killed. Linux 5.9.
    fn close_all_of_this_thread() -> bool {
        const CLOSE_RANGE_UNSHARE: c_long = 2;
        // SAFETY: integers only. The files stay open in the process's other threads, and this one
        // uses none.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                0,
                c_long::from(u32::MAX),
                CLOSE_RANGE_UNSHARE,
            ) == 0
        }
    }

    fn all_were_visited(cpus: usize) -> bool {
        // File table and directory are shared, so the child neither opens nor closes anything; its
        // end raises no signal, so no signal handler of the program runs. The bare system call is
        // used because the C library's `fork` handlers are not meant for this child.
        let flags = libc::CLONE_FILES | libc::CLONE_FS;
        // SAFETY: without `CLONE_VM` and without a stack this is `fork`: the child continues with a
        // copy of this thread. The zeros are arguments that these flags do not use, in whichever
        // order the architecture has them.
        let child = unsafe { libc::syscall(libc::SYS_clone, c_long::from(flags), 0, 0, 0, 0) };
        match child {
            ..0 => false,
            0 => {
                visit(cpus);
                // SAFETY: ends only the child, without running any code of the program.
                unsafe { libc::_exit(0) }
            }
            _ => {
                wait_for(child as libc::pid_t);
                true
            }
        }
    }

    /// One more than the largest possible number of a CPU of this machine. If the kernel does not
    /// report it, the capacity of a CPU set, at a microsecond or two for each.
    fn possible_cpus() -> usize {
        let most = libc::CPU_SETSIZE as usize;
        let ranges = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        let last = ranges.ok().and_then(|ranges| {
            let last = ranges.trim().rsplit([',', '-']).next()?;
            last.parse::<usize>().ok()
        });
        last.map_or(most, |last| most.min(last + 1))
    }

    /// Runs in the child, a copy of one thread of several: only system calls are allowed.
    fn visit(cpus: usize) {
        // The child dies with the thread that waits for it. SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // If a CPU is offline or forbidden to the process, the call is refused, and the next is
        // tried.
        for cpu in 0..cpus {
            // SAFETY: a set of CPUs is plain words, and `cpu` is below its size.
            unsafe {
                let mut only: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut only);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only);
            }
        }
    }

    fn wait_for(child: libc::pid_t) {
        loop {
            // SAFETY: the status is not requested.
            let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
            // Any other error means that the program waits for all its children somewhere else, and
            // was faster.
            if waited >= 0
                || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
            {
                return;
            }
        }
    }
}
