//! Leaders are elected beside the items' locks: these exclude, lanes only order, and nothing that
//! becomes of a lane keeps an update from its end.

use super::{Model, fails, holds};
use crate::rcx::lanes::{Abort, Chosen, LaneSet, NodeLane, Strategy};
use crate::rcx::protocol::{self, Bound, Items, TakeLanes};
use crate::rcx::reservation::{self, Reserved};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mneme_sync::SlotId;
use mneme_sync::Word;
use mneme_sync::lock_word::{self, Attempt, Owner};
use mneme_sys::NodeId;
use std::convert::Infallible;
use std::sync::atomic::Ordering::{Acquire, Release};

const NODES: usize = 2;
const ITEMS: usize = 2;

/// A thread, and the node that it runs on.
#[derive(Clone, Copy)]
struct Updater {
    me: Owner,
    node: NodeId,
}

const fn updater(slot: u16, node: u16) -> Updater {
    let me = Owner {
        slot: SlotId(slot),
        generation: 3,
    };
    let node = NodeId(node);
    Updater { me, node }
}

const MORTAL: Updater = updater(1, 0);

/// Two items of one stripe, on two nodes: they have one lane on each.
struct Shared {
    lanes: LaneSet<Vec<NodeLane<Model>>>,
    items: [Model; ITEMS],
    guarded: [UnsafeCell<u64>; ITEMS],
    /// Set when the mortal one is dead.
    dead: Model,
}

// SAFETY: loom's cells report what races; that is the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        let lane = || NodeLane::new(Model::new(0));
        Arc::new(Shared {
            lanes: LaneSet::over((0..NODES).map(|_| lane()).collect(), NODES).unwrap(),
            items: [(); ITEMS].map(|()| Model::new(0)),
            guarded: [(); ITEMS].map(|()| UnsafeCell::new(0)),
            dead: Model::new(0),
        })
    }

    fn lanes_of(&self, by: Updater) -> Chosen<'_, Model> {
        self.lanes.choose(by.node, [0].into_iter())
    }

    fn is_dead(&self, owner: Owner) -> bool {
        owner == MORTAL.me && self.dead.load(Acquire) == 1
    }

    fn elect(&self, by: Updater, strategy: &Strategy, tries: u32) -> Option<Chosen<'_, Model>> {
        let lanes = self.lanes_of(by);
        let mut bound = Tries {
            left: tries,
            of: self,
        };
        protocol::elect(&lanes, by.me, strategy, &mut bound).then_some(lanes)
    }

    /// An update of `ids`, in that order; whether an owner died.
    fn update<'a>(
        &'a self,
        by: Updater,
        ids: &[usize],
        when: TakeLanes,
        elect: impl FnOnce() -> Option<Chosen<'a, Model>>,
        within: impl FnOnce(),
    ) -> bool {
        let mut wanted = Wanted {
            of: self,
            ids,
            by,
            held: Vec::new(),
            owner_died: false,
        };
        let Ok(led) = protocol::enter(&mut wanted, when, elect);
        for id in ids {
            // SAFETY: the protocol's claim; loom fails the model where it does not hold.
            self.guarded[*id].with_mut(|guarded| unsafe { *guarded += 1 });
        }
        within();
        if wanted.owner_died {
            wanted
                .held
                .iter()
                .for_each(|id| lock_word::repaired(&self.items[*id]));
        }
        wanted.release();
        if let Some(lanes) = led {
            protocol::step_down(&lanes);
        }
        wanted.owner_died
    }

    /// With all threads gone: nothing is held, and the items were changed that often.
    fn assert_over(&self, changes: [u64; ITEMS]) {
        for node in 0..NODES as u16 {
            let lane = self.lanes_of(updater(9, node)).words().next().unwrap();
            assert_eq!(lock_word::look(lane).owner(), None, "a lane is held");
        }
        for (id, changes) in changes.into_iter().enumerate() {
            assert_eq!(lock_word::look(&self.items[id]).owner(), None, "item {id}");
            // SAFETY: the threads are gone.
            let found = self.guarded[id].with(|guarded| unsafe { *guarded });
            assert_eq!(found, changes, "changes of item {id}");
        }
    }
}

