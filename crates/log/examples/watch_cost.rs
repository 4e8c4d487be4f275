//! The cost of watching keys: writes while no thread watches and while one does, and watching
//! itself. `cargo run --release -p mneme-log --example watch_cost`
//!
//! Prints nanoseconds for each operation: the minimum of several rounds, in one thread.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::time::Instant;

use mneme_log::{Decision, LogStore, UpdatePolicy};

const KEYS: u64 = 10_000;
const ROUNDS: u32 = 100;

fn key(i: u64) -> [u8; 8] {
    (i % KEYS).to_be_bytes()
}

/// The minimum of several rounds of as many calls as there are keys.
fn least(mut call: impl FnMut(u64)) -> f64 {
    let round = |_| {
        let began = Instant::now();
        (0..KEYS).for_each(&mut call);
        began.elapsed().as_nanos() as f64 / KEYS as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

fn writes(store: &LogStore, what: &str) {
    let put = least(|i| store.put(&key(i), &i.to_le_bytes()).unwrap());
    let update = least(|i| {
        let decide = |_: Option<&[u8]>| Decision::Replace(vec![1; 8]);
        store.update(&key(i), decide).map(drop).unwrap();
    });
    println!("{what:<28} put {put:6.1}   update {update:6.1}");
}

fn main() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = LogStore::builder()
            .capacity(256 << 20)
            .update_policy(policy)
            .open_private()
            .unwrap();
        writes(&store, &format!("{policy:?}, nobody watches"));
        let mut watch = store.watch().unwrap();
        watch.add(0, b"another").unwrap();
        writes(&store, &format!("{policy:?}, watched"));
        let add = least(|i| {
            let mut watch = store.watch().unwrap();
            watch.add(0, &key(i)).unwrap();
        });
        drop(watch);
        let alone = least(|i| {
            let mut watch = store.watch().unwrap();
            watch.add(0, &key(i)).unwrap();
        });
        println!("to watch a key: {add:.0}, the first to do so {alone:.0}");
        let plain = least(|i| store.transaction(|t| t.put(&key(i), b"x")).unwrap());
        let _watched = store.watch().unwrap();
        let guarded = least(|i| {
            let mut watch = store.watch().unwrap();
            watch.add(0, &key(i)).unwrap();
            let done = watch.transaction(|t| t.put(&key(i), b"x"));
            assert!(done.unwrap().is_some());
        });
        println!("a transaction: {plain:.0}, a watched key and one guarded by it {guarded:.0}\n");
    }
}
