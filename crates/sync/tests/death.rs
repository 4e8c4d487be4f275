//! A participant dies at every fault point in turn; the others find everything consistent.
//!
//! Needs the feature `fault`. Liveness is scripted: a thread is abandoned at the fault point, then
//! its "process" is declared dead.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{UUID, map, options};
use mneme_sync::{
    Acquired, ControlOptions, DeadSlot, HeldVersions, Interest, Lane, Participants, ReapError,
    RobustLock,
};
use mneme_sys::fault::{self, Action, Outcome};
use mneme_sys::{PagePolicy, Region, ScriptedLiveness};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The fault points that a participant passes; a test checks that one dies at each.
const LIVING: [&str; 26] = [
    "sync.advance.barrier",
    "sync.attach.claimed",
    "sync.fenced.empty",
    "sync.fenced.raised",
    "sync.fold.base",
    "sync.fold.intent",
    "sync.fold.open",
    "sync.fold.root",
    "sync.fold.slot",
    "sync.hold.claimed",
    "sync.hold.held",
    "sync.hold.let_go",
    "sync.intent.begun",
    "sync.lease.cleared",
    "sync.lease.locked",
    "sync.lease.taken",
    "sync.lock.judged",
    "sync.lock.taken_over",
    "sync.revoke.begun",
    "sync.slot.claimed",
    "sync.slot.mark",
    "sync.vacate.inside",
    "sync.vacate.intents",
    "sync.vacate.owner",
    "sync.vacate.pin",
    "sync.watch.registered",
];
/// The fault points passed only by a thread that ends before its process; checked as well.
const ENDING: [&str; 1] = ["sync.release.begin"];
/// The fault points passed only by a reaper; checked as well.
const REAPING: [&str; 7] = [
    "sync.hold.reaped",
    "sync.reap.cleared",
    "sync.reap.freed",
    "sync.reap.marked",
    "sync.reap.orphans",
    "sync.reap.repaired",
    "sync.reap.taken",
];
/// The fault points passed only by the creator of the control region; checked as well.
const CREATING: [&str; 3] = [
    "sync.create.cleared",
    "sync.create.header",
    "sync.create.magic",
];
/// The fault points passed only by the process that rebuilds it after a reboot; checked as well.
const REBUILDING: [&str; 2] = ["sync.rebuild.cleared", "sync.rebuild.folded"];

/// All fault points.
fn points() -> impl Iterator<Item = &'static str> {
    [&LIVING[..], &ENDING, &REAPING, &CREATING, &REBUILDING]
        .into_iter()
        .flatten()
        .copied()
}

