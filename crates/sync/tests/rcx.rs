//! What updates of several items rely on, and what a value that is replaced promises its readers.
//! Small enough for Miri. On a machine with several NUMA nodes, which `cargo xtask numa` supplies,
//! threads run on its own nodes.
#![allow(clippy::unwrap_used)]

mod common;

use common::private;
use mneme_sync::{
    Abort, Holding, Item, ItemLock, LANE_ITEMS, LaneSet, NodeLane, Participants, Rcu, Rcx,
    RcxError, Retired, RobustLock, Slot, Stalled, Strategy, TakeLanes,
};
use mneme_sys::{CpuId, NodeId, Rtm, SyntheticTopology, SysfsTopology, Topology};
use mneme_testkit::{Random, in_threads};
use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// For waits that must end.
const LONG: Duration = Duration::from_secs(60);

/// Updates of each thread.
const UPDATES: u64 = if cfg!(miri) { 4 } else { 2_000 };

/// The machine's own nodes where there are several, else two made up ones.
fn topology() -> Arc<dyn Topology> {
    let machine = SysfsTopology::detect();
    match machine.nodes() {
        1 => Arc::new(SyntheticTopology::new(2, 2)),
        _ => Arc::new(machine),
    }
}

fn participants() -> Participants {
    private(common::options())
}

/// Plain words, each guarded by the lock of its number; Miri finds what races.
struct Guarded {
    locks: [RobustLock; 12],
    words: [UnsafeCell<u64>; 12],
}

// SAFETY: the tests touch a word under its lock.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Guarded {
        Guarded {
            locks: [const { RobustLock::new() }; 12],
            words: [const { UnsafeCell::new(0) }; 12],
        }
    }

    fn item(&self, id: usize) -> Item<'_> {
        Item::new(id as u64, &self.locks[id])
    }

    fn items(&self, ids: impl IntoIterator<Item = usize>) -> Vec<Item<'_>> {
        ids.into_iter().map(|id| self.item(id)).collect()
    }

    fn word(&self, id: usize) -> *mut u64 {
        self.words[id].get()
    }

    fn assert_free(&self) {
        assert!(self.locks.iter().all(|lock| lock.owner().is_none()));
    }
}

/// Threads on all nodes, each changing random sets of items.
fn storm(name: &str, make: impl Fn(Rcx) -> Rcx) {
    let (p, topology, guarded) = (participants(), topology(), Guarded::new());
    let rcx = make(Rcx::new(&p, topology.clone()).timeout(LONG));
    let expected: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];
    in_threads(4, |thread| {
        topology.stay_on(NodeId((thread % topology.nodes()) as u16));
        let mut random = Random::new(thread as u64);
        for _ in 0..UPDATES {
            // One in eight has more items than may take lanes, and most name one twice.
            let most = if random.below(8) == 0 { 11 } else { 3 };
            let ids: Vec<_> = (0..=random.below(most))
                .map(|_| random.below(12) as usize)
                .collect();
            let guard = rcx.lock(&mut guarded.items(ids.iter().copied())).unwrap();
            assert!(!guard.owner_died());
            let mut once = ids;
            once.sort_unstable();
            once.dedup();
            for id in once {
                // SAFETY: locked.
                unsafe { *guarded.word(id) += 1 };
                expected[id].fetch_add(1, Relaxed);
            }
        }
    });
    let stats = rcx.stats();
    let (elections, bypasses) = (stats.elections, stats.bypasses);
    println!(
        "@count {name}: updates {}, elections {elections}, bypasses {bypasses}",
        4 * UPDATES
    );
    guarded.assert_free();
    for (word, expected) in guarded.words.into_iter().zip(expected) {
        assert_eq!(word.into_inner(), expected.into_inner());
    }
}

#[test]
fn no_update_is_lost_whichever_way_lanes_are_taken() {
    storm("when busy", |rcx| rcx);
    storm("always", |rcx| rcx.take_lanes(TakeLanes::Always));
}

