//! A writer inside a gate meets no reader, even if it took the gate over from a dead writer.

use super::{Fences, Model, Useless, fails, holds, spawn};
use crate::SlotId;
use crate::atomics::{Barrier, Word};
use crate::gate;
use crate::lock_word::{self, Attempt, LockState, Owner};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Release};

const BIT: u64 = 1;
const MORTAL: Owner = Owner {
    slot: SlotId(1),
    generation: 3,
};
const ME: Owner = Owner {
    slot: SlotId(2),
    generation: 1,
};

struct Shared {
    gate: Model,
    inside: Model,
    fences: Model,
    /// Set when the thread that may die is dead.
    dead: Model,
    guarded: UnsafeCell<u64>,
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            gate: Model::new(0),
            inside: Model::new(0),
            fences: Model::new(0),
            dead: Model::new(0),
            guarded: UnsafeCell::new(0),
        })
    }

    fn enter(&self) -> Result<(), LockState> {
        self.enter_with(&Fences(&self.fences))
    }

    fn enter_with(&self, barrier: &impl Barrier) -> Result<(), LockState> {
        gate::enter(&self.inside, BIT, &self.gate, barrier)
    }

    fn write(&self) {
        // SAFETY: as in `read`.
        self.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
    }

    /// Whether one or two checks find no reader. Readers inside leave soon, so more checks show
    /// nothing new.
    fn is_empty(&self) -> bool {
        (0..2).any(|_| {
            let inside = is_inside(self);
            thread::yield_now();
            !inside
        })
    }

    fn read(&self) {
        // SAFETY: the protocol claims that no writer is inside; loom fails the model if that is
        // false.
        self.guarded.with(|guarded| unsafe { *guarded });
    }

    fn is_dead(&self) -> bool {
        // The kernel releases a liveness lock after its owner's last store.
        self.dead.load(Acquire) == 1
    }

    /// Changes the guarded value exclusively, if the gate can be taken.
    fn change(&self, barrier: &impl Barrier, is_occupied: fn(&Shared) -> bool) {
        let mut attempt = lock_word::acquire(&self.gate, ME);
        if let Attempt::Busy(seen) = attempt
            && seen.owner() == Some(MORTAL)
            && self.is_dead()
        {
            attempt = lock_word::take_over(&self.gate, seen, ME);
        }
        if let Attempt::Busy(_) = attempt {
            return;
        }
        barrier.heavy().unwrap();
        if !is_occupied(self) {
            self.write();
        }
        lock_word::release(&self.gate);
    }
}

fn is_inside(shared: &Shared) -> bool {
    gate::is_inside(&shared.inside, BIT)
}

/// A reader that enters and leaves twice, and a writer.
fn reader_and_writer(
    enter: fn(&Shared) -> Result<(), LockState>,
    write: fn(&Shared),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let reader = spawn(&shared, move |shared| {
            for _ in 0..2 {
                if enter(shared).is_ok() {
                    shared.read();
                    gate::leave(&shared.inside, BIT);
                }
            }
        });
        write(&shared);
        reader.join().unwrap();
    }
}

fn write_alone(shared: &Shared) {
    shared.change(&Fences(&shared.fences), |shared| !shared.is_empty());
}

#[test]
fn a_writer_meets_no_reader() {
    holds(reader_and_writer(Shared::enter, write_alone));
}

#[test]
fn without_the_readers_fence_both_are_inside() {
    fails(reader_and_writer(
        |shared| shared.enter_with(&Useless),
        write_alone,
    ));
}

#[test]
fn without_the_writers_fence_both_are_inside() {
    fails(reader_and_writer(Shared::enter, |shared| {
        shared.change(&Useless, |shared| !shared.is_empty());
    }));
}

#[test]
fn checking_for_readers_before_the_gate_is_closed_excludes_nobody() {
    fails(reader_and_writer(Shared::enter, |shared| {
        Fences(&shared.fences).heavy().unwrap();
        let empty = shared.is_empty();
        assert_eq!(lock_word::acquire(&shared.gate, ME), Attempt::Clean);
        if empty {
            shared.write();
        }
        lock_word::release(&shared.gate);
    }));
}

#[test]
fn a_gate_of_a_dead_writer_lets_no_reader_in_before_the_repair() {
    holds(|| {
        let shared = Shared::new();
        let _ = lock_word::acquire(&shared.gate, MORTAL);
        let seen = lock_word::look(&shared.gate);
        let taken_over = lock_word::take_over(&shared.gate, seen, ME);
        assert_eq!(taken_over, Attempt::OwnerDied);
        lock_word::release(&shared.gate);
        assert!(shared.enter().is_err_and(LockState::owner_died));
        assert!(!is_inside(&shared));
        lock_word::repaired(&shared.gate);
        assert!(shared.enter().is_ok());
    });
}

/// A writer closes the gate and dies before its fence; a reader enters and leaves; another writer
/// takes the gate over.
fn dead_writer(change: fn(&Shared)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let reader = spawn(&shared, move |shared| {
            if shared.enter().is_ok() {
                shared.read();
                gate::leave(&shared.inside, BIT);
            }
        });
        let mortal = spawn(&shared, move |shared| {
            let _ = lock_word::acquire(&shared.gate, MORTAL);
            shared.dead.store(1, Release);
        });
        change(&shared);
        mortal.join().unwrap();
        reader.join().unwrap();
    }
}

#[test]
fn a_writer_that_takes_over_from_a_dead_one_meets_no_reader() {
    holds(dead_writer(|shared| {
        shared.change(&Fences(&shared.fences), is_inside);
    }));
}

#[test]
fn a_writer_that_takes_over_needs_a_fence_of_its_own() {
    fails(dead_writer(|shared| shared.change(&Useless, is_inside)));
}

/// A reader dies inside while a writer wants to enter.
fn dead_reader(is_occupied: fn(&Shared) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let mortal = spawn(&shared, move |shared| {
            if shared.enter().is_ok() {
                shared.read();
                shared.dead.store(1, Release);
            }
        });
        shared.change(&Fences(&shared.fences), is_occupied);
        mortal.join().unwrap();
    }
}

#[test]
fn a_dead_reader_does_not_keep_a_writer_out() {
    holds(dead_reader(|shared| is_inside(shared) && !shared.is_dead()));
}

#[test]
fn a_living_reader_considered_dead_meets_a_writer() {
    fails(dead_reader(|_| false));
}
