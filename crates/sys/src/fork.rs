//! Notices `fork`, so that a child never takes itself for its parent.
//!
//! A forked child has its parent's memory, descriptors and identities, but is not the process
//! that other participants know. [`generation`] counts the forks between the first process and
//! this one: whoever remembers the number from the time it identified itself to others compares
//! it before it acts under that identity. One relaxed load.
//!
//! The count is kept by `pthread_atfork`, which a raw `clone` system call bypasses.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

/// Starts to notice forks of this process; later calls do nothing. [`generation`] is constant
/// before the first call.
pub fn watch() {
    WATCH.call_once(|| {
        #[cfg(not(miri))]
        // SAFETY: the handlers are functions of this program, live as long as it, and do only
        // what is allowed in the child of a threaded process: atomics, `close`, a mutex held
        // since before the fork.
        unsafe {
            libc::pthread_atfork(
                Some(crate::liveness::before_fork),
                Some(crate::liveness::after_fork_in_parent),
                Some(in_child),
            );
        }
    });
}

/// How many forks lie between this process and the one that first called [`watch`].
#[inline]
pub fn generation() -> u32 {
    // Relaxed: it changes only in the child's only thread, before it returns from `fork`.
    GENERATION.load(Ordering::Relaxed)
}

#[cfg(not(miri))]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::liveness::after_fork_in_child();
}
