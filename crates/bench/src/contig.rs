//! `contig`: how long a claim of contiguous memory takes while a second class of clients uses what
//! is idle (Park's dissertation, §2.6, figures 2.5 and 2.6).
//!
//! - *reservation*: the first class has the arena to itself. What a claim costs at least.
//! - *lent, full*: every frame holds the second class' data, so every claim discards as many frames
//!   as it takes.
//! - *lent, busy*: a tenant looks up and puts all the time, while claims come and go.
//! - *moved away*: what the kernel's CMA does. The second class' data can be moved, so a claim
//!   copies it to other frames first. Only the copy is counted; finding the frames, telling their
//!   owners and waiting for pinned pages, which the paper found to take up to seconds, is not.
//! - *buddy*: a buddy allocator over as many frames, of which the second class has every fourth at
//!   random and cannot be asked to give it back. Its claims are fast, and refused.
//!
//! A claim is refused in the arena only if the first class' total would exceed what it was
//! promised, and no round asks for that: each refusal counts as a failure.

mod buddy;

use crate::error::BenchError;
use crate::generate::random::Random;
use crate::generate::zipfian::{YCSB_THETA, Zipfian};
use crate::goals::Goal;
use crate::latency::{Latencies, percentile_case};
use crate::ledger::{Ledger, Summary};
use crate::machine::Machine;
use crate::memory::Bare;
use crate::options::Common;
use crate::progress;
use crate::report::Report;
use crate::table::{Table, figure};
use buddy::Buddy;
use mneme_arena::{
    Arena, ArenaOptions, Class, Discardable, Extent, FRAME_BYTES, LendingOptions, Lookup,
    MAX_RECORD, Stored,
};
use mneme_sync::{ControlOptions, Participants, Slot};
use mneme_sys::{NodeId, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};
use serde_json::{Map, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

const RESERVATION: &str = "reservation";
const FULL: &str = "lent, full";
const BUSY: &str = "lent, busy";
const MOVED: &str = "moved away";
const BUDDY: &str = "buddy";

const NODE: NodeId = NodeId(0);
const MIB: usize = 1 << 20;
/// Value of the tenant's records.
const VALUE: usize = 1024;

/// How many times as long as a claim the copy should take, by frames.
const FASTER: [(u32, f64); 2] = [(1, 150.0), (16, 1000.0)];
/// What 999 of 1,000 claims should not exceed, in nanoseconds.
const TAIL_NS: f64 = 20_000.0;

struct Scale {
    /// Frames of an arena, its own apart.
    frames: u32,
    /// Frames a claim, and claims a round: alone and beside a busy tenant, out of full frames, and
    /// with the data moved away.
    cases: &'static [(u32, u32, u32, u32)],
    rounds: usize,
}

impl Scale {
    fn of(options: &Common) -> Scale {
        Scale {
            frames: if options.quick { 128 } else { 512 },
            cases: if options.quick {
                &[(1, 20_000, 1_000, 200), (16, 5_000, 40, 40)]
            } else {
                &[(1, 220_000, 10_000, 2_000), (16, 20_000, 400, 200)]
            },
            rounds: options.rounds,
        }
    }
}

fn case(frames: u32) -> String {
    format!("claim of {frames} frame(s)")
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Store(error.to_string())
}

/// Measures and reports.
///
/// # Errors
/// No memory, a cache that answers wrongly, a file that cannot be written.
pub fn run(options: &Common) -> Result<Report, BenchError> {
    run_at(&Scale::of(options), options, Machine::announced())
}

fn run_at(scale: &Scale, options: &Common, machine: Machine) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut count = Count::default();
    let bar = progress::bar(scale.rounds * scale.cases.len() * 5);
    let reservation = World::new(scale.frames, false)?;
    let lent = World::new(scale.frames, true)?;
    let memory = Bare::new(scale.frames as usize * 2 * MIB, PagePolicy::Thp)?;
    for round in 0..scale.rounds {
        for &(frames, claims, of_full, moves) in scale.cases {
            let mut report = |system: &str, latencies: Latencies| {
                latencies.report(&mut ledger, system, &case(frames));
                bar.inc(1);
            };
            report(RESERVATION, reservation.claims(frames, claims, &mut count)?);
            report(FULL, lent.claims_of_full(frames, of_full, &mut count)?);
            let seed = options.seed + round as u64;
            report(BUSY, lent.claims_beside(frames, claims, seed, &mut count)?);
            report(MOVED, moved_away(&memory, frames, moves));
            report(
                BUDDY,
                of_buddy(scale.frames, frames, claims, seed, &mut count),
            );
        }
    }
    bar.finish_and_clear();
    print_table(scale, &ledger);
    let goals = goals(scale, &ledger, &count);
    Ok(Report {
        bench: "contig",
        machine,
        params: Map::from_iter([
            ("quick".to_owned(), json!(options.quick)),
            ("frames".to_owned(), json!(scale.frames)),
            ("seed".to_owned(), json!(options.seed)),
            ("value_bytes".to_owned(), json!(VALUE)),
        ]),
        goals,
        ledger,
        notes: vec![
            format!(
                "{} claims in arenas, {} refused; {} discards by claims out of full frames, of {} \
                 frames claimed",
                count.claims, count.refused, count.discards, count.frames_of_full
            ),
            format!(
                "buddy: {} of {} claims of more than one frame were refused, beside a second class \
                 with a quarter of the frames",
                count.buddy_refused, count.buddy_claims
            ),
            format!(
                "busy tenant: {} lookups, hit rate {:.2}, puts taken {}, dropped {}",
                count.lookups,
                count.hits as f64 / (count.lookups as f64).max(1.0),
                count.kept,
                count.dropped
            ),
        ],
    })
}

