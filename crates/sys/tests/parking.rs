//! Two regions may claim one place of a window and have it in turns: neither loses anything, and
//! what is not there cannot be touched by safe code.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

mod common;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::mapped;
use mneme_sys::{Access, FRAME, PagePolicy, Region, RegionError, Reserve, Window};

const GIB: usize = 1 << 30;

/// A window of 4 GiB that no other test has.
fn window(number: usize) -> Window {
    Window::reserve(0x2180_0000_0000 + number * (4 * GIB), 4 * GIB).unwrap()
}

fn memory(frames: usize, pages: PagePolicy) -> Region {
    Region::memfd("mneme-parking", frames * FRAME, GIB, pages).unwrap()
}

type MapAt = fn(
    std::os::fd::OwnedFd,
    Access,
    usize,
    PagePolicy,
    Reserve,
    &Window,
    usize,
) -> Result<Region, RegionError>;

fn lay(how: MapAt, of: &Region, window: &Window, pages: PagePolicy) -> Result<Region, RegionError> {
    let fd = of.duplicate_fd().unwrap().unwrap();
    let (access, lazy) = (Access::ReadWrite, Reserve::Lazy);
    how(fd, access, GIB, pages, lazy, window, window.base() + GIB)
}

/// Writes into every page, in a way that `seed` determines.
fn fill(region: &Region, seed: u64) {
    let words = region.slice_at::<AtomicU64>(0, region.len() / 8).unwrap();
    for at in (0..words.len()).step_by(512) {
        words[at].store(seed ^ at as u64, Relaxed);
    }
}

#[track_caller]
fn assert_filled(region: &Region, len: usize, seed: u64) {
    assert_eq!(region.len(), len);
    let words = region.slice_at::<AtomicU64>(0, len / 8).unwrap();
    for at in (0..words.len()).step_by(512) {
        assert_eq!(words[at].load(Relaxed), seed ^ at as u64);
    }
}

#[test]
fn two_regions_have_one_place_in_turns() {
    let whole: fn() -> Window = || Window::reserve_units(0x2190_0000_0000, 4 * GIB, GIB).unwrap();
    type Kind = (fn() -> Window, PagePolicy, &'static [&'static str]);
    let kinds: [Kind; 3] = [
        (|| window(0), PagePolicy::Small, &["rw-s", "---p"]),
        (|| window(1), PagePolicy::Thp, &["rw-s", "---p"]),
        // In units of 1 GiB all of the place is mapped at once.
        (whole, PagePolicy::Small, &["rw-s"]),
    ];
    for (window, pages, when_mapped) in kinds {
        let window = window();
        let place = window.base() + GIB;
        let (first, second) = (memory(3, pages), memory(1, pages));
        let a = lay(Region::map_at, &first, &window, pages).unwrap();
        assert!(matches!(
            lay(Region::map_at, &second, &window, pages),
            Err(RegionError::Place { .. })
        ));
        let b = lay(Region::map_parked, &second, &window, pages).unwrap();
        b.dont_fork().unwrap();
        fill(&a, 1);
        fill(&second, 2);
        for _ in 0..3 {
            assert!(b.is_parked() && !a.is_parked());
            assert_eq!((a.base().addr(), b.base().addr()), (place, place));
            // What is not there cannot be reached, and cannot come while another has the place.
            assert_eq!(b.len(), 0);
            assert!(matches!(
                b.load_u64(0),
                Err(RegionError::OutOfBounds { .. })
            ));
            assert!(matches!(b.grow(2 * FRAME), Err(RegionError::Parked)));
            assert!(matches!(b.refresh(), Err(RegionError::Parked)));
            assert!(matches!(b.sync(), Err(RegionError::Parked)));
            assert!(matches!(b.unpark(), Err(RegionError::Place { .. })));
            assert_filled(&a, 3 * FRAME, 1);

            // SAFETY: nobody uses the region until it is back.
            unsafe { a.park() }.unwrap();
            assert_eq!(mapped(window.base(), place + GIB), ["---p"]);
            b.unpark().unwrap();
            assert_filled(&b, FRAME, 2);
            assert_eq!(mapped(place, place + GIB), when_mapped);
            // SAFETY: as above.
            unsafe { b.park() }.unwrap();
            a.unpark().unwrap();
        }
        // A longer one leaves nothing of itself behind a shorter one, nor either of them in the
        // end.
        drop(a);
        b.unpark().unwrap();
        assert_filled(&b, FRAME, 2);
        drop(b);
        assert_eq!(mapped(window.base(), window.base() + 4 * GIB), ["---p"]);
    }
}

#[test]
fn a_region_that_grew_in_steps_moves_in_one_piece() {
    for window in [
        window(2),
        Window::reserve_units(0x21a0_0000_0000, 4 * GIB, GIB).unwrap(),
    ] {
        grow_and_move(&window);
    }
}

fn grow_and_move(window: &Window) {
    let file = memory(1, PagePolicy::Small);
    let region = lay(Region::map_at, &file, window, PagePolicy::Small).unwrap();
    for frames in 2..6 {
        region.grow(frames * FRAME).unwrap();
        region.dont_fork().unwrap();
        fill(&region, frames as u64);
        // SAFETY: nobody uses the region until it is back.
        unsafe { region.park() }.unwrap();
        // SAFETY: as above; parked already.
        unsafe { region.park() }.unwrap();
        region.unpark().unwrap();
        region.unpark().unwrap();
        assert_filled(&region, frames * FRAME, frames as u64);
    }
    // Somebody else lets it grow meanwhile.
    // SAFETY: as above.
    unsafe { region.park() }.unwrap();
    file.grow(9 * FRAME).unwrap();
    region.unpark().unwrap();
    assert_eq!(region.refresh().unwrap(), 9 * FRAME);
}

#[test]
fn a_parked_region_may_become_writable_and_may_be_dropped() {
    let window = window(3);
    let file = memory(1, PagePolicy::Small);
    let fd = file.duplicate_fd().unwrap().unwrap();
    let (read, small, lazy) = (Access::ReadOnly, PagePolicy::Small, Reserve::Lazy);
    let at = window.base() + GIB;
    let region = Region::map_parked(fd, read, GIB, small, lazy, &window, at).unwrap();
    region.permit_writes().unwrap();
    region.unpark().unwrap();
    fill(&region, 7);
    assert_filled(&file, FRAME, 7);
    // SAFETY: nobody uses the region any more.
    unsafe { region.park() }.unwrap();
    drop(region);
    assert_eq!(mapped(window.base(), window.base() + 4 * GIB), ["---p"]);
}

#[test]
fn only_a_region_in_a_window_can_be_parked() {
    let region = memory(1, PagePolicy::Small);
    // SAFETY: nobody uses the region.
    let refused = unsafe { region.park() };
    assert!(matches!(refused, Err(RegionError::Unsupported { .. })));
    assert_eq!(region.len(), FRAME);
}
