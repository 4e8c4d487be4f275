//! An asymmetric memory barrier between threads and processes: free on the side that runs all the
//! time, a system call on the side that runs seldom.
//!
//! A [`light`] barrier and a [`heavy`] barrier together order memory as two sequentially
//! consistent fences would. Store-then-load on either side (a reader publishes its pin, then
//! reads a pointer; a reclaimer unlinks, then reads the pins) can then never miss the other.
//!
//! How far the heavy side must [`BarrierReach`] is the caller's to say.
//! `membarrier(PRIVATE_EXPEDITED)` interrupts every CPU that runs a thread of this process,
//! `membarrier(GLOBAL_EXPEDITED)` every CPU that runs a registered process. Either takes 0.2 us
//! while nobody has to be interrupted, and microseconds for each CPU that has.
//!
//! **The kernel registers a process incompletely for the global form.** Whom to interrupt it takes
//! from a flag kept for each CPU, which it loads when a CPU changes from one process to another,
//! and which registering sets on the CPUs that run the process at that moment. A CPU that ran it
//! before and has idled since does neither: it goes back to the process without a change, its flag
//! still clear, and is interrupted by nobody until some other process has run there (seen on Linux
//! 6.18; `tests/registration.rs` shows it). Therefore [`register`] has another process, a child
//! that does nothing else, visit every CPU. Where others are at work the child waits for its turn,
//! milliseconds a CPU; nobody waits for the child: until it is back the light side of this process
//! is a fence, as it is where the kernel does not help.
//!
//! A process that cannot register (an old kernel, a sandbox) must [`register`] all the same and
//! gets [`Mechanism::Fence`]: its light side then issues a real fence, and it **must not
//! reclaim** on behalf of processes that are registered, since its heavy side reaches nobody.
//!
//! Neither loom nor shuttle models `membarrier`: the crates above test it by litmus.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// Whom a heavy barrier reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BarrierReach {
    /// The threads of this process.
    Process,
    /// Every process that is registered with this reach.
    Machine,
}

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
/// Registered, and not every CPU knows it: the heavy side interrupts, the light one fences.
const BECOMING_ASYMMETRIC: u8 = 3;

/// By reach. 0 (not registered) is treated as `FENCE` on the light side: safe, only slower.
static MECHANISMS: [AtomicU8; 2] = [const { AtomicU8::new(0) }; 2];
static FENCED: AtomicU8 = AtomicU8::new(FENCE);

/// The cheap side of a barrier, looked up once for all the times that it is passed.
#[derive(Debug, Clone, Copy)]
pub struct Light(&'static AtomicU8);

impl Light {
    /// That of this reach.
    #[must_use]
    pub fn of(reach: BarrierReach) -> Light {
        Light(&MECHANISMS[reach as usize])
    }

    /// A fence, whatever the kernel can do: for participants some of which need one.
    #[must_use]
    pub fn fence() -> Light {
        Light(&FENCED)
    }

    /// Whether it is a compiler fence. Once it is, it stays so.
    #[must_use]
    pub fn is_free(self) -> bool {
        self.0.load(Ordering::Relaxed) == ASYMMETRIC
    }

    /// See [`light`].
    #[inline(always)]
    pub fn pass(self) {
        // Relaxed: a thread that still sees an older value fences.
        if self.0.load(Ordering::Relaxed) == ASYMMETRIC {
            // SYNC: pairs with `heavy` in any thread that the reach names.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SYNC: pairs with `heavy` in any thread.
            fence(Ordering::SeqCst);
        }
    }
}

/// Registers this process with the kernel, once; later calls return the same answer.
///
/// Must have returned before the first [`light`] that another thread's [`heavy`] is to reach.
/// With [`BarrierReach::Machine`] the first call starts a thread, which forks a child, waits for it
/// and ends. The child copies the page tables, so the call is best made before much memory is in
/// use.
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

/// The cheap side: a compiler fence where the kernel helps, else a real fence.
#[inline(always)]
pub fn light(reach: BarrierReach) {
    Light::of(reach).pass();
}

/// The kernel refuses the heavy barrier that it granted when the process registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel refuses the memory barrier between threads that it granted before (membarrier: \
     OS error {0}); has a sandbox been entered since?"
)]
pub struct BarrierRefused(pub i32);

