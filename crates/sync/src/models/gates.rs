//! Whoever excludes meets nobody inside.

use super::{Fences, Model, Useless, fails, holds};
use crate::SlotId;
use crate::lock_word::{self, Attempt, Owner};
use crate::word::Barrier;
use crate::{gate, lock_word::LockState};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const BIT: u64 = 1 << 5;
const ME: Owner = Owner {
    slot: SlotId(9),
    tenancy: 1,
};

struct Shared {
    gate: Model,
    inside: Model,
    fences: Model,
    guarded: UnsafeCell<u64>,
}

// SAFETY: loom's cells report what races; that is the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn enter(&self, barrier: &impl Barrier) -> Result<(), LockState> {
        gate::enter(&self.inside, BIT, &self.gate, barrier)
    }

    fn is_empty(&self) -> bool {
        // Those inside leave soon; more looks show nothing new.
        (0..2).any(|_| {
            let inside = gate::is_inside(&self.inside, BIT);
            thread::yield_now();
            !inside
        })
    }

    fn change(&self) {
        // SAFETY: the protocol's claim; loom fails the model where it does not hold.
        self.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
    }
}

/// One that goes in and out twice, one that excludes.
fn gate(
    enter: fn(&Shared) -> Result<(), LockState>,
    exclude: fn(&Shared),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            gate: Model::new(0),
            inside: Model::new(0),
            fences: Model::new(0),
            guarded: UnsafeCell::new(0),
        });
        let entrant = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    if enter(&shared).is_ok() {
                        // SAFETY: as above.
                        shared.guarded.with(|guarded| unsafe { *guarded });
                        gate::leave(&shared.inside, BIT);
                    }
                }
            })
        };
        exclude(&shared);
        entrant.join().unwrap();
    }
}

fn enter(shared: &Shared) -> Result<(), LockState> {
    shared.enter(&Fences(&shared.fences))
}

fn exclude(shared: &Shared) {
    exclude_with(shared, &Fences(&shared.fences));
}

fn exclude_with(shared: &Shared, barrier: &impl Barrier) {
    assert_eq!(lock_word::acquire(&shared.gate, ME), Attempt::Clean);
    barrier.heavy().unwrap();
    if shared.is_empty() {
        shared.change();
    }
    lock_word::release(&shared.gate);
}

#[test]
fn nobody_is_inside_under_exclusion() {
    holds(gate(enter, exclude));
}

#[test]
fn without_the_entrants_barrier_both_are_in() {
    fails(gate(|shared| shared.enter(&Useless), exclude));
}

#[test]
fn without_the_excluders_barrier_both_are_in() {
    fails(gate(enter, |shared| exclude_with(shared, &Useless)));
}

#[test]
fn looking_before_raising_is_no_exclusion() {
    fails(gate(enter, |shared| {
        Fences(&shared.fences).heavy().unwrap();
        let empty = shared.is_empty();
        assert_eq!(lock_word::acquire(&shared.gate, ME), Attempt::Clean);
        if empty {
            shared.change();
        }
        lock_word::release(&shared.gate);
    }));
}

#[test]
fn a_raised_gate_with_news_lets_nobody_in() {
    holds(|| {
        let shared = Shared {
            gate: Model::new(0),
            inside: Model::new(0),
            fences: Model::new(0),
            guarded: UnsafeCell::new(0),
        };
        let _ = lock_word::acquire(&shared.gate, ME);
        lock_word::give_news(&shared.gate);
        lock_word::release(&shared.gate);
        assert!(enter(&shared).is_err_and(LockState::has_news));
        assert!(!gate::is_inside(&shared.inside, BIT));
    });
}
