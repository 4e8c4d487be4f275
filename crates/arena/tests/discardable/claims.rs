//! What claims of the first class take from the second: at once, idle frames first, even from
//! tenants that are stopped.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{ClaimError, Dropped, Extent, MAX_RECORD, ReleaseError, Stored};

use crate::{SHAPE, fill_lock_of, get, has, keep, keyed, lending, put};

#[test]
fn the_longest_run_leaves_out_a_frame_that_is_being_filled() {
    let (_world, process, cache) = lending(SHAPE);
    let held: Vec<Extent> = (0..16).map(|_| process.hold(1)).collect();
    // The only idle frame, between seven and eight others.
    process.release(held[7]).unwrap();
    assert_eq!(put(&cache, b"key", b"value"), Stored::Kept);
    for extent in held.iter().filter(|extent| **extent != held[7]) {
        process.release(*extent).unwrap();
    }
    let stats = process.arena.stats();
    assert_eq!((stats.free, stats.lent, stats.longest_run), (15, 1, 8));
    assert!(process.claim(9).is_err());
    let claimed = process.hold(8);
    assert_eq!(claimed.start.0, held[8].start.0);
    assert_eq!(process.arena.stats().longest_run, 7);
    assert!(get(&cache, b"key").is_some());
}

#[test]
fn an_extent_that_was_released_and_lent_is_not_released_again() {
    let (_world, process, cache) = lending(SHAPE);
    let held: Vec<Extent> = (0..16).map(|_| process.hold(1)).collect();
    let is_refused = |extent| {
        let refused = process.release(extent).unwrap_err();
        assert!(
            matches!(refused, ReleaseError::NotClaimed { .. }),
            "{refused:?}"
        );
    };
    process.release(held[7]).unwrap();
    is_refused(held[7]);
    assert_eq!(put(&cache, b"key", b"value"), Stored::Kept);
    is_refused(held[7]);
    // The next one fills another frame.
    process.release(held[3]).unwrap();
    let large = keyed(1, MAX_RECORD - 8);
    assert_eq!(put(&cache, &1u64.to_le_bytes(), &large), Stored::Kept);
    is_refused(held[7]);
    is_refused(held[3]);
    process.assert_whole();
}

#[test]
fn a_claim_discards_what_it_takes_at_once() {
    let (_world, process, cache) = lending(SHAPE);
    keep(&cache, 0..10);
    let there = || (0..10).filter(|number| has(&cache, *number)).count();
    assert_eq!(there(), 10);
    let stats = process.arena.stats();
    // Rented frames are free to the first class; a frame being filled is not.
    assert_eq!((stats.lent, stats.free), (10, 15));
    // Idle frames are taken first.
    let idle = process.hold(6);
    assert_eq!(there(), 10);
    let rented = process.hold(4);
    assert_eq!(there(), 6);
    assert_eq!(cache.stats().unwrap().discards, 4);
    assert_eq!(process.hold(5).frames, 5);
    assert_eq!(there(), 1);
    // The frame being filled counts neither as free nor as capacity.
    let refused = process.claim(1).unwrap_err();
    assert!(
        matches!(refused, ClaimError::OutOfMemory { free: 0, .. }),
        "{refused}"
    );
    process.assert_whole();
    process.release(idle).unwrap();
    process.release(rented).unwrap();
    process.assert_whole();
    assert_eq!(process.arena.stats().free, 10);
    assert_eq!(put(&cache, b"again", b"there"), Stored::Kept);
    assert!(get(&cache, b"again").is_some());
}

/// Not the lowest address, if that has a record that is worth more.
#[test]
fn claims_take_idle_frames_first_and_then_the_policys_victims() {
    // The rented frames lie below the idle ones.
    let (_world, process, cache) = lending(SHAPE);
    let (low, high) = (process.hold(8), process.hold(8));
    process.release(low).unwrap();
    keep(&cache, 0..8);
    process.release(high).unwrap();
    process.hold(4);
    process.hold(1);
    assert!((0..8).all(|number| has(&cache, number)));

    // Frames are lent from the highest address on, so the record that is read all the time lies
    // lowest.
    let (_world, process, cache) = lending(SHAPE);
    keep(&cache, 0..16);
    for _ in 0..40 {
        assert!((12..15).all(|number| has(&cache, number)));
    }
    // The policy chooses its victims when it needs the first.
    keep(&cache, 16..17);
    for _ in 0..4 {
        process.hold(1);
    }
    assert!((12..15).all(|number| has(&cache, number)));
    assert_eq!((0..16).filter(|number| has(&cache, *number)).count(), 11);
}

/// A holder of the fill lock that sleeps costs puts, but no claims.
#[test]
fn a_stopped_tenant_delays_no_claim() {
    let (world, process, cache) = lending(SHAPE);
    keep(&cache, 0..30);
    // It holds the lock, with its frame half filled, as long as this test runs.
    let sleeper = world.open();
    let slot = sleeper.arena.participants().slot().unwrap();
    let fill_lock = fill_lock_of(&sleeper);
    let lock: &mneme_sync::RobustLock = sleeper.arena.region().at(fill_lock).unwrap();
    let guard = lock.try_lock(&slot).unwrap();
    assert_eq!(put(&cache, b"a", b"b"), Stored::Dropped(Dropped::Busy));
    let claimed: Vec<Extent> = (0..15).map(|_| process.claim(1).unwrap()).collect();
    assert!(process.claim(1).is_err());
    assert_eq!(
        get(&cache, &29u64.to_le_bytes()),
        Some(keyed(29, MAX_RECORD - 8))
    );
    for extent in claimed {
        process.release(extent).unwrap();
    }
    cache.remove(&29u64.to_le_bytes()).unwrap();
    assert_eq!(get(&cache, &29u64.to_le_bytes()), None);
    drop(guard);
    assert_eq!(put(&cache, b"a", b"b"), Stored::Kept);
}

/// The idle bitmap is a hint: a tenant that slept before it marked a frame as idle may do so after
/// another has claimed the frame.
#[test]
fn a_held_frame_marked_as_idle_refuses_no_claim() {
    let (_world, process, cache) = lending(SHAPE);
    let low = process.hold(12);
    let held = process.hold(3);
    process.release(low).unwrap();
    // All others are lent.
    keep(&cache, 0..13);
    let idle: &AtomicU64 = process
        .arena
        .region()
        .at(fill_lock_of(&process) + 640)
        .unwrap();
    let wrong = 0b111 << held.start.0;
    assert_eq!(idle.load(Relaxed), 0);
    for frames in [1, 3] {
        idle.fetch_or(wrong, Relaxed);
        process.claim(frames).unwrap();
        // The bit is cleared, so that it hides no idle frames from later claims.
        assert_eq!(idle.load(Relaxed), 0);
    }
    process.assert_whole();
}
