//! What threads of one process rely on. Small enough for Miri, which detects every use after free
//! and every race on plain memory.
#![allow(clippy::unwrap_used)]

mod common;

use common::private;
use mneme_sync::{
    Acquired, ControlOptions, GateError, Holding, Lane, Participants, RobustLock, SlotError,
    Stalled,
};
use mneme_testkit::in_threads;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

const ROUNDS: u64 = if cfg!(miri) { 8 } else { 2_000 };

#[test]
fn a_box_is_freed_only_when_no_pin_can_see_it() {
    let p = private(common::options());
    let link = AtomicPtr::new(Box::into_raw(Box::new(0_u64)));
    in_threads(3, |i| {
        if i < 2 {
            let mut last = 0;
            while last < ROUNDS {
                let _pin = p.pin().unwrap();
                // SAFETY: it was linked while this thread is pinned, so it is not freed until the
                // thread unpins.
                let seen = unsafe { *link.load(Acquire) };
                assert!(seen >= last, "a freed box, or time runs backwards");
                last = seen;
                std::thread::yield_now();
            }
        } else {
            for round in 1..=ROUNDS {
                let old = link.swap(Box::into_raw(Box::new(round)), AcqRel);
                let g = p.advance().unwrap();
                p.wait_quiescent(g, Duration::from_secs(60)).unwrap();
                // SAFETY: it came from `Box::into_raw`, is unlinked, and nobody sees it any more.
                drop(unsafe { Box::from_raw(old) });
            }
        }
    });
    // SAFETY: the last one; the threads have ended.
    drop(unsafe { Box::from_raw(link.load(Relaxed)) });
}

/// Plain memory that a lock guards.
struct Guarded(UnsafeCell<u64>);

// SAFETY: the tests access it only under the lock that they test; Miri detects it if that does not
// exclude others.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn place(&self) -> *mut u64 {
        self.0.get()
    }
}

#[test]
fn a_robust_lock_excludes() {
    let p = private(common::options());
    let (lock, guarded) = (RobustLock::new(), Guarded(UnsafeCell::new(0)));
    in_threads(3, |_| {
        let slot = p.slot().unwrap();
        for _ in 0..ROUNDS {
            let got = lock.lock_within(&slot, Duration::from_secs(60)).unwrap();
            assert!(matches!(got, Acquired::Clean(_)));
            // SAFETY: locked.
            unsafe { *guarded.place() += 1 };
        }
    });
    assert_eq!(guarded.0.into_inner(), 3 * ROUNDS);
}

#[test]
fn a_gate_excludes() {
    let p = private(common::options());
    let guarded = Guarded(UnsafeCell::new(0));
    let gate = p.fenced_gate(5).unwrap();
    let rounds = ROUNDS.min(500);
    in_threads(3, |i| {
        let slot = p.slot().unwrap();
        for _ in 0..rounds {
            if i == 0 {
                let Ok(Acquired::Clean(_alone)) = gate.sole(&slot) else {
                    panic!("no exclusion")
                };
                // SAFETY: all others are outside.
                unsafe { *guarded.place() += 1 };
            } else {
                let _inside = gate.shared(&slot).unwrap();
                // SAFETY: no writer is inside.
                assert!(unsafe { *guarded.place() } <= rounds);
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(guarded.0.into_inner(), rounds);
}

#[test]
fn counts_add_up_while_threads_come_and_go() {
    let p = private(common::options());
    let rounds = if cfg!(miri) { 2 } else { 200 };
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            for _ in 0..rounds {
                in_threads(2, |_| p.slot().unwrap().count(1, 3, 1));
            }
        });
        let mut last = 0;
        while !counting.is_finished() {
            let now = p.counters(1, 3);
            assert!(now >= last, "a count was lost on its way to the base");
            last = now;
            std::thread::yield_now();
        }
    });
    assert_eq!(p.counters(1, 3), 2 * rounds);
    // A newer root discards the old one's counts.
    p.slot().unwrap().count(1, 4, 5);
    assert_eq!(p.counters(1, 4), 5);
}

#[test]
fn bytes_left_in_an_undo_area_are_read_back() {
    let p = private(common::options());
    let slot = p.slot().unwrap();
    let undo = slot.undo();
    assert_eq!(undo.len(), 256);
    assert!(undo.write(8, b"thirteen byte"));
    let mut back = [0; 13];
    assert!(undo.read(8, &mut back));
    assert_eq!(&back, b"thirteen byte");
    assert!(
        undo.write(0, &[1; 256]) && !undo.write(8, &[1; 256]),
        "it ends where it ends"
    );
    assert!(!undo.write(4, b"x") && !undo.read(usize::MAX - 7, &mut back));
}

