//! A participant dies at every fault point of every operation; the others continue, and nothing is
//! lost or half done.
//!
//! One memory is opened several times. The victim's thread is abandoned at the fault point, and its
//! process declared dead. What a survivor then sees, before and after reaping it, must be
//! consistent; what the victim held must be there, and what it had claimed without adopting must be
//! free.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{
    Arena, CacheLookup, Class, Dropped, Extent, ExtentState, Frame, MAX_RECORD, Stored,
};
use mneme_sys::SyntheticTopology;
use mneme_sys::fault::{self, Action, Outcome};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use support::{NODE, Process, Shape, World, world};

/// The number of frames with which all scenarios begin; two zones.
const FRAMES: usize = 161;
const SHAPE: Shape = Shape {
    frames: FRAMES,
    max_frames: 400,
    nodes: 2,
    reserve: 0,
    client_bytes: 4096,
    records: 0,
};

/// The fault points of a claim; a test checks that it dies at each.
const CLAIM: [&str; 6] = [
    "arena.claim.intent",
    "arena.claim.descriptor",
    "arena.claim.summary",
    "arena.claim.refreshed",
    "arena.claim.unlocked",
    "arena.claim.cleared",
];
/// The fault points of a release; a test checks that it dies at each.
const RELEASE: [&str; 6] = [
    "arena.release.intent",
    "arena.release.descriptor",
    "arena.release.summary",
    "arena.release.refreshed",
    "arena.release.unlocked",
    "arena.release.cleared",
];
/// The fault points of returning memory; a test checks that it dies at each.
const GIVE: [&str; 5] = [
    "arena.give.intent",
    "arena.give.descriptor",
    "arena.give.taken",
    "arena.give.emptied",
    "arena.give.freed",
];
/// The fault points of an adoption; a test checks that it dies at each.
const ADOPT: [&str; 2] = ["arena.adopt.begin", "arena.adopt.done"];
/// The fault points of a growth; a test checks that it dies at each.
const GROW: [&str; 7] = [
    "arena.grow.region",
    "arena.grow.intent",
    "arena.grow.descriptor",
    "arena.grow.zones",
    "arena.grow.end",
    "arena.grow.summary",
    "arena.grow.unlocked",
];
/// The fault points of a repair; a test checks that it dies at each.
const REPAIR: [&str; 9] = [
    "arena.repair.locked",
    "arena.repair.intent",
    "arena.repair.descriptor",
    "arena.repair.summary",
    "arena.repair.unlocked",
    "arena.restore.begin",
    "arena.restore.descriptor",
    "arena.restore.zones",
    "arena.restore.summary",
];

/// The fault points of recovering an arena that nobody has open; a test checks that it dies at
/// each.
const RECOVER: [&str; 5] = [
    "arena.recover.reset",
    "arena.recover.freed",
    "arena.recover.emptied",
    "arena.recover.derived",
    "arena.recover.marked",
];

/// The fault points of a put of the second class; a test checks that it dies at each.
const PUT: [&str; 11] = [
    "arena.lend.invalidated",
    "arena.lend.looked",
    "arena.lend.numbered",
    "arena.lend.sealed",
    "arena.lend.named",
    "arena.lend.taken",
    "arena.lend.kept",
    "arena.lend.written",
    "arena.lend.stored",
    "arena.lend.tentative",
    "arena.lend.entered",
];

/// The state before the victim began to die.
struct Scene {
    world: World,
    survivor: Process,
    victim: Arc<Process>,
    /// Adopted by the victim; crosses a word of the bitmap.
    held: Extent,
    /// Adopted by the survivor, between the victim's.
    others: Extent,
}

fn scene() -> Scene {
    let (world, survivor) = world(SHAPE);
    let victim = Arc::new(world.open());
    survivor.hold(2);
    let held = victim.hold(70);
    let others = survivor.hold(3);
    Scene {
        world,
        survivor,
        victim,
        held,
        others,
    }
}

