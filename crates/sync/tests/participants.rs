//! What the layers above rely on, over one region that two "processes" map at two addresses.

mod common;

use common::{Pair, private};
use mneme_sync::{Acquired, ControlOptions, Lane, OpenError, Participants, RobustLock, SlotError};
use mneme_sys::{PagePolicy, Region, ScriptedLiveness};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_pin_holds_up_what_was_unlinked_before_it_left_and_nothing_later() {
    let pair = Pair::new();
    let pin = pair.a.pin().unwrap();
    let g = pair.b.advance();
    assert!(!pair.b.quiescent(g));
    let inner = pair.a.pin().unwrap();
    drop(pin);
    assert!(
        !pair.b.quiescent(g),
        "the inner pin keeps what the outer one entered"
    );
    drop(inner);
    assert!(pair.b.quiescent(g));
    let later = pair.a.pin().unwrap();
    assert!(
        pair.b.quiescent(g),
        "a younger pin is not in the way of an older epoch"
    );
    drop(later);
}

#[test]
fn a_revocable_pin_is_taken_away_and_says_so() {
    let pair = Pair::new();
    let pin = pair.a.pin_revocable().unwrap();
    let g = pair.b.advance();
    assert!(!pair.b.quiescent(g));
    assert_eq!(pair.b.revoke(g), 1);
    assert!(pair.b.quiescent(g));
    assert!(!pin.is_valid());
    // A pin within begins afresh, and is good.
    let fresh = pair.a.pin_revocable().unwrap();
    assert!(fresh.leave().is_ok());
    assert!(pin.leave().is_err());
    assert!(pair.a.pin_revocable().unwrap().leave().is_ok());
}

#[test]
fn a_firm_pin_within_a_revocable_one_cannot_be_revoked() {
    let pair = Pair::new();
    let outer = pair.a.pin_revocable().unwrap();
    let inner = pair.a.pin().unwrap();
    let g = pair.b.advance();
    assert_eq!(pair.b.revoke(g), 0);
    assert!(!pair.b.quiescent(g));
    drop(inner);
    assert!(outer.leave().is_ok());
    assert!(pair.b.quiescent(g));

    let outer = pair.a.pin_revocable().unwrap();
    let g = pair.b.advance();
    assert_eq!(pair.b.revoke(g), 1);
    let inner = pair.a.pin().unwrap();
    let later = pair.b.advance();
    assert_eq!(
        pair.b.revoke(later),
        0,
        "the firm pin began afresh after the revocation"
    );
    assert!(pair.b.quiescent(g) && !pair.b.quiescent(later));
    assert!(outer.leave().is_err());
    assert!(!pair.b.quiescent(later));
    drop(inner);
    assert!(pair.b.quiescent(later));
}

#[test]
fn waiting_for_a_pin_names_it_and_revokes_in_time() {
    let pair = Pair::new();
    let pin = pair.a.pin().unwrap();
    let g = pair.b.advance();
    let stalled = pair
        .b
        .wait_quiescent(g, Duration::from_millis(5))
        .unwrap_err();
    assert_eq!(stalled.slot, pair.a.slot().unwrap().id());
    assert_eq!(stalled.pid, std::process::id());
    assert_eq!(pair.b.stats().oldest_pin.unwrap().slot, stalled.slot);
    drop(pin);
    pair.b.wait_quiescent(g, Duration::ZERO).unwrap();

    let pin = pair.a.pin_revocable().unwrap();
    let g = pair.b.advance();
    pair.b.wait_quiescent(g, Duration::from_secs(30)).unwrap();
    assert!(pin.leave().is_err());
}

#[test]
fn slots_come_back_when_threads_end_and_when_the_opening_closes() {
    let p = private(ControlOptions {
        max_threads: 2,
        ..common::options()
    });
    for _ in 0..5 {
        std::thread::scope(|s| {
            s.spawn(|| {
                let slot = p.slot().unwrap();
                slot.intent(Lane::Log).begin(3, &[1, 2]);
                slot.count(0, 1, 2);
            })
            // Joined by hand: a scope alone does not wait for the thread's last destructors.
            .join()
            .unwrap();
        });
    }
    let _one = p.slot().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let _two = p.slot().unwrap();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let none = p.slot().unwrap_err();
                    assert_eq!(none, SlotError::TooManyThreads { max: 2 });
                });
            });
        });
    });
    assert_eq!(p.counters(0, 1), 10);
    assert_eq!(p.check(), Vec::<String>::new());

    let pair = Pair::new();
    let slot = pair.b.slot().unwrap().id();
    pair.b.slot().unwrap().count(7, 9, -4);
    assert_eq!(pair.a.stats().slots, 1);
    let Pair { a, b, .. } = pair;
    drop(b);
    assert_eq!((a.stats().slots, a.stats().processes), (0, 1));
    assert_eq!(a.slot().unwrap().id(), slot);
    assert_eq!(a.counters(7, 9), -4);
    assert_eq!(a.check(), Vec::<String>::new());
}