/// The slot stays with such a handle's thread until the opening is closed. Its bookkeeping is never
/// freed, which Miri reports as a leak.
#[test]
#[cfg_attr(miri, ignore = "leaks 200 bytes by design")]
fn a_handle_kept_in_another_thread_local_keeps_its_slot() {
    use std::cell::RefCell;
    use std::sync::OnceLock;
    static P: OnceLock<Participants> = OnceLock::new();
    thread_local! {
        static KEPT: RefCell<Option<mneme_sync::Pin<'static>>> = const { RefCell::new(None) };
    }
    let p = P.get_or_init(|| private(common::options()));
    std::thread::spawn(move || {
        // Destroyed after the thread's own list, or before it, depending on which was registered
        // first.
        KEPT.with_borrow_mut(|kept| *kept = Some(p.pin().unwrap()));
    })
    .join()
    .unwrap();
    let g = p.advance().unwrap();
    assert!(p.quiescent(g), "the pin went with its thread");
    assert_eq!(p.check(), Vec::<String>::new());
}

#[test]
fn slots_are_released_when_threads_end() {
    let p = private(ControlOptions {
        max_threads: 2,
        ..common::options()
    });
    for _ in 0..5 {
        std::thread::scope(|s| {
            s.spawn(|| {
                let slot = p.slot().unwrap();
                slot.intent(Lane::Log).begin(3, &[1, 2]);
                slot.intent(Lane::Log).clear();
                slot.count(0, 1, 2);
            })
            // Joined explicitly: a scope does not wait for a thread's last destructors.
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
}

#[test]
fn a_thread_that_outlives_the_opening_ends_without_harm() {
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
fn a_thread_that_would_wait_for_itself_fails_at_once() {
    let p = private(common::options());
    let pin = p.pin().unwrap();
    let g = p.advance().unwrap();
    let stalled = p.wait_quiescent(g, Duration::from_secs(3600)).unwrap_err();
    assert_eq!(stalled.what, Holding::OwnPin);
    drop(pin);
    let slot = p.slot().unwrap();
    let lock = RobustLock::new();
    let guard = lock.lock(&slot).unwrap();
    assert_eq!(lock.lock(&slot).unwrap_err().what, Holding::OwnLock);
    drop(guard);
    let gate = p.fenced_gate(0).unwrap();
    let inside = gate.shared(&slot).unwrap();
    assert_eq!(gate.sole(&slot).unwrap_err().what, Holding::OwnInside);
    drop(inside);
    let exclusive = gate.sole(&slot).unwrap();
    let error = gate.shared(&slot).unwrap_err();
    assert!(
        matches!(
            error,
            GateError::Stalled(Stalled {
                what: Holding::OwnLock,
                ..
            })
        ),
        "{error}"
    );
    drop(exclusive);
    drop(gate.shared(&slot).unwrap());
    let other = private(common::options());
    assert_eq!(
        gate.shared(&other.slot().unwrap()).unwrap_err(),
        GateError::Foreign
    );
}

/// An intent that a thread has announced and not cleared is unfinished, even if the thread did not
/// die of it.
#[test]
fn a_slot_with_an_intent_is_left_to_the_reapers() {
    let p = private(common::options());
    let announce = || {
        let slot = p.slot().unwrap();
        slot.intent(Lane::Log).begin(3, &[1, 2]);
        slot.id()
    };
    let reaped = || {
        let mut found = Vec::new();
        let reaped = p.reap(|dead| {
            found.push((dead.id(), dead.intent(Lane::Log).map(|intent| intent.kind)));
            Ok::<_, std::convert::Infallible>(())
        });
        assert_eq!(reaped.unwrap().slots as usize, found.len());
        found
    };
    let ended = std::thread::scope(|s| s.spawn(announce).join().unwrap());
    assert!(p.is_dead(ended));
    assert_eq!(reaped(), [(ended, Some(3))]);

    let mut left = None;
    let panics = std::panic::AssertUnwindSafe(|| {
        let slot = p.slot().unwrap();
        let _pin = slot.pin();
        left = Some(announce());
        panic!("a bug")
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    let left = left.unwrap();
    let unlinked = p.advance().unwrap();
    assert!(p.is_dead(left) && !p.quiescent(unlinked));
    assert_ne!(p.slot().unwrap().id(), left, "it has another slot");
    assert_eq!(reaped(), [(left, Some(3))]);
    assert!(p.quiescent(unlinked));
}
