//! Where the calling thread is.
//!
//! **A thread is inside of one segment at most, and holds its lock from `__enter__` to `__exit__`,
//! both in that thread.** A lock belongs to the thread that took it; the guard never leaves it, and
//! Python's object is only a number that means it. A thread that ends inside, or an object that is
//! given up without `__exit__`, leaves in the middle: what it could change is poisoned.

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

/// How many views of each array are alive.
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

    /// The arrays that have some.
    pub(crate) fn names(&self) -> Vec<String> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.keys().cloned().collect()
    }
}

/// Where a thread is.
struct Inside {
    id: u64,
    /// Dropped before what it is inside of.
    guard: SectionGuard<'static>,
    open: Arc<Open>,
    /// Views for writing.
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
    /// Without a destructor, so that it is there to the end; `ENDING` has one.
    static CURRENT: RefCell<ManuallyDrop<Option<Inside>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// First used when the thread is inside for the first time. Destructors run in the opposite
    /// order, so that its own finds what the crates below keep for the thread still there.
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

/// Enters; the number of the section.
pub(crate) fn enter(open: &Arc<Open>, access: Access) -> Result<u64, Failure> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        if current.is_some() {
            return Err(nested());
        }
        // SAFETY: `open` is kept with it and given up after it, here and in `Ending`.
        let guard = unsafe { open.attachment.switch_in(access) }?;
        ENDING.with(|_| ());
        // SAFETY: what it borrows lies in an `Arc`, does not move, and is given up later.
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

/// Leaves; the arrays of which there still are views for writing.
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

/// Calls `f` with the arrays of the segment that the thread is inside of by that section, and with
/// the counts of views for writing. `f` must not call Python.
pub(crate) fn within<R>(
    id: u64,
    f: impl FnOnce(&Directory<'_>, &Arc<Views>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(inside) if inside.id == id => f(&Directory::of(&inside.guard)?, &inside.views),
        _ => Err(elsewhere()),
    })
}

/// The segment that the thread is inside of by that section.
pub(crate) fn open_of(id: u64) -> Result<Arc<Open>, Failure> {
    CURRENT.with(|current| match current.borrow().as_ref() {
        Some(inside) if inside.id == id => Ok(Arc::clone(&inside.open)),
        _ => Err(elsewhere()),
    })
}

/// The section of this segment that the thread is inside of.
pub(crate) fn current(open: &Open) -> Option<u64> {
    CURRENT.with(|current| {
        let current = current.borrow();
        let inside = current.as_ref()?;
        (inside.open.segment.uuid() == open.segment.uuid()).then_some(inside.id)
    })
}
