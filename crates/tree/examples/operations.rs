//! Nanoseconds of a put, a get, a get among 32, a key of a scan of 100, a put in a sorted batch of
//! 10,000, and a removal with its put; then the size of the file over that of the records after
//! they have been replaced four times. The file lies on `/dev/shm`.
//!
//! `cargo run --release -p mneme-tree --example operations -- RECORDS BYTES [WHAT]`: with `WHAT`,
//! the name of one of them, that one alone is measured, twenty times instead of once.
#![allow(
    clippy::unwrap_used,
    reason = "a measurement that fails may end like this"
)]

use std::hint::black_box;
use std::time::Instant;

use mneme_tree::{Batch, Store};

const OPERATIONS: usize = 40_000;

fn key(n: u64) -> Vec<u8> {
    format!("user{n:021}").into_bytes()
}

/// Nanoseconds of one of `count` operations, the second time; of the fastest of twenty, if `only`
/// these are wanted, and nothing if others are.
fn time(only: Option<&str>, what: &str, count: usize, mut run: impl FnMut()) {
    if only.is_some_and(|only| only != what) {
        return;
    }
    run();
    let rounds = if only.is_some() { 20 } else { 1 };
    let took = (0..rounds).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos()
    });
    let fastest = took.min().unwrap_or_default() as f64;
    print!("{what} {:.0}  ", fastest / count as f64);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(otherwise, |a| a.parse().unwrap());
    let (records, len) = (number(60_000), number(1024) as usize);
    let only = arguments.next();
    let time = |what: &str, count, run: &mut dyn FnMut()| time(only.as_deref(), what, count, run);
    let path = format!("/dev/shm/mneme-operations-{}", std::process::id());
    let db = Store::builder().open(&path).unwrap();
    // It goes with the process.
    std::fs::remove_file(&path).unwrap();
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % records
    };
    let value = vec![1; len];
    let put_all = |keys: &[Vec<u8>]| {
        let mut batch = Batch::new();
        for key in keys {
            batch.put(key, &value);
        }
        db.apply(&batch).unwrap();
    };
    let all: Vec<_> = (0..records).map(|n| key(n * 7919 % records)).collect();
    all.chunks(1000).for_each(put_all);
    let keys: Vec<_> = (0..OPERATIONS).map(|_| key(random())).collect();
    let mut out = vec![0; len];
    time("put", OPERATIONS, &mut || {
        for key in &keys {
            db.put(key, &value).unwrap();
        }
    });
    time("get", OPERATIONS, &mut || {
        for key in &keys {
            db.get_with(key, |found| out.copy_from_slice(found))
                .unwrap();
        }
    });
    time("get many", OPERATIONS, &mut || {
        for keys in keys.chunks(32) {
            db.get_many(keys, |_, found| {
                out.copy_from_slice(found.unwrap_or_default())
            })
            .unwrap();
        }
    });
    time("scan", OPERATIONS, &mut || {
        let snapshot = db.snapshot().unwrap();
        for key in &keys[..OPERATIONS / 100] {
            for pair in snapshot.range(&key[..]..).take(100) {
                out.copy_from_slice(pair.unwrap().1);
            }
        }
    });
    time("batch", OPERATIONS, &mut || {
        for keys in keys.chunks(10_000) {
            let mut keys = keys.to_vec();
            keys.sort();
            put_all(&keys);
        }
    });
    time("remove and put", OPERATIONS, &mut || {
        for key in &keys {
            db.remove(key).unwrap();
            db.put(key, &value).unwrap();
        }
    });
    black_box(&out);
    for _ in 0..4 * records {
        db.put(&key(random()), &value).unwrap();
    }
    let stats = db.stats().unwrap();
    let live = records * (len as u64 + 25);
    println!("file {:.2}", stats.file_bytes as f64 / live as f64);
}
