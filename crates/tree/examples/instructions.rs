//! Puts or gets of keys of 25 bytes with values of 100, for counting instructions: run
//! `instructions put 20000` and `instructions put 60000` (or `get`) under
//! `valgrind --tool=callgrind`, and divide what they differ by by 40,000.
//!
//! The store lies in memory. Before gets it is filled with 20,000 keys in one batch.
#![allow(
    clippy::unwrap_used,
    reason = "a measurement that fails may end like this"
)]

use std::hint::black_box;

use mneme_sys::medium::MemoryMedium;
use mneme_tree::{Batch, Durability, Store};

const RECORDS: u64 = 20_000;

fn key(n: u64) -> Vec<u8> {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % RECORDS;
    format!("user{n:021}").into_bytes()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap();
    let count: u64 = arguments.next().unwrap().parse().unwrap();
    let builder = Store::builder().durability(Durability::Process);
    let medium = MemoryMedium::new(1 << 30).unwrap();
    let db = builder.open_on(Box::new(medium)).unwrap();
    match what.as_str() {
        "put" => (0..count).for_each(|n| {
            db.put(&key(n), &[n as u8; 100]).unwrap();
        }),
        _ => {
            let mut batch = Batch::new();
            for n in 0..RECORDS {
                batch.put(format!("user{n:021}").as_bytes(), &[n as u8; 100]);
            }
            db.apply(&batch).unwrap();
            for n in 0..count {
                black_box(db.get_with(&key(n), <[u8]>::len).unwrap());
            }
        }
    }
}