/// What happened in all rounds.
#[derive(Default)]
struct Count {
    claims: u64,
    refused: u64,
    discards: u64,
    frames_of_full: u64,
    buddy_claims: u64,
    buddy_refused: u64,
    lookups: u64,
    hits: u64,
    kept: u64,
    dropped: u64,
}

/// An arena, all of it resident.
struct World {
    participants: Participants,
    arena: Arc<Arena>,
    /// What it lends to, if it lends.
    cache: Option<Discardable>,
    frames: u32,
}

impl World {
    fn new(frames: u32, lends: bool) -> Result<World, BenchError> {
        let uuid = [1; 16];
        let control = ControlOptions::new(uuid);
        let len = control.region_len();
        let memory = Region::private(len, len, PagePolicy::Small)?;
        let liveness = Arc::new(ScriptedLiveness::new().process(1));
        let participants =
            Participants::create(memory, control, liveness).map_err(|error| failed(&error))?;
        let records = u64::from(frames) * FRAME_BYTES / VALUE as u64;
        let lending = lends.then_some(LendingOptions {
            records,
            max_frames: u32::MAX,
        });
        // The index, and the arena's other tables.
        let own = if lends {
            2 + records * 11 / FRAME_BYTES
        } else {
            1
        };
        let bytes = ((u64::from(frames) + own) * FRAME_BYTES) as usize;
        let region = Arc::new(Region::private(bytes, bytes, PagePolicy::Thp)?);
        region.prefault(0..bytes)?;
        let options = ArenaOptions {
            uuid,
            client_bytes: 4096,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending,
        };
        let arena = Arena::create(region, participants.clone(), options);
        let arena = Arc::new(arena.map_err(|error| failed(&error))?);
        let cache = match lends {
            true => Some(Discardable::open(Arc::clone(&arena)).map_err(|error| failed(&error))?),
            false => None,
        };
        let world = World {
            frames: arena.stats().free,
            participants,
            arena,
            cache,
        };
        // Only what somebody had is lent.
        let slot = world.slot()?;
        let all = world
            .claim(&slot, world.frames)
            .ok_or_else(|| failed(&"no memory"))?;
        world.release(&slot, all)?;
        drop(slot);
        Ok(world)
    }

