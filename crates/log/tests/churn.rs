//! After hours of changes in a nearly full store its counts are exact and its memory is whole.
//!
//! The short form runs for a second; `cargo xtask ladder` for the requested time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use mneme_log::{LogStore, PagePolicy, Stats, WriteError};
use mneme_testkit::{Random, setting};

const THREADS: u64 = 3;
/// The number of keys of one thread for every 64 MiB: more than fit.
const KEYS: usize = 20_000;

/// Most values are short, some long, a few have extents of their own.
fn length(random: &mut Random) -> usize {
    let length = match random.below(1000) {
        0 => 600_000 + random.below(1 << 20),
        1..20 => 4096 + random.below(60_000),
        20..500 => random.below(200),
        _ => 200 + random.below(2000),
    };
    length as usize
}

fn value(key: u64, length: usize) -> Vec<u8> {
    let word = (key ^ length as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = word.to_le_bytes().repeat(length / 8 + 1);
    bytes.truncate(length);
    bytes
}

/// Bytes of a record with a key of 8: header, an expiry word where the value is long, padding.
fn record_bytes(length: usize) -> u64 {
    let expiry = if length > 64 << 10 { 8 } else { 0 };
    (8 + expiry + 8 + length as u64).next_multiple_of(8)
}

/// What one thread has stored: the length of the value under each of its keys.
struct Owner {
    first: u64,
    lengths: Vec<Option<usize>>,
    bytes: u64,
    random: Random,
    writes: u64,
    refused: u64,
}

impl Owner {
    fn note(&mut self, i: usize, length: Option<usize>) {
        let old = std::mem::replace(&mut self.lengths[i], length);
        self.bytes -= old.map_or(0, record_bytes);
        self.bytes += length.map_or(0, record_bytes);
    }

    /// A change of one of its keys that keeps the total at about `share` bytes, or a read of one.
    fn step(&mut self, store: &LogStore, share: u64) {
        let i = self.random.below(self.lengths.len() as u64) as usize;
        let key = self.first + i as u64;
        let name = key.to_le_bytes();
        match self.random.below(8) {
            0 => {
                let found = store.get(&name).unwrap();
                let expected = self.lengths[i].map(|n| value(key, n));
                assert_eq!(found.as_deref(), expected.as_deref(), "key {key}");
            }
            1 => {
                assert_eq!(store.remove(&name).unwrap(), self.lengths[i].is_some());
                self.note(i, None);
            }
            _ if self.bytes > share => {
                assert_eq!(store.remove(&name).unwrap(), self.lengths[i].is_some());
                self.note(i, None);
            }
            _ => {
                let length = length(&mut self.random);
                match store.put(&name, &value(key, length)) {
                    Ok(()) => self.note(i, Some(length)),
                    // There may be no free run that is long enough for an extent of its own.
                    Err(WriteError::OutOfMemory { .. }) if length > 512 << 10 => self.refused += 1,
                    Err(other) => panic!("{length} bytes: {other}; {:?}", store.stats()),
                }
                self.writes += 1;
            }
        }
    }
}

/// The store's counts after the maintainer, which counts its copies before it discounts the
/// originals, has finished; or the last ones seen.
fn settled(store: &LogStore, live: u64) -> Stats {
    let mut stats = store.stats();
    for _ in 0..12_000 {
        if stats.live_bytes == live {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        stats = store.stats();
    }
    stats
}

/// What an empty store keeps.
fn kept(stats: &Stats) -> u64 {
    stats.index_bytes + stats.head_bytes + stats.stale_bytes
}

/// The numbers of a store without records, after it was compacted as far as possible: a thread that
/// holds a segment, or reads, may delay this for a while. Or the last ones seen.
fn drained(store: &LogStore) -> Stats {
    let mut stats = store.stats();
    for _ in 0..12_000 {
        while store.compact().unwrap() > 0 {}
        stats = store.stats();
        if kept(&stats) * 4 <= stats.capacity {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    stats
}

#[test]
fn hours_of_churn() {
    let seconds = setting("MNEME_LADDER_SECS").unwrap_or(1);
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(42);
    let times = if seconds > 30 { 8 } else { 1 };
    let keys = times * KEYS;
    let store = LogStore::builder()
        .capacity((times as u64) << 26)
        .page_policy(PagePolicy::Small)
        .open_private()
        .unwrap();
    let empty = store.stats();
    let mut owners: Vec<Owner> = (0..THREADS)
        .map(|t| Owner {
            first: t << 32,
            lengths: vec![None; keys],
            bytes: 0,
            random: Random::new(seed.wrapping_mul(2 * t + 1)),
            writes: 0,
            refused: 0,
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0;
    while Instant::now() < end || rounds < 2 {
        rounds += 1;
        // Nine tenths of the space for records; in every third round they are all removed instead.
        let stats = store.stats();
        let can = stats.capacity - stats.overhead_bytes - stats.index_bytes - empty.reserve_bytes;
        let share = if rounds % 3 == 0 {
            can / 4
        } else {
            can * 8 / 10
        } / THREADS;
        std::thread::scope(|s| {
            for owner in &mut owners {
                let store = &store;
                s.spawn(move || (0..times * 50_000).for_each(|_| owner.step(store, share)));
            }
        });
        let bytes: u64 = owners.iter().map(|o| o.bytes).sum();
        let stats = settled(&store, bytes);
        let records = owners
            .iter()
            .flat_map(|o| o.lengths.iter().flatten())
            .count();
        assert_eq!(stats.records, records as u64, "round {rounds}: {stats:?}");
        let drift = stats.live_bytes as i64 - bytes as i64;
        assert_eq!(drift, 0, "round {rounds}: {stats:?}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
    for owner in &mut owners {
        for i in 0..keys {
            let key = (owner.first + i as u64).to_le_bytes();
            let expected = owner.lengths[i].map(|n| value(owner.first + i as u64, n));
            assert_eq!(store.get(&key).unwrap().as_deref(), expected.as_deref());
            store.remove(&key).unwrap();
        }
    }
    let moved = store.stats().moved_bytes;
    let drained = drained(&store);
    assert_eq!((drained.records, drained.live_bytes), (0, 0), "{drained:?}");
    assert_eq!(
        drained.free_bytes + kept(&drained),
        empty.free_bytes,
        "{drained:?}"
    );
    // What the index and the heads keep does not depend on the duration.
    assert!(kept(&drained) * 4 <= drained.capacity, "{drained:?}");
    let writes: u64 = owners.iter().map(|o| o.writes).sum();
    let refused: u64 = owners.iter().map(|o| o.refused).sum();
    println!(
        "churn: {rounds} rounds, {writes} writes, {refused} large ones refused, {moved} bytes moved"
    );
}
