//! The cost of a read that copies, beside one that lends and a copy of that; and the additional
//! cost of a write that such readers may be copying meanwhile.
//!
//! `cargo run --release -p mneme-log --example copy_cost -- [value bytes] [rounds] [operation]
//! [lent]`
//!
//! Prints nanoseconds for each operation: the median of the rounds, in one thread, of 10,000
//! records. With an operation's name it runs only that, after one round of stores, and without a
//! maintainer: for counting its instructions. With `lent` the store lends its idle frames, which
//! are full of a tenant's copies when it begins.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::hint::black_box;
use std::time::Instant;

use mneme_arena::{LendingOptions, MAX_RECORD};
use mneme_log::LogStore;
use mneme_sys::NodeId;

const KEYS: u64 = 10_000;

/// Nanoseconds of `operation`, called for each key in an order that no cache can predict.
fn round(operation: &mut dyn FnMut(&[u8])) -> f64 {
    let began = Instant::now();
    for i in 0..KEYS {
        operation(&(i * 7919 % KEYS).to_be_bytes());
    }
    began.elapsed().as_nanos() as f64 / KEYS as f64
}

/// The operation that is timed, for one key.
type Operation<'a> = &'a mut dyn FnMut(&[u8]);

/// Fills all idle frames with copies, if the store lends.
fn lend_all(store: &LogStore) {
    // In each case, so that everything else is equal. Only memory that the store has used before is
    // lent.
    store.put(b"large", &vec![7; 200 << 20]).unwrap();
    store.remove(b"large").unwrap();
    store.compact().unwrap();
    let Some(cache) = store.discardable() else {
        return;
    };
    let slot = cache.arena().participants().slot().unwrap();
    let copy = vec![7; MAX_RECORD - 8];
    for i in 0..100u64 {
        let _ = cache
            .put(&slot, NodeId(0), &i.to_be_bytes(), &copy)
            .unwrap();
    }
    eprintln!("{} frames are lent", cache.arena().stats().lent);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |or: usize| args.next().map_or(or, |arg| arg.parse().unwrap());
    let (bytes, rounds) = (number(100), number(101));
    let only = args.next();
    let mut builder = LogStore::builder()
        .capacity(256 << 20)
        .maintainer(only.is_none());
    if args.next().is_some_and(|word| word == "lent") {
        builder = builder.lend_idle(LendingOptions {
            records: 1000,
            max_frames: u32::MAX,
        });
    }
    let store = builder.open_private().unwrap();
    lend_all(&store);
    let value = vec![7u8; bytes];
    let mut copy = Vec::new();
    let mut put = |key: &[u8]| store.put(key, &value).unwrap();
    let mut get = |key: &[u8]| drop(black_box(store.get(key).unwrap().unwrap().to_vec()));
    let mut get_into = |key: &[u8]| {
        assert!(store.get_into(key, &mut copy).unwrap());
        black_box(&mut copy);
    };
    round(&mut put);
    let mut operations: Vec<(&str, Operation<'_>, Vec<f64>)> = vec![
        ("put", &mut put, Vec::new()),
        ("get and to_vec", &mut get, Vec::new()),
        ("get_into", &mut get_into, Vec::new()),
    ];
    operations.retain(|(name, ..)| only.as_ref().is_none_or(|only| only == name));
    for _ in 0..rounds {
        for (_, operation, times) in &mut operations {
            times.push(round(operation));
        }
    }
    for (name, _, times) in &mut operations {
        times.sort_by(f64::total_cmp);
        println!("{name:<16} {:7.1}", times[times.len() / 2]);
    }
}
