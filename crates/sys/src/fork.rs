//! Detects `fork`, so that a child is never mistaken for its parent.
//!
//! A forked child has its parent's memory, descriptors and identities, but is not the process that
//! other participants know. [`generation`] counts the forks between the first process and this one.
//! Code that has identified itself to others remembers the number, and compares it before it acts
//! under that identity. Costs one relaxed load.
//!
//! The count is maintained by `pthread_atfork`, which a raw `clone` system call bypasses.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

/// Starts to detect forks of this process; later calls do nothing. [`generation`] is constant
/// before the first call.
pub fn watch() {
    WATCH.call_once(|| {
        #[cfg(not(miri))]
        // SAFETY: the handlers are functions of this program, live as long as it, and do only what
        // is allowed in the child of a threaded process: atomics, `close`, and a mutex held since
        // before the fork.
        unsafe {
            libc::pthread_atfork(
                Some(crate::liveness::before_fork),
                Some(crate::liveness::after_fork_in_parent),
                Some(in_child),
            );
        }
    });
}

/// Registers `also` to be called in each child that this process forks from now on, and in their
/// children: by the child's only thread, after [`generation`] was incremented and before `fork`
/// returns.
///
/// It may do only what is allowed in the child of a threaded process.
pub fn in_children(also: extern "C" fn()) {
    watch();
    #[cfg(not(miri))]
    // SAFETY: a function of this program, which lives as long as it and obeys the rule above.
    unsafe {
        libc::pthread_atfork(None, None, Some(also));
    }
    #[cfg(miri)]
    let _ = also;
}

/// Registers functions to be called around each fork from now on, in the thread that forks:
/// `before` it, and afterwards, even if it has failed, `in_parent` and `in_child`.
///
/// `before` and `in_parent` may do only what is allowed while any other thread holds any lock: they
/// must not wait for a lock under which a thread may fork. `in_child` may do only what is allowed
/// in the child of a threaded process.
pub fn around(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    watch();
    #[cfg(not(miri))]
    // SAFETY: functions of this program, which live as long as it and obey the rule above.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    }
    #[cfg(miri)]
    let _ = (before, in_parent, in_child);
}

/// The number of forks between the process that first called [`watch`] and this one.
#[inline]
pub fn generation() -> u32 {
    // Relaxed: it changes only in the child's only thread, before it returns from `fork`.
    GENERATION.load(Ordering::Relaxed)
}

/// A value that each process creates for itself and keeps until it ends, for instance a table
/// behind a lock.
///
/// **A forked child never touches its parent's value**, whose lock may be held by a thread that the
/// child does not have. For statics: an inherited value is never freed.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<(u32, T)>);

impl<T: Send + Sync> PerProcess<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// This process's value. If there is none, `make` creates it; its argument says whether a
    /// parent of this process has one. If several threads do so at once, all get the same value.
    pub fn get(&'static self, make: impl Fn(bool) -> T) -> &'static T {
        watch();
        let generation = generation();
        loop {
            // SYNC: pairs with the AcqRel exchange below.
            let found = self.0.load(Ordering::Acquire);
            // SAFETY: values stored there live for ever.
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
                // SAFETY: created above, and not visible to anybody else.
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
