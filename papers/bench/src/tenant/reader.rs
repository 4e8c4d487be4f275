//! One arm: a process that reads the tree with a given amount of memory.

use super::{Found, begins, group, key};
use crate::options::{Arm, Reader};
use mneme_bench::error::{BenchError, failed, process_failed};
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::generate::zipfian::{YCSB_THETA, Zipfian};
use mneme_bench::memory::Bare;
use mneme_sys::PagePolicy;
use mneme_tree::{RecordCache, Store};

/// Keys between two that are read so that every leaf is known; a leaf of the smallest records has
/// more.
const STEP: usize = 8;

/// Reads the tree in this process.
///
/// # Errors
/// The group does not admit it; the tree cannot be read, or answers wrongly.
pub fn read(options: &Reader, seed: u64) -> Result<Found, BenchError> {
    group::join(&options.group)?;
    let (alone, _) = group::memory(&options.group)?;
    let cache = match options.arm {
        Arm::Lent => {
            let cache = RecordCache::with_budget(options.part);
            Some(cache.map_err(failed)?)
        }
        Arm::Idle | Arm::Kernel => None,
    };
    let (before, _) = group::memory(&options.group)?;
    let builder = Store::builder().read_only(true);
    let builder = match &cache {
        Some(cache) => builder.record_cache(cache),
        None => builder,
    };
    let tree = builder.open(&options.tree).map_err(failed)?;
    let snapshot = tree.snapshot().map_err(failed)?;
    for number in (0..options.records).step_by(STEP) {
        // A snapshot makes no copies.
        let found = snapshot.get(&key(number)).map_err(failed)?;
        is_right(number, found)?;
    }
    drop(snapshot);
    let (after, cached) = group::memory(&options.group)?;
    // What every arm needs. The arena and the index of the cache are of its part.
    let needed = (after + alone).saturating_sub(before);
    let idle = match options.arm {
        Arm::Idle => Some(Bare::new(options.part as usize, PagePolicy::Small)?),
        Arm::Lent | Arm::Kernel => None,
    };
    group::limit(&options.group, needed + options.memory)?;
    let ranks = Zipfian::new(options.records, YCSB_THETA);
    let mut random = Random::new(seed);
    let mut get = |gets: u64| -> Result<(), BenchError> {
        for _ in 0..gets {
            let number = mix(ranks.draw(&mut random)) % options.records;
            tree.get_with(&key(number), |found| is_right(number, Some(found)))
                .map_err(failed)?
                .unwrap_or_else(|| is_right(number, None))?;
        }
        Ok(())
    };
    get(options.warm_up)?;
    let faults = major_faults()?;
    get(options.gets)?;
    let faults = major_faults()? - faults;
    drop(idle);
    let used = tree.stats().map_err(failed)?.cache;
    let used = used.unwrap_or_default();
    // Of all gets, so the share of those that count is about as large.
    let share = options.gets as f64 / (options.gets + options.warm_up) as f64;
    Ok(Found {
        faults,
        hits: (used.hits as f64 * share) as u64,
        lent: used.bytes(),
        cached,
    })
}

fn is_right(number: u64, found: Option<&[u8]>) -> Result<(), BenchError> {
    match found {
        Some(value) if value.starts_with(&begins(number)) => Ok(()),
        found => Err(BenchError::wrong(
            "the tree",
            "gets",
            format!("record {number} was {found:?}"),
        )),
    }
}

/// Faults of this process that waited for a disk.
fn major_faults() -> Result<u64, BenchError> {
    let stat = std::fs::read_to_string("/proc/self/stat");
    let stat = stat.map_err(process_failed)?;
    // Behind the program's name, which may have spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let faults = fields.split_whitespace().nth(9);
    faults
        .and_then(|faults| faults.parse().ok())
        .ok_or_else(|| BenchError::Process("its faults cannot be read".to_owned()))
}
