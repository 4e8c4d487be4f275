//! The second class: what a lookup may return, that it costs the first class nothing, and that
//! damage to its index only causes misses.
#![allow(clippy::unwrap_used)]

mod claims;
mod damage;
mod hits;
mod lent;
mod model;
mod recovery;
#[path = "../support/mod.rs"]
mod support;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{Arena, CacheLookup, Class, Discardable, MAX_RECORD, Stored};
use mneme_sys::NodeId;
use support::{NODE, Process, Shape, World, world};

const SHAPE: Shape = Shape {
    frames: 17,
    max_frames: 17,
    nodes: 1,
    reserve: 0,
    client_bytes: 4096,
    records: 4096,
};

fn lending(shape: Shape) -> (World, Process, Discardable) {
    let (world, process) = world(shape);
    for node in 0..shape.nodes {
        let free = process.arena.stats().nodes[usize::from(node)].free;
        let extent = process
            .claim_as(free, 1, NodeId(node), Class::Reserved, 0)
            .unwrap();
        process.release(extent).unwrap();
    }
    let cache = process.cache();
    (world, process, cache)
}

fn put(cache: &Discardable, key: &[u8], value: &[u8]) -> Stored {
    let slot = cache.arena().participants().slot().unwrap();
    cache.put(&slot, NODE, key, value).unwrap()
}

/// Puts records, each of which fills a frame.
fn keep(cache: &Discardable, numbers: Range<u64>) {
    for number in numbers {
        let value = keyed(number, MAX_RECORD - 8);
        assert_eq!(put(cache, &number.to_le_bytes(), &value), Stored::Kept);
    }
}

/// Whether the cache has the record with that number.
fn has(cache: &Discardable, number: u64) -> bool {
    get(cache, &number.to_le_bytes()).is_some()
}

fn get(cache: &Discardable, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![1, 2, 3];
    match cache.get(key, &mut value) {
        CacheLookup::Hit => Some(value),
        CacheLookup::Miss(_) => {
            assert!(value.is_empty());
            None
        }
    }
}

fn keyed(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
        .repeat(bytes / 8 + 1);
    value.truncate(bytes);
    value
}

/// The offset of the first node's fill lock in the format: after the lending header.
fn fill_lock_of(process: &Process) -> u64 {
    let arena = &process.arena;
    let tree_end = arena.client().start - lending_bytes(arena);
    tree_end + 640
}

/// The size of the parts of `SHAPE`'s cache before the client area.
fn lending_bytes(_arena: &Arena) -> u64 {
    let buckets = SHAPE.records.div_ceil(6);
    let unit = |bytes: u64| bytes.next_multiple_of(128);
    640 + 640 + unit(8) + unit(16 * SHAPE.max_frames as u64) + unit(64 * buckets)
}

/// A descriptor's first word; its upper half is the generation.
fn descriptor(process: &Process, frame: u32) -> &AtomicU64 {
    let descriptors = 640 + 256 * 16;
    let region = process.arena.region();
    region.at(descriptors + 16 * u64::from(frame)).unwrap()
}

fn generation(process: &Process, frame: u32) -> u32 {
    (descriptor(process, frame).load(Relaxed) >> 32) as u32
}