/// A control region and its script: process 1 created it and stays.
struct World {
    script: ScriptedLiveness,
    one: Participants,
    /// The total that was counted for root 5 of counter 3.
    counted: AtomicI64,
    /// Held by a thread of a dead process.
    orphan: RobustLock,
    /// The slots that were repaired, each by its number and generation.
    repaired: Mutex<BTreeSet<(u16, u16)>>,
    /// The slots of processes that died while holding everything.
    corpses: Mutex<Vec<(u16, u16)>>,
    next: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        World::of(options().max_processes)
    }

    /// A world with that many process entries.
    fn of(max_processes: u32) -> Arc<World> {
        let options = ControlOptions {
            max_processes,
            ..options()
        };
        let script = ScriptedLiveness::new();
        let region = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
        let one = Participants::create(region, options, Arc::new(script.process(1))).unwrap();
        let world = World {
            script,
            one,
            counted: AtomicI64::new(0),
            orphan: RobustLock::new(),
            repaired: Mutex::default(),
            corpses: Mutex::default(),
            next: AtomicU64::new(2),
        };
        Arc::new(world)
    }

    fn fd(&self) -> OwnedFd {
        self.one.region().duplicate_fd().unwrap().unwrap()
    }

    /// The number of a new process.
    fn number(&self) -> u32 {
        self.next.fetch_add(1, Relaxed) as u32
    }

    fn attach(&self, number: u32) -> Participants {
        Participants::open(map(self.fd()), UUID, Arc::new(self.script.process(number))).unwrap()
    }

    /// Lets a process die that holds everything.
    fn leave_a_corpse(&self) {
        let number = self.number();
        let dead = self.attach(number);
        {
            let slot = dead.slot().unwrap();
            self.corpses
                .lock()
                .unwrap()
                .push((slot.id().0, slot.generation()));
            std::mem::forget(self.orphan.lock(&slot).unwrap());
            self.count(&dead, 100);
            slot.intent(Lane::Txn).begin(9, &[slot.id().0.into()]);
            let gate = dead.fenced_gate(6).unwrap();
            std::mem::forget(gate.shared(&slot).unwrap());
        }
        std::mem::forget(dead.pin().unwrap());
        self.held(&dead).hold(3).unwrap();
        self.script.kill(number);
        // Its memory is freed; its effects on the region stay. Its destructor does nothing, because
        // it is dead.
        drop(dead);
    }

    /// Leaves another dead process, so that a reaper's death falls between two as well.
    fn leave_another(&self) {
        let number = self.number();
        let dead = self.attach(number);
        self.count(&dead, 10);
        let slot = dead.slot().unwrap();
        self.corpses
            .lock()
            .unwrap()
            .push((slot.id().0, slot.generation()));
        drop(slot);
        std::mem::forget(dead.pin_revocable().unwrap());
        self.script.kill(number);
    }

    fn count(&self, p: &Participants, n: i64) {
        p.slot().unwrap().count(3, 5, n);
        self.counted.fetch_add(n, Relaxed);
    }

    /// A table of held versions behind the participants' part of the region.
    fn held(&self, p: &Participants) -> HeldVersions {
        let at = options().region_len().next_multiple_of(128);
        HeldVersions::at(p, at as u64).unwrap()
    }

    fn repair(&self, dead: &DeadSlot<'_>) -> Result<(), Infallible> {
        if let Some(intent) = dead.intent(Lane::Txn) {
            assert_eq!((intent.kind, intent.words[0]), (9, u64::from(dead.id().0)));
        }
        self.repaired
            .lock()
            .unwrap()
            .insert((dead.id().0, dead.generation()));
        Ok(())
    }

    /// Checks what must hold when all processes except 1 are dead or closed.
    fn check(&self, story: &str) {
        let p = &self.one;
        match p.reap(|dead| self.repair(dead)) {
            Ok(_) => {}
            Err(ReapError::Repair { source, .. }) => match source {},
            Err(error) => panic!("{story}: {error}"),
        }
        assert_eq!(p.check(), Vec::<String>::new(), "{story}");
        let slot = p.slot().unwrap();
        assert_eq!((p.stats().slots, p.stats().processes), (1, 1), "{story}");
        assert_eq!(p.counters(3, 5), self.counted.load(Relaxed), "{story}");
        let g = p.advance().unwrap();
        p.wait_quiescent(g, Duration::ZERO).expect(story);
        self.orphan
            .lock(&slot)
            .expect(story)
            .into_inner()
            .repaired();
        let fenced = p.fenced_gate(6).unwrap();
        fenced.sole(&slot).expect(story).into_inner().repaired();
        drop(fenced.shared(&slot).expect(story));
        let held = self.held(p);
        held.reap();
        assert_eq!(held.versions(), [], "{story}");
        assert!(!p.is_watched(Interest::Keys), "{story}");
        assert!(!p.is_watched(Interest::Changes), "{story}");
        assert_eq!(p.lease_holder(1).unwrap(), None, "{story}");
        assert!(p.try_lease(1).unwrap().is_some(), "{story}");
        // A new process gets what the dead ones held.
        let number = self.number();
        let newcomer = self.attach(number);
        drop(newcomer.pin().unwrap());
        self.count(&newcomer, 1);
        drop(newcomer);
        assert_eq!(p.counters(3, 5), self.counted.load(Relaxed), "{story}");
        assert_eq!((p.stats().slots, p.stats().processes), (1, 1), "{story}");
        assert_eq!(p.check(), Vec::<String>::new(), "{story}");
    }

    /// Performs every operation of a participant.
    fn live(&self, number: u32) {
        let p = self.attach(number);
        let slot = p.slot().unwrap();
        self.count(&p, 7);
        let line = slot.intent(Lane::Txn);
        line.begin(9, &[slot.id().0.into(), 2, 3]);
        let pin = p.pin().unwrap();
        let (held, number) = (self.held(&p), self.held(&p).hold(4).unwrap());
        drop(pin);
        held.release(number);
        let revocable = p.pin_revocable().unwrap();
        let g = p.advance().unwrap();
        assert_eq!(p.revoke(g), 1);
        assert!(revocable.leave().is_err());
        let got = self.orphan.lock(&slot).unwrap();
        if let Acquired::OwnerDied(guard) = &got {
            guard.repaired();
        }
        drop(got);
        let fenced = p.fenced_gate(6).unwrap();
        fenced.sole(&slot).unwrap().into_inner().repaired();
        drop(fenced.shared(&slot).unwrap());
        drop(p.try_lease(1).unwrap().unwrap());
        drop(p.register_watch(Interest::Keys).unwrap());
        drop(p.register_watch(Interest::Changes).unwrap());
        line.clear();
        self.count(&p, -2);
    }

    fn reap(&self, number: u32) {
        let p = self.attach(number);
        self.count(&p, 1000);
        self.held(&p).reap();
        p.reap(|dead| self.repair(dead)).unwrap();
    }
}

