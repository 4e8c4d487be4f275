//! Places that tests arm: what happens there, to which thread, and how often.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mneme_sys::fault::{Action, Outcome, arm, disarm, discard, named_in, passed, reached, run};
use mneme_sys::{PagePolicy, Region};

fn work(steps: &AtomicU32) -> u32 {
    for _ in 0..3 {
        mneme_sys::fault!("sys.test.step");
        steps.fetch_add(1, Ordering::Relaxed);
    }
    7
}

#[test]
fn a_thread_is_abandoned_at_the_nth_passage_and_runs_no_destructor() {
    struct Loud(Arc<AtomicU32>);
    impl Drop for Loud {
        fn drop(&mut self) {
            self.0.fetch_add(100, Ordering::Relaxed);
        }
    }
    let steps = Arc::new(AtomicU32::new(0));
    let inside = Arc::clone(&steps);
    let outcome = run("sys.test.step", Action::Abandon, 2, move || {
        let loud = Loud(inside);
        work(&loud.0)
    });
    assert_eq!(outcome, Outcome::Abandoned);
    assert_eq!(steps.load(Ordering::Relaxed), 1);
}

#[test]
fn a_place_that_is_not_reached_often_enough_lets_the_work_finish() {
    let outcome = run("sys.test.step", Action::Abandon, 4, || {
        (work(&AtomicU32::new(0)), passed())
    });
    let passed = vec![("sys.test.step", 3)];
    assert_eq!(outcome, Outcome::Finished((7, passed)));
}

#[test]
fn a_call_happens_once_and_the_thread_goes_on() {
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let call = Action::Call(Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let before = reached();
    arm("sys.test.step", call, 2);
    assert_eq!(work(&AtomicU32::new(0)), 7);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(reached(), before + 1);
    // Arming is by thread: another one passes unharmed.
    arm("sys.test.step", Action::Abandon, 1);
    let other = std::thread::spawn(|| work(&AtomicU32::new(0)));
    assert_eq!(other.join().unwrap(), 7);
    disarm();
}

#[test]
fn a_census_finds_every_name_once() {
    let named = named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap();
    let step = named.iter().filter(|name| **name == "sys.test.step");
    assert_eq!(step.count(), 1, "{named:?}");
}

#[test]
fn a_panic_before_the_point_is_distinguished() {
    let outcome: Outcome<u32> = run("sys.test.never", Action::Abandon, 1, || {
        panic!("on purpose")
    });
    assert_eq!(outcome, Outcome::Panicked);
}

#[test]
fn discarded_memory_is_zero_and_stays_mapped() {
    let region = Region::memfd("discarded", 1 << 20, 1 << 20, PagePolicy::Small).unwrap();
    let word: &AtomicU64 = region.at(64).unwrap();
    word.store(7, Ordering::Relaxed);
    let file = region.duplicate_fd().unwrap().unwrap();
    discard(&file, region.max()).unwrap();
    assert_eq!(word.load(Ordering::Relaxed), 0);
    word.store(8, Ordering::Relaxed);
    assert_eq!(word.load(Ordering::Relaxed), 8);
}
