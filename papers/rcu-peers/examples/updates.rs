//! What an operation on a set costs each mechanism that meets nobody, to be counted:
//! `valgrind --tool=callgrind target/release/examples/updates rcx 128 8 40 1000000`.
//!
//! Mechanism, buckets, keys in each, updates in 100 operations, operations. Two counts of
//! instructions with so many operations and twice as many differ by those of so many.

use mneme_rcu_peers::{MECHANISMS, make};
use mneme_sys::{SyntheticTopology, Topology};
use std::hint::black_box;
use std::sync::Arc;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mechanism, numbers @ ..] = &*arguments else {
        return Err(
            "mechanism, buckets, keys in each, updates in 100 operations, operations".into(),
        );
    };
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
    let [buckets, keys, updates, operations] = numbers?[..] else {
        return Err("four numbers are wanted".into());
    };
    let mechanism = MECHANISMS.iter().position(|name| name == mechanism);
    let mechanism = mechanism.ok_or_else(|| format!("not one of {MECHANISMS:?}"))?;
    let topology: Arc<dyn Topology> = Arc::new(SyntheticTopology::new(1, 1));
    let set = make(mechanism, buckets as usize, 1, &topology)?;
    let (mut random, keys) = (Random(1), keys * buckets);
    let mut left = keys;
    while left > 0 {
        left -= u64::from(set.insert(0, 1 + random.below(2 * keys)));
    }
    for _ in 0..operations {
        let (key, drawn) = (1 + random.below(2 * keys), random.below(200));
        black_box(match drawn {
            _ if drawn >= 2 * updates => set.contains(0, key),
            _ if drawn < updates => set.insert(0, key),
            _ => set.remove(0, key),
        });
    }
    Ok(())
}
