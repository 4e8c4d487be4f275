//! A value that is read while it is replaced, and values that wait to be freed. Small enough for
//! Miri.
#![allow(clippy::unwrap_used)]

mod common;

use mneme_sync::{Rcu, Retired};
use mneme_testkit::in_threads;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of updates by each thread.
const UPDATES: u64 = if cfg!(miri) { 4 } else { 2_000 };

fn participants() -> mneme_sync::Participants {
    common::private(common::options())
}

/// A value that counts how often it is dropped.
struct Counted<'a>(u64, &'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn readers_see_complete_values_and_each_is_dropped_once() {
    let p = participants();
    let dropped = AtomicU64::new(0);
    let made = AtomicU64::new(1);
    let value = Rcu::new(&p, Counted(0, &dropped));
    in_threads(4, |thread| {
        let mut last = 0;
        for _ in 0..UPDATES {
            if thread < 2 {
                // Every attempt creates a value; those that lost the race are dropped at once.
                let next = |old: &Counted<'_>| {
                    made.fetch_add(1, Relaxed);
                    Counted(old.0 + 1, &dropped)
                };
                value.update(next).unwrap();
            } else {
                let reader = value.read().unwrap();
                for _ in 0..3 {
                    let seen = reader.get().0;
                    assert!(seen >= last, "time runs backwards");
                    last = seen;
                }
            }
        }
    });
    assert_eq!(value.read().unwrap().get().0, 2 * UPDATES);
    assert_eq!(value.retired().flush(), 0);
    assert_eq!(dropped.load(Relaxed), made.load(Relaxed) - 1);
    value.replace(Counted(7, &dropped)).unwrap();
    drop(value);
    assert_eq!(dropped.load(Relaxed), made.load(Relaxed) + 1);
}

#[test]
fn a_value_that_a_reader_sees_is_kept() {
    let p = participants();
    let dropped = AtomicU64::new(0);
    let value = Rcu::new(&p, Counted(1, &dropped));
    let reader = value.read().unwrap();
    let first = reader.get();
    value.replace(Counted(2, &dropped)).unwrap();
    assert_eq!((first.0, reader.get().0), (1, 2));
    assert_eq!((value.retired().flush(), dropped.load(Relaxed)), (1, 0));
    drop(reader);
    assert_eq!((value.retired().flush(), dropped.load(Relaxed)), (0, 1));
    // Without a flush they are freed a batch at a time.
    for n in 0..100 {
        value.replace(Counted(n, &dropped)).unwrap();
        assert!(value.retired().len() <= 32);
    }
}

/// Threads with separate bags: each collects a batch there, a flush examines all bags, and what is
/// left is dropped with the bags.
#[test]
fn several_threads_bags_collect_separate_batches_and_lose_nothing() {
    const EACH: u64 = 10;
    let p = participants();
    let dropped = AtomicU64::new(0);
    let retired = Retired::new(&p).batch(EACH as usize + 1).bags(2);
    let retire = |values: u64| {
        for n in 0..values {
            let value = Box::into_raw(Box::new(Counted(n, &dropped)));
            // SAFETY: it came from a box that nobody else has seen.
            unsafe { retired.retire(NonNull::new(value).unwrap()) };
        }
    };
    // Their slots have different numbers because both threads are alive.
    let both = std::sync::Barrier::new(2);
    in_threads(2, |_| {
        retire(EACH);
        both.wait();
    });
    assert_eq!(
        dropped.load(Relaxed),
        0,
        "no bag is full, though two hold more than one batch"
    );
    assert_eq!(retired.len() as u64, 2 * EACH);
    assert_eq!((retired.flush(), dropped.load(Relaxed)), (0, 2 * EACH));
    retire(EACH);
    drop(retired);
    assert_eq!(dropped.load(Relaxed), 3 * EACH);
}
