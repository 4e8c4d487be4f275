//! A fenced gate admits many readers or one writer, and names the process that is in the way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Pair, private};
use mneme_sync::{Acquired, FencedGate, GateError, Holding, Stalled};
use std::cell::UnsafeCell;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(2);

fn gates(pair: &Pair) -> (FencedGate, FencedGate) {
    (
        pair.a.fenced_gate(0).unwrap(),
        pair.b.fenced_gate(0).unwrap(),
    )
}

fn holding(error: GateError) -> Holding {
    match error {
        GateError::Stalled(stalled) => stalled.what,
        other => panic!("{other}"),
    }
}

/// Two words that are equal whenever no writer is inside.
struct Guarded(UnsafeCell<[u64; 2]>);

// SAFETY: the gate under test orders all accesses.
unsafe impl Sync for Guarded {}

#[test]
fn a_fenced_gate_admits_one_writer_or_many_readers() {
    let p = private(common::options());
    let gate = p.fenced_gate(5).unwrap();
    let guarded = Guarded(UnsafeCell::new([0, 0]));
    let place = &guarded;
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        for writes in [true, true, false, false] {
            let (p, gate) = (&p, &gate);
            scope.spawn(move || {
                let slot = p.slot().unwrap();
                for _ in 0..rounds {
                    // A stall is caused by a busy machine, not by a fault.
                    if writes {
                        let Ok(got) = gate.sole(&slot) else { continue };
                        assert!(!got.owner_died());
                        // SAFETY: all others are outside.
                        let words = unsafe { &mut *place.0.get() };
                        words[0] += 1;
                        words[1] += 1;
                    } else if let Ok(_inside) = gate.shared(&slot) {
                        // SAFETY: no writer is inside.
                        let words = unsafe { *place.0.get() };
                        assert_eq!(words[0], words[1]);
                    }
                }
            });
        }
    });
    let [a, b] = guarded.0.into_inner();
    assert_eq!(a, b);
    assert!(a > 0);
}

#[test]
fn a_refused_writer_gets_the_thread_inside_and_leaves_the_gate_unchanged() {
    let pair = Pair::new();
    let (one, two) = gates(&pair);
    let (a, b) = (pair.a.slot().unwrap(), pair.b.slot().unwrap());

    let inside = one.shared(&a).unwrap();
    let beside = two.shared(&b).unwrap();
    drop(beside);
    let tried = two.try_sole(&b).unwrap_err();
    assert_eq!((tried.slot, tried.what), (a.id(), Holding::Inside));
    let waited = two.sole_within(&b, SHORT).unwrap_err();
    assert_eq!((waited.slot, waited.what), (a.id(), Holding::Inside));
    assert!(waited.since >= SHORT);
    // The gate is open again, for others too.
    drop(two.shared(&b).unwrap());
    assert_eq!(one.sole(&a).unwrap_err().what, Holding::OwnInside);
    drop(inside);

    let sole = one.sole(&a).unwrap();
    assert!(matches!(sole, Acquired::Clean(_)));
    assert_eq!(
        holding(two.shared_within(&b, SHORT).unwrap_err()),
        Holding::Gate
    );
    assert_eq!(two.try_sole(&b).unwrap_err().what, Holding::Gate);
    let waited = two.sole_within(&b, SHORT).unwrap_err();
    assert_eq!((waited.slot, waited.what), (a.id(), Holding::Gate));
    // A thread never waits for itself.
    assert_eq!(holding(one.shared(&a).unwrap_err()), Holding::OwnLock);
    assert_eq!(one.sole(&a).unwrap_err().what, Holding::OwnLock);
    drop(sole);
    drop(two.try_sole(&b).unwrap());
    drop(one.shared(&a).unwrap());

    // A slot of another region is refused.
    assert_eq!(one.shared(&b).unwrap_err(), GateError::Foreign);
    assert_eq!(one.try_sole(&b).unwrap_err().what, Holding::Foreign);
    assert_eq!(pair.a.check(), Vec::<String>::new());
}

#[test]
fn a_wait_ends_when_the_other_leaves() {
    let pair = Pair::new();
    let (one, two) = gates(&pair);
    for (first, second) in [(true, true), (true, false), (false, true)] {
        std::thread::scope(|scope| {
            let (tell, entered) = std::sync::mpsc::channel();
            let (one, p) = (&one, &pair.a);
            scope.spawn(move || {
                let slot = p.slot().unwrap();
                let sole = first.then(|| one.sole(&slot).unwrap());
                let inside = (!first).then(|| one.shared(&slot).unwrap());
                tell.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                drop((sole, inside));
            });
            entered.recv().unwrap();
            let slot = pair.b.slot().unwrap();
            let long = Duration::from_secs(60);
            if second {
                drop(two.sole_within(&slot, long).unwrap());
            } else {
                drop(two.shared_within(&slot, long).unwrap());
            }
        });
    }
}

#[test]
fn the_next_writer_learns_of_a_dead_writer_and_passes_a_dead_reader() {
    let pair = Pair::new();
    let (one, two) = gates(&pair);
    let b = pair.b.slot().unwrap();
    {
        let a = pair.a.slot().unwrap();
        std::mem::forget(one.shared(&a).unwrap());
    }
    assert!(matches!(two.try_sole(&b), Err(Stalled { .. })), "it lives");
    pair.script.kill(1);
    for _ in 0..2 {
        for waits in [false, true] {
            let sole = if waits {
                two.sole(&b)
            } else {
                two.try_sole(&b)
            };
            let sole = sole.unwrap();
            assert!(!sole.owner_died());
            assert!(sole.into_inner().met_dead());
        }
    }
    pair.b
        .reap(|_| Ok::<_, std::convert::Infallible>(()))
        .unwrap();
    assert!(!two.sole(&b).unwrap().into_inner().met_dead());

    let pair = Pair::new();
    let (one, two) = gates(&pair);
    let b = pair.b.slot().unwrap();
    {
        let a = pair.a.slot().unwrap();
        std::mem::forget(one.sole(&a).unwrap());
    }
    pair.script.kill(1);
    // Readers are refused until somebody has repaired the data.
    assert_eq!(two.shared(&b).unwrap_err(), GateError::OwnerDied);
    assert!(two.try_sole(&b).unwrap().owner_died());
    assert_eq!(two.shared(&b).unwrap_err(), GateError::OwnerDied);
    let Acquired::OwnerDied(sole) = two.sole(&b).unwrap() else {
        panic!("the death was not reported")
    };
    sole.repaired();
    drop(sole);
    drop(two.shared(&b).unwrap());
    assert!(!two.sole(&b).unwrap().owner_died());
}
