//! Several NUMA nodes: records stay where they were written, unless their node becomes full.
//!
//! On a machine with several nodes these are the machine's own, which `cargo xtask numa` supplies
//! in a guest; elsewhere two nodes are simulated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_log::{LogStore, PagePolicy, Stats};
use mneme_sys::{CpuId, NodeId, SyntheticTopology, SysfsTopology, Topology};

const LEN: usize = 4000;
const ON_EACH: u64 = 192 << 20;

/// A store over several nodes, with the same amount of memory on each.
fn open(maintainer: bool) -> (Arc<dyn Topology>, LogStore) {
    let machine = SysfsTopology::detect();
    let topology: Arc<dyn Topology> = match machine.nodes() {
        1 => Arc::new(SyntheticTopology::new(2, 2)),
        _ => Arc::new(machine),
    };
    let store = LogStore::builder()
        .capacity(ON_EACH * topology.nodes() as u64)
        .maintainer(maintainer)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    (topology, store)
}

fn nodes(topology: &dyn Topology) -> impl Iterator<Item = NodeId> {
    (0..topology.nodes() as u16).map(NodeId)
}

fn value(key: u64) -> Vec<u8> {
    (0..LEN as u64).map(|i| (key ^ i) as u8).collect()
}

fn put(store: &LogStore, keys: impl Iterator<Item = u64>) {
    for key in keys {
        store.put(&key.to_le_bytes(), &value(key)).unwrap();
    }
}

