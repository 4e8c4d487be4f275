//! What the layers above rely on, with one region that two "processes" map at two addresses. (Miri
//! does not support shared mappings; the tests that it can run are in `alone.rs`.)
#![cfg(not(miri))]

mod common;

use common::{Pair, World};
use mneme_sync::{
    Acquired, ControlOptions, Holding, Interest, Lane, OpenError, Participants, ReapError,
    RobustLock, SlotError,
};
use mneme_sys::{Liveness, PagePolicy, Region, ScriptedLiveness};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_pin_delays_only_what_was_unlinked_before_it_left() {
    let pair = Pair::new();
    let pin = pair.a.pin().unwrap();
    let g = pair.b.advance().unwrap();
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
fn a_revocable_pin_is_revoked_and_reports_it() {
    let pair = Pair::new();
    let pin = pair.a.pin_revocable().unwrap();
    let g = pair.b.advance().unwrap();
    assert!(!pair.b.quiescent(g));
    assert_eq!(pair.b.revoke(g), 1);
    assert!(pair.b.quiescent(g));
    assert!(!pin.is_valid());
    // A pin within it begins a new pin, which is valid.
    let fresh = pair.a.pin_revocable().unwrap();
    assert!(fresh.leave().is_ok());
    assert!(pin.leave().is_err());
    assert!(pair.a.pin_revocable().unwrap().leave().is_ok());
}

#[test]
fn a_fast_pin_delays_reclamation_and_reports_a_revocation() {
    let pair = Pair::new();
    // SAFETY: this thread neither forks nor pins before it has left, here and below.
    let fast_pin = || unsafe { pair.a.fast_pin() };
    let pin = pair.a.pin_revocable().unwrap();
    assert!(fast_pin().is_none(), "it does not nest");
    drop(pin);
    assert!(fast_pin().unwrap().leave().is_ok());

    let seen = fast_pin().unwrap();
    let g = pair.b.advance().unwrap();
    assert!(!pair.b.quiescent(g));
    assert_eq!(pair.b.revoke(g), 1);
    assert!(pair.b.quiescent(g));
    assert!(seen.leave().is_err());
    assert!(fast_pin().unwrap().leave().is_ok());

    // A fast pin that is dropped without leaving is in the way until it is revoked or the thread
    // pins again, and no longer.
    let _ = fast_pin();
    let g = pair.b.advance().unwrap();
    assert!(!pair.b.quiescent(g));
    drop(pair.a.pin().unwrap());
    assert!(pair.b.quiescent(g));
}

#[test]
fn a_firm_pin_within_a_revocable_one_cannot_be_revoked() {
    let pair = Pair::new();
    let outer = pair.a.pin_revocable().unwrap();
    let inner = pair.a.pin().unwrap();
    let g = pair.b.advance().unwrap();
    assert_eq!(pair.b.revoke(g), 0);
    assert!(!pair.b.quiescent(g));
    drop(inner);
    assert!(outer.leave().is_ok());
    assert!(pair.b.quiescent(g));

    let outer = pair.a.pin_revocable().unwrap();
    let g = pair.b.advance().unwrap();
    assert_eq!(pair.b.revoke(g), 1);
    let inner = pair.a.pin().unwrap();
    let later = pair.b.advance().unwrap();
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
    let g = pair.b.advance().unwrap();
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
    let g = pair.b.advance().unwrap();
    pair.b.wait_quiescent(g, Duration::from_secs(60)).unwrap();
    assert!(pin.leave().is_err());
}

#[test]
fn a_watch_registration_is_seen_by_all_openings_and_ends_with_its_process() {
    let pair = Pair::new();
    assert!(!pair.a.is_watched(Interest::Keys) && !pair.b.is_watched(Interest::Keys));
    let (first, second) = (
        pair.a.register_watch(Interest::Keys).unwrap(),
        pair.a.register_watch(Interest::Keys).unwrap(),
    );
    let theirs = pair.b.register_watch(Interest::Keys).unwrap();
    drop(first);
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert!(pair.a.is_watched(Interest::Keys) && pair.b.is_watched(Interest::Keys));
    drop(theirs);
    assert!(!pair.a.is_watched(Interest::Keys) && !pair.b.is_watched(Interest::Keys));
    let theirs = pair.a.register_watch(Interest::Keys).unwrap();
    let changes = pair.a.register_watch(Interest::Changes).unwrap();
    let both = [Interest::Keys, Interest::Changes];
    assert!(both.map(|what| pair.b.is_watched_by_others(what)) == [true; 2]);
    assert!(both.map(|what| pair.a.is_watched_by_others(what)) == [false; 2]);
    drop(changes);
    assert!(both.map(|what| pair.b.is_watched(what)) == [true, false]);
    pair.script.kill(1);
    assert!(pair.b.is_watched(Interest::Keys), "until somebody reaps");
    pair.b
        .reap(|_| Ok::<_, std::convert::Infallible>(()))
        .unwrap();
    assert!(!pair.b.is_watched(Interest::Keys));
    // A process that takes over a dead one's entry is not disturbed by what that one drops late.
    let third = Arc::new(pair.script.process(3));
    let third = Participants::open(pair.copy(), common::UUID, third).unwrap();
    let watching = third.register_watch(Interest::Keys).unwrap();
    drop(theirs);
    assert!(pair.b.is_watched(Interest::Keys));
    drop(watching);
    assert!(!pair.b.is_watched(Interest::Keys));
}

/// If a repair fails, only its slot is left for the next reap.
#[test]
fn a_failed_repair_delays_no_other() {
    let pair = Pair::new();
    let slot = |participants: &Participants| participants.slot().unwrap().id();
    // Two threads of one process.
    let first = slot(&pair.a);
    let (send, received) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let theirs = pair.a.clone();
    let thread = std::thread::spawn(move || {
        send.send(slot(&theirs)).unwrap();
        let _ = ended.recv();
    });
    let second = received.recv().unwrap();
    pair.script.kill(1);
    let mut repaired = Vec::new();
    let refused = pair.b.reap(|dead| {
        if dead.id() == first {
            return Err("it must wait");
        }
        repaired.push(dead.id());
        Ok(())
    });
    assert!(
        matches!(refused, Err(ReapError::Repair { slot, .. }) if slot == first),
        "{refused:?}"
    );
    assert_eq!(repaired, [second]);
    assert!(pair.b.is_dead(first));
    let left = pair.b.reap(|dead| {
        assert_eq!(dead.id(), first);
        Ok::<_, std::convert::Infallible>(())
    });
    let left = left.unwrap();
    assert_eq!((left.processes, left.slots), (1, 1));
    drop(end);
    thread.join().unwrap();
}

/// An owner for which a thread has waited a second without success is not waited for again at that
/// lock, until it releases the lock or makes progress. It may take and release its other locks.
#[test]
fn a_stalled_owner_is_waited_for_once_at_its_lock() {
    const SHORT: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(600);
    let pair = Pair::new();
    let theirs = pair.a.slot().unwrap();
    let slot = pair.b.slot().unwrap();
    let [first, second] = &[const { RobustLock::new() }; 2];
    let intent = theirs.intent(Lane::Index);
    intent.begin(7, &[1]);
    let [held, released] = [first, second].map(|lock| lock.lock(&theirs).unwrap());
    let in_vain = |lock: &RobustLock, limit| {
        let stalled = lock.lock_within(&slot, limit).unwrap_err();
        assert_eq!((stalled.slot, stalled.what), (theirs.id(), Holding::Lock));
        assert!(stalled.since >= limit, "{stalled}");
        stalled.since
    };
    // A wait of less than a second has no effect on the next one.
    in_vain(first, SHORT);
    assert_eq!(pair.b.stalled_for(theirs.id()), None);
    in_vain(first, mneme_sync::LOCK_TIMEOUT);
    assert!(pair.b.stalled_for(theirs.id()).is_some());
    // The error says how long the others have waited.
    assert!(in_vain(first, SHORT) >= mneme_sync::LOCK_TIMEOUT);
    let longer = mneme_sync::LOCK_TIMEOUT + Duration::from_millis(20);
    in_vain(first, longer);
    let waits_for = |lock: &RobustLock, release: &mut dyn FnMut()| {
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let slot = pair.b.slot().unwrap();
                lock.lock_within(&slot, LONG).map(drop).is_ok()
            });
            release();
            assert!(waiter.join().unwrap());
        });
    };
    let mut released = Some(released);
    waits_for(second, &mut || drop(released.take()));
    assert!(pair.b.stalled_for(theirs.id()).is_some());
    // It makes progress.
    intent.count(6);
    assert_eq!(pair.b.stalled_for(theirs.id()), None);
    let mut held = Some(held);
    waits_for(first, &mut || drop(held.take()));
    intent.clear();
    drop(first.lock(&slot).unwrap());
}

