//! When lanes are taken, shared and left out, and what a leader that is stopped keeps.

use crate::{Guarded, LONG, participants};
use mneme_rcx::{LANE_ITEMS, LaneSet, NodeLane, Rcx, TakeLanes};
use mneme_sys::{NodeId, SyntheticTopology};
use mneme_testkit::in_threads;
use std::sync::Arc;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

#[test]
fn lanes_are_left_out_where_they_cannot_help() {
    let p = participants();
    let guarded = Guarded::new();
    let on = |nodes| {
        let topology = Arc::new(SyntheticTopology::new(nodes, 2));
        Rcx::new(&p, topology)
            .take_lanes(TakeLanes::Always)
            .lane_timeout(LONG)
    };
    let led_on = |rcx: &Rcx, ids: usize| {
        let guard = rcx.lock(guarded.items(0..ids)).unwrap().into_inner();
        guard.led_on()
    };
    let one = on(1);
    assert_eq!(led_on(&one, 2), None);
    assert_eq!(one.stats(), Default::default(), "on one node nobody counts");
    let two = on(2);
    assert_eq!(led_on(&two, LANE_ITEMS), Some(NodeId(0)));
    assert_eq!(led_on(&two, LANE_ITEMS + 1), None);
    assert_eq!((two.stats().elections, two.stats().bypasses), (1, 1));
    // Within a guard, whichever `Rcx` it is of.
    let outer = one.lock([guarded.item(0)]).unwrap();
    let inner = two.lock([guarded.item(1)]).unwrap().into_inner();
    assert_eq!(inner.led_on(), None);
    drop((outer, inner));
    assert_eq!(led_on(&two, 1), Some(NodeId(0)));
    assert_eq!((two.stats().elections, two.stats().bypasses), (2, 2));
    // Free items are had without lanes, unless these are asked for.
    let busy = on(2).take_lanes(TakeLanes::WhenBusy);
    assert_eq!(led_on(&busy, 3), None);
    assert_eq!(busy.stats(), Default::default());
    // Nothing at all.
    assert_eq!(led_on(&two, 0), None);
    guarded.assert_free();
}

/// A set that took the lane of a stripe for each of its items would wait for itself.
#[test]
fn items_of_one_stripe_take_its_lane_once() {
    let p = participants();
    let guarded = Guarded::new();
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    let rcx = Rcx::with_lanes(&p, topology, LaneSet::new(2, 1))
        .take_lanes(TakeLanes::Always)
        .lane_timeout(LONG);
    let guard = rcx.lock(guarded.items([3, 9, 6])).unwrap().into_inner();
    assert_eq!(guard.led_on(), Some(NodeId(0)));
    assert_eq!((rcx.stats().elections, rcx.stats().bypasses), (1, 0));
    drop(guard);
    guarded.assert_free();
}

/// All items share the lanes of a leader that is stopped. The others can be taken.
#[test]
fn a_leader_that_stands_still_keeps_only_its_own_items() {
    let p = participants();
    let guarded = Guarded::new();
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    let rcx = Rcx::with_lanes(&p, topology, LaneSet::new(2, 1)).take_lanes(TakeLanes::Always);
    let leader = rcx.lock(guarded.items([0])).unwrap().into_inner();
    assert_eq!(leader.led_on(), Some(NodeId(0)));
    in_threads(2, |thread| {
        let id = 1 + thread;
        let guard = rcx.lock(guarded.items([id])).unwrap().into_inner();
        assert_eq!(guard.led_on(), None);
    });
    assert_eq!((rcx.stats().elections, rcx.stats().bypasses), (1, 2));
}

/// A lane is zeroed memory, wherever it lies.
#[test]
fn lanes_may_lie_in_memory_that_others_share() {
    let p = participants();
    let guarded = Guarded::new();
    let memory: Arc<[NodeLane]> = (0..4).map(|_| NodeLane::default()).collect();
    let topology = Arc::new(SyntheticTopology::new(2, 1));
    let rcx = || {
        let lanes = LaneSet::over(memory.clone(), 2).unwrap();
        Rcx::with_lanes(&p, topology.clone(), lanes).take_lanes(TakeLanes::Always)
    };
    let (one, two) = (rcx(), rcx().lane_timeout(Duration::ZERO));
    let led = one.lock(guarded.items([3])).unwrap();
    std::thread::scope(|scope| {
        // Its lane is taken, wherever it was taken.
        let other = scope.spawn(|| {
            let id = (4..12).find(|id| two.lanes().stripe_of(*id) == two.lanes().stripe_of(3));
            let mut items = guarded.items(id.map(|id| id as usize));
            two.lock(&mut items).unwrap().into_inner().led_on()
        });
        assert_eq!(other.join().unwrap(), None);
    });
    drop(led);
}

/// A leader that is stopped at any step. Whatever shares its lanes, and not its items, is had
/// meanwhile; what it has itself is had afterwards.
#[test]
fn a_leader_that_is_stopped_anywhere_keeps_only_its_own_items() {
    use mneme_sys::fault::{self, Action};

    let points = ["lane", "item", "locked", "items_released"].map(|at| format!("rcx.update.{at}"));
    for point in points {
        let p = participants();
        let guarded = Guarded::new();
        let topology = Arc::new(SyntheticTopology::new(2, 2));
        let rcx = Rcx::with_lanes(&p, topology, LaneSet::new(2, 1))
            .take_lanes(TakeLanes::Always)
            .timeout(LONG);
        let (stop, is_stopped) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let may_go_on = Mutex::new(may_go_on);
        let stand = Action::Call(Arc::new(move || {
            stop.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }));
        std::thread::scope(|scope| {
            let (rcx, guarded, point) = (&rcx, &guarded, &point);
            let stopped = scope.spawn(move || {
                fault::arm(point, stand, 1);
                drop(rcx.lock(guarded.items([1, 2])).unwrap());
            });
            is_stopped.recv().unwrap();
            let other = rcx.lock(guarded.items([0, 3])).unwrap().into_inner();
            assert_eq!(other.led_on(), None, "{point}: the lane is taken");
            drop(other);
            go_on.send(()).unwrap();
            stopped.join().unwrap();
        });
        let all = rcx.lock(guarded.items(0..4)).unwrap().into_inner();
        assert_eq!(all.led_on(), Some(NodeId(0)), "{point}");
    }
}