#[test]
fn updates_go_on_though_transactions_abort() {
    for abort in [Abort::Conflict, Abort::Capacity] {
        let script = Strategy::Scripted(Arc::new(move |_| Some(abort)));
        storm(&format!("aborting ({abort:?})"), |rcx| {
            // Waiting for lanes that never come is what is bounded; a short bound tests as much.
            rcx.take_lanes(TakeLanes::Always)
                .strategy(script.clone())
                .lane_timeout(Duration::ZERO)
        });
    }
    let some = Strategy::Scripted(Arc::new(|attempt| {
        (attempt % 3 != 2).then_some(Abort::Conflict)
    }));
    storm("aborting now and then", |rcx| {
        rcx.take_lanes(TakeLanes::Always).strategy(some.clone())
    });
}

/// Runs nowhere that this project has: without transactions there is no strategy to take.
#[test]
fn no_update_is_lost_by_transactions_where_there_are_some() {
    if let Some(rtm) = Rtm::probe() {
        storm("transactions", |rcx| {
            rcx.take_lanes(TakeLanes::Always)
                .strategy(Strategy::Rtm(rtm))
        });
    }
}

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
        let guard = rcx.lock(&mut guarded.items(0..ids)).unwrap().into_inner();
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
    let outer = one.lock(&mut [guarded.item(0)]).unwrap();
    let inner = two.lock(&mut [guarded.item(1)]).unwrap().into_inner();
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

#[test]
fn sets_that_are_not_in_order_are_refused_and_leave_nothing_held() {
    let p = participants();
    let guarded = Guarded::new();
    let rcx = Rcx::new(&p, Arc::new(SyntheticTopology::new(2, 2)));
    let outer = rcx.lock(&mut guarded.items([7, 3])).unwrap();
    for ids in [[8, 7], [3, 9], [5, 9]] {
        let refused = rcx.lock(&mut guarded.items(ids)).unwrap_err();
        let wanted = ids[0].min(ids[1]) as u64;
        assert_eq!(refused, RcxError::OutOfOrder { held: 7, wanted });
    }
    let inner = rcx.lock(&mut guarded.items([9, 8])).unwrap();
    // Dropped in another order, the inner set keeps its place.
    drop(outer);
    assert!(rcx.lock(&mut guarded.items([9])).is_err());
    drop(rcx.lock(&mut guarded.items([10])).unwrap());
    drop(inner);
    guarded.assert_free();
    drop(rcx.lock(&mut guarded.items([0])).unwrap());
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
            let refused = rcx.lock(&mut guarded.items([4, 5, 6])).unwrap_err();
            assert!(
                matches!(refused, RcxError::Stalled(Stalled { slot, what: Holding::Lock, .. }) if slot == owner),
                "{refused:?}"
            );
            drop(rcx.lock(&mut guarded.items([4, 6])).unwrap());
            leave.send(()).unwrap();
            holder.join().unwrap();
        });
        guarded.assert_free();
        let all = rcx
            .lock(&mut guarded.items([4, 5, 6]))
            .unwrap()
            .into_inner();
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
        let _guard = rcx.lock(&mut guarded.items(items)).unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    guarded.assert_free();
    for _ in 0..2 {
        let next = rcx.lock(&mut guarded.items(0..9)).unwrap();
        assert!(next.owner_died());
        let died: Vec<_> = next.into_inner().died().collect();
        assert_eq!(died, items.map(|id| id as u64));
    }
    let last = rcx.lock(&mut guarded.items(0..9)).unwrap().into_inner();
    last.repaired();
    drop(last);
    // A guard that lives in a destructor has not been ended by the panic around it.
    struct Within<'a>(&'a Rcx, &'a Guarded);
    impl Drop for Within<'_> {
        fn drop(&mut self) {
            let guard = self.0.lock(&mut self.1.items([4])).unwrap();
            assert!(!guard.owner_died());
        }
    }
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _within = Within(&rcx, &guarded);
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    assert!(!rcx.lock(&mut guarded.items(0..9)).unwrap().owner_died());
}

/// All items share the lanes of a leader that stands still. Those that it does not hold are had.
#[test]
fn a_leader_that_stands_still_keeps_only_its_own_items() {
    let p = participants();
    let guarded = Guarded::new();
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    let rcx = Rcx::with_lanes(&p, topology, LaneSet::new(2, 1)).take_lanes(TakeLanes::Always);
    let leader = rcx.lock(&mut guarded.items([0])).unwrap().into_inner();
    assert_eq!(leader.led_on(), Some(NodeId(0)));
    in_threads(2, |thread| {
        let id = 1 + thread;
        let guard = rcx.lock(&mut guarded.items([id])).unwrap().into_inner();
        assert_eq!(guard.led_on(), None);
    });
    assert_eq!((rcx.stats().elections, rcx.stats().bypasses), (1, 2));
}

