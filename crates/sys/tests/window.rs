//! A window of fixed addresses as the registry of segments relies on it: nobody else comes in, what
//! lies there grows in place, and what leaves it leaves no hole.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::mapped;
use mneme_sys::{Access, FRAME, PagePolicy, Region, RegionError, Reserve, Window, WindowError};

const GIB: usize = 1 << 30;

/// A window of 4 GiB that no other test has.
fn window(number: usize) -> Window {
    Window::reserve(0x2100_0000_0000 + number * (4 * GIB), 4 * GIB).unwrap()
}

fn memory() -> Region {
    Region::memfd("mneme-window", FRAME, GIB, PagePolicy::Small).unwrap()
}

fn map(memory: &Region, access: Access, window: &Window, at: usize) -> Result<Region, RegionError> {
    let fd = memory.duplicate_fd().unwrap().unwrap();
    let lazy = Reserve::Lazy;
    Region::map_at(fd, access, GIB, PagePolicy::Small, lazy, window, at)
}

#[test]
fn a_region_lies_where_the_caller_says_and_grows_there() {
    let window = window(0);
    let at = window.base() + GIB;
    let memory = memory();
    let here = map(&memory, Access::ReadWrite, &window, at).unwrap();
    assert_eq!(here.base().addr(), at);
    here.at::<AtomicU64>(8).unwrap().store(7, Ordering::Relaxed);
    here.grow(4 * FRAME).unwrap();
    let word = here.at::<AtomicU64>(4 * FRAME as u64 - 8).unwrap();
    word.store(9, Ordering::Relaxed);
    assert_eq!(memory.refresh().unwrap(), 4 * FRAME);
    assert_eq!(memory.load_u64(8).unwrap(), 7);
    assert_eq!(memory.load_u64(4 * FRAME as u64 - 8).unwrap(), 9);
    // The other way round: it follows.
    memory.grow(5 * FRAME).unwrap();
    assert_eq!(here.refresh().unwrap(), 5 * FRAME);
}

#[test]
fn a_region_that_leaves_the_window_leaves_its_reservation() {
    let window = window(1);
    let (start, end) = (window.base(), window.base() + window.len());
    assert!(mapped(start, end).iter().all(|kind| kind == "---p"));
    let memory = memory();
    let here = map(&memory, Access::ReadWrite, &window, start + GIB).unwrap();
    here.grow(8 * FRAME).unwrap();
    assert_eq!(mapped(start, end), ["---p", "rw-s", "---p"]);
    drop(here);
    assert!(mapped(start, end).iter().all(|kind| kind == "---p"));
    // And the place can be had again, also for reading alone.
    let here = map(&memory, Access::ReadOnly, &window, start + GIB).unwrap();
    assert_eq!(mapped(start, end), ["---p", "r--s", "---p"]);
    // The window stays as long as something is inside.
    drop(window);
    assert_eq!(here.refresh().unwrap(), 8 * FRAME);
    assert_eq!(mapped(start, end), ["---p", "r--s", "---p"]);
    drop(here);
    assert_eq!(mapped(start, end), ["hole"]);
}

#[test]
fn places_are_refused_that_overlap_or_leave_the_window() {
    let window = window(2);
    let memory = memory();
    let base = window.base();
    let at = |address| map(&memory, Access::ReadWrite, &window, address);
    let first = at(base + GIB).unwrap();
    for taken in [
        base + GIB,
        base + GIB + FRAME,
        base + FRAME,
        base + 2 * GIB - FRAME,
    ] {
        let refused = at(taken).unwrap_err();
        assert!(matches!(refused, RegionError::Place { why, .. } if why.contains("another")));
    }
    // Neighbours touch and do not overlap.
    let neighbours = (at(base).unwrap(), at(base + 2 * GIB).unwrap());
    for outside in [
        base - GIB,
        base + 3 * GIB + FRAME,
        base + 4 * GIB,
        0,
        usize::MAX,
    ] {
        let refused = at(outside).unwrap_err();
        assert!(matches!(refused, RegionError::Place { why, .. } if why.contains("inside")));
    }
    let crooked = at(base + 3 * GIB - 4096).unwrap_err();
    assert!(matches!(crooked, RegionError::Place { .. }));
    drop((first, neighbours));
    at(base + GIB).unwrap();
}

#[test]
fn a_window_is_in_user_space() {
    let window = window(5);
    assert!(Window::is_in_user_space(window.base()));
    assert!(Window::is_in_user_space(window.base() + window.len()));
    assert!(!Window::is_in_user_space(1 << 62));
}

#[test]
fn a_range_that_is_not_free_is_not_taken() {
    let window = window(3);
    let (base, len) = (window.base(), window.len());
    for (start, bytes) in [(base, len), (base + FRAME, FRAME), (base - GIB, 2 * GIB)] {
        let refused = Window::reserve(start, bytes).unwrap_err();
        assert!(matches!(refused, WindowError::Conflict { what, .. } if what.contains("---p")));
    }
    // A word of this test's own memory: nothing is replaced.
    let mine = Box::new(5u64);
    let around = (&raw const *mine).addr() / FRAME * FRAME;
    let refused = Window::reserve(around, FRAME).unwrap_err();
    assert!(matches!(refused, WindowError::Conflict { .. }), "{refused}");
    assert_eq!(*std::hint::black_box(mine), 5);
    drop(window);
    Window::reserve(base, len).unwrap();
}

#[test]
fn impossible_windows_are_refused() {
    for (base, len) in [
        (0, FRAME),
        (FRAME, 0),
        (FRAME + 1, FRAME),
        (FRAME, 4096),
        (usize::MAX - FRAME + 1, FRAME),
        (1 << 40, (1 << 46) + FRAME),
    ] {
        let refused = Window::reserve(base, len).unwrap_err();
        assert!(
            matches!(refused, WindowError::Bounds { .. }),
            "{base:#x} {len:#x}: {refused}"
        );
    }
    // Beyond what user space has.
    let refused = Window::reserve(1 << 62, FRAME).unwrap_err();
    assert!(matches!(refused, WindowError::Reserve { .. }), "{refused}");
}

#[test]
fn a_reader_that_may_write_becomes_a_writer_in_place() {
    let window = window(4);
    let memory = memory();
    let here = map(&memory, Access::ReadOnly, &window, window.base()).unwrap();
    assert!(matches!(
        here.at::<AtomicU64>(0),
        Err(RegionError::ReadOnly)
    ));
    assert!(matches!(here.grow(GIB), Err(RegionError::ReadOnly)));
    here.permit_writes().unwrap();
    here.at::<AtomicU64>(0).unwrap().store(3, Ordering::Relaxed);
    here.grow(2 * FRAME).unwrap();
    let end = here.at::<AtomicU64>(2 * FRAME as u64 - 8).unwrap();
    end.store(4, Ordering::Relaxed);
    assert_eq!(memory.load_u64(0).unwrap(), 3);
}
