//! What updates of several items cost here:
//! `cargo run --release -p mneme-rcx --example update_cost`.
//!
//! Each figure is the best of many short runs (shorter than a time slice, so that a busy machine
//! disturbs some and not all), in ns for one update of free items.
//!
//! `-- NAME RUNS` makes so many runs of 300,000 each of what has that in its name. Two counts of
//! instructions with 1 and 2 runs, by `valgrind --tool=callgrind`, differ by those of one.

use mneme_rcx::{Item, Rcx, TakeLanes};
use mneme_sync::{ControlOptions, Participants, RobustLock};
use mneme_sys::SyntheticTopology;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: u32 = 300_000;

fn time(name: &str, mut operation: impl FnMut()) {
    let mut arguments = std::env::args().skip(1);
    if !arguments.next().is_none_or(|chosen| name.contains(&chosen)) {
        return;
    }
    let runs = arguments.next().and_then(|runs| runs.parse().ok());
    let best = (0..runs.unwrap_or(300))
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                operation();
            }
            begin.elapsed().as_secs_f64() / f64::from(ROUNDS) * 1e9
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<42} {best:6.2} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let participants = Participants::private(ControlOptions::new([1; 16]))?;
    updates(&participants)
}

/// What an update that meets nobody costs by [`Rcx`], against the lock alone.
fn updates(participants: &Participants) -> Result<(), Box<dyn std::error::Error>> {
    let locks = [RobustLock::new(), RobustLock::new()];
    let alone = |id: usize| -> Result<(), Box<dyn std::error::Error>> {
        let slot = participants.slot()?;
        let _pin = slot.pin();
        black_box(&locks[id].lock(&slot)?);
        Ok(())
    };
    time("slot, pin, RobustLock", || {
        let _ = alone(black_box(0));
    });
    for (nodes, when) in [
        (1, TakeLanes::WhenBusy),
        (2, TakeLanes::WhenBusy),
        (2, TakeLanes::Always),
    ] {
        let topology = Arc::new(SyntheticTopology::new(nodes, 1));
        let rcx = Rcx::new(participants, topology).take_lanes(when);
        for items in 1..=2 {
            let name = format!("Rcx, {nodes} node(s), {when:?}, {items} item(s)");
            time(&name, || {
                let mut both = [Item::new(1, &locks[0]), Item::new(2, &locks[1])];
                if let Ok(guard) = rcx.lock(&mut both[..items]) {
                    black_box(&guard);
                }
            });
        }
    }
    Ok(())
}
