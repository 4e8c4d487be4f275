//! One suite for every clock.

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(miri))]
use mneme_sys::SystemClock;
use mneme_sys::{Clock, ManualClock};

/// Never backwards, neither in a thread nor from one to the next.
fn conforms(clock: &dyn Clock) {
    let latest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 20 } else { 10_000 } {
                    // SYNC: pairs with the AcqRel maximum below, of either thread.
                    let before = latest.load(Ordering::Acquire);
                    let now = clock.now_ns();
                    assert!(now >= before, "{now} after {before}");
                    latest.fetch_max(now, Ordering::AcqRel);
                }
            });
        }
    });
    // 2020 to 2200, in the right unit.
    assert!((1_577_836_800_000..7_258_118_400_000).contains(&clock.wall_ms()));
}

// Miri's isolation has no wall clock.
#[cfg(not(miri))]
#[test]
fn the_systems_clock_conforms_and_moves() {
    conforms(&SystemClock);
    let before = SystemClock.now_ns();
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert!(SystemClock.now_ns() - before >= 1_000_000);
}

#[test]
fn the_manual_clock_conforms_and_stands_still() {
    let clock = ManualClock::new(17, 1_700_000_000_000);
    conforms(&clock);
    assert_eq!((clock.now_ns(), clock.wall_ms()), (17, 1_700_000_000_000));
    clock.advance_ns(999_999);
    assert_eq!(clock.wall_ms(), 1_700_000_000_000);
    clock.advance_ns(1);
    assert_eq!(clock.wall_ms(), 1_700_000_000_001);
    clock.set_wall_ms(1_600_000_000_000);
    assert_eq!(
        (clock.now_ns(), clock.wall_ms()),
        (1_000_017, 1_600_000_000_000)
    );
}
