//! The edges of a store's capacity: what is full says so, what is not full goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_log::{LogStore, PagePolicy, WriteError};
use mneme_sys::{CpuId, SyntheticTopology};

fn open(capacity: u64) -> LogStore {
    LogStore::builder()
        .capacity(capacity)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .open_private()
        .unwrap()
}

fn fill(store: &LogStore, len: usize) -> (u64, WriteError) {
    let value = vec![7u8; len];
    for i in 0u64.. {
        if let Err(error) = store.put(&i.to_le_bytes(), &value) {
            return (i, error);
        }
    }
    unreachable!()
}

/// A node's memory is used to its last frame, and compacted to its last frame.
#[test]
fn the_last_frames_are_compacted_like_the_others() {
    let topology = Arc::new(SyntheticTopology::new(2, 1));
    let store = LogStore::builder()
        .capacity(64 << 20)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    // The second node has the upper half of the frames.
    topology.run_on(CpuId(1));
    store.put(b"k", b"v").unwrap();
    store.remove(b"k").unwrap();
    let before = store.stats();
    let (stored, _) = fill(&store, 1000);
    assert_eq!(
        store.stats().overhead_bytes,
        before.overhead_bytes,
        "every frame is accounted for"
    );
    for i in 0..stored {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    store.compact().unwrap();
    store.compact().unwrap();
    let after = store.stats();
    assert_eq!(after.free_bytes, before.free_bytes);
}