#[test]
fn a_thread_that_outlives_the_opening_ends_in_peace() {
    let p = private(common::options());
    let q = private(common::options());
    let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
    let (to_main, from_thread) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        drop(p.pin().unwrap());
        drop(q.pin().unwrap());
        drop(p);
        to_main.send(()).unwrap();
        from_main.recv().unwrap();
        q
    });
    from_thread.recv().unwrap();
    to_thread.send(()).unwrap();
    let q = thread.join().unwrap();
    assert_eq!(q.stats().slots, 0);
}

#[test]
fn a_dead_process_is_reaped_with_its_intents_pins_locks_and_counts() {
    let pair = Pair::new();
    let lock = RobustLock::new();
    let id = {
        let slot = pair.a.slot().unwrap();
        slot.intent(Lane::Index).begin(7, &[1, 2, 3]);
        assert!(slot.undo().write(0, b"old bytes"));
        slot.count(3, 5, 11);
        std::mem::forget(pair.a.pin().unwrap());
        std::mem::forget(lock.lock(&slot).unwrap());
        slot.id()
    };
    let g = pair.b.advance();
    assert!(!pair.b.is_dead(id));
    pair.script.kill(1);
    assert!(pair.b.is_dead(id));
    let stalled = pair
        .b
        .wait_quiescent(g, Duration::from_secs(60))
        .unwrap_err();
    assert_eq!(stalled.what, mneme_sync::Holding::DeadPin);

    let slot = pair.b.slot().unwrap();
    let Ok(Acquired::OwnerDied(guard)) = lock.lock(&slot) else {
        panic!("no news")
    };
    drop(guard);
    let Some(Acquired::OwnerDied(guard)) = lock.try_lock(&slot) else {
        panic!("news forgotten")
    };
    guard.repaired();
    drop(guard);
    assert!(matches!(lock.try_lock(&slot), Some(Acquired::Clean(_))));

    let mut seen = Vec::new();
    let reaped = pair
        .b
        .reap(|dead| {
            let mut bytes = [0; 9];
            assert!(dead.undo().read(0, &mut bytes));
            assert_eq!(&bytes, b"old bytes");
            seen.push((dead.id(), dead.intent(Lane::Index), dead.intent(Lane::Log)));
            assert!(pair.b.is_dead(dead.id()));
            Ok::<_, std::convert::Infallible>(())
        })
        .unwrap();
    assert_eq!((reaped.processes, reaped.slots), (1, 1));
    let [(dead, Some(intent), None)] = seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (dead, intent.kind, intent.words),
        (id, 7, [1, 2, 3, 0, 0, 0, 0])
    );
    assert!(pair.b.quiescent(g));
    assert_eq!(pair.b.counters(3, 5), 11);
    assert_eq!(pair.b.check(), Vec::<String>::new());
    assert_eq!(pair.b.stats().processes, 1);
}

#[test]
fn another_boot_rebuilds_and_keeps_counts_and_epochs() {
    let script = ScriptedLiveness::new();
    let region = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let copy = region.duplicate_fd().unwrap().unwrap();
    let a = Participants::create(region, common::options(), Arc::new(script.process(1))).unwrap();
    a.slot().unwrap().count(2, 4, 6);
    std::mem::forget(a.pin().unwrap());
    a.advance();
    let epoch = a.epoch();
    let incarnation = a.incarnation();
    script.kill(1);
    // The boot id's place: 5 words into the control header.
    let words = a
        .region()
        .slice_at::<std::sync::atomic::AtomicU64>(128 + 40, 2)
        .unwrap();
    words[0].fetch_xor(1, std::sync::atomic::Ordering::Relaxed);

    let again = common::map(copy);
    let b = Participants::open(again, common::UUID, Arc::new(script.process(2))).unwrap();
    assert_eq!(b.counters(2, 4), 6);
    assert_eq!((b.stats().slots, b.stats().processes), (0, 1));
    assert!(b.epoch() > epoch);
    assert_eq!(b.incarnation(), incarnation + 1);
    assert_eq!(b.check(), Vec::<String>::new());
}

#[test]
fn what_is_no_control_region_is_refused_by_name() {
    let script = ScriptedLiveness::new();
    let nothing = Region::private(1 << 21, 1 << 21, PagePolicy::Small).unwrap();
    let error = Participants::open(nothing, common::UUID, Arc::new(script.process(1))).unwrap_err();
    assert!(matches!(error, OpenError::Header(_)), "{error}");

    let pair = Pair::new();
    let other = [9; 16];
    let copy = pair.copy();
    let error = Participants::open(copy, other, Arc::new(pair.script.process(3))).unwrap_err();
    assert!(matches!(error, OpenError::OtherData { .. }), "{error}");

    let copy = pair.copy();
    let error = Participants::create(copy, common::options(), Arc::new(pair.script.process(3)))
        .unwrap_err();
    assert!(
        matches!(error, mneme_sync::CreateError::InUse { .. }),
        "{error}"
    );
}