    fn slot(&self) -> Result<Slot<'_>, BenchError> {
        self.participants.slot().map_err(|error| failed(&error))
    }

    fn cache(&self) -> Result<&Discardable, BenchError> {
        self.cache
            .as_ref()
            .ok_or_else(|| failed(&"nothing is lent"))
    }

    fn claim(&self, slot: &Slot<'_>, frames: u32) -> Option<Extent> {
        let class = Class::Ordinary;
        self.arena.claim(slot, frames, 1, NODE, class, 0).ok()
    }

    fn release(&self, slot: &Slot<'_>, extent: Extent) -> Result<(), BenchError> {
        self.arena
            .release(slot, extent)
            .map_err(|error| failed(&error))
    }

    /// Claims until half of the frames are taken, again and again; `before` each time.
    fn halves(
        &self,
        frames: u32,
        claims: u32,
        count: &mut Count,
        mut before: impl FnMut(&Slot<'_>) -> Result<(), BenchError>,
    ) -> Result<Latencies, BenchError> {
        let slot = self.slot()?;
        let mut latencies = Latencies::new();
        let mut held = Vec::new();
        let most = (self.frames / 2 / frames).max(1) as usize;
        for _ in 0..claims {
            if held.is_empty() {
                before(&slot)?;
            }
            let began = Instant::now();
            let claimed = self.claim(&slot, frames);
            latencies.record(began.elapsed());
            count.claims += 1;
            match claimed {
                Some(extent) => held.push(extent),
                None => count.refused += 1,
            }
            if held.len() == most || claimed.is_none() {
                for extent in held.drain(..) {
                    self.release(&slot, extent)?;
                }
            }
        }
        for extent in held {
            self.release(&slot, extent)?;
        }
        Ok(latencies)
    }

    fn claims(&self, frames: u32, claims: u32, count: &mut Count) -> Result<Latencies, BenchError> {
        self.halves(frames, claims, count, |_| Ok(()))
    }

    /// Claims out of frames that are all full of records.
    fn claims_of_full(
        &self,
        frames: u32,
        claims: u32,
        count: &mut Count,
    ) -> Result<Latencies, BenchError> {
        let cache = self.cache()?;
        let discards = || cache.stats().map(|stats| stats.discards);
        let before = discards()?;
        // One fills a frame, and its key is none of the busy tenant's.
        let value = vec![7; MAX_RECORD - 32];
        let mut number = 0u64;
        let latencies = self.halves(frames, claims, count, |slot| {
            while self.arena.stats().lent < self.frames {
                let key = format!("full {number}");
                let stored = cache.put(slot, NODE, key.as_bytes(), &value);
                if stored.map_err(|error| failed(&error))? != Stored::Kept {
                    return Err(failed(&"a put into idle frames was dropped"));
                }
                number += 1;
            }
            Ok(())
        })?;
        count.discards += discards()? - before;
        count.frames_of_full += u64::from(claims) * u64::from(frames);
        Ok(latencies)
    }

    /// Claims while a tenant looks up and puts.
    fn claims_beside(
        &self,
        frames: u32,
        claims: u32,
        seed: u64,
        count: &mut Count,
    ) -> Result<Latencies, BenchError> {
        let cache = self.cache()?;
        let before = cache.stats()?;
        let done = AtomicBool::new(false);
        let latencies = std::thread::scope(|scope| {
            let tenant = scope.spawn(|| self.use_cache(cache, seed, &done));
            let latencies = self.halves(frames, claims, count, |_| Ok(()));
            done.store(true, Relaxed);
            match tenant.join() {
                Ok(used) => used.and(latencies),
                Err(_) => Err(failed(&"the tenant panicked")),
            }
        })?;
        let after = cache.stats()?;
        count.hits += after.hits - before.hits;
        count.lookups += after.hits + after.misses - before.hits - before.misses;
        count.kept += after.kept - before.kept;
        count.dropped += after.dropped - before.dropped;
        Ok(latencies)
    }

    /// A tenant: Zipf's law over twice as many records as there is memory for.
    fn use_cache(
        &self,
        cache: &Discardable,
        seed: u64,
        done: &AtomicBool,
    ) -> Result<(), BenchError> {
        let slot = self.slot()?;
        let records = 2 * u64::from(self.frames) * FRAME_BYTES / VALUE as u64;
        let keys = Zipfian::new(records, YCSB_THETA);
        let mut random = Random::new(seed);
        let mut found = Vec::new();
        let mut value = vec![0; VALUE];
        while !done.load(Relaxed) {
            let key = keys.draw(&mut random).to_le_bytes();
            value[..8].copy_from_slice(&key);
            match cache.get(&key, &mut found) {
                Lookup::Hit if found == value => {}
                Lookup::Hit => {
                    return Err(BenchError::Wrong {
                        system: BUSY.to_owned(),
                        case: "lookups".to_owned(),
                        what: "returned a value that was not put".to_owned(),
                    });
                }
                Lookup::Miss(ticket) => {
                    let stored = cache.fill(&slot, NODE, ticket, &key, &value);
                    let _: Stored = stored.map_err(|error| failed(&error))?;
                }
            }
        }
        Ok(())
    }
}

