//! Repeats one operation on a large sorted set, list or hash, for counting its instructions.
//!
//! `valgrind --tool=callgrind target/release/examples/instructions <operation> [elements] [times]`
//!
//! Operations: `zadd` (another score, anywhere), `zincrby` (a score that is a little higher),
//! `zadd_new`, `zrem` (a member, which is added again), `zrank`, `zscore`, `zrange` (100 members),
//! `lindex`, `lset`, `lpush_rpop` (one of each), `rpush`, `lrange` (100 items), `hset` (another
//! value), `hget`. `z_nothing` of the set, `l_nothing` of the list, and `h_nothing` of the hash
//! only create the elements: the difference gives an operation's instructions.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::hint::black_box;

use mneme_collections::{End, Hash, List, SortedRange, SortedSet};
use mneme_log::LogStore;

fn main() {
    let mut args = std::env::args().skip(1);
    let operation = args.next().unwrap_or_default();
    let mut number = |or: u64| args.next().map_or(or, |arg| arg.parse().unwrap());
    let (elements, times) = (number(40_000), number(20_000));
    let store = LogStore::builder()
        .capacity(1 << 30)
        .maintainer(false)
        .open_private()
        .unwrap();
    let set = SortedSet::of(&store, b"set").unwrap();
    let list = List::of(&store, b"list").unwrap();
    let hash = Hash::of(&store, b"hash").unwrap();
    // Each number once, in no order.
    let shuffled = |i: u64| i.wrapping_mul(7_919_789) % elements;
    let member = |i: u64| format!("member:{:010}", shuffled(i));
    let item = |i: u64| format!("item{:06}", i % 1_000_000);
    let names: Vec<String> = (0..elements).map(member).collect();
    match operation.as_bytes().first() {
        Some(b'h') => {
            let pairs: Vec<_> = names
                .iter()
                .map(|name| (name.as_bytes(), &b"value"[..]))
                .collect();
            for run in pairs.chunks(1000) {
                hash.set_many(run).unwrap();
            }
        }
        Some(b'z') => {
            let scores = (0..elements).map(|i| shuffled(i * 31) as f64);
            let members: Vec<_> = names
                .iter()
                .map(|name| name.as_bytes())
                .zip(scores)
                .collect();
            for run in members.chunks(1000) {
                set.set_many(run).unwrap();
            }
        }
        _ => {
            let items: Vec<String> = (0..elements).map(item).collect();
            let items: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
            list.push(End::Back, &items).unwrap();
        }
    }
    for i in 0..times {
        let (place, name) = (shuffled(i * 37) as usize, member(i * 13));
        let name = name.as_bytes();
        match operation.as_str() {
            "z_nothing" | "l_nothing" | "h_nothing" => drop(black_box((place, name))),
            "zadd" => drop(set.set(name, shuffled(i * 17) as f64 + 0.5).unwrap()),
            "zincrby" => drop(set.increment(name, 1.0).unwrap()),
            "zadd_new" => {
                let name = format!("new:{i}");
                assert!(set.set(name.as_bytes(), place as f64).unwrap());
            }
            "zrem" => {
                assert!(set.remove(name).unwrap());
                assert!(set.set(name, place as f64).unwrap());
            }
            "zrank" => assert!(set.rank(name).unwrap().is_some()),
            "zscore" => assert!(set.score(name).unwrap().is_some()),
            "zrange" => {
                let start = (place as i64).min(elements as i64 - 100);
                let found = set.range(&SortedRange::Ranks(start, start + 99), false);
                assert_eq!(found.unwrap().len(), 100);
            }
            "lindex" => assert!(list.get(place).unwrap().is_some()),
            "lset" => assert!(list.set(place, item(i).as_bytes()).unwrap()),
            "hset" => drop(hash.set(name, item(i).as_bytes()).unwrap()),
            "hget" => assert!(hash.get(name).unwrap().is_some()),
            "lpush_rpop" => {
                list.push(End::Front, &[item(i).as_bytes()]).unwrap();
                assert!(list.pop(End::Back).unwrap().is_some());
            }
            "rpush" => drop(list.push(End::Back, &[item(i).as_bytes()]).unwrap()),
            "lrange" => {
                let start = place.min(elements as usize - 100);
                let found = list.range(start..start + 100);
                assert_eq!(found.unwrap().len(), 100);
            }
            other => panic!("no such operation: {other}"),
        }
    }
}
