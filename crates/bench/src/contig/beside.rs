//! What a tenant in a store's idle frames costs the store: its throughput, beside a thread that
//! looks up and puts in a cache all the time. That cache lies in the store's idle frames, or in
//! memory of its own, so that both take as much of the machine. A store that is alone is a row
//! besides. The stores are half full, and the thread that writes compacts for itself.

use super::world::{World, use_cache};
use crate::error::{BenchError, failed};
use crate::goals::Goal;
use crate::half_full::HalfFull;
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::rounds::{Job, Span, run as run_jobs};
use crate::table::{Table, beside};
use mneme_arena::{Discardable, FRAME_BYTES, LendingOptions};
use mneme_log::LogStore;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ALONE: &str = "no tenant";
const ELSEWHERE: &str = "tenant in its own memory";
const LENT: &str = "tenant in idle frames";
/// Where the tenant is.
pub const SYSTEMS: [&str; 3] = [ALONE, ELSEWHERE, LENT];
/// What the store does.
pub const CASES: [&str; 2] = ["GET", "PUT"];

/// What the store keeps of its throughput.
const GOAL: f64 = 0.98;

pub struct Scale {
    /// Bytes of a store.
    capacity: u64,
    span: Span,
}

impl Scale {
    pub fn of(options: &Common) -> Scale {
        let timed = Duration::from_millis(options.pick(200, 1000));
        Scale {
            capacity: options.pick(256, 1024) << 20,
            span: Span::new(timed / 2, timed),
        }
    }

    #[cfg(test)]
    pub fn tiny() -> Scale {
        let timed = Duration::from_millis(1);
        Scale {
            capacity: mneme_log::MIN_CAPACITY,
            span: Span::new(timed, timed),
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
    let plain = half_full(scale, None)?;
    let lends = half_full(scale, Some(lending))?;
    let world = World::new(frames, true)?;
    let lent = lends.store.discardable();
    let lent = lent.ok_or_else(|| failed("the store lends nothing"))?;
    let tenants = [
        (ALONE, &plain, None),
        (ELSEWHERE, &plain, Some(world.cache()?)),
        (LENT, &lends, Some(lent)),
    ];
    let lookups = RefCell::new([(0, 0.0); 3]);
    let mut jobs = Vec::new();
    for (at, (system, store, cache)) in tenants.into_iter().enumerate() {
        for case in CASES {
            let lookups = &lookups;
            jobs.push(Job::new(system, case, Metric::Throughput, move |round| {
                let seed = seed + round as u64;
                let measure = || match case == CASES[0] {
                    true => store.gets(scale.span, seed),
                    false => store.puts(scale.span, seed),
                };
                let Some(cache) = cache else {
                    return Ok(measure()? / 1e6);
                };
                let began = Instant::now();
                let (rate, looked_up) = with_tenant(cache, frames, seed, measure)?;
                let sums = &mut lookups.borrow_mut()[at];
                sums.0 += looked_up;
                sums.1 += began.elapsed().as_secs_f64();
                Ok(rate / 1e6)
            }));
        }
    }
    run_jobs(jobs, rounds, ledger)?;
    println!("millions of operations a second of a store; in brackets over {ELSEWHERE}");
    let rows = CASES.map(|case| (case.to_owned(), case));
    let cell = |system: &str, case: &&str| {
        let ratios = ledger.ratios((system, *case), (ELSEWHERE, *case));
        beside(ledger.values(system, case), 1.0, &ratios)
    };
    println!("{}", Table::grid("", &SYSTEMS, rows, cell));
    let lookups = lookups.into_inner();
    let [_, elsewhere, beside] =
        lookups.map(|(count, took): (u64, f64)| count as f64 / took.max(f64::MIN_POSITIVE) / 1e6);
    let stats = lent.stats()?;
    Ok(format!(
        "the tenant beside the store looked up {elsewhere:.2} million times a second in its own \
         memory, {beside:.2} in idle frames, where {:.2} were found; the store took {} frames back",
        stats.hit_rate(),
        stats.discards
    ))
}

/// A store whose memory is all resident, as much of it as is lent.
fn half_full(scale: &Scale, lending: Option<LendingOptions>) -> Result<HalfFull, BenchError> {
    let builder = LogStore::builder()
        .capacity(scale.capacity)
        .maintainer(false);
    let builder = match lending {
        Some(lending) => builder.lend_idle(lending),
        None => builder,
    };
    let store = builder.open_private().map_err(failed)?;
    let large = vec![7; (scale.capacity / 2) as usize];
    store.put(b"large", &large).map_err(failed)?;
    store.remove(b"large").map_err(failed)?;
    let _ = store.compact().map_err(failed)?;
    HalfFull::of(store)
}

fn with_tenant<T>(
    cache: &Discardable,
    frames: u32,
    seed: u64,
    measure: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, u64), BenchError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tenant = scope.spawn(|| use_cache(cache, frames, seed, &done));
        let measured = measure();
        done.store(true, Relaxed);
        let used = tenant.join().map_err(|_| failed("the tenant panicked"))?;
        Ok((measured?, used?))
    })
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