/// Runs `work` as process `number` of a world and lets it die when it passes `point` for the `nth`
/// time.
fn die(world: &Arc<World>, point: &str, nth: u64, work: fn(&World, u32)) -> bool {
    let number = world.number();
    let inside = Arc::clone(world);
    let outcome = fault::run(point, Action::Abandon, nth, move || work(&inside, number));
    assert_ne!(outcome, Outcome::Panicked, "at {point}, time {nth}");
    world.script.kill(number);
    outcome == Outcome::Abandoned
}

#[test]
fn a_participant_dies_at_every_point_of_its_life() {
    let mut died = BTreeSet::new();
    for (point, nth) in points().flat_map(|point| [(point, 1), (point, 2)]) {
        let world = World::new();
        world.leave_a_corpse();
        if die(&world, point, nth, World::live) {
            died.insert(point);
            if point == "sync.hold.let_go" {
                let counted = world.held(&world.one).releases();
                assert_eq!(counted, 1, "a reclaimer learns what the dead let go");
            }
        }
        world.check(&format!("died living at {point}, time {nth}"));
    }
    for point in LIVING {
        assert!(died.contains(point), "nobody died at {point}");
    }
}

/// A thread that ends releases its slot; its process is killed in the middle of that.
#[test]
fn a_process_dies_while_a_thread_of_it_ends() {
    let mut died = BTreeSet::new();
    for point in points() {
        let world = World::new();
        let number = world.number();
        let p = Arc::new(world.attach(number));
        let (inside, of_thread) = (Arc::clone(&world), Arc::clone(&p));
        let (arrive, arrived) = mpsc::channel();
        std::thread::spawn(move || {
            // The slot is not abandoned: that needs the thread's own words, some of which are gone
            // when it ends.
            let stand_still = move || {
                arrive.send(()).unwrap();
                loop {
                    std::thread::sleep(Duration::MAX);
                }
            };
            fault::arm(point, Action::Call(Arc::new(stand_still)), 1);
            inside.count(&of_thread, 7);
        });
        if arrived.recv().is_ok() {
            died.insert(point);
        }
        world.script.kill(number);
        drop(p);
        world.check(&format!("died ending at {point}"));
    }
    for point in ENDING {
        assert!(died.contains(point), "nobody died at {point}");
    }
}

#[test]
fn a_reaper_dies_at_every_point_and_so_does_the_next() {
    let mut died = BTreeSet::new();
    for (point, nth) in points().flat_map(|point| [(point, 1), (point, 2)]) {
        let world = World::new();
        world.leave_a_corpse();
        world.leave_another();
        for _ in 0..3 {
            if die(&world, point, nth, World::reap) {
                died.insert(point);
            }
        }
        world.check(&format!("died reaping at {point}, time {nth}"));
        let repaired = world.repaired.lock().unwrap();
        for corpse in world.corpses.lock().unwrap().iter() {
            assert!(
                repaired.contains(corpse),
                "{corpse:?} was never repaired ({point})"
            );
        }
    }
    // The last one belongs to the next test.
    for point in REAPING {
        let reached = died.contains(point) || point == "sync.reap.orphans";
        assert!(reached, "nobody died at {point}");
    }
}

