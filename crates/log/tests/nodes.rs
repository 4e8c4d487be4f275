//! Two NUMA nodes: records stay where they were written, unless their node runs full.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_log::{LogStore, PagePolicy, Stats};
use mneme_sys::{CpuId, SyntheticTopology};

const LEN: usize = 4000;
/// CPUs of the two nodes.
const NODES: [CpuId; 2] = [CpuId(0), CpuId(2)];

fn open() -> (Arc<SyntheticTopology>, LogStore) {
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    let store = LogStore::builder()
        .capacity(384 << 20)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    (topology, store)
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

/// Every byte is somewhere, on each node and altogether.
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
    let (topology, store) = open();
    let on_node = 15_000u64;
    for (node, cpu) in NODES.into_iter().enumerate() {
        topology.run_on(cpu);
        let first = node as u64 * on_node;
        put(&store, first..first + on_node);
    }
    let before = store.stats();
    assert_adds_up(&before);
    for on in &before.nodes {
        assert!(on.live_bytes > on_node * LEN as u64, "{before:?}");
    }
    // Every other record dies; compaction runs on the first node and has work on both.
    let keys = 0..2 * on_node;
    for key in keys.clone().step_by(2) {
        store.remove(&key.to_le_bytes()).unwrap();
    }
    topology.run_on(NODES[0]);
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

/// One node is full of live records, the other empty: compaction moves some there, so that writers
/// on the full one find space near them again.
#[test]
fn a_full_node_is_relieved_by_an_empty_one() {
    let (topology, store) = open();
    topology.run_on(NODES[0]);
    let mut keys = 0u64;
    while store.stats().nodes[0].free_bytes > 0 {
        put(&store, keys..keys + 250);
        keys += 250;
    }
    let full = store.stats();
    assert!(full.nodes[1].live_bytes < 8 << 20, "{full:?}");
    store.compact().unwrap();
    let relieved = store.stats();
    assert_adds_up(&relieved);
    let moved = relieved.nodes[1].live_bytes - full.nodes[1].live_bytes;
    assert!(moved > 4 << 20, "{relieved:?}");
    assert!(
        relieved.nodes[0].free_bytes > full.nodes[0].free_bytes,
        "{relieved:?}"
    );
    // Not more than that: the nodes are not made equal for its own sake.
    assert!(relieved.nodes[0].live_bytes > 2 * relieved.nodes[1].live_bytes);
    assert_whole(&store, 0..keys);
    let before = store.stats().nodes[0].live_bytes;
    put(&store, keys..keys + 750);
    let now = store.stats();
    assert!(now.nodes[0].live_bytes > before + (2 << 20), "{now:?}");
}

/// The maintainers, one a node, do that without a request.
#[test]
fn maintainers_keep_free_space_on_their_nodes() {
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    let store = LogStore::builder()
        .capacity(384 << 20)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    topology.run_on(NODES[1]);
    let mut keys = 0u64;
    while store.stats().nodes[0].live_bytes == 0 {
        put(&store, keys..keys + 250);
        keys += 250;
    }
    assert_whole(&store, 0..keys);
    // Rewriting all of it stays possible, for whatever dies on either node is won back.
    for _ in 0..3 {
        put(&store, 0..keys);
    }
    assert_whole(&store, 0..keys);
}
