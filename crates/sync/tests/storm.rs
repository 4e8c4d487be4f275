//! Real processes that constantly pin, lock, count, exclude and reap are killed at random (`kill
//! -9`).
//!
//! Runs for two seconds, or `MNEME_LADDER_SECS`, with the seed `MNEME_LADDER_SEED`.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{UUID, liveness, open, options};
use mneme_sync::{Acquired, GateError, Holding, Lane, Participants, RobustLock, Slot, Stalled};
use mneme_sys::{PagePolicy, Region};
use mneme_testkit::{Process, Random, fd_path, retry_within, seconds};
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

const CONTROL: &str = "MNEME_STORM_CONTROL";
const DATA: &str = "MNEME_STORM_DATA";
const GATE: usize = 4;
/// On a busy machine a living process may be off its CPU for seconds, but not for a minute.
const OFF_CPU: Duration = Duration::from_secs(60);
/// The index that is counted.
const ROOT: u64 = 1;

/// The data region: a lock, two words that are equal whenever it is free and consistent, and what
/// the processes have acknowledged.
struct Data(Region);

impl Data {
    fn lock(&self) -> &RobustLock {
        self.0.at(0).unwrap()
    }

    fn word(&self, i: u64) -> &AtomicU64 {
        self.0.at(64 + 8 * i).unwrap()
    }

    fn acknowledged(&self) -> &AtomicU64 {
        self.word(8)
    }

    /// Adds one to both words; repairs what a dead owner has left half done.
    fn add(&self, slot: &Slot<'_>) -> Result<(), Stalled> {
        let got = self.lock().lock(slot)?;
        let (a, b) = (self.word(0), self.word(1));
        match &got {
            Acquired::Clean(_) => assert_eq!(a.load(Relaxed), b.load(Relaxed), "half an addition"),
            Acquired::OwnerDied(guard) => {
                b.store(a.load(Relaxed), Relaxed);
                guard.repaired();
            }
        }
        a.store(a.load(Relaxed) + 1, Relaxed);
        b.store(b.load(Relaxed) + 1, Relaxed);
        Ok(())
    }
}

fn reap(p: &Participants) {
    p.reap(|dead| {
        if let Some(intent) = dead.intent(Lane::Txn) {
            assert_eq!((intent.kind, intent.words[0]), (3, u64::from(dead.id().0)));
            // The count is either as before or as intended; this makes it as intended.
            let value = intent.words[1].cast_signed();
            assert!((0..=1).contains(&(value - dead.counted(0, ROOT))));
            dead.set_count(0, ROOT, value);
        }
        Ok::<_, Infallible>(())
    })
    .unwrap();
}

/// Performs one operation of each kind.
fn work(p: &Participants, data: &Data) -> Result<(), Stalled> {
    let slot = p.slot().unwrap();
    let gate = p.fenced_gate(GATE).unwrap();
    match gate.shared(&slot) {
        Ok(_inside) => {
            let now = slot.counted(0, ROOT);
            let intent = slot.intent(Lane::Txn);
            intent.begin(3, &[slot.id().0.into(), (now + 1).cast_unsigned()]);
            slot.count(0, ROOT, 1);
            data.acknowledged().fetch_add(1, Release);
            intent.clear();
        }
        Err(GateError::Stalled(stalled)) => return Err(stalled),
        Err(_) => gate.sole(&slot)?.into_inner().repaired(),
    }
    let pin = p.pin().unwrap();
    data.add(&slot)?;
    drop(pin);
    let g = p.advance().unwrap();
    match p.wait_quiescent(g, Duration::from_secs(5)) {
        Ok(()) => Ok(()),
        Err(Stalled {
            what: Holding::DeadPin,
            ..
        }) => {
            reap(p);
            Ok(())
        }
        Err(stalled) => Err(stalled),
    }
}

/// One of the processes; does nothing unless it was started as such.
#[test]
fn mortal() {
    let (Ok(control), Ok(data)) = (std::env::var(CONTROL), std::env::var(DATA)) else {
        return;
    };
    let p = retry_within(OFF_CPU, || {
        Participants::open(open(&control), UUID, liveness(&control))
    });
    let data = Data(open(&data));
    let second = p.clone();
    std::thread::scope(|scope| {
        let data = &data;
        scope.spawn(move || {
            loop {
                let slot = retry_within(OFF_CPU, || second.slot());
                let gate = second.fenced_gate(GATE).unwrap();
                if let Ok(alone) = gate.sole(&slot) {
                    alone.into_inner().repaired();
                }
                reap(&second);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        loop {
            // A stall here means that another process was off its CPU for a second on a busy
            // machine.
            let _ = work(&p, data);
        }
    });
}

#[test]
fn random_kills_leave_nothing_stuck_or_lost() {
    let limit = seconds(2);
    let mut random = Random::of_run(0);
    let control = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let data = Data(Region::memfd("data", 1 << 21, 1 << 26, PagePolicy::Small).unwrap());
    let control_fd = control.duplicate_fd().unwrap().unwrap();
    let data_fd = data.0.duplicate_fd().unwrap().unwrap();
    let p = Participants::create(control, options(), liveness(&fd_path(&control_fd))).unwrap();
    let variables = [(CONTROL, fd_path(&control_fd)), (DATA, fd_path(&data_fd))];
    let start = || Process::start("mortal", variables.clone());
    let mut victims = [start(), start()];
    let slot = p.slot().unwrap();
    let gate = p.fenced_gate(GATE).unwrap();
    let (begin, mut kills) = (Instant::now(), 0_u64);
    while begin.elapsed() < limit {
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let victim = &mut victims[random.below(2) as usize];
        assert!(victim.is_running(), "a process ended by itself");
        *victim = start();
        kills += 1;
        reap(&p);
        assert_eq!(p.check(), Vec::<String>::new());
        retry_within(OFF_CPU, || data.add(&slot));
        let alone = retry_within(OFF_CPU, || gate.sole(&slot));
        alone.into_inner().repaired();
    }
    drop(victims);
    reap(&p);
    assert_eq!(p.check(), Vec::<String>::new());
    let g = p.advance().unwrap();
    p.wait_quiescent(g, Duration::ZERO).unwrap();
    assert_eq!((p.stats().processes, p.stats().slots), (1, 1));
    data.add(&slot).unwrap();
    let (counted, acknowledged) = (p.counters(0, ROOT), data.acknowledged().load(Relaxed));
    let added = data.word(0).load(Relaxed);
    println!(
        "\nladder: storm of kills: {kills} kills, {added} additions, {counted} counted, \
         {acknowledged} acknowledged"
    );
    // If a process died between its count and its acknowledgement, its count is included.
    let unacknowledged = counted - acknowledged.cast_signed();
    assert!(
        (0..=kills.cast_signed() + 2).contains(&unacknowledged),
        "{counted} {acknowledged}"
    );
}
