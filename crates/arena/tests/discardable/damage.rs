//! Damage to the second class costs only misses.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{Frame, Stored};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{FRAME, NODE, Process};
use crate::{SHAPE, get, keyed, lending, lending_bytes, put};

fn any_bytes(process: &Process, from: u64, words: &[(Index, u64)]) {
    let to = process.arena.client().start;
    for (at, word) in words {
        let at = from + at.index(((to - from) / 8) as usize) as u64 * 8;
        let place: &AtomicU64 = process.arena.region().at(at).unwrap();
        place.store(*word, Relaxed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the index, the policy's tables and the records' bytes contain, a hit is a value
    /// that was put.
    #[test]
    fn damage_costs_misses(
        index in prop::collection::vec((any::<Index>(), any::<u64>()), 0..400),
        swaps in prop::collection::vec((any::<Index>(), any::<Index>()), 0..200),
        bytes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..200),
    ) {
        let (_world, process, cache) = lending(SHAPE);
        let value = |number: u64| keyed(number, 4000 + number as usize);
        for number in 0..1000u64 {
            prop_assert_eq!(put(&cache, &number.to_le_bytes(), &value(number)), Stored::Kept);
        }
        let buckets = process.arena.client().start - 64 * SHAPE.records.div_ceil(6);
        let region = process.arena.region();
        let words = (process.arena.client().start - buckets) as usize / 8;
        // Entries in other places, arbitrary words, arbitrary records.
        let at = |index: Index| region.at::<AtomicU64>(buckets + index.index(words) as u64 * 8).unwrap();
        for (one, other) in swaps {
            let word = at(one).load(Relaxed);
            at(one).store(at(other).swap(word, Relaxed), Relaxed);
        }
        any_bytes(&process, buckets, &index);
        for (place, byte) in bytes {
            let frame = Frame(1 + place.index(16) as u32);
            let offset = frame.offset() + place.index(FRAME / 8) as u64 * 8;
            region.at::<AtomicU64>(offset).unwrap().fetch_xor(u64::from(byte), Relaxed);
        }
        let mut hits = 0;
        for number in 0..1000u64 {
            if let Some(found) = get(&cache, &number.to_le_bytes()) {
                prop_assert_eq!(found, value(number));
                hits += 1;
            }
        }
        prop_assert!(hits > 0);
        // Also with the rest of the second class's tables: no panic, and claims work as usual.
        any_bytes(&process, process.arena.client().start - lending_bytes(&process.arena) + 640 + 128, &index);
        for number in 0..50u64 {
            let slot = process.arena.participants().slot().unwrap();
            let _ = cache.put(&slot, NODE, &number.to_le_bytes(), &value(number)).unwrap();
            if let Some(found) = get(&cache, &number.to_le_bytes()) {
                prop_assert_eq!(found, value(number));
            }
        }
        cache.sweep().unwrap();
        cache.clear().unwrap();
        let extent = process.claim(8).unwrap();
        process.release(extent).unwrap();
        process.assert_whole();
    }
}
