//! CPUs and nodes that threads move between, that come and go, and that nobody made lanes for.

use crate::{Guarded, LONG, UPDATES, participants};
use mneme_rcx::{LaneSet, Rcx, TakeLanes};
use mneme_sys::{CpuId, NodeId, SyntheticTopology, SysfsTopology, Topology};
use mneme_testkit::{Random, in_threads};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

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
        let guard = rcx.lock(guarded.items([1, 2])).unwrap().into_inner();
        assert_eq!(guard.led_on(), Some(NodeId(round as u16 % 4)));
        topology.run_on(CpuId(round + 1));
    }
    assert_eq!((rcx.stats().elections, rcx.stats().bypasses), (8, 0));
}

/// A node for which there are no lanes shares those of another: its threads lead, or go on without
/// where that one leads.
#[test]
fn nodes_beyond_the_lanes_share_those_of_others() {
    let p = participants();
    let guarded = Guarded::new();
    let topology = Arc::new(SyntheticTopology::new(4, 1));
    let rcx = Rcx::with_lanes(&p, topology.clone(), LaneSet::new(2, 1))
        .take_lanes(TakeLanes::Always)
        .lane_timeout(Duration::ZERO);
    topology.run_on(CpuId(0));
    let first = rcx.lock(guarded.items([0])).unwrap().into_inner();
    assert_eq!(first.led_on(), Some(NodeId(0)));
    in_threads(3, |thread| {
        let node = 1 + thread as u16;
        topology.stay_on(NodeId(node));
        let guard = rcx.lock(guarded.items([usize::from(node)])).unwrap();
        let led_on = guard.into_inner().led_on();
        match node {
            2 => assert_eq!(led_on, None, "the lanes are those of node 0"),
            // Each may find the other leading.
            _ => assert!(led_on.is_none_or(|led_on| led_on == NodeId(node))),
        }
    });
    drop(first);
    topology.run_on(CpuId(2));
    let third = rcx.lock(guarded.items([0])).unwrap().into_inner();
    assert_eq!(third.led_on(), Some(NodeId(2)), "all lanes came back");
    drop(third);
    guarded.assert_free();
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
            let _guard = rcx.lock(guarded.items(ids)).unwrap();
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
        let guard = rcx.lock(guarded.items(0..6)).unwrap().into_inner();
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
                    let guard = rcx.lock(guarded.items(ids)).unwrap().into_inner();
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
    let guard = all.lock(guarded.items(0..8)).unwrap().into_inner();
    assert!(guard.led_on().is_some(), "a lane is left held");
}