/// An owner that makes progress during a wait is waited for again.
#[test]
fn an_owner_that_makes_progress_does_not_stall() {
    let pair = Pair::new();
    let theirs = pair.a.slot().unwrap();
    let intent = theirs.intent(Lane::Txn);
    intent.begin(7, &[1]);
    let then = pair.b.progress_of(theirs.id());
    intent.count(6);
    (pair.b).note_stalled(theirs.id(), then, mneme_sync::LOCK_TIMEOUT);
    assert_eq!(pair.b.stalled_for(theirs.id()), None);
    let then = pair.b.progress_of(theirs.id());
    (pair.b).note_stalled(theirs.id(), then, mneme_sync::LOCK_TIMEOUT);
    assert!(pair.b.stalled_for(theirs.id()).is_some());
    intent.clear();
}

/// The progress of a lock's holder changes with each acquisition, and with what the holder
/// announces.
#[test]
fn the_holder_of_a_lock_makes_progress_when_it_takes_the_lock_again() {
    let pair = Pair::new();
    let lock = RobustLock::new();
    assert_eq!(pair.b.holder_of(&lock), None);
    let theirs = pair.a.slot().unwrap();
    let held = lock.try_lock(&theirs).unwrap();
    let first = pair.b.holder_of(&lock).unwrap();
    assert_eq!(first.0, theirs.id());
    assert_eq!(pair.b.holder_of(&lock), Some(first));
    let intent = theirs.intent(Lane::Txn);
    intent.begin(7, &[1]);
    assert_ne!(pair.b.holder_of(&lock), Some(first));
    intent.clear();
    assert_eq!(pair.b.holder_of(&lock), Some(first));
    drop(held);
    assert_eq!(pair.b.holder_of(&lock), None);
    let _held = lock.try_lock(&theirs).unwrap();
    let again = pair.b.holder_of(&lock).unwrap();
    assert_eq!(again.0, theirs.id());
    assert_ne!(again, first);
}

