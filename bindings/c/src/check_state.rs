//! What checks of pointers look at without a call: where segments can be, and whether the thread
//! has entered or left a section since.
//!
//! **No address outside of the bounds is one of a segment**, and the count of sections changes with
//! each section of its thread.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock};

/// The windows of the registries that this process has opened: first addresses and ends.
static WINDOWS: RwLock<Vec<(usize, usize)>> = RwLock::new(Vec::new());

/// The least range with all of them: its first address, and its end.
pub(crate) static BOUNDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

thread_local! {
    /// Without a destructor, so that its address is good until the thread has ended.
    pub(crate) static SECTIONS: AtomicU64 = const { AtomicU64::new(1) };
}

/// A registry was opened.
pub(crate) fn note_window((first, bytes): (usize, usize)) {
    let window = (first, first.saturating_add(bytes));
    let mut windows = WINDOWS.write().unwrap_or_else(PoisonError::into_inner);
    if windows.contains(&window) {
        return;
    }
    windows.push(window);
    let first = windows.iter().map(|window| window.0).min().unwrap_or(0);
    let end = windows.iter().map(|window| window.1).max().unwrap_or(0);
    // Relaxed: a thread that has a pointer into a segment got it from one that saw the registry
    // opened.
    BOUNDS[0].store(first as u64, Relaxed);
    BOUNDS[1].store(end as u64, Relaxed);
}

/// The calling thread has left a section, or is about to begin one.
pub(crate) fn note_section() {
    // Relaxed: of one thread.
    let _ = SECTIONS.try_with(|sections| sections.fetch_add(1, Relaxed));
}

/// Whether an address may be one of a segment.
pub(crate) fn is_in_a_window(address: usize) -> bool {
    let windows = WINDOWS.read().unwrap_or_else(PoisonError::into_inner);
    windows
        .iter()
        .any(|&(first, end)| (first..end).contains(&address))
}
