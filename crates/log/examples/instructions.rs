//! One operation, repeated to count its instructions.
//!
//! `valgrind --tool=callgrind target/release/examples/instructions <operation> [value bytes]
//! [rounds]`
//!
//! With `_fed` after a writing operation, or after `nothing`, the store has a change feed, which is
//! drained after each 1,024 puts.
//!
//! Operations: `get`, `get_into`, `get_many`, `put`, `put_many`, `miss`, and `nothing`, which makes
//! only the keys. A round is a call for each of 32,768 records (in batches of 32, `_many`); there
//! is one more round, of `put`, to fill the store. An operation's instructions are the difference
//! between two numbers of rounds, without that of `nothing`.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::hint::black_box;

use mneme_log::LogStore;

const RECORDS: u64 = 32_768;
const BATCH: u64 = 32;

/// A key as long as those of the benches.
fn key(i: u64) -> [u8; 24] {
    let mut key = *b"user0000________________";
    key[8..16].copy_from_slice(&(i % RECORDS).to_be_bytes());
    key
}

fn main() {
    let mut args = std::env::args().skip(1);
    let operation = args.next().unwrap_or_default();
    let (operation, fed) = match operation.strip_suffix("_fed") {
        Some(operation) => (operation, true),
        None => (&*operation, false),
    };
    let mut number = |or: u64| args.next().map_or(or, |arg| arg.parse().unwrap());
    let (bytes, rounds) = (number(100) as usize, number(1));
    let store = LogStore::builder()
        .capacity(256 << 20)
        .maintainer(false)
        .change_feed(fed)
        .open_private()
        .unwrap();
    let mut feed = fed.then(|| store.change_feed().unwrap());
    let mut drained = Vec::new();
    let mut puts = 0;
    let mut drain = || {
        puts += 1;
        if let Some(feed) = feed.as_mut().filter(|_| puts % 1024 == 0) {
            let positions = feed.drain(usize::MAX, &mut drained).unwrap();
            feed.set_durable(positions.end).unwrap();
            drained.clear();
        }
    };
    let value = vec![7u8; bytes];
    let mut copy = vec![0u8; bytes];
    for i in 0..RECORDS {
        store.put(&key(i), &value).unwrap();
        drain();
    }
    let orders = (0..rounds).flat_map(|_| 0..RECORDS).map(|i| i * 7919);
    let batches = (0..rounds * RECORDS / BATCH)
        .map(|b| std::array::from_fn::<_, { BATCH as usize }, _>(|i| key((b + i as u64) * 7919)));
    match operation {
        "nothing" => orders.for_each(|i| {
            black_box(key(i));
        }),
        "get" => orders.for_each(|i| {
            copy.copy_from_slice(&store.get(&key(i)).unwrap().unwrap());
            black_box(&mut copy);
        }),
        "get_into" => orders.for_each(|i| {
            assert!(store.get_into(&key(i), &mut copy).unwrap());
            black_box(&mut copy);
        }),
        "miss" => orders.for_each(|i| {
            let mut key = key(i);
            key[0] = b'm';
            assert!(store.get(&key).unwrap().is_none());
        }),
        "put" => orders.for_each(|i| {
            store.put(&key(i), &value).unwrap();
            drain();
        }),
        "get_many" => batches.for_each(|keys| {
            let visit = |_, found: Option<&[u8]>| copy.copy_from_slice(found.unwrap());
            store.get_many(&keys, visit).unwrap();
            black_box(&mut copy);
        }),
        "put_many" => batches.for_each(|keys| {
            let pairs = keys.map(|key| (key, &value[..]));
            store.put_many(&pairs).unwrap();
            pairs.iter().for_each(|_| drain());
        }),
        other => panic!("no such operation: {other}"),
    }
}