/// A panic that drops the last handle leaves the slot to the repair. One that drops another handle,
/// or a handle that a destructor creates meanwhile, leaves the slot unchanged.
#[test]
fn a_panic_leaves_the_slot_whose_last_handle_it_drops() {
    let pair = Pair::new();
    let kept = pair.a.slot().unwrap();
    let id = kept.id();
    let nested = || {
        let nested = pair.a.slot().unwrap();
        assert_eq!(nested.id(), id);
        panic!("a bug")
    };
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert!(!pair.b.is_dead(id));
    drop(kept);

    struct Late<'a>(&'a Participants);
    impl Drop for Late<'_> {
        fn drop(&mut self) {
            let ids = [(); 64].map(|()| self.0.slot().unwrap().id());
            assert!(ids.iter().all(|id| *id == ids[0]));
        }
    }
    let destructor = || {
        let _late = Late(&pair.a);
        panic!("elsewhere")
    };
    assert!(catch_unwind(AssertUnwindSafe(destructor)).is_err());
    assert_eq!(pair.a.slot().unwrap().id(), id);

    let last = || {
        let _slot = pair.a.slot().unwrap();
        panic!("a bug")
    };
    assert!(catch_unwind(AssertUnwindSafe(last)).is_err());
    assert!(pair.b.is_dead(id));
    assert_ne!(pair.a.slot().unwrap().id(), id);
}

