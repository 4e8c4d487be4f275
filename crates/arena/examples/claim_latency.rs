//! Measures a claim together with its release, in an arena of 4,096 frames half of which are taken:
//! `cargo run --release -p mneme-arena --example claim_latency [ROUNDS]`.
//!
//! The arena is filled with extents of 1 to 64 frames; then random ones are released until half of
//! the frames are free, so that free runs of all lengths lie scattered. Memory is not touched: this
//! measures the arena, not the kernel.

use mneme_arena::{Arena, ArenaOptions, ClaimError, Class, Extent, FRAME_BYTES, Frame};
use mneme_sync::{ControlOptions, Participants, Slot};
use mneme_sys::{NodeId, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const FRAMES: usize = 4096;

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn percentile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share) as usize)
        .copied()
        .unwrap_or(0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(Ok(200_000), |rounds| rounds.parse())?;
    let control = ControlOptions::new([1; 16]);
    let memory = Region::private(
        control.region_len(),
        control.region_len(),
        PagePolicy::Small,
    )?;
    let liveness = Arc::new(ScriptedLiveness::new().process(1));
    let participants = Participants::create(memory, control, liveness)?;
    let bytes = (FRAMES + 1) * FRAME_BYTES as usize;
    let arena = Arena::create(
        Arc::new(Region::private(bytes, bytes, PagePolicy::Thp)?),
        participants.clone(),
        ArenaOptions {
            uuid: [1; 16],
            client_bytes: 4096,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending: None,
        },
    )?;
    let slot = participants.slot()?;
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let held = fill_by_half(&arena, &slot, &mut seed)?;
    measure_claims(&arena, &slot, rounds)?;
    measure_lookups(&arena, &held, rounds, &mut seed);
    assert!(arena.check()?.is_empty());
    Ok(())
}

fn claim(arena: &Arena, slot: &Slot, frames: u32, align: u32) -> Result<Extent, ClaimError> {
    arena.claim(slot, frames, align, NodeId(0), Class::Ordinary, 0)
}

/// Claims all frames, and releases random extents until half of the frames are free.
fn fill_by_half(arena: &Arena, slot: &Slot, seed: &mut u64) -> Result<Vec<Extent>, Box<dyn Error>> {
    let mut held: Vec<Extent> = Vec::new();
    loop {
        match claim(arena, slot, 1 + (next(seed) % 64) as u32, 1) {
            Ok(extent) => held.push(extent),
            Err(ClaimError::OutOfMemory { .. } | ClaimError::NoContiguousRun { .. }) => break,
            Err(other) => return Err(other.into()),
        }
    }
    while arena.stats().free < FRAMES as u32 / 2 {
        let victim = next(seed) as usize % held.len();
        arena.release(slot, held.swap_remove(victim))?;
    }
    Ok(held)
}

fn measure_claims(arena: &Arena, slot: &Slot, rounds: usize) -> Result<(), Box<dyn Error>> {
    let stats = arena.stats();
    println!(
        "{} frames, {} free in runs of up to {}",
        stats.frames, stats.free, stats.longest_run
    );
    println!(
        "frames align      p50      p99    p99.9      max  ns, {rounds} rounds of claim and release"
    );
    for (frames, align) in [
        (1, 1),
        (2, 1),
        (4, 1),
        (4, 4),
        (8, 1),
        (16, 1),
        (16, 16),
        (32, 1),
        (64, 1),
        (64, 64),
    ] {
        let mut times = Vec::with_capacity(rounds);
        let mut refused = 0;
        for _ in 0..rounds {
            let began = Instant::now();
            match claim(arena, slot, frames, align) {
                Ok(extent) => arena.release(slot, extent)?,
                Err(ClaimError::NoContiguousRun { .. }) => refused += 1,
                Err(other) => return Err(other.into()),
            }
            times.push(began.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| percentile(&times, share));
        let note = if refused > 0 {
            "  (no such run: the refusal)"
        } else {
            ""
        };
        println!("{frames:6} {align:5} {p50:8} {p99:8} {p999:8} {max:8}{note}");
    }
    Ok(())
}

fn measure_lookups(arena: &Arena, held: &[Extent], rounds: usize, seed: &mut u64) {
    let frames: Vec<Frame> = (0..4096)
        .map(|_| {
            let extent = held[next(seed) as usize % held.len()];
            Frame(extent.start.0 + next(seed) as u32 % extent.frames)
        })
        .collect();
    let began = Instant::now();
    for round in 0..rounds {
        std::hint::black_box(arena.extent_of(frames[round % frames.len()]));
    }
    let each = began.elapsed().as_secs_f64() * 1e9 / rounds as f64;
    println!("extent_of a random frame that is taken: {each:.1} ns");
}
