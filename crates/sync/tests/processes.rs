//! Real processes: one is killed while it holds everything, one is forked.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{UUID, liveness, open, options};
use mneme_sync::{
    Acquired, Feed, GateError, Guard, HeldVersions, Holding, Interest, Lane, OpPin, Participants,
    Pin, RobustLock, Slot, SlotError,
};
use mneme_sys::{PagePolicy, Region};
use mneme_testkit::{Process, fd_path};
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const CONTROL: &str = "MNEME_TEST_CONTROL";
const DATA: &str = "MNEME_TEST_DATA";

/// The other process; does nothing unless it was started as such.
#[test]
fn other_process() {
    let (Ok(control), Ok(data)) = (std::env::var(CONTROL), std::env::var(DATA)) else {
        return;
    };
    let p = Participants::open(open(&control), UUID, liveness(&control)).unwrap();
    let data = open(&data);
    let lock = data.at::<RobustLock>(0).unwrap();
    let slot = p.slot().unwrap();
    let _pin = p.pin().unwrap();
    slot.intent(Lane::Arena).begin(3, &[4, 5]);
    slot.count(0, 1, 21);
    let gate = p.fenced_gate(0).unwrap();
    let _inside = gate.shared(&slot).unwrap();
    let other = p.fenced_gate(1).unwrap();
    let _exclusive = other.sole(&slot).unwrap();
    let _guard = lock.lock(&slot).unwrap();
    println!("\nready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_is_noticed_reported_and_reaped() {
    let control = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let data = Region::memfd("data", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let (control_fd, data_fd) = (
        control.duplicate_fd().unwrap().unwrap(),
        data.duplicate_fd().unwrap().unwrap(),
    );
    let p = Participants::create(control, options(), liveness(&fd_path(&control_fd))).unwrap();
    let variables = [(CONTROL, fd_path(&control_fd)), (DATA, fd_path(&data_fd))];
    let mut other = Process::start_ready("other_process", variables);

    let slot = p.slot().unwrap();
    let lock = data.at::<RobustLock>(0).unwrap();
    let holder = lock.owner().unwrap();
    assert!(!p.is_dead(holder));
    let stalled = lock
        .lock_within(&slot, Duration::from_millis(2))
        .unwrap_err();
    assert_eq!((stalled.slot, stalled.pid), (holder, other.id()));
    let g = p.advance().unwrap();
    assert_eq!(
        p.wait_quiescent(g, Duration::from_millis(2))
            .unwrap_err()
            .pid,
        other.id()
    );
    let threads = p.attached().into_iter().flat_map(|process| process.threads);
    let mut others = threads.filter(|thread| thread.slot == holder);
    let announced = others.next().unwrap().intents[Lane::Arena as usize];
    assert_eq!(announced.unwrap().words[..2], [4, 5]);
    assert_eq!(
        p.reap(|_| Ok::<_, Infallible>(())).unwrap().processes,
        0,
        "it lives"
    );

    other.kill();
    assert!(p.is_dead(holder));
    // What it held is handed over or refused, and its death is reported.
    assert!(matches!(lock.lock(&slot).unwrap(), Acquired::OwnerDied(_)));
    let one = p.fenced_gate(1).unwrap();
    assert_eq!(one.shared(&slot).unwrap_err(), GateError::OwnerDied);
    let exclusive = one.sole(&slot).unwrap();
    assert!(exclusive.owner_died());
    exclusive.into_inner().repaired();
    drop(one.shared(&slot).unwrap());
    // It was inside this gate.
    let zero = p.fenced_gate(0).unwrap();
    let alone = zero.sole(&slot).unwrap();
    assert!(!alone.owner_died(), "a reader leaves nothing half done");
    assert!(alone.into_inner().met_dead());
    // Its pin protects what its repair may read.
    assert!(!p.quiescent(g));
    let mut repaired = 0;
    p.reap(|dead| {
        assert_eq!(dead.id(), holder);
        assert_eq!(dead.intent(Lane::Arena).map(|intent| intent.kind), Some(3));
        repaired += 1;
        Ok::<_, Infallible>(())
    })
    .unwrap();
    assert_eq!(repaired, 1);
    assert!(p.quiescent(g));
    assert_eq!(p.counters(0, 1), 21);
    assert_eq!(p.check(), Vec::<String>::new());
    // Nobody is inside any more.
    assert!(!zero.sole(&slot).unwrap().into_inner().met_dead());
}

type Handles = (
    Pin<'static>,
    Acquired<Guard<'static>>,
    OpPin<'static>,
    Slot<'static>,
);

/// Called in a forked child: the parent's handles at that address.
fn handles_at(address: usize) -> Handles {
    // SAFETY: the child has a copy of the parent's memory, and with it of these values, which
    // nobody else in the child uses.
    unsafe { std::ptr::read(std::ptr::with_exposed_provenance(address)) }
}

/// What a thread can reach when it forks.
struct Held {
    p: Participants,
    data: Region,
    versions: HeldVersions,
    feed: Feed,
}

#[test]
fn a_forked_child_touches_nothing_of_its_parents() {
    let control = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    // Touching it would kill the child.
    control.dont_fork().unwrap();
    let fd = control.duplicate_fd().unwrap().unwrap();
    let p = Participants::create(control, options(), liveness(&fd_path(&fd))).unwrap();
    // Never freed, so that the child may refer to it.
    let data = Region::memfd("data", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let versions = HeldVersions::at(&p, p.end()).unwrap();
    let feed = Feed::at(&p, p.end() + HeldVersions::BYTES as u64).unwrap();
    let held: &'static Held = Box::leak(Box::new(Held {
        p,
        data,
        versions,
        feed,
    }));
    let (p, lock) = (&held.p, held.data.at::<RobustLock>(0).unwrap());
    let slot = p.slot().unwrap();
    slot.count(0, 1, 5);
    slot.intent(Lane::Log).begin(2, &[6]);
    let gate: &'static mneme_sync::FencedGate = Box::leak(Box::new(p.fenced_gate(0).unwrap()));
    let handles: Box<Handles> = Box::new((
        p.pin().unwrap(),
        lock.lock(&slot).unwrap(),
        gate.shared(&slot).unwrap(),
        slot.clone(),
    ));
    let g = p.advance().unwrap();

    let address = std::ptr::from_ref(&*handles).expose_provenance();
    let in_child = move || {
        let (pin, guard, inside, slot) = handles_at(address);
        let right = matches!(held.p.pin(), Err(SlotError::Forked))
            && matches!(held.p.slot(), Err(SlotError::Forked))
            && gate.shared(&slot).is_ok()
            && lock.try_lock(&slot).is_none()
            && lock
                .lock(&slot)
                .is_err_and(|stalled| stalled.what == Holding::Forked)
            && gate
                .sole(&slot)
                .is_err_and(|stalled| stalled.what == Holding::Forked)
            && held.p.wait_quiescent(g, Duration::ZERO).is_err()
            && !held.p.quiescent(g)
            && held.p.counters(0, 1) == 0
            && held.p.epoch().to_u64() == 0
            && held.p.incarnation() != 0
            && held.p.stats().slots == 0
            && held.p.attached().is_empty()
            && !held.p.is_watched(Interest::Keys)
            && held.p.undo_areas().next().is_none()
            && held.versions.hold(1).is_none()
            && (held.versions.releases(), held.feed.head()) == (0, 0)
            && held.feed.read(0).is_err()
            && !held.p.is_dead(slot.id());
        slot.count(0, 1, 1000);
        slot.intent(Lane::Log).clear();
        drop((pin, guard, inside));
        let outside = matches!(gate.shared(&slot), Err(GateError::Forked));
        if right && outside {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(1))
        }
    };
    let mut command = Command::new("true");
    // SAFETY: the closure allocates nothing and takes no lock.
    let status = unsafe { command.pre_exec(in_child) }.status();
    assert!(
        status
            .expect("something was not right in the child")
            .success()
    );

    assert!(!p.quiescent(g), "the parent's pin stands");
    assert_eq!(p.counters(0, 1), 5);
    assert_eq!(
        slot.intent(Lane::Log).read().map(|intent| intent.kind),
        Some(2)
    );
    assert_eq!(lock.owner(), Some(slot.id()));
    drop(handles);
    assert!(p.quiescent(g));
}