/// After a panic, nothing is left of an operation whose intent a destructor withdraws.
#[test]
fn an_intent_that_a_destructor_withdraws_outlives_a_panic() {
    let pair = Pair::new();
    let slot = pair.a.slot().unwrap();
    let intent = slot.intent(Lane::Txn);
    intent.begin(7, &[1]);
    let nested = || {
        let _nested = pair.a.slot().unwrap();
        panic!("a bug")
    };
    slot.withdraws_on_drop(Lane::Txn, true);
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert_eq!(pair.a.slot().unwrap().id(), slot.id());
    slot.withdraws_on_drop(Lane::Txn, false);
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert_ne!(pair.a.slot().unwrap().id(), slot.id());
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
    let g = pair.b.advance().unwrap();
    assert!(!pair.b.is_dead(id));
    pair.script.kill(1);
    assert!(pair.b.is_dead(id));
    let stalled = pair
        .b
        .wait_quiescent(g, Duration::from_secs(60))
        .unwrap_err();
    assert_eq!(stalled.what, mneme_sync::Holding::DeadPin);

    let slot = pair.b.slot().unwrap();
    // A caller with an alternative does not ask whether the owner is alive.
    assert!(lock.try_lock_free(&slot).is_none());
    let Ok(Acquired::OwnerDied(guard)) = lock.lock(&slot) else {
        panic!("the death was not reported")
    };
    drop(guard);
    let Some(Acquired::OwnerDied(guard)) = lock.try_lock(&slot) else {
        panic!("the report was forgotten")
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
    let (world, a) = World::new(common::options());
    a.slot().unwrap().count(2, 4, 6);
    std::mem::forget(a.pin().unwrap());
    a.advance().unwrap();
    let epoch = a.epoch();
    let incarnation = a.incarnation();
    world.script.kill(1);
    // The place of the boot id: 5 words into the control header.
    let words = a
        .region()
        .slice_at::<std::sync::atomic::AtomicU64>(128 + 40, 2)
        .unwrap();
    words[0].fetch_xor(1, std::sync::atomic::Ordering::Relaxed);

    let b = world.open(2).unwrap();
    assert_eq!(b.counters(2, 4), 6);
    assert_eq!((b.stats().slots, b.stats().processes), (0, 1));
    assert!(b.epoch() > epoch);
    assert_eq!(b.incarnation(), incarnation + 1);
    assert_eq!(b.check(), Vec::<String>::new());
}

/// Slots and generations are assigned again after a reboot: a lock held by an owner of an earlier
/// incarnation may name a current thread.
#[test]
fn a_lock_of_an_earlier_boot_is_handed_over_by_the_first_process_to_open() {
    let (world, a) = World::new(common::options());
    let script = &world.script;
    let (held, free) = (RobustLock::new(), RobustLock::new());
    std::mem::forget(held.lock(&a.slot().unwrap()).unwrap());
    let incarnation = a.incarnation();
    script.kill(1);
    let words = a
        .region()
        .slice_at::<std::sync::atomic::AtomicU64>(128 + 40, 2)
        .unwrap();
    words[0].fetch_xor(1, std::sync::atomic::Ordering::Relaxed);

    // A process that may only read neither rebuilds nor attaches.
    let liveness = Arc::new(script.process(2));
    let error =
        Participants::open_to_read(world.copy(), common::UUID, liveness, |_| true).unwrap_err();
    assert!(matches!(error, OpenError::Stale), "{error}");
    assert_eq!(a.incarnation(), incarnation);
    // A process that its own closure refuses leaves no trace for the next.
    let liveness = Arc::new(script.process(3));
    let error = Participants::open_and(world.copy(), common::UUID, liveness, |_| {
        Err(OpenError::Damaged("says the closure"))
    });
    assert!(matches!(error.unwrap_err(), OpenError::Damaged(_)));
    let mut ran = false;
    let liveness = Arc::new(script.process(4));
    let b = Participants::open_and(world.copy(), common::UUID, liveness, |b| {
        ran = true;
        let slot = b.slot().unwrap();
        [&held, &free].into_iter().for_each(RobustLock::orphan);
        assert!(held.try_lock(&slot).unwrap().owner_died());
        assert!(!free.try_lock(&slot).unwrap().owner_died());
        Ok::<_, OpenError>(())
    })
    .unwrap();
    assert!(ran && b.incarnation() > incarnation);
    let liveness = Arc::new(script.process(5));
    let c: Result<_, OpenError> =
        Participants::open_and(world.copy(), common::UUID, liveness, |_| {
            panic!("it is not alone")
        });
    assert!(c.is_ok());
}

#[test]
fn a_region_that_is_no_control_region_gives_a_specific_error() {
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

#[test]
fn dead_processes_keep_no_new_process_out() {
    let few = ControlOptions {
        max_processes: 2,
        max_threads: 8,
        ..common::options()
    };
    let (world, first) = World::new(few);
    // Dead processes hold both entries and all slots except those reserved for reapers.
    let second = world.open(2).unwrap();
    let full = world.open(3).unwrap_err();
    assert!(
        full.to_string().contains("2 processes are attached"),
        "{full}"
    );
    let mut threads = Vec::new();
    for p in [&first, &second] {
        for _ in 0..3 {
            let p = p.clone();
            let (ready, wait) = std::sync::mpsc::channel();
            threads.push(std::thread::spawn(move || {
                let slot = p.slot().unwrap();
                slot.count(0, 1, 1);
                slot.intent(Lane::Log).begin(1, &[]);
                std::mem::forget(p.pin().unwrap());
                ready.send(()).unwrap();
                // Keeps the slot beyond the thread's end.
                std::mem::forget(slot);
            }));
            wait.recv().unwrap();
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    world.script.kill(1);
    world.script.kill(2);
    let third = world.open(4).unwrap();
    assert_eq!(
        third.slot().unwrap_err(),
        SlotError::TooManyThreads { max: 8 }
    );
    let g = third.advance().unwrap();
    assert!(!third.quiescent(g));
    let mut repaired = 0;
    let reaped = third
        .reap(|dead| {
            assert!(third.is_dead(dead.id()));
            // A repair may need locks, and therefore a slot.
            assert!(third.slot().is_ok());
            repaired += 1;
            Ok::<_, std::convert::Infallible>(())
        })
        .unwrap();
    assert_eq!((reaped.slots, repaired), (6, 6));
    assert!(third.quiescent(g));
    assert_eq!(third.counters(0, 1), 6);
    assert_eq!(third.check(), Vec::<String>::new());
    assert_eq!((third.stats().processes, third.stats().slots), (1, 1));
}

#[test]
fn an_entry_that_was_taken_over_without_reaping_is_reaped_by_the_next_process() {
    let one = ControlOptions {
        max_processes: 1,
        ..common::options()
    };
    let (world, first) = World::new(one);
    first.slot().unwrap().count(0, 1, 4);
    world.script.kill(1);
    for process in 2..4 {
        // Neither reaps; the second one dies.
        let p = world.open(process).unwrap();
        p.slot().unwrap().count(0, 1, 1);
        assert_eq!(p.check(), Vec::<String>::new());
        if process == 3 {
            world.script.kill(3);
        }
    }
    let last = world.open(4).unwrap();
    let reaped = last
        .reap(|_| Ok::<_, std::convert::Infallible>(()))
        .unwrap();
    assert_eq!(reaped.slots, 2);
    assert_eq!(last.counters(0, 1), 6);
    assert_eq!(last.check(), Vec::<String>::new());
}

/// A process that never reaps took over the entry of a dead one, which held a firm pin.
#[test]
fn any_participant_reaps_the_slots_that_an_idle_successor_took_over() {
    let two = ControlOptions {
        max_processes: 2,
        ..common::options()
    };
    let (world, maintainer) = World::new(two);
    let dead = world.open(2).unwrap();
    dead.slot().unwrap().count(0, 1, 4);
    std::mem::forget(dead.pin().unwrap());
    world.script.kill(2);
    let idle = world.open(3).unwrap();
    idle.slot().unwrap().count(0, 1, 1);

    let g = maintainer.advance().unwrap();
    let stalled = maintainer.wait_quiescent(g, Duration::from_secs(60));
    assert_eq!(stalled.unwrap_err().what, Holding::DeadPin);
    let mut repaired = Vec::new();
    let reaped = maintainer.reap(|slot| {
        repaired.push(slot.id());
        Ok::<_, std::convert::Infallible>(())
    });
    assert_eq!(reaped.unwrap().slots, 1);
    assert_eq!(repaired.len(), 1);
    maintainer.wait_quiescent(g, Duration::ZERO).unwrap();
    assert_eq!(maintainer.counters(0, 1), 5);
    assert_eq!(maintainer.check(), Vec::<String>::new());
    // Its own slot, for the repairs, and that of the idle process.
    assert_eq!((idle.stats().processes, idle.stats().slots), (2, 2));
}

/// A thread ends while another participant holds the region's own lock, so its counts cannot be
/// moved to the base.
#[test]
fn a_slot_that_could_not_be_released_is_released_at_the_next_claim() {
    let one_slot = ControlOptions {
        max_threads: 1,
        ..common::options()
    };
    let (world, p) = World::new(one_slot);
    let stopped = world.script.process(2);
    let region_lock = stopped.try_take(0).unwrap().unwrap();
    let count_in_a_thread = || {
        let p = p.clone();
        let counted = std::thread::spawn(move || p.slot().map(|slot| slot.count(0, 1, 1)));
        counted.join().unwrap()
    };
    count_in_a_thread().unwrap();
    assert_eq!(p.stats().slots, 1, "the slot could not be released");
    // The lock is still held: the claim waits for it, and fails.
    let refused = count_in_a_thread();
    assert_eq!(refused, Err(SlotError::TooManyThreads { max: 1 }));
    drop(region_lock);
    count_in_a_thread().unwrap();
    assert_eq!((p.stats().slots, p.counters(0, 1)), (0, 2));
    assert_eq!(p.check(), Vec::<String>::new());
}

#[test]
fn slots_are_released_when_the_opening_is_closed() {
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

/// A panic ends an owner's change: the next owner must repair what the lock guards.
#[test]
fn a_lock_that_a_panic_releases_asks_for_repair() {
    let pair = Pair::new();
    let lock = RobustLock::default();
    let change = || {
        let slot = pair.a.slot().unwrap();
        let _held = lock.lock(&slot).unwrap();
        panic!("a bug")
    };
    assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    let slot = pair.a.slot().unwrap();
    let Acquired::OwnerDied(held) = lock.lock(&slot).unwrap() else {
        panic!("the panic was not reported")
    };
    // A destructor that runs during a panic may lock, and leaves nothing half changed.
    held.repaired();
    drop(held);
    struct Locks<'a>(&'a RobustLock, &'a Pair);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            drop(self.0.lock(&self.1.a.slot().unwrap()).unwrap());
        }
    }
    let destructor = || {
        let _locks = Locks(&lock, &pair);
        panic!("elsewhere")
    };
    assert!(catch_unwind(AssertUnwindSafe(destructor)).is_err());
    assert!(matches!(lock.lock(&slot).unwrap(), Acquired::Clean(_)));
}

/// Threads that panicked within an operation leave their slots to the reapers. A thread that finds
/// no free slot triggers a reap.
#[test]
fn slots_lost_to_panics_are_recovered_when_no_others_are_free() {
    let few = ControlOptions {
        max_threads: 8,
        ..common::options()
    };
    let (_world, p) = World::new(few);
    let panicking = || {
        let p = p.clone();
        let operation = move || {
            let slot = p.slot().unwrap();
            slot.intent(Lane::Log).begin(1, &[]);
            panic!("a bug")
        };
        assert!(std::thread::spawn(operation).join().is_err());
    };
    let in_a_thread = || {
        let p = p.clone();
        let claim = move || p.slot().map(|slot| slot.id()).err();
        std::thread::spawn(claim).join().unwrap()
    };
    // Without a reaper the panics take all slots except the reserved ones.
    while in_a_thread().is_none() {
        panicking();
    }
    let reaper = p.clone();
    p.set_reaper(move || {
        let reaped = reaper.reap(|_| Ok::<_, std::convert::Infallible>(()));
        assert!(reaped.unwrap().slots > 0);
    });
    for _ in 0..20 {
        assert_eq!(in_a_thread(), None);
        panicking();
    }
    assert_eq!(p.check(), Vec::<String>::new());
}