/// Runs `work` in the victim until it dies at the `nth` passage of `point`; `None` once it does not
/// get that far.
fn die<T: Send + 'static>(
    scene: &Scene,
    point: &str,
    nth: u64,
    work: impl FnOnce(&Process) -> T + Send + 'static,
) -> Option<()> {
    let victim = scene.victim.clone();
    match fault::run(point, Action::Abandon, nth, move || work(&victim)) {
        Outcome::Abandoned => {
            scene.world.kill(scene.victim.number);
            Some(())
        }
        Outcome::Finished(_) => None,
        Outcome::Panicked => panic!("panicked before {point} {nth}"),
    }
}

/// The passages of a fault point that are tried: all if there are few, otherwise the first ones,
/// the middle and the last.
fn passages() -> impl Iterator<Item = u64> {
    [1, 2, 3, 5, 35, 64, 65, 69, 70].into_iter()
}

fn extents(process: &Process) -> BTreeSet<(u32, u32)> {
    process
        .arena
        .extents()
        .map(|info| (info.extent.start.0, info.extent.frames))
        .collect()
}

fn pair(extent: Extent) -> (u32, u32) {
    (extent.start.0, extent.frames)
}

/// Tries each fault point twice: with the survivor working before it reaps, and with it reaping at
/// once.
fn at_every_point(
    points: &[&'static str],
    setup: impl Fn(&Scene) -> Option<Extent>,
    work: impl Fn(&Process, Option<Extent>) + Clone + Send + 'static,
    verify: impl Fn(&Scene, &str, Option<Extent>),
) {
    for point in points {
        for work_first in [false, true] {
            let mut deaths = 0;
            for nth in passages() {
                let scene = scene();
                let given = setup(&scene);
                let doing = work.clone();
                if die(&scene, point, nth, move |victim| doing(victim, given)).is_none() {
                    break;
                }
                deaths += 1;
                let mut new = Vec::new();
                if work_first {
                    // The first of these takes the lock over from the dead thread.
                    new.extend((0..3).map(|_| pair(scene.survivor.hold(3))));
                    scene.survivor.assert_whole();
                }
                assert_eq!(scene.survivor.reap(), 1, "{point} {nth}");
                scene.survivor.assert_whole();
                let there = extents(&scene.survivor);
                assert!(there.contains(&pair(scene.others)), "{point} {nth}");
                assert!(
                    new.iter().all(|new| there.contains(new)),
                    "{point} {nth}: the survivor's claims"
                );
                verify(&scene, point, given);
                // Nothing is left for a second repair, and all frames are accounted for.
                assert_eq!(scene.survivor.reap(), 0);
                let stats = scene.survivor.arena.stats();
                let taken: u32 = extents(&scene.survivor).iter().map(|extent| extent.1).sum();
                assert_eq!(stats.free + taken, stats.frames, "{point} {nth}");
                assert!(
                    scene
                        .survivor
                        .arena
                        .extents()
                        .all(|info| info.state == ExtentState::Held),
                    "{point} {nth}"
                );
                // A new process sees the same.
                assert_eq!(extents(&scene.world.open()), extents(&scene.survivor));
            }
            assert!(deaths > 0, "nobody died at {point}");
        }
    }
}

#[test]
fn an_unfinished_claim_leaves_nothing() {
    at_every_point(
        &CLAIM,
        |_| None,
        |victim, _| {
            let _ = victim.claim_as(70, 2, NODE, Class::Ordinary, 9);
        },
        |scene, _, _| {
            let info = scene.survivor.arena.extent_of(scene.held.start).unwrap();
            assert_eq!((info.extent, info.state), (scene.held, ExtentState::Held));
        },
    );
}

#[test]
fn a_release_that_had_begun_is_finished() {
    at_every_point(
        &RELEASE,
        |scene| Some(scene.held),
        |victim, held| {
            let _ = victim.release(held.unwrap());
        },
        |scene, _, held| assert!(!extents(&scene.survivor).contains(&pair(held.unwrap()))),
    );
}

/// The number of frames that can be claimed; all are free again afterwards.
fn claimable(process: &Process) -> u32 {
    let claim = || process.claim_as(1, 1, NODE, Class::Reserved, 0).ok();
    let claimed: Vec<Extent> = std::iter::from_fn(claim).collect();
    for extent in &claimed {
        process.release(*extent).unwrap();
    }
    claimed.len() as u32
}

#[test]
fn a_frame_whose_memory_was_being_returned_at_a_death_is_free_and_nobody_elses() {
    at_every_point(
        &GIVE,
        |scene| {
            scene.victim.warm(5);
            None
        },
        |victim, _| {
            let slot = victim.arena.participants().slot().unwrap();
            let _ = victim.arena.give_back_spare(&slot, NODE);
        },
        |scene, _, _| {
            let stats = scene.survivor.arena.stats();
            assert_eq!(claimable(&scene.survivor), stats.free);
            scene.survivor.assert_whole();
        },
    );
}

#[test]
fn an_adoption_took_effect_or_did_not() {
    at_every_point(
        &ADOPT,
        |scene| Some(scene.victim.claim(66).unwrap()),
        |victim, claimed| {
            let _ = victim.arena.adopt(claimed.unwrap());
        },
        |scene, point, claimed| {
            // Another thread of the same process had claimed it.
            let there = extents(&scene.survivor).contains(&pair(claimed.unwrap()));
            assert_eq!(there, point == "arena.adopt.done");
        },
    );
}

#[test]
fn a_growth_took_effect_or_did_not() {
    at_every_point(
        &GROW,
        |_| None,
        |victim, _| {
            let _ = victim.grow(400);
        },
        |scene, _, _| {
            let frames = scene.survivor.arena.stats().frames as usize;
            assert!(frames == FRAMES - 1 || frames == 399);
            assert!(extents(&scene.survivor).contains(&pair(scene.held)));
            scene.survivor.grow(400).unwrap();
            assert_eq!(scene.survivor.arena.stats().frames, 399);
            scene.survivor.assert_whole();
            let far = scene.survivor.hold(100);
            scene.survivor.release(far).unwrap();
        },
    );
}

/// A repairing process may die as well, and so may the next one.
#[test]
fn repairs_survive_their_own_death() {
    let first_deaths = [
        "arena.claim.descriptor",
        "arena.release.intent",
        "arena.release.descriptor",
        "arena.grow.zones",
    ];
    let mut died_at = BTreeSet::new();
    for first in first_deaths {
        for second in REPAIR {
            for nth in [1, 2, 3, 40] {
                let scene = scene();
                let (held, unadopted) = (scene.held, scene.victim.claim(4).unwrap());
                let at = if first.ends_with("descriptor") { 30 } else { 1 };
                die(&scene, first, at, move |victim| match first {
                    "arena.claim.descriptor" => drop(victim.claim(70)),
                    "arena.grow.zones" => drop(victim.grow(400)),
                    _ => drop(victim.release(held)),
                })
                .unwrap();

                let reaper = Arc::new(scene.world.open());
                let number = reaper.number;
                match fault::run(second, Action::Abandon, nth, move || reaper.reap()) {
                    Outcome::Abandoned => {
                        died_at.insert(second);
                    }
                    Outcome::Finished(_) => {}
                    Outcome::Panicked => panic!("panicked before {second}"),
                }
                scene.world.kill(number);

                let last = scene.world.open();
                last.reap();
                last.reap();
                for process in [&last, &scene.survivor] {
                    process.assert_whole();
                    let there = extents(process);
                    assert!(there.contains(&pair(scene.others)), "{first}, {second}");
                    assert!(!there.contains(&pair(unadopted)), "{first}, {second}");
                    assert!(
                        process
                            .arena
                            .extents()
                            .all(|info| info.state == ExtentState::Held)
                    );
                }
            }
        }
    }
    assert_eq!(died_at, REPAIR.into());
}

/// An intent may be found long after another thread has settled what it announced.
#[test]
fn a_late_repair_does_not_touch_what_others_claimed_since() {
    let scene = scene();
    let held = scene.held;
    die(&scene, "arena.release.descriptor", 3, move |victim| {
        victim.release(held)
    })
    .unwrap();
    // The same place and length, twice.
    let same = scene.survivor.hold(70);
    assert_eq!(same, held);
    scene.survivor.release(same).unwrap();
    let same = scene.survivor.hold(70);
    assert_eq!(same, held);
    assert_eq!(scene.survivor.reap(), 1);
    assert_eq!(
        scene
            .survivor
            .arena
            .extent_of(Frame(held.start.0 + 9))
            .unwrap()
            .extent,
        same
    );
    scene.survivor.assert_whole();

    // A finished repair is not repeated for ever.
    let before = fault::reached();
    fault::arm("arena.restore.begin", Action::Call(Arc::new(|| ())), 1);
    scene.survivor.hold(1);
    fault::disarm();
    assert_eq!(fault::reached(), before);
}

/// If a process dies while it recovers an arena alone, the next one starts again.
#[test]
fn a_recovery_that_dies_is_started_again() {
    let recover = |world: &World| {
        let (number, participants) = world.participants();
        let region = Arc::new(world.map());
        let topology = Arc::new(SyntheticTopology::new(2, 1));
        (number, move || {
            Arena::recover(region, participants, topology)
        })
    };
    for point in RECOVER {
        let (world, process) = world(Shape {
            records: 100,
            ..SHAPE
        });
        let held = process.hold(70);
        process.claim(3).unwrap();
        let extent = process.claim(5).unwrap();
        process.release(extent).unwrap();
        let slot = process.arena.participants().slot().unwrap();
        let stored = process.cache().put(&slot, NODE, b"key", b"of before");
        assert_eq!(stored.unwrap(), Stored::Kept);
        // An old incarnation.
        let incarnation = process.arena.region().at::<AtomicU64>(160).unwrap();
        incarnation.fetch_sub(1, Relaxed);
        drop(slot);
        drop(process);
        let (number, dies) = recover(&world);
        let outcome = fault::run(point, Action::Abandon, 1, dies);
        assert!(matches!(outcome, Outcome::Abandoned), "{point}");
        world.kill(number);
        let arena = recover(&world).1().unwrap();
        let extents: Vec<Extent> = arena.extents().map(|info| info.extent).collect();
        assert_eq!(extents, [held], "{point}");
        assert_eq!(arena.check().unwrap(), [], "{point}");
        assert_eq!(arena.stats().lent, 0, "{point}");
        let survivor = world.open();
        survivor.assert_whole();
        let found = survivor.cache().get(b"key", &mut Vec::new());
        assert!(matches!(found, CacheLookup::Miss(_)), "{point}");
    }
}

/// A tenant dies in the middle of a put, or is stopped there for as long as a claim takes. Claims
/// neither wait for it nor lose a frame, lookups are correct, and another tenant continues to fill
/// its frame.
#[test]
fn a_tenant_that_dies_costs_nothing_but_its_put() {
    let shape = Shape {
        frames: 17,
        max_frames: 17,
        nodes: 1,
        records: 1000,
        ..SHAPE
    };
    for point in PUT {
        for (nth, full) in [(1, false), (2, false), (1, true), (2, true), (3, true)] {
            let (world, survivor) = world(shape);
            survivor.warm(16);
            let cache = survivor.cache();
            let slot = survivor.arena.participants().slot().unwrap();
            if full {
                // Nothing is idle: frames come from the policy.
                for number in 0..16u8 {
                    let large = vec![number; MAX_RECORD - 8];
                    let stored = cache.put(&slot, NODE, &[number], &large).unwrap();
                    assert_eq!(stored, Stored::Kept);
                }
            }
            assert_eq!(
                cache.put(&slot, NODE, b"key", b"old").unwrap(),
                Stored::Kept
            );
            let victim = Arc::new(world.open());
            let dying = Arc::clone(&victim);
            let outcome = fault::run(point, Action::Abandon, nth, move || {
                let slot = dying.arena.participants().slot().unwrap();
                let cache = dying.cache();
                for value in [&[1; MAX_RECORD - 8][..], b"new", &[2; MAX_RECORD - 8]] {
                    let _ = cache.put(&slot, NODE, b"key", value).unwrap();
                }
            });
            if !matches!(outcome, Outcome::Abandoned) {
                assert!(nth > 1, "{point} is never reached");
                continue;
            }
            // As far as others know it is stopped: all frames but its own can be claimed.
            let mut found = Vec::new();
            if cache.get(b"key", &mut found) == CacheLookup::Hit {
                let values = [
                    &b"old"[..],
                    &[1; MAX_RECORD - 8],
                    b"new",
                    &[2; MAX_RECORD - 8],
                ];
                assert!(values.contains(&&found[..]), "{point} {nth}");
            }
            let claimed: Vec<Extent> = (0..15).map(|_| survivor.claim(1).unwrap()).collect();
            survivor.assert_whole();
            for extent in claimed {
                survivor.release(extent).unwrap();
            }
            // The stopped process does not prevent changes of the value.
            cache.remove(b"key").unwrap();
            assert!(matches!(
                cache.get(b"key", &mut found),
                CacheLookup::Miss(_)
            ));
            world.kill(victim.number);
            survivor.reap();
            let kept = (0..20).find(|_| {
                let stored = cache.put(&slot, NODE, b"after", b"it died");
                stored.unwrap() == Stored::Kept
            });
            assert!(kept.is_some(), "{point} {nth}: nobody succeeds the dead");
            assert_eq!(cache.get(b"after", &mut found), CacheLookup::Hit);
            cache.clear().unwrap();
            cache.sweep().unwrap();
            survivor.assert_whole();
            assert_eq!(survivor.arena.stats().lent, 1, "{point} {nth}");
            for _ in 0..15 {
                survivor.hold(1);
            }
        }
    }
}

/// A claim that had searched when a tenant took its frame, and is finished before the tenant has
/// counted what is left, does not cost the reserve a frame.
#[test]
fn a_claim_that_ends_while_a_tenant_counts_leaves_the_reserve_whole() {
    let (world, process) = world(Shape {
        frames: 17,
        max_frames: 17,
        nodes: 1,
        reserve: 4,
        records: 1000,
        ..SHAPE
    });
    let all = process.claim_as(16, 1, NODE, Class::Reserved, 0).unwrap();
    process.release(all).unwrap();
    let tenant = world.open();
    let (begin, begun) = channel();
    let (has_searched, searched) = channel();
    let (finish, finished) = channel();
    let (has_claimed, claimed) = channel();
    let finish_early = finish.clone();
    let call = |work: Box<dyn Fn() + Send>| {
        let work = Mutex::new(work);
        Action::Call(Arc::new(move || (work.lock().unwrap())()))
    };
    let named = call(Box::new(move || {
        begin.send(()).unwrap();
        searched.recv().unwrap();
    }));
    let looked = call(Box::new(move || {
        finish_early.send(()).unwrap();
        claimed.recv().unwrap();
    }));
    let intent = call(Box::new(move || {
        has_searched.send(()).unwrap();
        finished.recv().unwrap();
    }));
    std::thread::scope(|scope| {
        let first = &process;
        let claimer = scope.spawn(move || {
            fault::arm("arena.claim.intent", intent, 1);
            begun.recv().unwrap();
            first.hold(12);
            let _ = has_claimed.send(());
        });
        fault::arm("arena.lend.named", named, 1);
        // The first check comes before the frame is taken.
        fault::arm("arena.lend.looked", looked, 2);
        let slot = tenant.arena.participants().slot().unwrap();
        let stored = tenant.cache().put(&slot, NODE, b"key", b"value");
        fault::disarm();
        let _ = finish.send(());
        claimer.join().unwrap();
        assert_eq!(stored.unwrap(), Stored::Dropped(Dropped::NoFrame));
    });
    assert_eq!(process.arena.stats().free, 4);
    process.claim_as(4, 1, NODE, Class::Reserved, 0).unwrap();
    process.assert_whole();
}

/// A test here kills a thread at every fault point in the source.
#[test]
fn the_tests_kill_at_every_fault_point_in_the_source() {
    let killed = [
        &CLAIM[..],
        &RELEASE,
        &GIVE,
        &ADOPT,
        &GROW,
        &REPAIR,
        &RECOVER,
        &PUT,
    ]
    .concat();
    let killed: BTreeSet<_> = killed.into_iter().map(str::to_owned).collect();
    let named = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    assert_eq!(named, killed);
}
