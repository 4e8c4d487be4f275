//! Whoever is alone at a fenced gate meets no reader, whatever death left him the gate.
//!
//! That both sides need their fence is shown with the asymmetric form (`gates`), whose protocol
//! this is; here is what is the fenced form's own: the gate of a dead writer, and dead readers.

use super::{Fences, Model, Useless, fails, holds};
use crate::SlotId;
use crate::gate;
use crate::lock_word::{self, Attempt, LockState, Owner};
use crate::word::{Barrier, Word};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Release};

const BIT: u64 = 1;
const MORTAL: Owner = Owner {
    slot: SlotId(1),
    tenancy: 3,
};
const ME: Owner = Owner {
    slot: SlotId(2),
    tenancy: 1,
};

struct Shared {
    gate: Model,
    inside: Model,
    fences: Model,
    /// Set when the mortal one is dead.
    dead: Model,
    guarded: UnsafeCell<u64>,
}

// SAFETY: loom's cells report what races; that is the test.
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
        gate::enter(&self.inside, BIT, &self.gate, &Fences(&self.fences))
    }

    fn read(&self) {
        // SAFETY: the protocol's claim; loom fails the model where it does not hold.
        self.guarded.with(|guarded| unsafe { *guarded });
    }

    fn is_dead(&self) -> bool {
        // The kernel lets go of a liveness lock after its owner's last store.
        self.dead.load(Acquire) == 1
    }

    /// Alone inside, if the gate can be had: changes what it guards.
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
            // SAFETY: as above.
            self.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
        }
        lock_word::release(&self.gate);
    }
}

fn is_inside(shared: &Shared) -> bool {
    gate::is_inside(&shared.inside, BIT)
}

/// A writer raises the gate and dies before his fence; a reader goes in and out; another writer
/// takes the gate over.
fn dead_writer(change: fn(&Shared)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.enter().is_ok() {
                    shared.read();
                    gate::leave(&shared.inside, BIT);
                }
            })
        };
        let mortal = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _ = lock_word::acquire(&shared.gate, MORTAL);
                shared.dead.store(1, Release);
            })
        };
        change(&shared);
        mortal.join().unwrap();
        reader.join().unwrap();
    }
}

#[test]
fn who_takes_over_from_a_dead_writer_meets_no_reader() {
    holds(dead_writer(|shared| {
        shared.change(&Fences(&shared.fences), is_inside);
    }));
}

#[test]
fn without_a_fence_of_his_own_he_does() {
    fails(dead_writer(|shared| shared.change(&Useless, is_inside)));
}

/// A reader dies inside while a writer wants to be alone.
fn dead_reader(is_occupied: fn(&Shared) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let mortal = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.enter().is_ok() {
                    shared.read();
                    shared.dead.store(1, Release);
                }
            })
        };
        shared.change(&Fences(&shared.fences), is_occupied);
        mortal.join().unwrap();
    }
}

#[test]
fn a_dead_reader_is_nobody() {
    holds(dead_reader(|shared| is_inside(shared) && !shared.is_dead()));
}

#[test]
fn a_reader_thought_dead_too_early_is_somebody() {
    fails(dead_reader(|_| false));
}