/// Copies of as much as a claim takes, from one half of the memory to the other, and on.
fn moved_away(memory: &Bare, frames: u32, moves: u32) -> Latencies {
    let mut latencies = Latencies::new();
    let bytes = frames as usize * 2 * MIB;
    let places = (memory.len() / 2 / bytes).max(1);
    for number in 0..moves as usize {
        let from = number % places * bytes;
        let began = Instant::now();
        // SAFETY: nobody else has the memory, its halves are apart, and `copy` does what is asked.
        unsafe { memory.copy_within(from, memory.len() / 2 + from, bytes, copy) };
        latencies.record(began.elapsed());
    }
    latencies
}

/// # Safety
/// As `copy_nonoverlapping`.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// Claims from a buddy allocator of which a second class has a quarter.
fn of_buddy(total: u32, frames: u32, claims: u32, seed: u64, count: &mut Count) -> Latencies {
    let mut random = Random::new(seed);
    let mut buddy = Buddy::new(total);
    let mut tenants: Vec<u32> = std::iter::from_fn(|| buddy.claim(0)).collect();
    while tenants.len() as u32 > total / 4 {
        let one = random.below(tenants.len() as u64) as usize;
        buddy.release(tenants.swap_remove(one), 0);
    }
    let order = frames.next_power_of_two().trailing_zeros();
    let mut latencies = Latencies::new();
    for _ in 0..claims {
        let began = Instant::now();
        let claimed = buddy.claim(order);
        latencies.record(began.elapsed());
        if frames > 1 {
            count.buddy_claims += 1;
            count.buddy_refused += u64::from(claimed.is_none());
        }
        if let Some(start) = claimed {
            buddy.release(start, order);
        }
    }
    latencies
}

fn goals(scale: &Scale, ledger: &Ledger, count: &Count) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (frames, target) in FASTER {
        let case = percentile_case(&case(frames), "p50");
        goals.push(Goal::at_least(
            format!("moving {frames} frame(s) away over claiming them full, p50"),
            target,
            ledger.ratios((MOVED, &case), (FULL, &case)),
        ));
    }
    for &(frames, ..) in scale.cases {
        let case = percentile_case(&case(frames), "p99.9");
        goals.push(Goal::at_most(
            format!("claim of {frames} full frame(s), p99.9, ns"),
            TAIL_NS,
            ledger.values(FULL, &case).to_vec(),
        ));
    }
    goals.push(Goal::at_most(
        format!("claims refused, of {}", count.claims),
        0.0,
        vec![count.refused as f64],
    ));
    goals
}

fn print_table(scale: &Scale, ledger: &Ledger) {
    println!("nanoseconds a claim, medians of rounds");
    let mut table = Table::new([
        "frames",
        "system",
        "p50",
        "p99",
        "p99.9",
        "max",
        "p50 over full",
    ]);
    for &(frames, ..) in scale.cases {
        for system in [RESERVATION, FULL, BUSY, MOVED, BUDDY] {
            let at = |percentile| percentile_case(&case(frames), percentile);
            let cells = ["p50", "p99", "p99.9", "max"].map(|percentile| {
                Summary::of(ledger.values(system, &at(percentile)))
                    .map_or("-".to_owned(), |summary| figure(summary.median))
            });
            let p50 = at("p50");
            let over = Summary::of(&ledger.ratios((system, &p50), (FULL, &p50)));
            let over = over.map_or("-".to_owned(), |over| figure(over.median));
            table.row(
                [frames.to_string(), system.to_owned()]
                    .into_iter()
                    .chain(cells)
                    .chain([over]),
            );
        }
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use crate::report::tests::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_part() {
        let scale = Scale {
            frames: 40,
            cases: &[(1, 50, 20, 2), (16, 10, 2, 2)],
            rounds: 1,
        };
        let report = run_at(&scale, &common(), Machine::here()).unwrap();
        let cases = [1, 16].map(|frames| percentile_case(&case(frames), "p50"));
        assert_well_formed(&report, &[&cases[0], &cases[1]]);
        let refused = report.goals.last().unwrap();
        assert_eq!(refused.measured(), Some(0.0), "{:?}", report.notes);
    }
}
