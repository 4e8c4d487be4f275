//! The data of a held version are not freed.

use super::{Fences, Model, Useless, fails, holds as passes};
use crate::atomics::{Barrier, Word};
use crate::epoch::{self, FIRST_EPOCH, PinKind, UNPINNED};
use crate::held_versions;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Release};

const OLD: u64 = 1;
const NEW: u64 = 2;
const ME: u64 = 7;
const FREED: u64 = 0xdead;

struct Shared {
    epoch: Model,
    quiesced: Model,
    pin: Model,
    fences: Model,
    durable: Model,
    owner: Model,
    version: Model,
    released: Model,
    /// Data that only version [`OLD`] uses, and no later one.
    leaf: UnsafeCell<u64>,
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn look(&self) {
        // SAFETY: the protocol claims that the leaf is not freed; loom fails the model if that is
        // false.
        let value = self.leaf.with(|value| unsafe { *value });
        assert_ne!(value, FREED);
    }

    fn enter(&self, barrier: &impl Barrier) -> u64 {
        epoch::enter(&self.epoch, &self.pin, PinKind::Firm, barrier);
        self.durable.load(Acquire)
    }

    fn register(&self, version: u64) {
        assert!(held_versions::claim(&self.owner, ME));
        held_versions::hold(&self.version, version);
    }

    /// Reads the leaf if the snapshot's version has it, and releases the version.
    fn use_and_release(&self, version: u64) {
        if version == OLD {
            self.look();
        }
        held_versions::let_go(&self.owner, &self.version, &self.released);
    }

    fn is_held(&self) -> bool {
        held_versions::held(&self.version) == OLD
    }

    fn is_over(&self, g: u64) -> bool {
        epoch::is_over(&self.epoch, &self.quiesced, g, || [&self.pin].into_iter())
    }

    fn free(&self) {
        // SAFETY: as above.
        self.leaf.with_mut(|value| unsafe { *value = FREED });
    }
}

fn snapshot(shared: &Shared) {
    let version = shared.enter(&Fences(&shared.fences));
    shared.register(version);
    epoch::leave(&shared.pin);
    shared.use_and_release(version);
}

fn collect(shared: &Shared) {
    shared.durable.store(NEW, Release);
    let g = epoch::advance(&shared.epoch, &Fences(&shared.fences)).unwrap();
    if shared.is_over(g) && !shared.is_held() {
        shared.free();
    }
}

fn together(reader: fn(&Shared), collector: fn(&Shared)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            epoch: Model::new(FIRST_EPOCH),
            quiesced: Model::new(0),
            pin: Model::new(UNPINNED),
            fences: Model::new(0),
            durable: Model::new(OLD),
            owner: Model::new(0),
            version: Model::new(0),
            released: Model::new(0),
            leaf: UnsafeCell::new(1),
        });
        let other = Arc::clone(&shared);
        let snapshot = thread::spawn(move || reader(&other));
        collector(&shared);
        snapshot.join().unwrap();
    }
}

#[test]
fn a_held_version_keeps_its_data() {
    passes(together(snapshot, collect));
}

#[test]
fn a_version_registered_after_the_pin_is_freed_while_in_use() {
    fails(together(
        |shared| {
            let version = shared.enter(&Fences(&shared.fences));
            epoch::leave(&shared.pin);
            shared.register(version);
            shared.use_and_release(version);
        },
        collect,
    ));
}

#[test]
fn reading_the_table_before_the_epoch_is_over_misses_a_version() {
    fails(together(snapshot, |shared| {
        shared.durable.store(NEW, Release);
        let g = epoch::advance(&shared.epoch, &Fences(&shared.fences)).unwrap();
        let is_held = shared.is_held();
        if shared.is_over(g) && !is_held {
            shared.free();
        }
    }));
}

#[test]
fn freeing_without_reading_the_table_frees_a_held_version() {
    fails(together(snapshot, |shared| {
        shared.durable.store(NEW, Release);
        let g = epoch::advance(&shared.epoch, &Fences(&shared.fences)).unwrap();
        if shared.is_over(g) {
            shared.free();
        }
    }));
}

#[test]
fn without_the_barrier_a_held_version_is_freed() {
    fails(together(
        |shared| {
            let version = shared.enter(&Useless);
            shared.register(version);
            epoch::leave(&shared.pin);
            shared.use_and_release(version);
        },
        |shared| {
            shared.durable.store(NEW, Release);
            let g = epoch::advance(&shared.epoch, &Useless).unwrap();
            if shared.is_over(g) && !shared.is_held() {
                shared.free();
            }
        },
    ));
}

#[test]
fn a_version_released_before_the_last_read_is_freed_while_in_use() {
    fails(together(
        |shared| {
            let version = shared.enter(&Fences(&shared.fences));
            shared.register(version);
            epoch::leave(&shared.pin);
            held_versions::let_go(&shared.owner, &shared.version, &shared.released);
            if version == OLD {
                shared.look();
            }
        },
        collect,
    ));
}