/// The dear side: on return, all threads that `reach` names have passed a full fence.
///
/// A system call with [`Mechanism::Asymmetric`] (see [the module](self)); else a full fence, which
/// suffices only among processes that fence on the light side too.
///
/// # Errors
/// The kernel does not grant the call any more, and a bounded number of tries did not help. Other
/// threads may have passed no fence then: nothing may be concluded from what is read afterwards.
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

/// Miri has no such system call: fences everywhere.
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
        // SAFETY: `membarrier` takes integers only and touches no memory of ours.
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

    /// Tries of an interruption that failed for lack of memory: the kernel asks for some hundred
    /// bytes, so whoever frees a page meanwhile ends the want.
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
            // The plain command needs no memory and orders more, in milliseconds.
            if membarrier(libc::MEMBARRIER_CMD_GLOBAL) == 0 {
                return Ok(());
            }
            // A filter of system calls that was installed after the registration: it stays.
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

    /// Has another process run on every CPU on which this one may run, and calls `visited` when it
    /// has; never, if there can be no such process.
    pub(super) fn visit_all_cpus(visited: impl FnOnce() + Send + 'static) {
        let visit = move || {
            let cpus = possible_cpus();
            if close_all_of_this_thread() && all_were_visited(cpus) {
                visited();
            }
        };
        // Fences remain if there can be no thread. It needs little memory.
        let thread = std::thread::Builder::new().name("mneme-visit".to_owned());
        drop(thread.stack_size(128 << 10).spawn(visit));
    }

    /// Gives the calling thread a table of files of its own, an empty one, for a child to share.
    /// Locks on files show others which processes live: were one of ours open in a child that waits
    /// for its turn on some CPU, this process would seem to live on until then, whenever it was
    /// killed. Linux 5.9.
    fn close_all_of_this_thread() -> bool {
        const CLOSE_RANGE_UNSHARE: c_long = 2;
        // SAFETY: integers only. The files stay open in the process' other threads, and this one
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
        // Files and directory are shared, so that nothing is opened or closed by the child; no
        // signal announces its end, so that no signal handler of the program runs. By the bare
        // system call: the C library's handlers of `fork` are not for this child.
        let flags = libc::CLONE_FILES | libc::CLONE_FS;
        // SAFETY: without `CLONE_VM` and with no stack given this is `fork`: the child goes on with
        // a copy of this thread. The zeros stand for arguments that these flags do not use, in
        // whichever order the architecture has them.
        let child = unsafe { libc::syscall(libc::SYS_clone, c_long::from(flags), 0, 0, 0, 0) };
        match child {
            ..0 => false,
            0 => {
                visit(cpus);
                // SAFETY: ends the child alone, running nothing of the program's.
                unsafe { libc::_exit(0) }
            }
            _ => {
                wait_for(child as libc::pid_t);
                true
            }
        }
    }

    /// One more than the greatest number that a CPU of this machine can have; that of all that a
    /// set of CPUs can name, at a microsecond or two each, where the kernel does not tell.
    fn possible_cpus() -> usize {
        let most = libc::CPU_SETSIZE as usize;
        let ranges = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        let last = ranges.ok().and_then(|ranges| {
            let last = ranges.trim().rsplit([',', '-']).next()?;
            last.parse::<usize>().ok()
        });
        last.map_or(most, |last| most.min(last + 1))
    }

    /// In the child, a copy of one thread of several: system calls only.
    fn visit(cpus: usize) {
        // It goes with the thread that waits for it.
        // SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // A CPU offline, or barred to the process: refused, and the next is tried.
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
            // SAFETY: no status is asked for.
            let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
            // Any other error: the program waits for all its children somewhere and was faster.
            if waited >= 0
                || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
            {
                return;
            }
        }
    }
}