#[test]
fn a_thread_that_migrates_gives_back_the_lanes_it_took() {
    let p = participants();
    let guarded = Guarded::new();
    let topology = Arc::new(SyntheticTopology::new(4, 1));
    // Two lanes a stripe for four nodes: the third and the fourth share those of the others.
    let lanes = LaneSet::new(2, 1);
    let rcx = Rcx::with_lanes(&p, topology.clone(), lanes)
        .take_lanes(TakeLanes::Always)
        .lane_timeout(LONG);
    for round in 0..8 {
        topology.run_on(CpuId(round));
        let guard = rcx.lock(&mut guarded.items([1, 2])).unwrap().into_inner();
        assert_eq!(guard.led_on(), Some(NodeId(round as u16 % 4)));
        topology.run_on(CpuId(round + 1));
    }
    assert_eq!((rcx.stats().elections, rcx.stats().bypasses), (8, 0));
}

/// A machine whose CPUs and nodes come and go, as by hot-plug and by changes of a cpuset: each
/// answer differs from the last.
struct Changing(AtomicU64);

impl Changing {
    fn next(&self) -> u64 {
        // Any sequence will do.
        self.0.fetch_add(0x9e37_79b9, Relaxed) >> 3
    }
}

impl Topology for Changing {
    fn cpus(&self) -> usize {
        1 + self.next() as usize % 64
    }

    fn nodes(&self) -> usize {
        2 + self.next() as usize % 6
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId((self.next() + u64::from(cpu.0)) as u16)
    }

    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        10
    }

    fn current_cpu(&self) -> CpuId {
        CpuId(self.next() as u32 % 64)
    }
}

/// What the topology said when an item was locked may be wrong already. It may name nodes and CPUs
/// that nobody knew when the lanes were made.
#[test]
fn cpus_and_nodes_that_come_and_go_cost_no_update_and_leave_no_lane_held() {
    let p = participants();
    let guarded = Guarded::new();
    let changing = Arc::new(Changing(AtomicU64::new(1)));
    let rcx = Rcx::new(&p, changing)
        .take_lanes(TakeLanes::Always)
        .timeout(LONG);
    in_threads(3, |thread| {
        for round in 0..UPDATES as usize {
            let ids = [round % 4, 4 + thread % 2];
            let _guard = rcx.lock(&mut guarded.items(ids)).unwrap();
            for id in ids {
                // SAFETY: locked.
                unsafe { *guarded.word(id) += 1 };
            }
        }
    });
    guarded.assert_free();
    // SAFETY: the threads are gone.
    let changed: u64 = (0..6).map(|id| unsafe { *guarded.word(id) }).sum();
    assert_eq!(changed, 3 * 2 * UPDATES);
    // Whatever node it is this time, its lanes are had.
    let rcx = rcx.lane_timeout(LONG);
    for _ in 0..50 {
        let guard = rcx.lock(&mut guarded.items(0..6)).unwrap().into_inner();
        assert!(guard.led_on().is_some());
    }
}

/// Writes to a file of the kernel's.
fn tell(file: &str, value: &str) {
    std::fs::write(file, value).unwrap_or_else(|error| panic!("{value} to {file}: {error}"));
}

