//! A robust lock has one owner at a time, and the successor of a dead owner learns of the death.

use super::{Model, fails, fails_within, holds, spawn};
use crate::SlotId;
use crate::atomics::Word;
use crate::lock_word::{self, Attempt, LockState, Owner};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WHOLE: u64 = 0;
const HALF: u64 = 1;

struct Shared {
    lock: Model,
    /// Set when the first owner is dead.
    dead: Model,
    guarded: UnsafeCell<u64>,
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

const fn owner(slot: u16) -> Owner {
    Owner {
        slot: SlotId(slot),
        generation: 3,
    }
}

const MORTAL: Owner = owner(1);

/// How a waiter takes a lock over after examining its word.
type TakeOver = fn(&Model, LockState, Owner) -> Attempt;

impl Shared {
    /// If the lock was taken: whether an owner died.
    fn get(&self, me: Owner, take_over: TakeOver) -> Option<bool> {
        let mut attempt = lock_word::acquire(&self.lock, me);
        if let Attempt::Busy(seen) = attempt
            && seen.owner() == Some(MORTAL)
            && self.dead.load(Acquire) == 1
        {
            attempt = take_over(&self.lock, seen, me);
        }
        match attempt {
            Attempt::Clean => Some(false),
            Attempt::OwnerDied => Some(true),
            Attempt::Busy(_) => None,
        }
    }

    fn set(&self, value: u64) {
        // SAFETY: the protocol claims exclusive access; loom fails the model if that is false.
        self.guarded.with_mut(|guarded| unsafe { *guarded = value });
    }

    fn use_it(&self, me: Owner, take_over: TakeOver) {
        let Some(owner_died) = self.get(me, take_over) else {
            return;
        };
        // SAFETY: as above.
        let found = self.guarded.with(|guarded| unsafe { *guarded });
        assert!(owner_died || found == WHOLE, "half a change, not reported");
        self.set(WHOLE);
        lock_word::repaired(&self.lock);
        lock_word::release(&self.lock);
    }
}

/// An owner dies holding the lock, while two others want it.
fn death(take_over: TakeOver) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            lock: Model::new(0),
            dead: Model::new(0),
            guarded: UnsafeCell::new(WHOLE),
        });
        let waiter = |me: Owner| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.use_it(me, take_over))
        };
        assert_eq!(lock_word::acquire(&shared.lock, MORTAL), Attempt::Clean);
        let (two, three) = (waiter(owner(2)), waiter(owner(3)));
        shared.set(HALF);
        shared.dead.store(1, Release);
        two.join().unwrap();
        three.join().unwrap();
        shared.use_it(owner(4), take_over);
    }
}

#[test]
fn a_dead_owners_lock_reports_the_death_to_the_next() {
    holds(death(lock_word::take_over));
}

#[test]
fn a_take_over_that_does_not_compare_makes_two_owners() {
    fails(death(|lock, _, me| {
        let seen = LockState(lock.load(Relaxed));
        let _ = lock_word::take_over(lock, seen, me);
        Attempt::OwnerDied
    }));
}

#[test]
fn a_take_over_of_another_word_than_the_one_examined_makes_two_owners() {
    fails_within(
        3,
        death(|lock, _, me| lock_word::take_over(lock, lock_word::look(lock), me)),
    );
}

/// How an owner takes a free lock that no owner has left half-way.
type Take = fn(&Model, Owner) -> bool;

fn clean(lock: &Model, me: Owner) -> bool {
    lock_word::acquire(lock, me) == Attempt::Clean
}

/// Two living owners, one after the other.
fn turns(take: Take, release: fn(&Model)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            lock: Model::new(0),
            dead: Model::new(0),
            guarded: UnsafeCell::new(WHOLE),
        });
        let turn = move |shared: &Shared, me| {
            if take(&shared.lock, me) {
                shared.set(HALF);
                shared.set(WHOLE);
                release(&shared.lock);
            }
        };
        let other = spawn(&shared, move |shared| turn(shared, owner(2)));
        turn(&shared, owner(3));
        other.join().unwrap();
    }
}

#[test]
fn the_next_owner_sees_the_last_ones_stores() {
    holds(turns(clean, lock_word::release));
}

#[test]
fn a_release_without_release_order_hides_stores_from_the_next_owner() {
    fails(turns(clean, |lock| lock.store(0, Relaxed)));
}

#[test]
fn an_owner_by_one_attempt_sees_the_last_ones_stores() {
    holds(turns(lock_word::acquire_clean, lock_word::release));
}

#[test]
fn a_single_attempt_takes_no_lock_that_an_owner_left_half_way() {
    holds(|| {
        let lock = Model::new(0);
        assert!(lock_word::acquire_clean(&lock, MORTAL));
        assert!(!lock_word::acquire_clean(&lock, owner(2)));
        lock_word::needs_repair(&lock);
        lock_word::release(&lock);
        assert!(!lock_word::acquire_clean(&lock, owner(2)));
        assert_eq!(lock_word::acquire(&lock, owner(2)), Attempt::OwnerDied);
        lock_word::repaired(&lock);
        lock_word::release(&lock);
        assert!(lock_word::acquire_clean(&lock, owner(3)));
    });
}
