//! Safe code cannot reach the words of a segment's lock. If it could change them, two sections that
//! write could run side by side.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_space::Mapping;

fn break_the_lock(mapping: &Mapping) {
    let control = mapping.participants().region();
    for word in control.slice_at::<AtomicU64>(0, control.len() / 8).unwrap() {
        word.store(0, Relaxed);
    }
}

fn main() {}
