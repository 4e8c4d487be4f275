//! The segments that this process has mapped, and each thread's **current section**: which of them
//! the thread is inside, and with which access. Entering a section sets it; leaving clears it, also
//! when the thread unwinds.
//!
//! A heap is a plain value that may be sent to other threads and be stored in the segment itself.
//! What the heap may do is decided only by the current section of the thread that calls it. If a
//! heap is used after its section, in a thread that does not hold the lock, or to change a segment
//! in a section that only reads, it returns an error.

use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mneme_sys::fork;

use crate::Uuid;
use crate::heap::HeapError;

/// How a segment grows.
pub(crate) trait Grow: Send + Sync {
    /// Makes the segment at least `wanted` bytes long and returns the new length. The new bytes are
    /// mapped where the segment is mapped.
    ///
    /// New bytes are zero.
    ///
    /// # Errors
    /// [`HeapError::Full`], or the operating system's error.
    fn extend(&self, wanted: usize) -> Result<usize, HeapError>;
}

/// A segment in a section. An attachment creates one for each of its segments and enters it many
/// times.
pub(crate) struct ProcessMapping {
    pub(crate) name: Box<str>,
    pub(crate) uuid: Uuid,
    /// The segment's address; its provenance covers the whole segment.
    pub(crate) base: NonNull<u8>,
    /// The length mapped, in bytes.
    pub(crate) len: AtomicUsize,
    /// Whether the segment's lock is held exclusively rather than shared.
    pub(crate) exclusive: bool,
    pub(crate) ground: Arc<dyn Grow>,
}

// SAFETY: the base is an address that is used only under the segment's lock.
unsafe impl Send for ProcessMapping {}
// SAFETY: as above.
unsafe impl Sync for ProcessMapping {}

impl fmt::Debug for ProcessMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessMapping")
            .field("name", &self.name)
            .field("base", &self.base)
            .field("len", &self.len())
            .field("exclusive", &self.exclusive)
            .finish_non_exhaustive()
    }
}

impl ProcessMapping {
    /// The length mapped, in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SYNC: pairs with the Release store in `set_len`: a thread that sees the length sees the
        // mapping.
        self.len.load(Ordering::Acquire)
    }

    /// Records that the segment has grown.
    pub(crate) fn set_len(&self, len: usize) {
        // SYNC: pairs with the Acquire load in `len`.
        self.len.fetch_max(len, Ordering::Release);
    }
}

#[derive(Clone, Copy)]
struct CurrentSection {
    first: *const ProcessMapping,
    count: usize,
    /// The mapping that was asked for last.
    last: *const ProcessMapping,
    /// Counts forks: a child that is forked in a section is in none.
    generation: u32,
}

const OUTSIDE: CurrentSection = CurrentSection {
    first: ptr::null(),
    count: 0,
    last: ptr::null(),
    generation: 0,
};

impl CurrentSection {
    #[inline]
    fn is_inside(self) -> bool {
        !self.first.is_null() && self.generation == fork::generation()
    }
}

thread_local! {
    static CURRENT: Cell<CurrentSection> = const { Cell::new(OUTSIDE) };
}

/// Clears the thread's current section when it is dropped.
pub(crate) struct SectionMark<'a> {
    _present: &'a [ProcessMapping],
}

impl Drop for SectionMark<'_> {
    fn drop(&mut self) {
        CURRENT.set(OUTSIDE);
    }
}

/// Sets the calling thread's current section; `None` if it is in a section already.
///
/// # Safety
/// The returned value must be dropped. Until then each of these segments must be mapped over its
/// length at its base, with its lock held: exclusively where `exclusive` says so.
pub(crate) unsafe fn mark(present: &[ProcessMapping]) -> Option<SectionMark<'_>> {
    if inside() {
        return None;
    }
    CURRENT.set(CurrentSection {
        first: present.as_ptr(),
        count: present.len(),
        last: present.as_ptr(),
        generation: fork::generation(),
    });
    Some(SectionMark { _present: present })
}

/// Whether the calling thread is in a section.
#[inline]
pub(crate) fn inside() -> bool {
    CURRENT.get().is_inside()
}

/// Calls `f` with the segment at `base`, if the calling thread is inside it.
#[inline]
pub(crate) fn with<R>(base: NonNull<u8>, f: impl FnOnce(&ProcessMapping) -> R) -> Option<R> {
    let mark = CURRENT.get();
    if !mark.is_inside() {
        return None;
    }
    let mut found = mark.last;
    // SAFETY: `last` is null or points into the slice, which lives as long as the current section:
    // `SectionMark` borrows it, and is dropped by this same thread.
    if mark.count == 0 || unsafe { (*found).base } != base {
        // SAFETY: as above.
        let all = unsafe { std::slice::from_raw_parts(mark.first, mark.count) };
        found = all.iter().find(|present| present.base == base)?;
        CURRENT.set(CurrentSection {
            last: found,
            ..mark
        });
    }
    // SAFETY: as above.
    Some(f(unsafe { &*found }))
}
