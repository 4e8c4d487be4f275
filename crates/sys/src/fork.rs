//! Notices `fork`, so that a child never takes itself for its parent.
//!
//! A forked child has its parent's memory, descriptors and identities, but is not the process
//! that other participants know. [`generation`] counts the forks between the first process and
//! this one: whoever remembers the number from the time it identified itself to others compares
//! it before it acts under that identity. One relaxed load.
//!
//! The count is kept by `pthread_atfork`, which a raw `clone` system call bypasses.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

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

/// Has `also` called in each child that this process forks from now on, and in theirs: by the
/// child's only thread, after [`generation`] was counted up and before `fork` returns.
///
/// It may do only what is allowed in the child of a threaded process.
pub fn in_children(also: extern "C" fn()) {
    watch();
    #[cfg(not(miri))]
    // SAFETY: a function of this program, which lives as long as it and does as is said above.
    unsafe {
        libc::pthread_atfork(None, None, Some(also));
    }
    #[cfg(miri)]
    let _ = also;
}

/// Has these called around each fork from now on, in the thread that forks: `before` it, and
/// behind it `in_parent`, also if it has failed, and `in_child`.
///
/// `before` and `in_parent` do only what is allowed while any other thread holds any lock: they
/// wait for none under which a thread may fork. `in_child` does only what is allowed in the child
/// of a threaded process.
pub fn around(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    watch();
    #[cfg(not(miri))]
    // SAFETY: functions of this program, which live as long as it and do as is said above.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    }
    #[cfg(miri)]
    let _ = (before, in_parent, in_child);
}

/// How many forks lie between this process and the one that first called [`watch`].
#[inline]
pub fn generation() -> u32 {
    // Relaxed: it changes only in the child's only thread, before it returns from `fork`.
    GENERATION.load(Ordering::Relaxed)
}

/// A value that each process makes for itself, and keeps to its end: a table behind a lock.
///
/// **A forked child never touches its parent's**, whose lock may be held by a thread that the child
/// does not have. For statics: what a child has inherited is not given back.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<(u32, T)>);

impl<T: Send + Sync> PerProcess<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process. If there is none, `make` makes it; its argument says whether a
    /// parent of the process has one. Of several threads that do so at once, all get one's.
    pub fn get(&'static self, make: impl Fn(bool) -> T) -> &'static T {
        watch();
        let generation = generation();
        loop {
            // SYNC: pairs with the AcqRel exchange below.
            let found = self.0.load(Ordering::Acquire);
            // SAFETY: what is stored there lives for ever.
            if let Some((of, value)) = unsafe { found.as_ref() }
                && *of == generation
            {
                return value;
            }
            let fresh = Box::into_raw(Box::new((generation, make(!found.is_null()))));
            // SYNC: pairs with the Acquire load above.
            let exchange =
                self.0
                    .compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire);
            if exchange.is_err() {
                // SAFETY: made above and seen by nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(miri))]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::liveness::after_fork_in_child();
}
