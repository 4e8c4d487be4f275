//! State that pointer checks read without a call: the address range of segments, and a counter that
//! shows whether the thread has entered or left a section.
//!
//! **No segment has an address outside of the range**, and a thread's counter changes whenever it
//! enters or leaves a section.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock};

/// The address windows of the registries that this process has opened: start and end.
static WINDOWS: RwLock<Vec<(usize, usize)>> = RwLock::new(Vec::new());

/// The start and the end of the smallest range that contains all windows.
pub(crate) static BOUNDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

thread_local! {
    /// Has no destructor, so that its address is valid until the thread has ended.
    pub(crate) static SECTIONS: AtomicU64 = const { AtomicU64::new(1) };
}

/// Adds the window of a registry that was opened.
pub(crate) fn note_window((first, bytes): (usize, usize)) {
    let window = (first, first.saturating_add(bytes));
    let mut windows = WINDOWS.write().unwrap_or_else(PoisonError::into_inner);
    if windows.contains(&window) {
        return;
    }
    windows.push(window);
    let first = windows.iter().map(|window| window.0).min().unwrap_or(0);
    let end = windows.iter().map(|window| window.1).max().unwrap_or(0);
    // Relaxed: a thread with a pointer into a segment got it, with the necessary ordering, from a
    // thread that opened the registry.
    BOUNDS[0].store(first as u64, Relaxed);
    BOUNDS[1].store(end as u64, Relaxed);
}

/// Called when the calling thread has left a section, or is about to enter one.
pub(crate) fn note_section() {
    // Relaxed: only this thread uses the counter.
    let _ = SECTIONS.try_with(|sections| sections.fetch_add(1, Relaxed));
}

/// Whether an address can belong to a segment.
pub(crate) fn is_in_a_window(address: usize) -> bool {
    let windows = WINDOWS.read().unwrap_or_else(PoisonError::into_inner);
    windows
        .iter()
        .any(|&(first, end)| (first..end).contains(&address))
}
