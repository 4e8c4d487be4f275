//! One operation on a small value again and again, for counting its instructions.
//!
//! `valgrind --tool=callgrind target/release/examples/packed_instructions <operation> [elements]
//! [times]`
//!
//! Operations: `sismember`, `srem_sadd` (one of each), `hget`, `hset`, `hdel_hset`, `hincrby`,
//! `zscore`, `zadd` (another score, anywhere), `zincrby`, `zrem_zadd`, `lpush_rpop`, `rpush_lpop`.
//! `nothing` only makes the values: an operation's instructions are what is more.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::hint::black_box;

use mneme_collections::{End, Hash, List, Set, SortedSet};
use mneme_log::LogStore;

fn main() {
    let mut args = std::env::args().skip(1);
    let operation = args.next().unwrap_or_default();
    let mut number = |or: u64| args.next().map_or(or, |arg| arg.parse().unwrap());
    let (elements, times) = (number(128), number(20_000));
    let store = LogStore::builder()
        .capacity(64 << 20)
        .maintainer(false)
        .open_private()
        .unwrap();
    let name = |i: u64| format!("element{:07}", i % elements);
    let hash = Hash::of(&store, b"hash").unwrap();
    let set = Set::of(&store, b"set").unwrap();
    let sorted = SortedSet::of(&store, b"sorted").unwrap();
    let list = List::of(&store, b"list").unwrap();
    for i in 0..elements {
        let name = name(i);
        let name = name.as_bytes();
        hash.set(name, b"v000000000").unwrap();
        set.add(name).unwrap();
        sorted.set(name, i as f64).unwrap();
        list.push(End::Back, &[&name[4..]]).unwrap();
    }
    hash.set(b"number", b"1000").unwrap();
    for i in 0..times {
        // Each element, in no order.
        let at = i.wrapping_mul(7919);
        let name = name(at);
        let name = name.as_bytes();
        let value = format!("v{i:09}");
        let value = value.as_bytes();
        match operation.as_str() {
            "nothing" => drop(black_box((name, value))),
            "sismember" => assert!(set.contains(name).unwrap()),
            "srem_sadd" => {
                assert!(set.remove(name).unwrap());
                assert!(set.add(name).unwrap());
            }
            "hget" => assert!(hash.get(name).unwrap().is_some()),
            "hset" => assert!(!hash.set(name, value).unwrap()),
            "hdel_hset" => {
                assert!(hash.remove(name).unwrap());
                assert!(hash.set(name, value).unwrap());
            }
            "hincrby" => drop(black_box(hash.increment(b"number", 1).unwrap())),
            "zscore" => assert!(sorted.score(name).unwrap().is_some()),
            "zadd" => drop(black_box(
                (sorted.set(name, (at.wrapping_mul(31) % 1000) as f64)).unwrap(),
            )),
            "zincrby" => drop(black_box(sorted.increment(name, 1.0).unwrap())),
            "zrem_zadd" => {
                assert!(sorted.remove(name).unwrap());
                assert!(sorted.set(name, (at % 1000) as f64).unwrap());
            }
            "lpush_rpop" => {
                list.push(End::Front, &[value]).unwrap();
                assert!(list.pop(End::Back).unwrap().is_some());
            }
            "rpush_lpop" => {
                list.push(End::Back, &[value]).unwrap();
                assert!(list.pop(End::Front).unwrap().is_some());
            }
            other => panic!("no such operation: {other}"),
        }
    }
}
