//! A slot has one owner at a time, which finds it clear, whichever thread had or reaped it before.

use super::{Model, fails, fails_within, holds, spawn};
use crate::atomics::Word;
use crate::epoch::{PinKind, UNPINNED, pin_word};
use crate::intent;
use crate::process::{self, SlotState, SlotStatus};
use crate::slot_owner::{self, SlotWords};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

const DEAD: u16 = 1;
const HEAD: u64 = 7 << 48;

struct Shared {
    owner: Model,
    pin: Model,
    inside: Model,
    heads: [Model; 4],
    /// The dead process's liveness lock: 1 while a reaper has it.
    liveness: Model,
    /// How often the dead slot was repaired.
    repairs: UnsafeCell<u32>,
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    /// A slot whose owner died while it was pinned and inside a gate, with intents.
    fn left_by_the_dead() -> Arc<Shared> {
        let shared = Shared {
            owner: Model::new(0),
            pin: Model::new(pin_word(1, PinKind::Firm)),
            inside: Model::new(1),
            heads: std::array::from_fn(|_| Model::new(HEAD)),
            liveness: Model::new(0),
            repairs: UnsafeCell::new(0),
        };
        assert!(slot_owner::claim(&shared.owner, DEAD, 1).is_some());
        Arc::new(shared)
    }

    fn words(&self) -> SlotWords<'_, Model> {
        SlotWords {
            owner: &self.owner,
            pin: &self.pin,
            inside: &self.inside,
            intents: self.heads.each_ref(),
        }
    }

    fn take_liveness(&self) -> bool {
        self.liveness
            .compare_exchange(0, 1, AcqRel, Relaxed)
            .is_ok()
    }

    fn reap(&self, take: fn(&Shared) -> bool, vacate: fn(&SlotWords<'_, Model>)) {
        if !take(self) {
            return;
        }
        if slot_owner::read(&self.owner).process == DEAD {
            // SAFETY: the protocol claims exclusive access; loom fails the model if that is false.
            self.repairs.with_mut(|repairs| unsafe { *repairs += 1 });
            vacate(&self.words());
        }
        self.liveness.store(0, Release);
    }

    /// A thread that wants the slot and, if it gets it, relies on being its only owner.
    fn live(&self, process: u16) {
        let Some(mine) = slot_owner::claim(&self.owner, process, 1) else {
            return;
        };
        assert_eq!(self.pin.load(Relaxed), UNPINNED, "the last owner's pin");
        assert_eq!(
            self.inside.load(Relaxed),
            0,
            "the last owner's place inside a gate"
        );
        for head in &self.heads {
            assert_eq!(head.load(Relaxed) >> 48, 0, "the last owner's intent");
        }
        if mine.generation == 2 {
            // SAFETY: as above.
            assert_eq!(self.repairs.with(|repairs| unsafe { *repairs }), 1);
        }
        let pin = pin_word(9, PinKind::Firm);
        self.pin.store(pin, Release);
        assert_eq!(
            self.pin.load(Relaxed),
            pin,
            "somebody cleared a living thread's pin"
        );
        assert_eq!(
            slot_owner::read(&self.owner),
            mine,
            "somebody freed a living thread's slot"
        );
        slot_owner::vacate(&self.words());
    }
}

/// Two reapers, and two threads that want the slot.
fn reuse(
    take: fn(&Shared) -> bool,
    vacate: fn(&SlotWords<'_, Model>),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::left_by_the_dead();
        let claimer = spawn(&shared, move |shared| shared.live(2));
        let reaper = spawn(&shared, move |shared| shared.reap(take, vacate));
        shared.reap(take, vacate);
        shared.live(3);
        claimer.join().unwrap();
        reaper.join().unwrap();
    }
}

#[test]
fn one_owner_gets_a_reaped_slot_and_finds_it_clear() {
    holds(reuse(Shared::take_liveness, slot_owner::vacate));
}

#[test]
fn a_slot_freed_before_it_is_clear_still_has_the_dead_owners_pin() {
    fails(reuse(Shared::take_liveness, |slot| {
        slot.owner
            .store(slot.owner.load(Relaxed) & (0xffff << 16), Release);
        for head in slot.intents {
            intent::clear(head);
        }
        slot.inside.store(0, Release);
        slot.pin.store(UNPINNED, Release);
    }));
}

#[test]
fn two_concurrent_reapers_clear_a_living_threads_slot() {
    fails_within(3, reuse(|_| true, slot_owner::vacate));
}

/// A slot and the entry of its owning process, which leaves while a reaper looks for orphans.
struct Leaving {
    slot: Arc<Shared>,
    entry: Model,
}

impl Leaving {
    fn write_entry(&self, state: SlotState, incarnation: u32) {
        process::write(&self.entry, SlotStatus { state, incarnation });
    }

    /// The owner detaches, or dies at once. Another process takes its entry, and claims the slot if
    /// it is free.
    fn leave(&self, detaches: bool) {
        if detaches {
            slot_owner::vacate(&self.slot.words());
            self.write_entry(SlotState::Free, 1);
        }
        self.slot.liveness.store(0, Release);
        assert!(self.slot.take_liveness());
        self.write_entry(SlotState::Live, 2);
        let Some(mine) = slot_owner::claim(&self.slot.owner, DEAD, 2) else {
            return;
        };
        let pin = pin_word(9, PinKind::Firm);
        self.slot.pin.store(pin, Release);
        let now = self.slot.pin.load(Relaxed);
        assert_eq!(now, pin, "somebody cleared a living thread's pin");
        let owner = slot_owner::read(&self.slot.owner);
        assert_eq!(owner, mine, "somebody freed a living thread's slot");
    }

    fn present(&self, process: u16) -> Option<u32> {
        (process == DEAD).then(|| process::read(&self.entry).incarnation)
    }
}

type IsOrphan = fn(&Leaving) -> bool;

fn is_orphan(leaving: &Leaving) -> bool {
    slot_owner::is_orphan(&leaving.slot.owner, |process| leaving.present(process))
}

/// A process leaves, another takes over its entry and its slot, and a reaper looks for orphans.
fn orphans(detaches: bool, is_orphan: IsOrphan) -> impl Fn() + Send + Sync + 'static {
    move || {
        let leaving = Arc::new(Leaving {
            slot: Shared::left_by_the_dead(),
            entry: Model::new(0),
        });
        leaving.write_entry(SlotState::Live, 1);
        assert!(leaving.slot.take_liveness());
        let successor = spawn(&leaving, move |leaving| leaving.leave(detaches));
        let reap = || {
            let found = is_orphan(&leaving);
            if found {
                slot_owner::vacate(&leaving.slot.words());
            }
            found
        };
        let mut reaped = reap();
        successor.join().unwrap();
        if !detaches {
            reaped |= reap();
        }
        assert_eq!(reaped, !detaches, "an orphan is what did not detach");
    }
}

#[test]
fn a_slot_is_an_orphan_only_if_its_owner_did_not_detach() {
    holds(orphans(true, is_orphan));
    holds(orphans(false, is_orphan));
}

#[test]
fn reading_the_owner_only_once_reaps_a_living_threads_slot() {
    fails(orphans(true, |leaving| {
        let owner = slot_owner::read(&leaving.slot.owner);
        let now = leaving.present(owner.process);
        now.is_some_and(|now| now != owner.incarnation)
    }));
}