/// Threads that the kernel moves in the middle of what they change, because their CPU goes offline
/// or their cpuset changes.
#[test]
#[ignore = "needs several nodes, and takes CPUs offline: for the guests of `cargo xtask numa`"]
fn no_update_is_lost_while_cpus_go_offline_and_a_cpuset_changes() {
    const GROUP: &str = "/sys/fs/cgroup/rcx";
    assert!(
        std::env::var_os("MNEME_GUEST").is_some(),
        "changes the machine; only in a guest"
    );
    let (p, guarded) = (participants(), Guarded::new());
    let topology = Arc::new(SysfsTopology::detect());
    let rcx = Rcx::new(&p, topology.clone())
        .take_lanes(TakeLanes::Always)
        .timeout(LONG);
    let (over, moved, updates) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::fs::create_dir(GROUP).unwrap();
    tell(
        &format!("{GROUP}/cgroup.procs"),
        &std::process::id().to_string(),
    );
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (rcx, guarded, topology) = (&rcx, &guarded, &topology);
            let (over, moved, updates) = (&over, &moved, &updates);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !over.load(Relaxed) {
                    let ids = [random.below(6), 6 + random.below(6)].map(|id| id as usize);
                    let guard = rcx.lock(&mut guarded.items(ids)).unwrap().into_inner();
                    for id in ids {
                        // SAFETY: locked.
                        unsafe { *guarded.word(id) += 1 };
                    }
                    std::thread::yield_now();
                    let here = Some(topology.current_node());
                    let was_moved = guard.led_on().is_some() && guard.led_on() != here;
                    moved.fetch_add(u64::from(was_moved), Relaxed);
                    updates.fetch_add(1, Relaxed);
                }
            });
        }
        let last = topology.cpus() - 1;
        for _ in 0..3 {
            for cpu in 1..=last {
                let online = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                tell(&online, "0");
                tell(&online, "1");
            }
            for node in 0..topology.nodes() {
                let cpus = format!("{}-{}", 2 * node, 2 * node + 1);
                tell(&format!("{GROUP}/cpuset.cpus"), &cpus);
                std::thread::sleep(Duration::from_millis(50));
            }
            tell(&format!("{GROUP}/cpuset.cpus"), &format!("0-{last}"));
        }
        over.store(true, Relaxed);
    });
    guarded.assert_free();
    // SAFETY: the threads are gone.
    let changed: u64 = (0..12).map(|id| unsafe { *guarded.word(id) }).sum();
    assert_eq!(changed, 2 * updates.load(Relaxed));
    let moved = moved.into_inner();
    println!("@count moved by the kernel: updates {updates:?}, between lock and unlock {moved}");
    assert!(moved > 0, "no thread was moved while it led");
    let all = rcx.lane_timeout(LONG);
    let guard = all.lock(&mut guarded.items(0..8)).unwrap().into_inner();
    assert!(guard.led_on().is_some(), "a lane is left held");
}

/// A lock that knows nothing of participants: an item's lock may be any.
#[derive(Default)]
struct Plain(AtomicBool);

impl ItemLock for Plain {
    fn try_lock(&self, _: &Slot<'_>) -> Option<bool> {
        let taken = self.0.compare_exchange(false, true, Acquire, Relaxed);
        taken.ok().map(|_| false)
    }

    fn lock_within(&self, slot: &Slot<'_>, _: Duration) -> Result<bool, Stalled> {
        loop {
            if let Some(owner_died) = self.try_lock(slot) {
                return Ok(owner_died);
            }
            std::thread::yield_now();
        }
    }

    unsafe fn unlock(&self, _: &Slot<'_>) {
        self.0.store(false, Release);
    }
}

#[test]
fn items_of_another_kind_of_lock_are_excluded_as_well() {
    let p = participants();
    let rcx = Rcx::new(&p, topology());
    let locks: [Plain; 2] = Default::default();
    let guarded = Guarded::new();
    in_threads(3, |_| {
        for _ in 0..UPDATES {
            let mut items = [Item::new(2, &locks[1]), Item::new(1, &locks[0])];
            let _guard = rcx.lock(&mut items).unwrap();
            // SAFETY: locked.
            unsafe { *guarded.word(0) += 1 };
        }
    });
    // SAFETY: the threads are gone.
    assert_eq!(unsafe { *guarded.word(0) }, 3 * UPDATES);
    assert!(locks.iter().all(|lock| !lock.0.load(Relaxed)));
}

#[test]
fn a_guard_pins_what_its_items_lead_to() {
    let p = participants();
    let guarded = Guarded::new();
    let rcx = Rcx::new(&p, topology());
    let guard = rcx.lock(&mut guarded.items([1])).unwrap();
    let epoch = p.advance().unwrap();
    assert!(!p.quiescent(epoch));
    drop(guard);
    assert!(p.quiescent(epoch));
}

/// The sorted list of the paper's listings 3.3 to 3.7, its ends included.
struct List {
    head: Box<Node>,
    retired: Retired<Node>,
    ids: AtomicU64,
}

struct Node {
    value: u64,
    /// Given out upwards, from behind the values: immutable, and unlike them never one's again.
    id: u64,
    lock: RobustLock,
    removed: AtomicBool,
    next: AtomicPtr<Node>,
}

