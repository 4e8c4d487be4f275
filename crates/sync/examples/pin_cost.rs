//! Measures pins and locks: `cargo run --release -p mneme-sync --example pin_cost`.
//!
//! Each figure is the best of many short runs (shorter than a time slice, so that a busy machine
//! disturbs only some), in ns for one pin and unpin or the named operation.
//!
//! `-- NAME RUNS` performs that many runs, of 300,000 operations each, of the measurements with
//! that text in their names. To count one run's instructions, subtract the counts of `valgrind
//! --tool=callgrind` for 1 and 2 runs.

use mneme_sync::{ControlOptions, Lane, Participants, RobustLock};
use std::hint::black_box;
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
    let lock = RobustLock::new();
    time("RobustLock::lock, unlock", || {
        let _ = black_box(lock.lock(&slot));
    });
    reads(&participants)?;
    lookups(&participants);
    Ok(())
}

/// The cost that a pin adds to following eight links.
fn reads(participants: &Participants) -> Result<(), Box<dyn std::error::Error>> {
    struct Link(u64, Option<Box<Link>>);
    let chain = black_box((0..8).fold(None, |next, n| Some(Box::new(Link(n, next)))));
    let follow = |chain: &Option<Box<Link>>| {
        let (mut sum, mut at) = (0, black_box(chain));
        while let Some(link) = at {
            sum += link.0;
            at = &link.1;
        }
        black_box(sum)
    };
    time("8 links", || {
        follow(&chain);
    });
    time("8 links, a pin each time", || {
        let _pin = participants.pin();
        follow(&chain);
    });
    time("8 links 64 times, no pin", || {
        for _ in 0..64 {
            follow(&chain);
        }
    });
    time("8 links 64 times, one pin", || {
        let _pin = participants.pin();
        for _ in 0..64 {
            follow(&chain);
        }
    });
    Ok(())
}

/// The cost that a pin adds to lookups in a hash table of 128 buckets of eight nodes.
fn lookups(participants: &Participants) {
    struct Node(u64, Option<Box<Node>>);
    let mut buckets: Vec<Option<Box<Node>>> = (0..128).map(|_| None).collect();
    for key in 0..8 * 128 {
        // Neighbours in a bucket are not neighbours in memory.
        let bucket = &mut buckets[key as usize % 128];
        *bucket = Some(Box::new(Node(key, bucket.take())));
    }
    let buckets = black_box(buckets);
    let mut random = 1_u64;
    let mut find = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // The key is in no bucket, so the whole bucket is searched.
        let (bucket, key) = (random >> 57, black_box(u64::MAX));
        let mut at = &buckets[bucket as usize];
        while let Some(node) = at
            && node.0 != key
        {
            at = &node.1;
        }
        black_box(at.is_some());
    };
    time("a bucket of 8", &mut find);
    time("a bucket of 8, a pin each time", || {
        let _pin = participants.pin();
        find();
    });
    time("a bucket of 8, 64 times, no pin", || {
        for _ in 0..64 {
            find();
        }
    });
    time("a bucket of 8, 64 times, one pin", || {
        let _pin = participants.pin();
        for _ in 0..64 {
            find();
        }
    });
}
