//! Named fault points at which a test may stop a thread or kill the process.
//!
//! Code that must survive a death marks each step: `mneme_sys::fault!("log.reserve.header")`.
//! Without the crate's feature `fault` the macro expands to `if false`, and leaves no trace in the
//! program. With it, a test arms one name for one thread:
//!
//! * [`Action::Abandon`]: the thread stops there for ever. It never unwinds and runs no destructor,
//!   so its locks, pins and claims remain as after a death, while the test continues in the same
//!   process;
//! * [`Action::Kill`]: the process kills itself with SIGKILL;
//! * [`Action::Call`]: a closure runs there, to interleave threads or to wait.
//!
//! Arming is by thread, so that tests run in parallel.
//!
//! A test can also leave out one step of a protocol, to verify that the crash tests notice: the
//! code calls [`without`], and the test calls `leave_out`.

use std::sync::Arc;

/// Whether the feature `fault` is on; the macro [`fault!`](crate::fault!) checks this constant.
pub const ENABLED: bool = cfg!(feature = "fault");

/// Marks a fault point; see [the module](mod@crate::fault). Free without the feature `fault`.
#[macro_export]
macro_rules! fault {
    ($name:expr) => {
        if $crate::fault::ENABLED {
            $crate::fault::reach($name);
        }
    };
}

/// The action at an armed fault point.
#[derive(Clone)]
pub enum Action {
    /// The thread parks for ever; `run` returns.
    Abandon,
    /// The process is killed by SIGKILL.
    Kill,
    /// The closure is called, then the thread continues.
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Abandon => "Abandon",
            Self::Kill => "Kill",
            Self::Call(_) => "Call",
        })
    }
}

/// The end of a thread that `run` started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It reached the armed fault point and stays there for ever.
    Abandoned,
    /// It did not reach the fault point that often, and returned this.
    Finished(T),
    /// It panicked before that.
    Panicked,
}

#[cfg(feature = "fault")]
pub use armed::{arm, disarm, discard, leave_out, named_in, passed, reach, reached, run};

/// Whether the calling thread leaves out `step`. Never without the feature `fault`.
#[inline(always)]
#[must_use]
pub fn without(step: &str) -> bool {
    #[cfg(feature = "fault")]
    return armed::is_left_out(step);
    #[cfg(not(feature = "fault"))]
    {
        let _ = step;
        false
    }
}