impl Node {
    fn new(id: u64, value: u64, next: *mut Node) -> Box<Node> {
        Box::new(Node {
            value,
            id,
            lock: RobustLock::new(),
            removed: AtomicBool::new(false),
            next: AtomicPtr::new(next),
        })
    }

    fn item(&self) -> Item<'_> {
        Item::new(self.id, &self.lock)
    }

    fn is_followed_by(&self, next: &Node) -> bool {
        !self.removed.load(Relaxed) && std::ptr::eq(self.next.load(Relaxed), next)
    }
}

impl List {
    fn new(p: &Participants) -> List {
        let last = Box::into_raw(Node::new(1, u64::MAX, std::ptr::null_mut()));
        List {
            head: Node::new(0, 0, last),
            retired: Retired::new(p),
            ids: AtomicU64::new(2),
        }
    }

    /// The last node before `value`, and the first one from it on. The caller is pinned.
    fn find(&self, value: u64) -> (&Node, &Node) {
        let mut before: &Node = &self.head;
        loop {
            // SAFETY: linked when it was loaded, so it stays while we are pinned; the last node has
            // the greatest value, which nobody looks beyond.
            let next = unsafe { &*before.next.load(Acquire) };
            if next.value >= value {
                return (before, next);
            }
            before = next;
        }
    }

    fn insert(&self, p: &Participants, rcx: &Rcx, value: u64) -> bool {
        loop {
            let _pin = p.pin().unwrap();
            let (before, next) = self.find(value);
            if next.value == value {
                return false;
            }
            let _guard = rcx.lock(&mut [before.item(), next.item()]).unwrap();
            if next.removed.load(Relaxed) || !before.is_followed_by(next) {
                continue;
            }
            let id = self.ids.fetch_add(1, Relaxed);
            let new = Node::new(id, value, before.next.load(Relaxed));
            before.next.store(Box::into_raw(new), Release);
            return true;
        }
    }

    fn remove(&self, p: &Participants, rcx: &Rcx, value: u64) -> bool {
        loop {
            let _pin = p.pin().unwrap();
            let (before, node) = self.find(value);
            if node.value != value {
                return false;
            }
            let _guard = rcx.lock(&mut [before.item(), node.item()]).unwrap();
            if node.removed.load(Relaxed) || !before.is_followed_by(node) {
                continue;
            }
            let old = NonNull::new(before.next.load(Relaxed)).unwrap();
            before.next.store(node.next.load(Relaxed), Release);
            node.removed.store(true, Relaxed);
            // SAFETY: from a box, unlinked just now by the one thread that holds its lock.
            unsafe { self.retired.retire(old) };
            return true;
        }
    }

    fn values(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let (_, mut node) = self.find(1);
        while node.value != u64::MAX {
            found.push(node.value);
            node = self.find(node.value + 1).1;
        }
        found
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let mut next = *self.head.next.get_mut();
        while !next.is_null() {
            // SAFETY: linked, from a box, and nobody reads any more.
            next = *unsafe { Box::from_raw(next) }.next.get_mut();
        }
    }
}

/// Each thread knows which of its own values are in the list; neighbours are the others'.
#[test]
fn a_sorted_list_loses_nothing_and_keeps_its_order() {
    let p = participants();
    let topology = topology();
    for when in [TakeLanes::WhenBusy, TakeLanes::Always] {
        let rcx = Rcx::new(&p, topology.clone())
            .take_lanes(when)
            .timeout(LONG);
        let list = List::new(&p);
        let kept = Mutex::new(Vec::new());
        in_threads(4, |thread| {
            topology.stay_on(NodeId((thread % topology.nodes()) as u16));
            let mut random = Random::new(thread as u64 + 77);
            let mut mine = BTreeSet::new();
            for _ in 0..UPDATES {
                let value = 1 + random.below(8) * 4 + thread as u64;
                match random.below(4) {
                    0 | 1 => assert_eq!(list.insert(&p, &rcx, value), mine.insert(value)),
                    2 => assert_eq!(list.remove(&p, &rcx, value), mine.remove(&value)),
                    _ => {
                        let _pin = p.pin().unwrap();
                        assert!(list.values().is_sorted());
                        assert_eq!(list.find(value).1.value == value, mine.contains(&value));
                    }
                }
            }
            kept.lock().unwrap().extend(mine);
        });
        let mut expected = kept.into_inner().unwrap();
        expected.sort_unstable();
        assert_eq!(list.values(), expected);
        let stats = rcx.stats();
        println!(
            "@count list, {when:?}: elections {}, bypasses {}",
            stats.elections, stats.bypasses
        );
        assert_eq!(list.retired.flush(), 0);
    }
}

