//! What a pin costs here: `cargo run --release -p mneme-sync --example pin_cost`.
//!
//! Each figure is the best of many short runs (shorter than a time slice, so that a busy machine
//! disturbs some and not all), in ns for one pin and unpin, or what is named.

use mneme_sync::{ControlOptions, Lane, Participants};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 300_000;

fn time(name: &str, mut operation: impl FnMut()) {
    let best = (0..300)
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
    let other = Participants::private(ControlOptions::new([2; 16]))?;
    println!("asymmetric barrier: {}", participants.is_asymmetric());
    let value = black_box(Box::new(7_u64));
    time("a load", || {
        black_box(**black_box(&value));
    });
    let slot = participants.slot()?;
    time("Slot::pin", || {
        let _pin = black_box(slot.pin());
    });
    time("Participants::pin", || {
        let _pin = black_box(participants.pin());
    });
    time("Participants::pin, a load under it", || {
        let _pin = black_box(participants.pin());
        black_box(**black_box(&value));
    });
    time("Participants::pin_revocable, leave", || {
        if let Ok(pin) = participants.pin_revocable() {
            let _ = black_box(pin.leave());
        }
    });
    time("Participants::slot", || {
        let _ = black_box(participants.slot());
    });
    let outer = participants.pin()?;
    time("Participants::pin, nested", || {
        let _pin = black_box(participants.pin());
    });
    drop(outer);
    time("Participants::pin of two openings in turn", || {
        let _pin = black_box(participants.pin());
        let _other = black_box(other.pin());
    });
    let line = slot.intent(Lane::Log);
    time("IntentLine::begin of 3 words, clear", || {
        line.begin(1, black_box(&[1, 2, 3]));
        line.clear();
    });
    time("Slot::count", || slot.count(0, 1, black_box(1)));
    let fenced = participants.fenced_gate(1).ok_or("no gate")?;
    time("FencedGate::shared", || {
        let _ = black_box(fenced.shared(&slot));
    });
    time("FencedGate::sole", || {
        let _ = black_box(fenced.sole(&slot));
    });
    let lock = mneme_sync::RobustLock::new();
    time("RobustLock::lock, unlock", || {
        let _ = black_box(lock.lock(&slot));
    });
    Ok(())
}
