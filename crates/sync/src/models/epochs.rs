//! Memory that a pin could reach is not freed before the pin ends, and a revoked pin is reported.

use super::{Fences, Model, Useless, fails, fails_within, holds, spawn};
use crate::atomics::{Barrier, Word};
use crate::epoch::{self, FIRST_EPOCH, PinKind, UNPINNED};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const NEW: u64 = 1;
const POISON: u64 = 0xdead;

struct Shared {
    epoch: Model,
    quiesced: Model,
    pin: Model,
    /// How many slots were ever claimed: 1, or 0 if the reader has not claimed one yet.
    mark: Model,
    fences: Model,
    /// The linked block.
    link: Model,
    blocks: [UnsafeCell<u64>; 2],
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            epoch: Model::new(FIRST_EPOCH),
            quiesced: Model::new(0),
            pin: Model::new(UNPINNED),
            mark: Model::new(1),
            fences: Model::new(0),
            link: Model::new(0),
            blocks: [UnsafeCell::new(10), UnsafeCell::new(11)],
        })
    }

    fn fences(&self) -> Fences<'_> {
        Fences(&self.fences)
    }

    fn read_pinned(&self, barrier: &impl Barrier) {
        epoch::enter(&self.epoch, &self.pin, PinKind::Firm, barrier);
        self.read_linked();
        epoch::leave(&self.pin);
    }

    fn read_linked(&self) {
        let block = self.link.load(Acquire) as usize;
        // SAFETY: the protocol claims that the block is not freed; loom fails the model if that is
        // false.
        let value = self.blocks[block].with(|value| unsafe { *value });
        assert_ne!(value, POISON);
    }

    /// As [`new`](Self::new), but the reader has no slot yet.
    fn without_slots() -> Arc<Shared> {
        let shared = Shared::new();
        shared.mark.store(0, Relaxed);
        shared
    }

    /// Does what `Inner::claim_slot` does: the mark is raised before the slot is used.
    fn claim_slot(&self) {
        self.mark.fetch_max(1, AcqRel);
    }

    /// Does what `ControlRegion::slots` does: the pins of the slots below the mark, which is read
    /// at once.
    fn pins(&self) -> impl Iterator<Item = &Model> {
        let mark = self.mark.load(Acquire) as usize;
        [&self.pin].into_iter().take(mark)
    }

    fn is_over(&self, g: u64) -> bool {
        epoch::is_over(&self.epoch, &self.quiesced, g, || self.pins())
    }

    /// Frees the block if its readers are gone.
    fn free_if_over(&self, g: u64) {
        if self.is_over(g) {
            // SAFETY: as above.
            self.blocks[0].with_mut(|value| unsafe { *value = POISON });
        }
    }
}

/// A reader pins twice, while a reclaimer unlinks and frees.
fn pins(read: fn(&Shared), reclaim: fn(&Shared) -> u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let reader = spawn(&shared, move |shared| {
            read(shared);
            read(shared);
        });
        let g = reclaim(&shared);
        shared.free_if_over(g);
        reader.join().unwrap();
    }
}

fn in_order(shared: &Shared) -> u64 {
    shared.link.store(NEW, Release);
    epoch::advance(&shared.epoch, &shared.fences()).unwrap()
}

fn pinned(shared: &Shared) {
    shared.read_pinned(&shared.fences());
}

#[test]
fn nothing_is_freed_under_a_pin() {
    holds(pins(pinned, in_order));
}

#[test]
fn without_the_light_barrier_a_pin_is_missed() {
    fails(pins(|shared| shared.read_pinned(&Useless), in_order));
}

#[test]
fn without_the_heavy_barrier_a_pin_is_missed() {
    fails(pins(pinned, |shared| {
        shared.link.store(NEW, Release);
        epoch::advance(&shared.epoch, &Useless).unwrap()
    }));
}

#[test]
fn an_epoch_taken_before_the_unlinking_frees_too_early() {
    fails(pins(pinned, |shared| {
        shared.fences().heavy().unwrap();
        let g = shared.epoch.fetch_add(1, AcqRel);
        shared.link.store(NEW, Release);
        g
    }));
}

#[test]
fn a_barrier_before_the_unlinking_does_not_protect() {
    fails(pins(pinned, |shared| {
        shared.fences().heavy().unwrap();
        shared.link.store(NEW, Release);
        shared.epoch.fetch_add(1, AcqRel)
    }));
}

#[test]
fn an_epoch_read_before_the_barrier_frees_too_early_if_reading_it_acquires_nothing() {
    // As with a time stamp, which proves nothing about another CPU's store buffer: the reader gets
    // an epoch younger than the unlinking and still finds the old block.
    let read = |shared: &Shared| {
        let epoch = shared.epoch.load(Relaxed);
        shared
            .pin
            .store(epoch::pin_word(epoch, PinKind::Firm), Release);
        shared.fences().light();
        shared.read_linked();
        epoch::leave(&shared.pin);
    };
    fails_within(
        3,
        pins(read, |shared| {
            shared.link.store(NEW, Relaxed);
            let g = shared.epoch.fetch_add(1, Relaxed);
            shared.fences().heavy().unwrap();
            g
        }),
    );
    // Read after the barrier, even such an epoch is enough.
    holds(pins(read, |shared| {
        shared.link.store(NEW, Relaxed);
        shared.fences().heavy().unwrap();
        shared.epoch.fetch_add(1, Relaxed)
    }));
}