/// The macro's target if the feature is off. Never called.
#[cfg(not(feature = "fault"))]
#[inline(always)]
pub fn reach(_name: &'static str) {}

#[cfg(feature = "fault")]
mod armed {
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeMap, BTreeSet};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Sender, channel};
    use std::{fs, io};

    use super::{Action, Outcome};

    struct Armed {
        name: String,
        action: Action,
        /// The number of times that the fault point has yet to be passed before the action, plus
        /// one.
        left: u64,
    }

    thread_local! {
        /// Whether this thread has armed a fault point or asked what it has passed. All others pass
        /// the points at the cost of this look.
        static TAKES_PART: Cell<bool> = const { Cell::new(false) };
        static ARMED: RefCell<Vec<Armed>> = const { RefCell::new(Vec::new()) };
        static FIRED: Cell<u64> = const { Cell::new(0) };
        /// The step that this thread leaves out.
        static LEFT_OUT: Cell<&'static str> = const { Cell::new("") };
        /// The names that this thread has reached, with the number of times.
        static PASSED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
        /// Called when the thread is abandoned.
        static TELL: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    }

    /// Arms `name` in the calling thread: when it is reached for the `nth` time from now on (1 is
    /// the next), `action` happens, once. Several fault points may be armed together.
    pub fn arm(name: &str, action: Action, nth: u64) {
        TAKES_PART.set(true);
        ARMED.with_borrow_mut(|armed| {
            armed.push(Armed {
                name: name.to_owned(),
                action,
                left: nth.max(1),
            });
        });
    }

    /// Makes the calling thread leave out `step`; "" restores all steps.
    pub fn leave_out(step: &'static str) {
        LEFT_OUT.set(step);
    }

    #[inline(always)]
    pub(super) fn is_left_out(step: &str) -> bool {
        LEFT_OUT.get() == step
    }

    /// Disarms all fault points in the calling thread.
    pub fn disarm() {
        ARMED.with_borrow_mut(Vec::clear);
    }

    /// How many armed actions have happened in the calling thread.
    pub fn reached() -> u64 {
        FIRED.get()
    }

    /// All names that the calling thread has reached since it first armed a fault point or called
    /// this, sorted, each with its count.
    pub fn passed() -> Vec<(&'static str, u64)> {
        TAKES_PART.set(true);
        PASSED.with_borrow(|passed| passed.iter().map(|(name, n)| (*name, *n)).collect())
    }

    /// The names that are marked in a folder of sources, at any depth, so that a test can check
    /// that it covers them.
    ///
    /// # Errors
    /// Something there cannot be read, or is not text.
    pub fn named_in(sources: impl AsRef<Path>) -> io::Result<BTreeSet<String>> {
        let mut named = BTreeSet::new();
        let mut folders: Vec<PathBuf> = vec![sources.as_ref().into()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(path)?;
                let places = text.split("fault!(\"").skip(1);
                named.extend(places.filter_map(|rest| rest.split('"').next().map(str::to_owned)));
            }
        }
        Ok(named)
    }

    /// The macro's target.
    #[inline]
    pub fn reach(name: &'static str) {
        if TAKES_PART.get() {
            take_part(name);
        }
    }

    #[cold]
    fn take_part(name: &'static str) {
        // A thread that runs its last destructors is not counted.
        let _ = PASSED.try_with(|passed| {
            if let Ok(mut passed) = passed.try_borrow_mut() {
                *passed.entry(name).or_insert(0) += 1;
            }
        });
        // A thread that runs its last destructors has nothing armed.
        let action = ARMED.try_with(|armed| {
            let mut armed = armed.try_borrow_mut().ok()?;
            let mut due = None;
            for (i, a) in armed.iter_mut().enumerate() {
                if a.name == name {
                    a.left -= 1;
                    if a.left == 0 && due.is_none() {
                        due = Some(i);
                    }
                }
            }
            due.map(|i| armed.swap_remove(i).action)
        });
        let Ok(Some(action)) = action else { return };
        FIRED.set(FIRED.get() + 1);
        match action {
            Action::Abandon => abandon(),
            Action::Kill => kill(),
            Action::Call(call) => call(),
        }
    }

    fn abandon() -> ! {
        TELL.with_borrow(|tell| {
            if let Some(tell) = tell {
                tell();
            }
        });
        loop {
            std::thread::park();
        }
    }

    fn kill() -> ! {
        // SAFETY: signals this process; nothing of it runs afterwards.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        // The signal is on its way.
        loop {
            std::thread::park();
        }
    }

    /// Frees the memory of a file, which abandoned threads that map it would otherwise keep for the
    /// life of the process. Its bytes are zero from now on.
    ///
    /// # Errors
    /// The file is not in memory, or `bytes` is larger than a file can be.
    pub fn discard(file: &OwnedFd, bytes: usize) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a system call on an open descriptor; the memory stays mapped and readable.
        match unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Runs `work` in a new thread with `name` armed (as by [`arm`]) and waits until it returns or
    /// is abandoned. An abandoned thread, its stack and what `work` captured remain for the life of
    /// the process.
    pub fn run<T: Send + 'static>(
        name: &str,
        action: Action,
        nth: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Outcome<T> {
        let (send, receive) = channel();
        let name = name.to_owned();
        let started = std::thread::Builder::new().spawn(move || {
            let tell: Sender<Outcome<T>> = send.clone();
            TELL.set(Some(Box::new(move || {
                // If nobody waits any more, nobody needs to know.
                let _ = tell.send(Outcome::Abandoned);
            })));
            arm(&name, action, nth);
            let result = work();
            disarm();
            let _ = send.send(Outcome::Finished(result));
        });
        if started.is_err() {
            return Outcome::Panicked;
        }
        // All senders are gone without a message: the thread unwound.
        receive.recv().unwrap_or(Outcome::Panicked)
    }
}
