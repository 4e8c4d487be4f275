//! Many records for a long time: stored records are found, and neither memory nor speed drifts.
//!
//! The short form has some hundred thousand records for a second. With `MNEME_LADDER_SECS` and
//! `MNEME_LADDER_MIB` it has as many as fill 83 % of this number of mebibytes, index included: 64 M
//! in 12,288, and it prints the speed in each tenth of the time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use mneme_log::{LogStore, PagePolicy};
use mneme_testkit::{Random, setting};

const THREADS: usize = 2;
const BATCH: usize = 32;
/// The mean size of a record: header, key, and a value of 64 to 192 bytes.
const RECORD: u64 = 8 + 8 + 128 + 4;
/// The maximum bytes of index for each record.
const INDEX: u64 = 18;
const TENTHS: usize = 10;

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The value that `version` of `key` has, in `buffer`.
fn value(key: u64, version: u8, buffer: &mut [u8; 192]) -> &[u8] {
    let word = mix(key << 8 | u64::from(version));
    let length = 64 + (word >> 57) as usize;
    for bytes in buffer.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    &buffer[..length]
}

/// The keys of one thread: the version of each, 0 for an absent one.
struct Owner {
    first: u64,
    versions: Vec<u8>,
    random: Random,
    changes: u64,
}

impl Owner {
    fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    fn key(&self, i: usize) -> u64 {
        self.first + (i * THREADS) as u64
    }

    /// Stores a new version of every key in `chosen`.
    fn store(&mut self, store: &LogStore, chosen: &[usize]) {
        let mut values = [[0; 192]; BATCH];
        let mut pairs = [([0; 8], &[][..]); BATCH];
        for ((pair, buffer), &i) in pairs.iter_mut().zip(&mut values).zip(chosen) {
            self.versions[i] = self.versions[i] % 255 + 1;
            let key = self.key(i);
            *pair = (key.to_le_bytes(), value(key, self.versions[i], buffer));
        }
        store.put_many(&pairs[..chosen.len()]).unwrap();
        self.changes += chosen.len() as u64;
    }

    fn load(&mut self, store: &LogStore) {
        for first in (0..self.versions.len()).step_by(BATCH) {
            let chosen: Vec<usize> = (first..self.versions.len().min(first + BATCH)).collect();
            self.store(store, &chosen);
        }
    }

    /// Compares the values of the keys in `chosen` with the expected ones.
    fn compare(&self, store: &LogStore, chosen: &[usize]) {
        let keys: Vec<[u8; 8]> = chosen.iter().map(|&i| self.key(i).to_le_bytes()).collect();
        let mut buffer = [0; 192];
        let looked = store.get_many(&keys, |n, found| {
            let (key, version) = (self.key(chosen[n]), self.versions[chosen[n]]);
            let expected = (version > 0).then(|| value(key, version, &mut buffer));
            assert_eq!(found, expected, "key {key}, version {version}");
        });
        looked.unwrap();
    }

    /// Changes, removes and reads keys at random until `until`.
    fn churn(&mut self, store: &LogStore, until: Instant) {
        while Instant::now() < until {
            for step in 0..64 {
                // All different, so that the last version is the one that counts.
                let start = self.below(self.versions.len() - BATCH);
                let stride = 1 + self.below((self.versions.len() - start) / BATCH);
                let chosen: [usize; BATCH] = std::array::from_fn(|n| start + n * stride);
                match step % 8 {
                    0..5 => self.store(store, &chosen),
                    5 => chosen.iter().for_each(|&i| self.store(store, &[i])),
                    6 => {
                        let i = chosen[0];
                        let there = store.remove(&self.key(i).to_le_bytes()).unwrap();
                        assert_eq!(there, self.versions[i] > 0);
                        self.versions[i] = 0;
                    }
                    _ => self.compare(store, &chosen),
                }
            }
        }
    }
}

#[test]
fn many_records_for_a_long_time() {
    let seconds = setting("MNEME_LADDER_SECS").unwrap_or(1);
    let capacity = setting("MNEME_LADDER_MIB").unwrap_or(64) << 20;
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(42);
    let records = (capacity * 83 / 100 / (RECORD + INDEX)) as usize;
    let store = LogStore::builder()
        .capacity(capacity)
        .page_policy(if capacity < 1 << 30 {
            PagePolicy::Small
        } else {
            PagePolicy::Huge
        })
        .open_private()
        .unwrap();
    let mut owners: Vec<Owner> = (0..THREADS)
        .map(|t| Owner {
            first: t as u64,
            versions: vec![0; records / THREADS],
            random: Random::new(seed + t as u64),
            changes: 0,
        })
        .collect();
    std::thread::scope(|s| {
        for owner in &mut owners {
            s.spawn(|| owner.load(&store));
        }
    });
    let loaded = store.stats();
    assert_eq!(loaded.records, (records / THREADS * THREADS) as u64);
    for tenth in 1..=TENTHS {
        let (before, moved) = (changes(&owners), store.stats().moved_bytes);
        let start = Instant::now();
        let until = start + Duration::from_secs_f64(seconds as f64 / TENTHS as f64);
        std::thread::scope(|s| {
            for owner in &mut owners {
                s.spawn(|| owner.churn(&store, until));
            }
        });
        let (stats, done) = (store.stats(), changes(&owners) - before);
        println!(
            "scale, tenth {tenth}: {} records, {:.3} M changes a second, {:.2} bytes moved for a byte changed, {} bytes resident",
            stats.records,
            done as f64 / start.elapsed().as_secs_f64() / 1e6,
            (stats.moved_bytes - moved) as f64 / (done * RECORD) as f64,
            resident(),
        );
    }
    std::thread::scope(|s| {
        for owner in &owners {
            let store = &store;
            s.spawn(move || {
                let all: Vec<usize> = (0..owner.versions.len()).collect();
                all.chunks(BATCH)
                    .for_each(|some| owner.compare(store, some));
            });
        }
    });
    let there = owners.iter().flat_map(|o| &o.versions).filter(|v| **v > 0);
    assert_eq!(store.stats().records, there.count() as u64);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

fn changes(owners: &[Owner]) -> u64 {
    owners.iter().map(|owner| owner.changes).sum()
}

/// Resident bytes of this process, including other tests.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The index of a small database in a large store costs what its records need, not a frame for each
/// of many shards. It claims whole frames, and at most one more than its blocks fill.
#[test]
fn the_index_of_a_hundred_thousand_records_is_small() {
    const FRAME: u64 = 2 << 20;
    let builder = LogStore::builder().capacity(2 << 30).maintainer(false);
    let store = builder.open_private().unwrap();
    let mut worst = 0.0f64;
    for n in 1..=400_000u64 {
        store.put(&n.to_le_bytes(), b"").unwrap();
        if n >= 100_000 && n % 5_000 == 0 {
            let stats = store.stats();
            let bytes = stats.index_used_bytes as f64 / n as f64;
            worst = worst.max(bytes);
            assert!(bytes <= 16.0, "{bytes} B a record at {n}");
            let frames = stats.index_bytes / FRAME;
            let filled = stats.index_used_bytes.div_ceil(FRAME);
            assert!(frames <= filled + 1, "{frames} frames at {n}");
        }
    }
    println!("at most {worst:.1} B a record in blocks from 100,000 to 400,000 records");
}
