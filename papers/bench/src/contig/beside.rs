//! What a tenant in a store's idle frames costs the store: its throughput, beside a tenant that
//! looks up and fills in all the time. The tenant's cache lies in the store's idle frames, or in as
//! many of its own, so that both take as much of the machine: its caches, and the memory's
//! bandwidth. The store alone is a row besides. It is half full, and the thread that writes
//! compacts for itself.
//!
//! - *in turns*: one thread does both, a chunk each, and the store's chunks are timed. What the
//!   tenant leaves behind costs the store: claims that discard, caches full of the tenant's data.
//! - *at once*: the tenant has a thread of its own, and both want memory at one moment besides.
//!
//! Wherever the tenant is, it looks up once for every second operation of the store. One store is
//! measured in all rows. It gets back what it has lent in between, and is compacted before it is
//! written to, since a store that is written to for long has few idle frames. The parts of a round
//! are short and many, so that whatever else the machine does meets all rows.

use super::measured_arena::{MeasuredArena, Tenant};
use mneme_arena::{Discardable, FRAME_BYTES, LendingOptions};
use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::zipfian::Zipfian;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::records::Records;
use mneme_bench::rounds::{Job, joined, run as run_jobs};
use mneme_bench::table::{Table, beside};
use mneme_log::LogStore;
use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

const ALONE: &str = "no tenant";
const ELSEWHERE: &str = "tenant in its own memory";
const LENT: &str = "tenant in idle frames";
/// Where the tenant is.
pub const SYSTEMS: [&str; 3] = [ALONE, ELSEWHERE, LENT];
/// What the store does, and when the tenant has its turn.
pub const CASES: [&str; 4] = ["GET in turns", "PUT in turns", "GET at once", "PUT at once"];

/// What the store keeps of its throughput.
const GOAL: f64 = 0.98;
/// Parts of a round.
const PARTS: usize = 8;
/// Bytes of a value of the store's.
const VALUE: usize = 256;
/// Operations of the store between two turns of the tenant.
const CHUNK: u64 = 512;
/// Lookups of the tenant for a chunk of the store's operations.
const LOOKUPS: u64 = CHUNK / 2;
/// The chunks that the store has done, when it is over.
const OVER: u64 = u64::MAX;

pub struct Scale {
    /// Bytes of a store.
    capacity: u64,
    /// Chunks of the store's operations in a part, after half as many that are not timed.
    chunks: u64,
}

impl Scale {
    pub fn of(options: &Common) -> Scale {
        Scale {
            capacity: options.pick(256, 512) << 20,
            chunks: options.pick(100, 200),
        }
    }

    #[cfg(test)]
    pub fn tiny() -> Scale {
        Scale {
            capacity: mneme_log::MIN_CAPACITY,
            chunks: 2,
        }
    }
}

/// Measures and prints; a note about the tenants.
///
/// # Errors
/// No memory, a store or a cache that answers wrongly.
pub fn run(
    scale: &Scale,
    rounds: usize,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<String, BenchError> {
    // About what a store that is half full has idle.
    let frames = (scale.capacity / 3 / FRAME_BYTES) as u32;
    let lending = LendingOptions {
        records: u64::from(frames) * FRAME_BYTES / super::VALUE as u64,
        max_frames: u32::MAX,
    };
    let records = half_full(scale, lending)?;
    let lent = records.store.discardable();
    let lent = lent.ok_or_else(|| failed("the store lends nothing"))?;
    let arena = MeasuredArena::new(frames, true)?;
    let elsewhere = arena.cache()?;
    let part = Part {
        records: &records,
        chunks: scale.chunks,
        keys: Tenant::keys(frames),
        seed: Cell::new(seed),
        had: Cell::new(lent.arena().stats().free),
        took_part: [Cell::new(0.0), Cell::new(0.0)],
    };
    let mut jobs = Vec::new();
    for case in CASES {
        for (system, cache) in [
            (ALONE, None),
            (ELSEWHERE, Some(elsewhere)),
            (LENT, Some(lent)),
        ] {
            let part = &part;
            jobs.push(Job::new(system, case, Metric::Throughput, move |_| {
                Ok(part.measure(case, system, cache)? / 1e6)
            }));
        }
    }
    run_jobs(jobs, rounds * PARTS, ledger)?;
    records.check()?;
    Table::by_case("", &SYSTEMS, CASES.map(str::to_owned), |system, case| {
        let ratios = ledger.ratios((system, case), (ELSEWHERE, case));
        beside(ledger.values(system, case), 1.0, &ratios)
    })
    .print(format_args!(
        "millions of operations a second of a store; in brackets over {ELSEWHERE}"
    ));
    let stats = lent.stats()?;
    let parts = (rounds * PARTS * 2) as f64;
    let [own, idle] = part.took_part.each_ref().map(|sum| sum.get() / parts);
    Ok(format!(
        "the tenant at once with the store looked up {own:.2} times for an operation in its own \
         memory, {idle:.2} in idle frames; it could have {} of these, where {:.2} were found; the \
         store took {} frames back",
        part.had.get(),
        stats.hit_rate(),
        stats.discards
    ))
}

/// A part of a round.
struct Part<'a> {
    records: &'a Records,
    chunks: u64,
    keys: Zipfian,
    /// Another for each part: records that are written in the order of the part before lie in that
    /// order, and are found in half the time.
    seed: Cell<u64>,
    /// Frames of the store that the tenant could have last.
    had: Cell<u32>,
    /// Sums of the tenant's lookups for an operation of the store, at once: elsewhere, lent.
    took_part: [Cell<f64>; 2],
}