struct Wanted<'i, 'a> {
    of: &'a Shared,
    ids: &'i [usize],
    by: Updater,
    held: Vec<usize>,
    owner_died: bool,
}

impl Wanted<'_, '_> {
    fn has(&mut self, item: usize, attempt: Attempt) -> bool {
        if matches!(attempt, Attempt::Busy(_)) {
            return false;
        }
        self.held.push(self.ids[item]);
        self.owner_died |= attempt == Attempt::OwnerDied;
        true
    }
}

impl Items for Wanted<'_, '_> {
    type Error = Infallible;

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn try_lock(&mut self, item: usize) -> bool {
        let attempt = lock_word::acquire(&self.of.items[self.ids[item]], self.by.me);
        self.has(item, attempt)
    }

    fn lock(&mut self, item: usize) -> Result<(), Infallible> {
        let word = &self.of.items[self.ids[item]];
        loop {
            let mut attempt = lock_word::acquire(word, self.by.me);
            if let Attempt::Busy(seen) = attempt
                && seen.owner().is_some_and(|owner| self.of.is_dead(owner))
            {
                attempt = lock_word::take_over(word, seen, self.by.me);
            }
            if self.has(item, attempt) {
                return Ok(());
            }
            thread::yield_now();
        }
    }

    fn release(&mut self) {
        while let Some(id) = self.held.pop() {
            lock_word::release(&self.of.items[id]);
        }
    }
}

/// The number of looks at the lanes.
struct Tries<'a> {
    left: u32,
    of: &'a Shared,
}

/// No bound at all.
const FOREVER: u32 = u32::MAX;

impl Bound for Tries<'_> {
    fn wait(&mut self, _: usize) -> bool {
        if self.left != FOREVER {
            self.left -= 1;
        }
        thread::yield_now();
        self.left > 0
    }

    fn is_dead(&self, owner: Owner) -> bool {
        self.of.is_dead(owner)
    }
}

/// Two threads of two nodes that change both items.
fn two(
    first: impl Fn(&Shared) + Send + Sync + Copy + 'static,
    second: impl Fn(&Shared) + Send + Sync + Copy + 'static,
    changes: [u64; ITEMS],
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || second(&shared))
        };
        first(&shared);
        other.join().unwrap();
        shared.assert_over(changes);
    }
}

fn cas() -> Strategy {
    Strategy::OrderedCas
}

fn plain(
    by: Updater,
    ids: &'static [usize],
    when: TakeLanes,
) -> impl Fn(&Shared) + Copy + Send + Sync {
    move |shared| {
        let elect = || shared.elect(by, &cas(), 1);
        shared.update(by, ids, when, elect, || ());
    }
}

#[test]
fn leaders_of_two_nodes_change_items_one_after_the_other() {
    for when in [TakeLanes::WhenBusy, TakeLanes::Always] {
        holds(two(
            plain(updater(2, 0), &[0, 1], when),
            plain(updater(3, 1), &[1], when),
            [1, 2],
        ));
    }
}

#[test]
fn threads_of_one_node_change_items_one_after_the_other() {
    for when in [TakeLanes::WhenBusy, TakeLanes::Always] {
        holds(two(
            plain(updater(2, 0), &[0, 1], when),
            plain(updater(3, 0), &[0], when),
            [2, 1],
        ));
    }
}

#[test]
fn lanes_that_exclude_instead_of_items_let_two_leaders_in() {
    let led_only = |by: Updater| {
        move |shared: &Shared| {
            let Some(lanes) = shared.elect(by, &cas(), 3) else {
                return;
            };
            // SAFETY: the twin's claim, which is wrong.
            shared.guarded[0].with_mut(|guarded| unsafe { *guarded += 1 });
            protocol::step_down(&lanes);
        }
    };
    fails(two(
        led_only(updater(2, 0)),
        led_only(updater(3, 1)),
        [2, 0],
    ));
}

