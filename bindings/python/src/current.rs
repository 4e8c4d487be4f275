//! The state of the calling thread: the section it is in.
//!
//! **A thread is in at most one section, and holds the segment's lock from `__enter__` to
//! `__exit__`, both of which it must call itself.** A lock belongs to the thread that took it, so
//! the guard stays in that thread, and the Python object has only its number. If a thread ends
//! inside, or the object is dropped without `__exit__`, the change may be incomplete, and the
//! segment is poisoned if the thread could write it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use mneme_space::SectionGuard;
use mneme_sys::Access;

use crate::directory::Directory;
use crate::errors::{Failure, Reason, failure};
use crate::opened::Open;

/// The number of live views of each array.
#[derive(Default)]
pub(crate) struct Views(Mutex<BTreeMap<String, usize>>);

impl Views {
    pub(crate) fn add(&self, name: &str) {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *views.entry(name.to_owned()).or_default() += 1;
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = views.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                views.remove(name);
            }
        }
    }

    /// The arrays that have live views.
    pub(crate) fn names(&self) -> Vec<String> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.keys().cloned().collect()
    }
}

/// The section that a thread is in.
struct Inside {
    id: u64,
    /// Declared first: dropped before the segment that it borrows.
    guard: SectionGuard<'static>,
    open: Arc<Open>,
    /// The views for writing that were made in the section.
    views: Arc<Views>,
}

impl Inside {
    fn leave(self, whole: bool) {
        if whole {
            drop(self.guard);
        } else {
            self.guard.abandon();
        }
        drop(self.open);
    }
}

thread_local! {
    /// Has no destructor, so that it exists until the thread has ended; `ENDING` has one.
    static CURRENT: RefCell<ManuallyDrop<Option<Inside>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// First used when the thread first enters a section. Since destructors run in the opposite
    /// order, this one runs while the thread-local state of the crates below still exists.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| {
            if let Ok(mut current) = current.try_borrow_mut()
                && let Some(inside) = current.take()
            {
                inside.leave(false);
            }
        });
    }
}

/// Enters a section; returns its number.
pub(crate) fn enter(open: &Arc<Open>, access: Access) -> Result<u64, Failure> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        if current.is_some() {
            return Err(nested());
        }
        // SAFETY: `open` is stored beside the guard and dropped after it, here and in `Ending`.
        let guard = unsafe { open.attachment.switch_in(access) }?;
        ENDING.with(|_| ());
        // SAFETY: the guard borrows from an `Arc`'s contents, which do not move and are dropped
        // later.
        let guard =
            unsafe { std::mem::transmute::<SectionGuard<'_>, SectionGuard<'static>>(guard) };
        let id = NEXT.fetch_add(1, Relaxed);
        **current = Some(Inside {
            id,
            guard,
            open: Arc::clone(open),
            views: Arc::default(),
        });
        Ok(id)
    })
}

fn nested() -> Failure {
    let text = "this thread is inside of a section already: end that one first";
    failure(Reason::Nested, text)
}

fn elsewhere() -> Failure {
    let text = "this thread is not inside of that section: a section is entered, used and left \
                by one thread, in a `with` block";
    failure(Reason::Nested, text)
}

/// Leaves the section; returns the arrays that still have views for writing.
pub(crate) fn leave(id: u64, whole: bool) -> Result<Vec<String>, Failure> {
    let inside = CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        match current.as_ref() {
            Some(inside) if inside.id == id => current.take().ok_or_else(elsewhere),
            _ => Err(elsewhere()),
        }
    })?;
    let names = inside.views.names();
    inside.leave(whole);
    Ok(names)
}

/// Calls `f` with the arrays of the section's segment, and with the counts of views for writing.
/// `f` must not call Python. Fails if the thread is not in that section.
pub(crate) fn within<R>(
    id: u64,
    f: impl FnOnce(&Directory<'_>, &Arc<Views>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(inside) if inside.id == id => f(&Directory::of(&inside.guard)?, &inside.views),
        _ => Err(elsewhere()),
    })
}

/// The section's segment. Fails if the thread is not in that section.
pub(crate) fn open_of(id: u64) -> Result<Arc<Open>, Failure> {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(inside) if inside.id == id => Ok(Arc::clone(&inside.open)),
        _ => Err(elsewhere()),
    })
}

/// The number of the section of this segment that the thread is in, if it is in one.
pub(crate) fn current(open: &Open) -> Option<u64> {
    CURRENT.with(|current| {
        let current = current.borrow();
        let inside = current.as_ref()?;
        (inside.open.segment.uuid() == open.segment.uuid()).then_some(inside.id)
    })
}