fn assert_whole(store: &LogStore, keys: impl Iterator<Item = u64>) {
    for key in keys {
        assert_eq!(
            store.get(&key.to_le_bytes()).unwrap().unwrap(),
            value(key),
            "key {key}"
        );
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// Every byte is counted exactly once, on each node and in total.
fn assert_adds_up(stats: &Stats) {
    for on in &stats.nodes {
        let parts = [
            on.live_bytes,
            on.stale_bytes,
            on.index_bytes,
            on.head_bytes,
            on.free_bytes,
        ];
        assert_eq!(parts.iter().sum::<u64>(), on.capacity, "{stats:?}");
    }
    let capacity: u64 = stats.nodes.iter().map(|on| on.capacity).sum();
    assert_eq!(capacity + stats.overhead_bytes, stats.capacity);
}

#[test]
fn survivors_stay_on_their_node() {
    let (topology, store) = open(false);
    let on_node = 15_000u64;
    for node in nodes(&*topology) {
        topology.stay_on(node);
        let first = u64::from(node.0) * on_node;
        put(&store, first..first + on_node);
    }
    let before = store.stats();
    assert_adds_up(&before);
    for on in &before.nodes {
        assert!(on.live_bytes > on_node * LEN as u64, "{before:?}");
    }
    // Every other record dies; compaction runs on the first node and has work on all.
    let keys = 0..topology.nodes() as u64 * on_node;
    for key in keys.clone().step_by(2) {
        store.remove(&key.to_le_bytes()).unwrap();
    }
    topology.stay_on(NodeId(0));
    assert!(store.compact().unwrap() > 20);
    let after = store.stats();
    assert_adds_up(&after);
    for (was, on) in before.nodes.iter().zip(&after.nodes) {
        let half = was.live_bytes / 2;
        assert!(on.live_bytes.abs_diff(half) < half / 20, "{after:?}");
        assert!(on.free_bytes > was.free_bytes + half / 2, "{after:?}");
    }
    assert_whole(&store, keys.skip(1).step_by(2));
}

/// A store of this size has one head fewer than the machine has CPUs.
#[test]
fn the_last_cpu_appends_on_its_own_node() {
    let topology = Arc::new(SyntheticTopology::new(4, 2));
    let store = LogStore::builder()
        .capacity(768 << 20)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    for cpu in 0..topology.cpus() as u32 {
        topology.run_on(CpuId(cpu));
        let (before, first) = (store.stats(), u64::from(cpu) * 100);
        put(&store, first..first + 100);
        let (on, after) = (usize::from(topology.current_node().0), store.stats());
        let grown = after.nodes[on].live_bytes - before.nodes[on].live_bytes;
        assert!(grown >= 100 * LEN as u64, "CPU {cpu}: {after:?}");
    }
}

/// Live bytes on all nodes except that one.
fn live_beyond(node: usize, stats: &Stats) -> u64 {
    let all: u64 = stats.nodes.iter().map(|on| on.live_bytes).sum();
    all - stats.nodes[node].live_bytes
}

/// One node is full of live records, the others empty: compaction moves some there, so that writers
/// on the full one find space near them again.
#[test]
fn a_full_node_is_relieved_by_an_empty_one() {
    let (topology, store) = open(false);
    topology.stay_on(NodeId(0));
    let mut keys = 0u64;
    while store.stats().nodes[0].free_bytes > 0 {
        put(&store, keys..keys + 250);
        keys += 250;
    }
    let full = store.stats();
    assert!(live_beyond(0, &full) < 8 << 20, "{full:?}");
    store.compact().unwrap();
    let relieved = store.stats();
    assert_adds_up(&relieved);
    let moved = live_beyond(0, &relieved) - live_beyond(0, &full);
    assert!(moved > 4 << 20, "{relieved:?}");
    assert!(
        relieved.nodes[0].free_bytes > full.nodes[0].free_bytes,
        "{relieved:?}"
    );
    // No more than that: nodes are not balanced for its own sake.
    assert!(relieved.nodes[0].live_bytes > 2 * live_beyond(0, &relieved));
    assert_whole(&store, 0..keys);
    let before = store.stats().nodes[0].live_bytes;
    put(&store, keys..keys + 750);
    let now = store.stats();
    assert!(now.nodes[0].live_bytes > before + (2 << 20), "{now:?}");
}

/// The maintainers, one for each node, do that without a request.
#[test]
fn maintainers_keep_free_space_on_their_nodes() {
    let (topology, store) = open(true);
    topology.stay_on(NodeId(1));
    let mut keys = 0u64;
    while live_beyond(1, &store.stats()) == 0 {
        put(&store, keys..keys + 250);
        keys += 250;
    }
    assert_whole(&store, 0..keys);
    // All of it can be rewritten repeatedly, because dead records on either node are won back.
    for _ in 0..3 {
        put(&store, 0..keys);
    }
    assert_whole(&store, 0..keys);
}

/// Pages of the mappings that prefer a node: the number on it, and the number on another.
fn pages_preferred() -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let (mut local, mut remote) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace().skip(1);
        let Some(node) = words
            .next()
            .and_then(|policy| policy.strip_prefix("prefer:"))
        else {
            continue;
        };
        let on = words.filter_map(|word| word.strip_prefix('N')?.split_once('='));
        for (at, pages) in on {
            let pages: u64 = pages.parse().unwrap();
            *(if at == node { &mut local } else { &mut remote }) += pages;
        }
    }
    (local, remote)
}

/// The statistics give the node of a record; the kernel gives that of its pages.
#[test]
#[ignore = "needs several NUMA nodes"]
fn a_nodes_records_lie_in_its_memory() {
    let (topology, store) = open(false);
    let on_node = 5_000u64;
    for node in nodes(&*topology) {
        topology.stay_on(node);
        let first = u64::from(node.0) * on_node;
        put(&store, first..first + on_node);
    }
    for on in &store.stats().nodes {
        assert!(on.live_bytes > on_node * LEN as u64);
    }
    let (local, remote) = pages_preferred();
    println!("@count records' pages local {local} remote {remote}");
    let written = topology.nodes() as u64 * on_node * LEN as u64;
    assert!(local > written / 4096, "{local} pages for {written} bytes");
    assert_eq!(remote, 0);
}
