//! Regions as the crates above rely on them: growth in place, two openings of one memory, honest
//! errors.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::atomic::{AtomicU64, Ordering};

use mneme_sys::{Access, FRAME, PageKind, PagePolicy, Region, RegionError};

fn word(region: &Region, offset: u64) -> &AtomicU64 {
    region.at(offset).unwrap()
}

fn reopen(region: &Region) -> Region {
    let fd = region.duplicate_fd().unwrap().unwrap();
    Region::map(fd, Access::ReadWrite, region.max(), PagePolicy::Thp).unwrap()
}

#[test]
fn growth_keeps_every_pointer_and_adds_zeros() {
    for policy in [PagePolicy::Huge, PagePolicy::Thp, PagePolicy::Small] {
        let region = Region::private(1, 8 * FRAME, policy).unwrap();
        assert_eq!(region.len(), FRAME);
        assert_eq!(region.base().addr() % FRAME, 0);
        let first = word(&region, 8);
        first.store(42, Ordering::Relaxed);
        region.grow(FRAME + 1).unwrap();
        region.grow(8 * FRAME).unwrap();
        assert_eq!(region.len(), 8 * FRAME);
        assert_eq!(first.load(Ordering::Relaxed), 42);
        assert_eq!(
            word(&region, 8 * FRAME as u64 - 8).load(Ordering::Relaxed),
            0
        );
        assert!(matches!(
            region.grow(8 * FRAME + 1),
            Err(RegionError::BeyondMax { .. })
        ));
    }
}

#[test]
fn two_openings_of_a_memfd_see_one_memory_at_two_addresses() {
    let one = Region::memfd("mneme-test", FRAME, 8 * FRAME, PagePolicy::Huge).unwrap();
    let two = reopen(&one);
    assert_ne!(one.base(), two.base());
    word(&one, 16).store(7, Ordering::Release);
    assert_eq!(word(&two, 16).load(Ordering::Acquire), 7);
    one.grow(4 * FRAME).unwrap();
    assert_eq!(two.len(), FRAME);
    assert_eq!(two.refresh().unwrap(), 4 * FRAME);
    word(&two, 3 * FRAME as u64).store(9, Ordering::Release);
    assert_eq!(word(&one, 3 * FRAME as u64).load(Ordering::Acquire), 9);
}

#[test]
fn private_memory_is_not_in_memory_before_it_is_touched_and_is_after_prefault() {
    let region = Region::private(16 * FRAME, 16 * FRAME, PagePolicy::Thp).unwrap();
    assert!(region.pages().resident_bytes < FRAME);
    region.prefault(0..4 * FRAME).unwrap();
    let report = region.pages();
    assert!(report.resident_bytes >= 4 * FRAME);
    assert!(report.resident_bytes < 6 * FRAME);
    assert!(report.kind < PageKind::HugeTlb);
}