/// All process entries are taken, so those of dead processes are taken over: by a process that
/// never reaps, and by reapers that die.
#[test]
fn a_reaper_of_orphans_dies_at_every_point_and_so_does_the_next() {
    let mut died = BTreeSet::new();
    for (point, nth) in points().flat_map(|point| [(point, 1), (point, 2)]) {
        let world = World::of(3);
        world.leave_a_corpse();
        world.leave_another();
        let number = world.number();
        let idle = world.attach(number);
        for _ in 0..3 {
            if die(&world, point, nth, World::reap) {
                died.insert(point);
            }
        }
        world.one.reap(|dead| world.repair(dead)).unwrap();
        assert_eq!(world.one.check(), Vec::<String>::new(), "{point}");
        assert_eq!(world.one.stats().processes, 2, "{point}");
        drop(idle);
        world.check(&format!("died reaping orphans at {point}, time {nth}"));
        let repaired = world.repaired.lock().unwrap();
        let corpses = world.corpses.lock().unwrap();
        assert!(
            corpses.iter().all(|corpse| repaired.contains(corpse)),
            "{point}"
        );
    }
    for point in [
        "sync.reap.orphans",
        "sync.reap.repaired",
        "sync.reap.cleared",
    ] {
        assert!(died.contains(point), "nobody died at {point}");
    }
}

#[test]
fn a_creator_dies_and_the_next_creates() {
    for point in CREATING {
        let script = ScriptedLiveness::new();
        let region = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
        let (first, second) = (region.duplicate_fd(), region.duplicate_fd());
        let one = Arc::new(script.process(1));
        let outcome = fault::run(point, Action::Abandon, 1, move || {
            Participants::create(region, options(), one).map(drop)
        });
        assert!(matches!(outcome, Outcome::Abandoned), "{point}");
        script.kill(1);
        let opened = Participants::open(
            map(first.unwrap().unwrap()),
            UUID,
            Arc::new(script.process(2)),
        );
        assert_eq!(opened.is_ok(), point == "sync.create.magic", "{point}");
        drop(opened);
        let region = map(second.unwrap().unwrap());
        let p = Participants::create(region, options(), Arc::new(script.process(3))).unwrap();
        p.slot().unwrap().count(0, 1, 1);
        assert_eq!(p.check(), Vec::<String>::new());
    }
}

#[test]
fn a_rebuilder_dies_and_the_next_rebuilds_with_the_same_counts() {
    for point in points() {
        let world = World::new();
        world.leave_a_corpse();
        world.count(&world.one, 5);
        let fd = world.fd();
        world.script.kill(1);
        // The place of the boot id: 5 words into the control header.
        let words = world
            .one
            .region()
            .slice_at::<AtomicU64>(128 + 40, 2)
            .unwrap();
        words[0].fetch_xor(1, Relaxed);
        let died = die(&world, point, 1, |world, number| drop(world.attach(number)));
        assert!(
            died || !REBUILDING.contains(&point),
            "nobody died at {point}"
        );
        let number = world.number();
        let p = Participants::open(map(fd), UUID, Arc::new(world.script.process(number))).unwrap();
        p.reap(|_| Ok::<_, Infallible>(())).unwrap();
        assert_eq!(p.counters(3, 5), world.counted.load(Relaxed), "{point}");
        assert_eq!(p.check(), Vec::<String>::new(), "{point}");
        assert_eq!((p.stats().slots, p.stats().processes), (0, 1), "{point}");
    }
}

/// Between the check that finds an owner dead and the take-over, another thread takes the lock over
/// and releases it.
#[test]
fn a_lock_released_between_two_checks_is_taken() {
    let world = World::new();
    world.leave_a_corpse();
    let faster = Arc::clone(&world);
    let call = Action::Call(Arc::new(move || {
        let number = faster.number();
        let p = faster.attach(number);
        let slot = p.slot().unwrap();
        faster.orphan.lock(&slot).unwrap().into_inner().repaired();
    }));
    fault::arm("sync.lock.judged", call, 1);
    let before = fault::reached();
    let slot = world.one.slot().unwrap();
    let got = world.orphan.lock(&slot).unwrap();
    assert_eq!(fault::reached(), before + 1);
    assert!(matches!(got, Acquired::Clean(_)));
}

/// A test here kills a thread at every fault point in the source.
#[test]
fn the_tests_kill_at_every_fault_point_in_the_source() {
    let named = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    assert_eq!(named, points().map(str::to_owned).collect());
}
