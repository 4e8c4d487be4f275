//! Puts, batches of 1,000 sorted puts, gets, gets of 32 keys at a time, or scans of 100 keys, of
//! keys of 25 bytes, for counting instructions: run `tree_instructions put 100 20000` and
//! `tree_instructions put 100 60000` (or `batch`, `get`, `many`, `scan`; 100 is the length of the
//! values) under `valgrind --tool=callgrind`, and divide what they differ by by 40,000.
//!
//! The store lies in memory. It is filled with 20,000 keys before, in an order of no meaning.
#![allow(
    clippy::unwrap_used,
    reason = "a measurement that fails may end like this"
)]

use std::hint::black_box;

use mneme_sys::medium::MemoryMedium;
use mneme_tree::{Batch, Durability, Store};

const RECORDS: u64 = 20_000;

type Key = [u8; 25];

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % RECORDS;
    let mut key = [b'0'; 25];
    key[..4].copy_from_slice(b"user");
    key[17..].copy_from_slice(format!("{n:08}").as_bytes());
    key
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap();
    let mut number = || arguments.next().unwrap().parse::<usize>().unwrap();
    let (len, count) = (number(), number());
    let builder = Store::builder().durability(Durability::Process);
    let medium = MemoryMedium::new(1 << 30).unwrap();
    let db = builder.open_on(Box::new(medium)).unwrap();
    let value = vec![1; len];
    let keys: Vec<_> = (0..RECORDS).map(key).collect();
    let mut batches: Vec<Vec<Key>> = keys.chunks(1000).map(<[_]>::to_vec).collect();
    batches.iter_mut().for_each(|keys| keys.sort_unstable());
    let put_all = |keys: &Vec<Key>| {
        let mut batch = Batch::new();
        for key in keys {
            batch.put(key, &value);
        }
        db.apply(&batch).unwrap();
    };
    batches.iter().cycle().take(30).for_each(put_all);
    let many = keys.iter().cycle().take(count);
    match what.as_str() {
        "put" => many.for_each(|key| {
            db.put(key, &value).unwrap();
        }),
        "batch" => batches.iter().cycle().take(count / 1000).for_each(put_all),
        "get" => many.for_each(|key| {
            black_box(db.get_with(key, <[u8]>::len).unwrap());
        }),
        "many" => keys.chunks(32).cycle().take(count / 32).for_each(|keys| {
            db.get_many(keys, |_, value| {
                black_box(value);
            })
            .unwrap();
        }),
        "scan" => {
            let snapshot = db.snapshot().unwrap();
            for key in keys.iter().cycle().take(count / 100) {
                for pair in snapshot.range(&key[..]..).take(100) {
                    black_box(pair.unwrap());
                }
            }
        }
        _ => panic!("no such work: {what}"),
    }
}
