//! A quick look at the speed of the hot paths beside a plain copy of the same memory.
//!
//! `cargo run --release -p mneme-log --example probe -- [value bytes] [records] [threads]`. The
//! figures that count come from `mneme-bench`; this is for trying a change.

#![allow(clippy::unwrap_used, reason = "a probe stops at the first error")]

use std::hint::black_box;
use std::time::Instant;

use mneme_log::LogStore;
use mneme_sys::{PagePolicy, Region};

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn key(i: u64) -> [u8; 24] {
    let mut key = [0u8; 24];
    key[..4].copy_from_slice(b"user");
    let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in &mut key[4..] {
        *byte = b'a' + (x & 15) as u8;
        x >>= 3;
    }
    key
}

/// Million operations a second of `work(seed)`, which does `n` of them, in each of `threads`
/// threads.
fn rate(threads: u64, n: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|s| {
        for t in 0..threads {
            let work = &work;
            s.spawn(move || work(7 + 1000 * t));
        }
    });
    (threads * n) as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let args: Vec<u64> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    let value = args.first().copied().unwrap_or(1024) as usize;
    let records = args.get(1).copied().unwrap_or(1_000_000);
    let threads = args.get(2).copied().unwrap_or(1);
    let n = 300_000u64;
    let mut rounds: Vec<[f64; 5]> = Vec::new();

    let bytes = records as usize * (value + 32);
    let store = LogStore::builder()
        .capacity((bytes as u64 * 3 / 2).max(256 << 20))
        .open_private()
        .unwrap();
    let start = Instant::now();
    for i in 0..records {
        store.put(&key(i), &vec![i as u8; value]).unwrap();
    }
    println!(
        "load {:.2} M/s",
        records as f64 / start.elapsed().as_secs_f64() / 1e6
    );
    let stats = store.stats();
    println!(
        "index {:.2} B a record, {:?}",
        stats.index_used_bytes as f64 / records as f64,
        stats.pages.kind
    );

    let bare = Region::private(bytes, bytes, PagePolicy::Huge).unwrap();
    bare.prefault(0..bytes).unwrap();
    let base = bare.base() as usize;
    for round in 0..11 {
        let copy = rate(threads, n, |mut s| {
            let mut buffer = vec![0u8; value];
            for _ in 0..n {
                let at = base + ((random(&mut s) >> 20) % records) as usize * (value + 32) + 32;
                // SAFETY: inside the prefaulted region, which nobody writes.
                unsafe {
                    std::ptr::copy_nonoverlapping(at as *const u8, buffer.as_mut_ptr(), value)
                };
                black_box(&mut buffer);
            }
        });
        let get = rate(threads, n, |mut s| {
            let mut buffer = vec![0u8; value];
            for _ in 0..n {
                let found = store
                    .get(&key((random(&mut s) >> 20) % records))
                    .unwrap()
                    .unwrap();
                buffer.copy_from_slice(&found);
                black_box(&mut buffer);
            }
        });
        let get_many = rate(threads, n, |mut s| {
            let mut buffer = vec![0u8; value];
            for _ in 0..n / 32 {
                let keys: [[u8; 24]; 32] =
                    std::array::from_fn(|_| key((random(&mut s) >> 20) % records));
                let visit = |_, v: Option<&[u8]>| {
                    buffer.copy_from_slice(v.unwrap());
                    black_box(&mut buffer);
                };
                store.get_many(&keys, visit).unwrap();
            }
        });
        let put = rate(threads, n, |mut s| {
            let buffer = vec![round as u8; value];
            for _ in 0..n {
                store
                    .put(&key((random(&mut s) >> 20) % records), &buffer)
                    .unwrap();
            }
        });
        let put_many = rate(threads, n, |mut s| {
            let buffer = vec![round as u8; value];
            for _ in 0..n / 32 {
                let pairs: [([u8; 24], &[u8]); 32] =
                    std::array::from_fn(|_| (key((random(&mut s) >> 20) % records), &buffer[..]));
                store.put_many(&pairs).unwrap();
            }
        });
        rounds.push([
            get / copy,
            get_many / copy,
            get_many / get,
            put / copy,
            put_many / put,
        ]);
        println!(
            "bare {copy:.2}  get {get:.2}  get_many {get_many:.2}  put {put:.2}  put_many {put_many:.2} M/s"
        );
    }
    let median = |i: usize| {
        let mut column: Vec<f64> = rounds.iter().map(|r| r[i]).collect();
        column.sort_by(f64::total_cmp);
        column[column.len() / 2]
    };
    println!(
        "medians: get/bare {:.2}  get_many/bare {:.2}  get_many/get {:.2}  put/bare {:.2}  put_many/put {:.2}",
        median(0),
        median(1),
        median(2),
        median(3),
        median(4),
    );
}
