//! Whatever happens to a store, it returns the results of a plain map: random histories of all
//! operations on a region that is nearly full, so that it must compact, grows occasionally, and is
//! open several times at once; an opening may be closed, and may die while it keeps a value.
//!
//! A store that may evict must satisfy this: what it does not find it was allowed to evict, and
//! that stays absent until it is written again; what it finds is the last value.
//!
//! The short form takes a second or two; `cargo xtask ladder` runs for the requested time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod expected;
mod history;
#[path = "../memory/mod.rs"]
mod memory;
mod operations;

use std::time::Instant;

use history::History;
use mneme_log::{Evict, UpdatePolicy};
use mneme_testkit::{seconds, setting};

/// Histories for the time in the environment, or `few` of them.
fn histories(few: u64, steps: u64, evict: impl Fn(u64) -> Evict) {
    let end = Instant::now() + seconds(0);
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(1);
    let (mut moved, mut evicted, mut refused, mut processes) = (0, 0, 0, 0);
    let mut done = 0;
    while done < few || Instant::now() < end {
        let policy = [UpdatePolicy::Append, UpdatePolicy::InPlace][done as usize % 2];
        let evict = evict(done / 2);
        let mut history = History::new(seed.wrapping_add(done), evict, policy);
        history.run(steps);
        let stats = history.store().stats();
        moved += stats.moved_bytes;
        evicted += stats.evicted;
        refused += history.refused;
        processes += history.processes;
        done += 1;
    }
    println!(
        "lives: {done} histories from seed {seed} of {steps} steps, {processes} processes, {moved} bytes moved, \
         {evicted} records evicted, {refused} writes refused"
    );
    assert!(moved > 0, "no history compacts");
    assert!((evicted > 0) == (evict(0) != Evict::None));
}

#[test]
fn nothing_is_lost_and_nothing_comes_back() {
    histories(2, 1000, |_| Evict::None);
}

#[test]
fn evicted_records_stay_away_and_the_rest_is_as_written() {
    let policies = [
        Evict::Lru,
        Evict::ExpiringLru,
        Evict::Lfu,
        Evict::ExpiringSoonest,
        Evict::Random,
        Evict::ExpiringRandom,
        Evict::ExpiringLfu,
    ];
    histories(3, 800, |i| policies[i as usize % policies.len()]);
}