/// Why the links are read again: what was found may be gone when its lock is had.
#[test]
fn what_was_removed_before_its_lock_was_had_is_found_out() {
    let p = participants();
    let rcx = Rcx::new(&p, topology());
    let list = List::new(&p);
    for value in [10, 20, 30] {
        assert!(list.insert(&p, &rcx, value));
    }
    let pin = p.pin().unwrap();
    let (before, next) = list.find(25);
    assert_eq!((before.value, next.value), (20, 30));
    assert!(list.remove(&p, &rcx, 20));
    let guard = rcx.lock(&mut [before.item(), next.item()]).unwrap();
    assert!(
        !before.is_followed_by(next),
        "a node put here would be lost"
    );
    drop((guard, pin));
    assert!(list.insert(&p, &rcx, 25));
    assert_eq!(list.values(), [10, 25, 30]);
}

/// A value that says whether it has been dropped.
struct Counted<'a>(u64, &'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn readers_see_whole_values_and_each_is_dropped_once() {
    let p = participants();
    let dropped = AtomicU64::new(0);
    let made = AtomicU64::new(1);
    let value = Rcu::new(&p, Counted(0, &dropped));
    in_threads(4, |thread| {
        let mut last = 0;
        for _ in 0..UPDATES {
            if thread < 2 {
                // Every attempt makes a value; those that lost the race are dropped at once.
                let next = |old: &Counted<'_>| {
                    made.fetch_add(1, Relaxed);
                    Counted(old.0 + 1, &dropped)
                };
                value.update(next).unwrap();
            } else {
                let reader = value.read().unwrap();
                for _ in 0..3 {
                    let seen = reader.get().0;
                    assert!(seen >= last, "time runs backwards");
                    last = seen;
                }
            }
        }
    });
    assert_eq!(value.read().unwrap().get().0, 2 * UPDATES);
    assert_eq!(value.retired().flush(), 0);
    assert_eq!(dropped.load(Relaxed), made.load(Relaxed) - 1);
    value.replace(Counted(7, &dropped)).unwrap();
    drop(value);
    assert_eq!(dropped.load(Relaxed), made.load(Relaxed) + 1);
}

#[test]
fn a_value_that_a_reader_sees_is_kept() {
    let p = participants();
    let dropped = AtomicU64::new(0);
    let value = Rcu::new(&p, Counted(1, &dropped));
    let reader = value.read().unwrap();
    let first = reader.get();
    value.replace(Counted(2, &dropped)).unwrap();
    assert_eq!((first.0, reader.get().0), (1, 2));
    assert_eq!((value.retired().flush(), dropped.load(Relaxed)), (1, 0));
    drop(reader);
    assert_eq!((value.retired().flush(), dropped.load(Relaxed)), (0, 1));
    // Without a flush they are freed a batch at a time.
    for n in 0..100 {
        value.replace(Counted(n, &dropped)).unwrap();
        assert!(value.retired().len() <= 32);
    }
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
    let led = one.lock(&mut guarded.items([3])).unwrap();
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
#[cfg(feature = "fault")]
#[test]
fn a_leader_that_is_stopped_anywhere_keeps_only_its_own_items() {
    use mneme_sys::fault::{self, Action};

    let points = ["lane", "item", "locked", "items_released"].map(|at| format!("sync.rcx.{at}"));
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
                drop(rcx.lock(&mut guarded.items([1, 2])).unwrap());
            });
            is_stopped.recv().unwrap();
            let other = rcx.lock(&mut guarded.items([0, 3])).unwrap().into_inner();
            assert_eq!(other.led_on(), None, "{point}: the lane is taken");
            drop(other);
            go_on.send(()).unwrap();
            stopped.join().unwrap();
        });
        let all = rcx.lock(&mut guarded.items(0..4)).unwrap().into_inner();
        assert_eq!(all.led_on(), Some(NodeId(0)), "{point}");
    }
}