/// One holds the first item and wants the second within; the other takes lanes for both.
fn nested(tries: u32) -> impl Fn() + Send + Sync + 'static {
    let (outer, other) = (updater(2, 0), updater(3, 0));
    two(
        move |shared| {
            let inner = || {
                // The product does not try at all here.
                let elect = || (tries > 0).then(|| shared.elect(outer, &cas(), tries))?;
                shared.update(outer, &[1], TakeLanes::Always, elect, || ());
            };
            shared.update(outer, &[0], TakeLanes::WhenBusy, || None, inner);
        },
        plain(other, &[0, 1], TakeLanes::Always),
        [2, 2],
    )
}

#[test]
fn nested_updates_end_beside_leaders_that_wait_for_the_outer_item() {
    holds(nested(0));
}

#[test]
fn a_nested_update_that_waits_for_lanes_waits_in_a_circle() {
    fails(nested(FOREVER));
}

#[test]
fn items_locked_in_another_order_wait_in_a_circle() {
    fails(two(
        plain(updater(2, 0), &[0, 1], TakeLanes::Always),
        plain(updater(3, 1), &[1, 0], TakeLanes::Always),
        [2, 2],
    ));
}

/// One finds its second item busy. The other, when it is done with that, leads and wants both.
fn busy(first: impl Fn(&Shared) + Send + Sync + Copy + 'static) -> impl Fn() + Send + Sync {
    let other = updater(3, 0);
    two(
        first,
        move |shared| {
            plain(other, &[1], TakeLanes::Always)(shared);
            plain(other, &[0, 1], TakeLanes::Always)(shared);
        },
        [2, 3],
    )
}

#[test]
fn a_first_try_lets_go_before_it_waits_for_lanes() {
    holds(busy(|shared| {
        let by = updater(2, 0);
        let elect = || shared.elect(by, &cas(), 2);
        shared.update(by, &[0, 1], TakeLanes::WhenBusy, elect, || ());
    }));
}

#[test]
fn a_first_try_that_keeps_what_it_has_waits_in_a_circle() {
    fails(busy(|shared| {
        let by = updater(2, 0);
        let mut second = Wanted {
            of: shared,
            ids: &[1],
            by,
            held: Vec::new(),
            owner_died: false,
        };
        let within = || {
            let led = match second.try_lock(0) {
                true => None,
                false => shared.elect(by, &cas(), FOREVER),
            };
            if second.held.is_empty() {
                let Ok(()) = second.lock(0);
            }
            // SAFETY: locked.
            shared.guarded[1].with_mut(|guarded| unsafe { *guarded += 1 });
            second.release();
            led.iter().for_each(protocol::step_down);
        };
        shared.update(by, &[0], TakeLanes::WhenBusy, || None, within);
    }));
}

/// Two stripes, so that a call needs two lanes and may get one.
fn halves(
    attempt: impl Fn(&Chosen<'_, Model>, Owner) -> bool + Send + Sync + Copy + 'static,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let lanes = || NodeLane::new(Model::new(0));
        let lanes = LaneSet::over(vec![lanes(), lanes()], 1).unwrap();
        let lanes = Arc::new(lanes);
        let run = move |lanes: &LaneSet<Vec<NodeLane<Model>>>, slot, ids: &[u64]| {
            let chosen = lanes.choose(NodeId(0), ids.iter().copied());
            if attempt(&chosen, updater(slot, 0).me) {
                protocol::step_down(&chosen);
            }
        };
        // Two ids of the two stripes.
        let second = (1..)
            .find(|id| lanes.stripe_of(*id) != lanes.stripe_of(0))
            .unwrap();
        let other = {
            let lanes = Arc::clone(&lanes);
            thread::spawn(move || run(&lanes, 2, &[second]))
        };
        run(&lanes, 3, &[0, second]);
        other.join().unwrap();
        for word in lanes.choose(NodeId(0), [0, second].into_iter()).words() {
            assert_eq!(lock_word::look(word).owner(), None, "a lane is left held");
        }
    }
}

#[test]
fn an_attempt_that_fails_leaves_no_lane_held() {
    holds(halves(|chosen, me| {
        cas().try_acquire_all(chosen, me, 0).is_ok()
    }));
}

