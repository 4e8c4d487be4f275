//! Sets of items: their order, what is refused, and what is left of those that are not had.

use crate::{Guarded, participants, topology};
use mneme_rcx::{Item, Rcx, RcxError, TakeLanes};
use mneme_sync::{Holding, Stalled};
use mneme_sys::{NodeId, SyntheticTopology};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn sets_that_are_not_in_order_are_refused_and_leave_nothing_held() {
    let p = participants();
    let guarded = Guarded::new();
    let rcx = Rcx::new(&p, Arc::new(SyntheticTopology::new(2, 2)));
    let outer = rcx.lock(guarded.items([7, 3])).unwrap();
    for ids in [[8, 7], [3, 9], [5, 9]] {
        let refused = rcx.lock(guarded.items(ids)).unwrap_err();
        let wanted = ids[0].min(ids[1]) as u64;
        assert_eq!(refused, RcxError::OutOfOrder { held: 7, wanted });
    }
    let inner = rcx.lock(guarded.items([9, 8])).unwrap();
    // Dropped in another order, the inner set keeps its place.
    drop(outer);
    assert!(rcx.lock(guarded.items([9])).is_err());
    drop(rcx.lock(guarded.items([10])).unwrap());
    drop(inner);
    guarded.assert_free();
    drop(rcx.lock(guarded.items([0])).unwrap());
    // One id, two locks: which of them would be held?
    let mut twins = [guarded.item(1), Item::new(1, &guarded.locks[2])];
    assert_eq!(rcx.lock(&mut twins).unwrap_err(), RcxError::SameId(1));
    guarded.assert_free();
}

#[test]
fn an_owner_that_does_not_let_go_is_named_and_nothing_stays_held() {
    let p = participants();
    let guarded = Guarded::new();
    for when in [TakeLanes::Always, TakeLanes::WhenBusy] {
        let rcx = Rcx::new(&p, Arc::new(SyntheticTopology::new(2, 2)))
            .take_lanes(when)
            .timeout(Duration::from_millis(1));
        let (locked, is_locked) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (p, guarded) = (&p, &guarded);
            let holder = scope.spawn(move || {
                let slot = p.slot().unwrap();
                let held = guarded.locks[5].lock(&slot).unwrap();
                locked.send(slot.id()).unwrap();
                let _ = may_leave.recv();
                drop(held);
            });
            let owner = is_locked.recv().unwrap();
            let refused = rcx.lock(guarded.items([4, 5, 6])).unwrap_err();
            assert!(
                matches!(refused, RcxError::Stalled(Stalled { slot, what: Holding::Lock, .. }) if slot == owner),
                "{refused:?}"
            );
            drop(rcx.lock(guarded.items([4, 6])).unwrap());
            leave.send(()).unwrap();
            holder.join().unwrap();
        });
        guarded.assert_free();
        let all = rcx.lock(guarded.items([4, 5, 6])).unwrap().into_inner();
        let led = (when == TakeLanes::Always).then_some(NodeId(0));
        assert_eq!(all.led_on(), led, "lanes came back too");
    }
}

/// As [`RobustLock`]'s own guard, and as if the owner had died.
#[test]
fn a_panic_that_ends_a_change_is_reported_to_the_next_owner() {
    let p = participants();
    let guarded = Guarded::new();
    let rcx = Rcx::new(&p, topology());
    let items = [1, 2, 3, 5, 8];
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = rcx.lock(guarded.items(items)).unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    guarded.assert_free();
    for _ in 0..2 {
        let next = rcx.lock(guarded.items(0..9)).unwrap();
        assert!(next.owner_died());
        let died: Vec<_> = next.into_inner().died().collect();
        assert_eq!(died, items.map(|id| id as u64));
    }
    let last = rcx.lock(guarded.items(0..9)).unwrap().into_inner();
    last.repaired();
    drop(last);
    // A guard that lives in a destructor has not been ended by the panic around it.
    struct Within<'a>(&'a Rcx, &'a Guarded);
    impl Drop for Within<'_> {
        fn drop(&mut self) {
            let guard = self.0.lock(self.1.items([4])).unwrap();
            assert!(!guard.owner_died());
        }
    }
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _within = Within(&rcx, &guarded);
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    assert!(!rcx.lock(guarded.items(0..9)).unwrap().owner_died());
}

#[test]
fn a_guard_pins_what_its_items_lead_to() {
    let p = participants();
    let guarded = Guarded::new();
    let rcx = Rcx::new(&p, topology());
    let guard = rcx.lock(guarded.items([1])).unwrap();
    let epoch = p.advance().unwrap();
    assert!(!p.quiescent(epoch));
    drop(guard);
    assert!(p.quiescent(epoch));
}