impl Part<'_> {
    /// The store's operations a second.
    fn measure(
        &self,
        case: &str,
        system: &str,
        cache: Option<&Discardable>,
    ) -> Result<f64, BenchError> {
        let seed = self.seed.replace(self.seed.get().wrapping_add(1));
        let reads = if case.starts_with("GET") { 100 } else { 0 };
        if reads == 0 {
            let _ = self.records.store.compact().map_err(failed)?;
        }
        let Some(cache) = cache else {
            return self.in_turns(reads, None, seed);
        };
        if system == ELSEWHERE {
            cache.arena().set_max_lent(self.had.get())?;
        } else {
            self.had.set(cache.arena().stats().free);
        }
        let rate = if case.ends_with("at once") {
            let (rate, lookups) = self.at_once(reads, cache, seed)?;
            let sum = &self.took_part[usize::from(system == LENT)];
            sum.set(sum.get() + lookups);
            rate
        } else {
            self.in_turns(reads, Some(cache), seed)?
        };
        cache.clear()?;
        Ok(rate)
    }

    fn in_turns(
        &self,
        reads: u64,
        cache: Option<&Discardable>,
        seed: u64,
    ) -> Result<f64, BenchError> {
        let mut work = self.records.worker(reads, seed);
        let tenant = cache.map(|cache| warm(cache, &self.keys, self.had.get(), seed));
        let mut tenant = tenant.transpose()?;
        let mut took = Duration::ZERO;
        for chunk in 0..self.chunks + self.chunks / 2 {
            let began = Instant::now();
            (0..CHUNK).for_each(|_| _ = work());
            if chunk >= self.chunks / 2 {
                took += began.elapsed();
            }
            if let Some(tenant) = &mut tenant {
                tenant.look_up(LOOKUPS)?;
            }
        }
        Ok((self.chunks * CHUNK) as f64 / took.as_secs_f64())
    }

    /// Besides the tenant's lookups for an operation.
    fn at_once(
        &self,
        reads: u64,
        cache: &Discardable,
        seed: u64,
    ) -> Result<(f64, f64), BenchError> {
        let frames = self.had.get();
        let (keys, done, is_warm) = (&self.keys, AtomicU64::new(0), AtomicBool::new(false));
        let chunks = self.chunks + self.chunks / 2;
        std::thread::scope(|scope| {
            let tenant = scope.spawn(|| {
                let mut tenant = warm(cache, keys, frames, seed)?;
                is_warm.store(true, Release);
                let mut followed = 0;
                loop {
                    match done.load(Relaxed) {
                        OVER => return Ok::<u64, BenchError>(followed),
                        done if followed < done => {
                            tenant.look_up(LOOKUPS)?;
                            followed += 1;
                        }
                        _ => std::hint::spin_loop(),
                    }
                }
            });
            while !is_warm.load(Acquire) && !tenant.is_finished() {
                std::thread::yield_now();
            }
            let mut work = self.records.worker(reads, seed);
            let mut began = Instant::now();
            for chunk in 1..=chunks {
                (0..CHUNK).for_each(|_| _ = work());
                done.store(chunk, Relaxed);
                if chunk == self.chunks / 2 {
                    began = Instant::now();
                }
            }
            let took = began.elapsed();
            done.store(OVER, Relaxed);
            let lookups = (joined(tenant)? * LOOKUPS) as f64 / (chunks * CHUNK) as f64;
            Ok(((self.chunks * CHUNK) as f64 / took.as_secs_f64(), lookups))
        })
    }
}

/// A tenant that has looked up twice as much as so many frames have place for.
fn warm<'a>(
    cache: &'a Discardable,
    keys: &'a Zipfian,
    frames: u32,
    seed: u64,
) -> Result<Tenant<'a>, BenchError> {
    let mut tenant = Tenant::new(cache, keys, seed)?;
    tenant.look_up(2 * u64::from(frames) * FRAME_BYTES / super::VALUE as u64)?;
    Ok(tenant)
}

/// A store that lends, half full, whose memory is all resident.
fn half_full(scale: &Scale, lending: LendingOptions) -> Result<Records, BenchError> {
    let builder = LogStore::builder()
        .capacity(scale.capacity)
        .maintainer(false)
        .lend_idle(lending);
    let store = builder.open_private().map_err(failed)?;
    let large = vec![7; (scale.capacity / 2) as usize];
    store.put(b"large", &large).map_err(failed)?;
    store.remove(b"large").map_err(failed)?;
    let _ = store.compact().map_err(failed)?;
    let records = Records::half_full(store, VALUE)?;
    // All of it once.
    let puts = 0..scale.capacity / VALUE as u64;
    let mut put = records.worker(0, 0);
    puts.for_each(|_| _ = put());
    drop(put);
    let _ = records.store.compact().map_err(failed)?;
    Ok(records)
}

/// The second class' cost to the first.
pub fn goals(ledger: &Ledger) -> impl Iterator<Item = Goal> {
    CASES.into_iter().map(|case| {
        Goal::at_least(
            format!("{case} of a store, tenant in its idle frames over tenant elsewhere"),
            GOAL,
            ledger.ratios((LENT, case), (ELSEWHERE, case)),
        )
    })
}
