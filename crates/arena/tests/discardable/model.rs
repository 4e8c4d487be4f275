//! Random changes, lookups and claims by several processes: a hit is the value that was put last.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{CacheLookup, ClaimError, Class, Extent, MAX_RECORD, PutError, Stored};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{NODE, Shape};
use crate::{SHAPE, get, keyed, lending};

#[derive(Clone, Debug)]
enum Op {
    Put {
        by: Index,
        key: u8,
        size: usize,
    },
    Remove {
        by: Index,
        key: u8,
    },
    Miss {
        by: Index,
        key: u8,
    },
    Fill {
        by: Index,
        which: Index,
    },
    Get {
        by: Index,
        key: u8,
    },
    Claim {
        by: Index,
        frames: u32,
        reserved: bool,
    },
    Release {
        by: Index,
        which: Index,
    },
    Clear {
        by: Index,
    },
    Sweep {
        by: Index,
    },
    Open,
    Kill {
        which: Index,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    let size = prop_oneof![4 => 0usize..2000, 3 => 100_000usize..900_000, 1 => MAX_RECORD - 100..MAX_RECORD + 2];
    prop_oneof![
        12 => (index(), 0u8..40, size).prop_map(|(by, key, size)| Op::Put { by, key, size }),
        3 => (index(), 0u8..40).prop_map(|(by, key)| Op::Remove { by, key }),
        4 => (index(), 0u8..40).prop_map(|(by, key)| Op::Miss { by, key }),
        4 => (index(), index()).prop_map(|(by, which)| Op::Fill { by, which }),
        12 => (index(), 0u8..40).prop_map(|(by, key)| Op::Get { by, key }),
        4 => (index(), 1u32..6, any::<bool>()).prop_map(|(by, frames, reserved)| Op::Claim { by, frames, reserved }),
        4 => (index(), index()).prop_map(|(by, which)| Op::Release { by, which }),
        1 => index().prop_map(|by| Op::Clear { by }),
        1 => index().prop_map(|by| Op::Sweep { by }),
        1 => Just(Op::Open),
        1 => index().prop_map(|which| Op::Kill { which }),
    ]
}

/// A version of a value, which its bytes identify.
fn version(key: u8, number: u64, size: usize) -> Vec<u8> {
    let mut value = keyed(number, size);
    let name = [&[key][..], &number.to_le_bytes()].concat();
    let fits = name.len().min(size);
    value[..fits].copy_from_slice(&name[..fits]);
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// A hit is the value that was put last, whatever was claimed, discarded and freed meanwhile;
    /// and the first class gets every frame that it does not have and that is not being filled.
    #[test]
    fn a_hit_is_the_value_put_last(ops in prop::collection::vec(op(), 1..120)) {
        let (world, first, _) = lending(Shape { reserve: 2, ..SHAPE });
        let mut processes = vec![first];
        let mut caches = vec![processes[0].cache()];
        // The current values, and what was read from them after a miss.
        let mut truth: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut tickets = Vec::new();
        let mut held: Vec<Extent> = Vec::new();
        for (number, op) in (0..).zip(ops) {
            match op {
                Op::Put { by, key, size } => {
                    let value = version(key, number, size);
                    truth.insert(key, value.clone());
                    let cache = by.get(&caches);
                    let slot = cache.arena().participants().slot().unwrap();
                    match cache.put(&slot, NODE, &[key], &value) {
                        Err(PutError::TooLarge { .. }) => prop_assert!(1 + size > MAX_RECORD),
                        other => {
                            let taken = other.unwrap() == Stored::Kept;
                            prop_assert_eq!(taken, get(cache, &[key]).is_some());
                        }
                    }
                }
                Op::Remove { by, key } => {
                    truth.remove(&key);
                    by.get(&caches).remove(&[key]).unwrap();
                }
                Op::Miss { by, key } => {
                    if let (CacheLookup::Miss(ticket), Some(value)) =
                        (by.get(&caches).get(&[key], &mut Vec::new()), truth.get(&key))
                    {
                        tickets.push((ticket, key, value.clone()));
                    }
                }
                Op::Fill { by, which } if !tickets.is_empty() => {
                    let (ticket, key, value) = tickets.swap_remove(which.index(tickets.len()));
                    let cache = by.get(&caches);
                    let slot = cache.arena().participants().slot().unwrap();
                    // The value may be old; then it must be refused.
                    let _ = cache.fill(&slot, NODE, ticket, &[key], &value);
                }
                Op::Get { by, key } => {
                    if let Some(found) = get(by.get(&caches), &[key]) {
                        prop_assert_eq!(Some(&found), truth.get(&key));
                    }
                }
                Op::Claim { by, frames, reserved } => {
                    let process = by.get(&processes);
                    let class = if reserved { Class::Reserved } else { Class::Ordinary };
                    let free = 16 - held.iter().map(|extent| extent.frames).sum::<u32>();
                    let reserve = if reserved { 0 } else { 2 };
                    match process.claim_as(frames, 1, NODE, class, 0) {
                        Ok(extent) => {
                            process.arena.adopt(extent).unwrap();
                            prop_assert!(held.iter().all(|other| !other.contains(extent.start)));
                            // No reader of the second class accepts what the first class stores.
                            for word in 0..extent.len() / 4096 {
                                let at = extent.offset() + word * 4096;
                                let word: &AtomicU64 = process.arena.region().at(at).unwrap();
                                word.store(number, Relaxed);
                            }
                            held.push(extent);
                        }
                        Err(ClaimError::OutOfMemory { .. }) => prop_assert!(frames + reserve + 1 > free),
                        Err(ClaimError::NoContiguousRun { .. }) => prop_assert!(frames > 1),
                        Err(other) => panic!("{other}"),
                    }
                }
                Op::Release { by, which } if !held.is_empty() => {
                    by.get(&processes).release(held.swap_remove(which.index(held.len()))).unwrap();
                }
                Op::Clear { by } => by.get(&caches).clear().unwrap(),
                Op::Sweep { by } => {
                    by.get(&caches).sweep().unwrap();
                }
                Op::Open if processes.len() < 3 => {
                    processes.push(world.open());
                    caches.push(processes[processes.len() - 1].cache());
                }
                Op::Kill { which } if processes.len() > 1 => {
                    let at = which.index(processes.len());
                    caches.remove(at);
                    let process = processes.remove(at);
                    world.kill(process.number);
                    processes[0].reap();
                }
                _ => {}
            }
        }
        for key in 0..40 {
            let found = get(&caches[0], &[key]);
            prop_assert!(found.is_none() || found.as_ref() == truth.get(&key));
        }
        processes[0].assert_whole();
        let taken: u32 = held.iter().map(|extent| extent.frames).sum();
        let stats = processes[0].arena.stats();
        prop_assert!(stats.free + taken == 16 || stats.free + taken == 15);
        for extent in held {
            processes[0].release(extent).unwrap();
        }
    }
}