#[test]
fn a_leave_that_does_not_release_lets_reads_slip_behind_it() {
    let read = |shared: &Shared| {
        epoch::enter(&shared.epoch, &shared.pin, PinKind::Firm, &shared.fences());
        shared.read_linked();
        shared.pin.store(UNPINNED, Relaxed);
    };
    fails(pins(read, in_order));
}

#[test]
fn an_enter_that_does_not_release_hides_the_leave_before_it() {
    let read = |shared: &Shared| {
        let epoch = shared.epoch.load(Acquire);
        shared
            .pin
            .store(epoch::pin_word(epoch, PinKind::Firm), Relaxed);
        shared.fences().light();
        shared.read_linked();
        epoch::leave(&shared.pin);
    };
    fails_within(3, pins(read, in_order));
}

/// A second reclaimer relies on what the first has found out about all pins.
fn reclaimers(publish: fn(&Shared) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let reader = spawn(&shared, move |shared| shared.read_pinned(&shared.fences()));
        let other = spawn(&shared, move |shared| {
            epoch::advance(&shared.epoch, &shared.fences()).unwrap();
            publish(shared);
        });
        shared.link.store(NEW, Release);
        let g = epoch::advance(&shared.epoch, &shared.fences()).unwrap();
        if shared.quiesced.load(Acquire) > g {
            // SAFETY: the protocol claims that the block is not read; loom fails the model if that
            // is false.
            shared.blocks[0].with_mut(|value| unsafe { *value = POISON });
        }
        reader.join().unwrap();
        other.join().unwrap();
    }
}

#[test]
fn one_reclaimers_finding_holds_for_all() {
    holds(reclaimers(|shared| shared.is_over(0)));
}

#[test]
fn a_scan_of_the_pins_must_not_claim_more_than_the_epoch_read_before_it() {
    fails_within(
        3,
        reclaimers(|shared| {
            let pin = shared.pin.load(Acquire);
            let pinned = epoch::pinned_epoch(pin).unwrap_or(u64::MAX);
            let oldest = shared.epoch.load(Acquire).min(pinned);
            shared.quiesced.fetch_max(oldest, AcqRel) > 0
        }),
    );
}

/// A slot appears while one reclaimer reads all pins. Another reclaimer relies on the result, and
/// frees.
fn slot_appears(look: fn(&Shared)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::without_slots();
        let reader = spawn(&shared, move |shared| {
            shared.claim_slot();
            shared.read_pinned(&shared.fences());
        });
        let looker = spawn(&shared, look);
        let g = in_order(&shared);
        if shared.quiesced.load(Acquire) > g {
            // SAFETY: the protocol claims that the block is not read; loom fails the model if that
            // is false.
            shared.blocks[0].with_mut(|value| unsafe { *value = POISON });
        }
        reader.join().unwrap();
        looker.join().unwrap();
    }
}

#[test]
fn a_slot_that_appears_during_a_scan_is_not_missed() {
    holds(slot_appears(|shared| {
        shared.is_over(0);
    }));
}

#[test]
fn slots_counted_before_the_epoch_is_read_miss_one_that_appears() {
    fails_within(
        3,
        slot_appears(|shared| {
            let pins = shared.pins();
            epoch::is_over(&shared.epoch, &shared.quiesced, 0, || pins);
        }),
    );
}

/// A reader copies under a revocable pin, and a reclaimer revokes the pin and reuses the block at
/// once. The block is an atomic: the copy may race, but a torn copy may not be used.
fn revocation(
    still_held: fn(&Shared, u64) -> bool,
    between: fn(&Shared),
    upgrade: bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let bytes = Arc::new([Model::new(10), Model::new(11)]);
        let copier = {
            let (shared, bytes) = (Arc::clone(&shared), Arc::clone(&bytes));
            thread::spawn(move || {
                let mut entered = epoch::enter(
                    &shared.epoch,
                    &shared.pin,
                    PinKind::Revocable,
                    &shared.fences(),
                );
                if upgrade {
                    match epoch::make_firm(&shared.pin, entered) {
                        Some(firm) => entered = firm,
                        None => return epoch::leave(&shared.pin),
                    }
                }
                let copy = bytes[shared.link.load(Acquire) as usize].load(Relaxed);
                let good = still_held(&shared, entered);
                epoch::leave(&shared.pin);
                assert!(!good || copy != POISON, "a torn copy was believed");
                assert!(!upgrade || good, "a firm pin was revoked");
            })
        };
        shared.link.store(NEW, Release);
        let g = epoch::advance(&shared.epoch, &shared.fences()).unwrap();
        if epoch::begin_revoking(&shared.pin, g, 1) {
            between(&shared);
            epoch::finish_revoking(&shared.pin, 1);
        }
        if shared.is_over(g) {
            bytes[0].store(POISON, Relaxed);
        }
        copier.join().unwrap();
    }
}

fn looked_at(shared: &Shared, entered: u64) -> bool {
    epoch::still_held(&shared.pin, entered, &shared.fences())
}

fn heavy(shared: &Shared) {
    shared.fences().heavy().unwrap();
}

#[test]
fn a_copy_under_a_revoked_pin_is_not_used() {
    holds(revocation(looked_at, heavy, false));
}

#[test]
fn a_pin_made_firm_in_time_is_not_revoked() {
    holds(revocation(looked_at, heavy, true));
}

#[test]
fn without_the_readers_barrier_a_torn_copy_is_used() {
    let look = |shared: &Shared, entered| epoch::still_held(&shared.pin, entered, &Useless);
    fails(revocation(look, heavy, false));
}

#[test]
fn without_the_revokers_barrier_a_torn_copy_is_used() {
    fails(revocation(looked_at, |_| {}, false));
}