#[test]
fn an_attempt_that_keeps_the_lanes_it_got_leaves_them_held() {
    fails(halves(|chosen, me| {
        let taken = |word: &Model| lock_word::acquire(word, me) == Attempt::Clean;
        chosen.words().all(taken)
    }));
}

/// A leader that dies with its lane and, if it got so far, an item.
fn leader_dies(got_item: bool, survive: fn(&Shared, Updater) -> bool) -> impl Fn() + Send + Sync {
    move || {
        let shared = Shared::new();
        let survivor = |by: Updater| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || survive(&shared, by))
        };
        let led = shared.elect(MORTAL, &cas(), 1);
        assert!(led.is_some());
        if got_item {
            let _ = lock_word::acquire(&shared.items[0], MORTAL.me);
        }
        let two = survivor(updater(2, 0));
        shared.dead.store(1, Release);
        let died = survive(&shared, updater(3, 0)) | two.join().unwrap();
        assert_eq!(died, got_item, "the death of an item's owner is reported");
        shared.assert_over([2, 0]);
    }
}

fn survive(shared: &Shared, by: Updater) -> bool {
    // Once it is dead there is somebody to free the lane: no bound is needed for progress.
    let elect = || shared.elect(by, &cas(), FOREVER);
    shared.update(by, &[0], TakeLanes::Always, elect, || ())
}

#[test]
fn a_dead_leaders_lane_is_freed_and_its_item_reports_the_death() {
    holds(leader_dies(false, survive));
    holds(leader_dies(true, survive));
}

#[test]
fn survivors_that_do_not_look_for_the_dead_wait_for_ever() {
    fails(leader_dies(false, |shared, by| {
        let elect = || {
            let lanes = shared.lanes_of(by);
            while cas().try_acquire_all(&lanes, by.me, 0).is_err() {
                thread::yield_now();
            }
            Some(lanes)
        };
        shared.update(by, &[0], TakeLanes::Always, elect, || ())
    }));
}

/// Every attempt at the lanes aborts, as transactions may for ever.
fn aborting(abort: Abort, tries: u32) -> impl Fn() + Send + Sync + 'static {
    let update = move |by: Updater| {
        move |shared: &Shared| {
            let strategy = Strategy::Scripted(std::sync::Arc::new(move |_| Some(abort)));
            let elect = || shared.elect(by, &strategy, tries);
            shared.update(by, &[0, 1], TakeLanes::Always, elect, || ());
        }
    };
    two(update(updater(2, 0)), update(updater(3, 0)), [2, 2])
}

#[test]
fn updates_end_though_every_transaction_aborts() {
    holds(aborting(Abort::Conflict, 2));
    holds(aborting(Abort::Capacity, FOREVER));
}

#[test]
fn updates_without_a_bound_on_aborts_never_end() {
    let aborts = || Strategy::Scripted(std::sync::Arc::new(|_| Some(Abort::Conflict)));
    fails(halves(move |chosen, me| {
        while aborts().try_acquire_all(chosen, me, 0).is_err() {
            thread::yield_now();
        }
        true
    }));
}

/// A leader lets an item go for its node, where nobody wants it any more. A thread of another node
/// does, and looks so often whether it is taken.
fn reserved_in_vain(looks: u32) -> impl Fn() + Send + Sync + 'static {
    let change = move |shared: &Shared, by: Updater, release: fn(&Model, NodeId)| {
        let item = &shared.items[0];
        let mut reserved = Reserved::on(by.node, looks);
        while matches!(reserved.acquire(item, by.me), Attempt::Busy(_)) {
            thread::yield_now();
        }
        // SAFETY: the protocol's claim; loom fails the model where it does not hold.
        shared.guarded[0].with_mut(|guarded| unsafe { *guarded += 1 });
        release(item, by.node);
    };
    two(
        move |shared| change(shared, updater(2, 0), reservation::release_for),
        move |shared| change(shared, updater(3, 1), |item, _| lock_word::release(item)),
        [2, 0],
    )
}

#[test]
fn an_item_reserved_for_an_absent_node_is_taken_by_another() {
    holds(reserved_in_vain(1));
}

#[test]
fn an_item_reserved_without_a_bound_is_never_taken_by_another_node() {
    fails(reserved_in_vain(FOREVER));
}
