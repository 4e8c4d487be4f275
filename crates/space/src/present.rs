//! Which segments the calling thread is inside of, and how: the thread's **mark**, set by entering a section and taken
//! back by leaving it, also when it unwinds.
//!
//! A heap is a plain value that may travel to other threads and lie in the segment itself; what it may do is decided by
//! the mark alone. So a heap cannot be used after its section, in a thread that does not hold the lock, or in a section
//! that only reads: there is no mark that says so, and the heap answers with an error.

use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mneme_sys::fork;

use crate::Uuid;
use crate::heap::HeapError;

/// What a segment grows into.
pub(crate) trait Ground: Send + Sync {
    /// Makes the segment `wanted` bytes long, or somewhat longer; its new length, mapped where the segment is mapped.
    ///
    /// New bytes are zero.
    ///
    /// # Errors
    /// [`HeapError::Full`] or the operating system's reason.
    fn extend(&self, wanted: usize) -> Result<usize, HeapError>;
}

/// A segment as a section has it. One of each attachment's segments, made once and entered often.
pub(crate) struct Present {
    pub(crate) name: Box<str>,
    pub(crate) uuid: Uuid,
    /// Where it lies; with leave to access all of it.
    pub(crate) base: NonNull<u8>,
    /// Bytes mapped there.
    pub(crate) len: AtomicUsize,
    /// Its lock is held exclusively, not shared.
    pub(crate) exclusive: bool,
    pub(crate) ground: Arc<dyn Ground>,
}

// SAFETY: the base is an address that is used under the segment's lock alone.
unsafe impl Send for Present {}
// SAFETY: as above.
unsafe impl Sync for Present {}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present")
            .field("name", &self.name)
            .field("base", &self.base)
            .field("len", &self.len())
            .field("exclusive", &self.exclusive)
            .finish_non_exhaustive()
    }
}

impl Present {
    /// Bytes mapped.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SYNC: pairs with the Release store in `set_len`: who sees the length sees the mapping.
        self.len.load(Ordering::Acquire)
    }

    /// The segment has grown.
    pub(crate) fn set_len(&self, len: usize) {
        // SYNC: pairs with the Acquire load in `len`.
        self.len.fetch_max(len, Ordering::Release);
    }
}

#[derive(Clone, Copy)]
struct Mark {
    first: *const Present,
    count: usize,
    /// The one that was asked for last.
    last: *const Present,
    /// Of forks: a child that is born in a section is in none.
    generation: u32,
}

const OUTSIDE: Mark = Mark {
    first: ptr::null(),
    count: 0,
    last: ptr::null(),
    generation: 0,
};

impl Mark {
    #[inline]
    fn is_inside(self) -> bool {
        !self.first.is_null() && self.generation == fork::generation()
    }
}

thread_local! {
    static MARK: Cell<Mark> = const { Cell::new(OUTSIDE) };
}

/// Takes the mark back when it is dropped.
pub(crate) struct Marked<'a> {
    _present: &'a [Present],
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        MARK.set(OUTSIDE);
    }
}

/// Marks the calling thread as inside of `present`; `None` if it is in a section already.
///
/// # Safety
/// Until the returned value is dropped, which must happen, each of these segments must be mapped over its length at its
/// base, and its lock held: exclusively where it says so.
pub(crate) unsafe fn mark(present: &[Present]) -> Option<Marked<'_>> {
    if inside() {
        return None;
    }
    MARK.set(Mark {
        first: present.as_ptr(),
        count: present.len(),
        last: present.as_ptr(),
        generation: fork::generation(),
    });
    Some(Marked { _present: present })
}

/// Whether the calling thread is in a section.
#[inline]
pub(crate) fn inside() -> bool {
    MARK.get().is_inside()
}

/// Calls `f` with the segment at `base`, if the calling thread is inside of it.
#[inline]
pub(crate) fn with<R>(base: NonNull<u8>, f: impl FnOnce(&Present) -> R) -> Option<R> {
    let mark = MARK.get();
    if !mark.is_inside() {
        return None;
    }
    let mut found = mark.last;
    // SAFETY: `last` is null or one of the slice, which lives as long as the mark: `Marked` borrows it, and is dropped
    // by this thread, which is here.
    if mark.count == 0 || unsafe { (*found).base } != base {
        // SAFETY: as above.
        let all = unsafe { std::slice::from_raw_parts(mark.first, mark.count) };
        found = all.iter().find(|present| present.base == base)?;
        MARK.set(Mark {
            last: found,
            ..mark
        });
    }
    // SAFETY: as above.
    Some(f(unsafe { &*found }))
}
