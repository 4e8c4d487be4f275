//! Throughput of a nearly full store beside that of a nearly empty one, compaction included.
//!
//! `cargo run --release -p mneme-log --example fullness -- [key=value ...]` with `mib` (capacity of
//! each store), `threads`, `rounds`, `ms` (of a round), `batch` (keys a call; 1: single calls),
//! `value` (bytes), `low` and `high` (live record bytes in hundredths of the log's frames),
//! `zipf=1`. Rounds of the two stores alternate; on a machine that others use too, the ratio by CPU
//! time is the one that repeats. The figures that count come from `mneme-bench`; this is for trying
//! a change.

#![allow(clippy::unwrap_used, reason = "a probe stops at the first error")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use mneme_log::{LogStore, Stats};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The distribution of keys: uniform, or by YCSB's zipfian generator, scrambled.
#[derive(Clone, Copy)]
struct Choice {
    records: u64,
    /// `(alpha, zeta(n), eta)`.
    zipf: Option<(f64, f64, f64)>,
}

const THETA: f64 = 0.99;

impl Choice {
    fn new(records: u64, zipf: bool) -> Choice {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let zipf = zipf.then(|| {
            let zetan = zeta(records);
            let eta = (1.0 - (2.0 / records as f64).powf(1.0 - THETA)) / (1.0 - zeta(2) / zetan);
            (1.0 / (1.0 - THETA), zetan, eta)
        });
        Choice { records, zipf }
    }

    fn key(&self, random: &mut Random) -> [u8; 8] {
        let Some((alpha, zetan, eta)) = self.zipf else {
            return key((random.next() >> 20) % self.records);
        };
        let u = random.unit();
        let rank = if u * zetan < 1.0 {
            0
        } else if u * zetan < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            (self.records as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64
        };
        key(rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.records)
    }
}

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

/// CPU time of this process, all threads.
fn cpu() -> f64 {
    // Fields 14 and 15, counted behind the command's closing parenthesis, in hundredths of a
    // second.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let rest: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    (rest[11].parse::<f64>().unwrap() + rest[12].parse::<f64>().unwrap()) / 100.0
}

fn log_bytes(stats: &Stats) -> u64 {
    stats.live_bytes + stats.stale_bytes + stats.head_bytes
}

struct Options {
    capacity: u64,
    threads: u64,
    batch: usize,
    value: usize,
    time: Duration,
    zipf: bool,
}

impl Options {
    /// Bytes of a record.
    fn record(&self) -> u64 {
        (8 + 8 + self.value as u64).next_multiple_of(8)
    }
}

struct Filled {
    store: LogStore,
    choice: Choice,
}

impl Filled {
    fn live(&self) -> f64 {
        let stats = self.store.stats();
        stats.live_bytes as f64 / log_bytes(&stats) as f64
    }
}

/// A store whose log, in the steady state, is `fill` % live.
fn filled(o: &Options, fill: u64) -> Filled {
    let mut store = LogStore::builder()
        .capacity(o.capacity)
        .open_private()
        .unwrap();
    let bytes = vec![7u8; o.value];
    let record = o.record();
    let mut records = 0;
    let mut aim = o.capacity * fill / 100 * 9 / 10 / record;
    loop {
        for i in records..aim {
            store.put(&key(i), &bytes).unwrap();
        }
        records = aim;
        let on = Filled {
            store,
            choice: Choice::new(records, o.zipf),
        };
        // Until every byte of the capacity has been written about twice, the log is younger than in
        // the steady state.
        let mut written = 0.0;
        while written < 2.0 * o.capacity as f64 {
            let [rate, _] = round(&on, o, 1);
            written += rate * 1e6 * o.time.as_secs_f64() / 2.0 * record as f64;
        }
        let live = on.live();
        if live > fill as f64 / 100.0 - 0.003 {
            return on;
        }
        aim = (records as f64 * fill as f64 / 100.0 / live) as u64 + 1;
        store = on.store;
    }
}

/// Operations, by wall-clock second and by CPU second, half of them GETs.
fn round(on: &Filled, o: &Options, seed: u64) -> [f64; 2] {
    let &Options {
        threads,
        batch,
        value,
        time,
        ..
    } = o;
    let (start, began) = (Instant::now(), cpu());
    let total: u64 = std::thread::scope(|s| {
        let clients: Vec<_> = (0..threads)
            .map(|t| {
                s.spawn(move || {
                    let mut random = Random(seed * 1000 + t + 1);
                    for _ in 0..8 {
                        random.next();
                    }
                    let mut buffer = vec![seed as u8; value];
                    let mut done = 0;
                    while start.elapsed() < time {
                        for _ in 0..256 / batch {
                            if batch == 1 {
                                let key = on.choice.key(&mut random);
                                if random.next() >> 33 & 1 == 0 {
                                    buffer.copy_from_slice(&on.store.get(&key).unwrap().unwrap());
                                    black_box(&mut buffer);
                                } else {
                                    on.store.put(&key, &buffer).unwrap();
                                }
                            } else {
                                let keys: Vec<[u8; 8]> =
                                    (0..batch).map(|_| on.choice.key(&mut random)).collect();
                                if random.next() >> 33 & 1 == 0 {
                                    let visit = |_, v: Option<&[u8]>| {
                                        buffer.copy_from_slice(v.unwrap());
                                        black_box(&mut buffer);
                                    };
                                    on.store.get_many(&keys, visit).unwrap();
                                } else {
                                    let pairs: Vec<([u8; 8], &[u8])> =
                                        keys.iter().map(|k| (*k, &buffer[..])).collect();
                                    on.store.put_many(&pairs).unwrap();
                                }
                            }
                            done += batch as u64;
                        }
                    }
                    done
                })
            })
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    [
        total as f64 / start.elapsed().as_secs_f64() / 1e6,
        total as f64 / (cpu() - began) / 1e6,
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: HashMap<String, u64> = std::env::args()
        .skip(1)
        .map(|a| {
            let (name, number) = a.split_once('=').unwrap();
            (name.to_owned(), number.parse().unwrap())
        })
        .collect();
    let get = |name: &str, default: u64| arguments.get(name).copied().unwrap_or(default);
    let o = Options {
        capacity: get("mib", 1024) << 20,
        threads: get(
            "threads",
            std::thread::available_parallelism().unwrap().get() as u64,
        ),
        batch: get("batch", 1) as usize,
        value: get("value", 1024) as usize,
        time: Duration::from_millis(get("ms", 500)),
        zipf: get("zipf", 0) == 1,
    };
    let stores = [get("low", 20), get("high", 90)].map(|fill| filled(&o, fill));
    println!(
        "{} and {} records",
        stores[0].choice.records, stores[1].choice.records
    );
    let before = stores[1].store.stats().moved_bytes;
    let mut puts = 0.0;
    let mut rounds = Vec::new();
    for n in 0..get("rounds", 21) {
        let [low, high] = [0, 1].map(|i| round(&stores[i], &o, n + 2));
        puts += high[0] * 1e6 * o.time.as_secs_f64() / 2.0;
        rounds.push([high[0] / low[0], high[1] / low[1], low[1], high[1]]);
    }
    let moved = (stores[1].store.stats().moved_bytes - before) as f64 / o.record() as f64;
    let column = |i: usize| median(rounds.iter().map(|r| r[i]).collect());
    println!(
        "live/log {:.3} and {:.3}: {:.3} by wall clock, {:.3} by CPU time ({:.3} and {:.3} M operations a CPU second); {:.2} moved a PUT",
        stores[0].live(),
        stores[1].live(),
        column(0),
        column(1),
        column(2),
        column(3),
        moved / puts
    );
}
