//! Real processes die at every fault point of attaching a segment, of its sections, of taking its
//! lock over from a dead process, of reaping dead processes, and of recovery. The next process is
//! let in, or gets the error that the segment may be half changed; nothing that a dead process held
//! stays taken.

use std::collections::BTreeSet;

use crate::common::visitor::{self, stand};
use crate::common::{Scene, is_of_sections};
use mneme_space::{Attachment, EnterError, Registry, Segment};
use mneme_sys::Access;
use mneme_sys::fault::{self, Action};

/// The work during which a process dies. Each begins with attaching and ends with detaching.
const WORKS: [&str; 3] = ["enter", "read", "rebuild"];

/// The process that died in the segment before, and was not reaped.
const BEFORE: [&str; 3] = ["nobody", "a reader", "a writer"];

fn attach(registry: &Registry) -> Attachment {
    let segment = Segment::open(registry, "s").unwrap();
    Attachment::new([(&segment, Access::ReadWrite)]).unwrap()
}

fn perform(work: &str, registry: &Registry) -> Result<(), EnterError> {
    let at = attach(registry);
    match work {
        "enter" => at.enter(|_| ()),
        "read" => at.read(|_| ()),
        "rebuild" => at.rebuild("s"),
        other => panic!("{other}"),
    }
}

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    match role.as_str() {
        "a reader" => attach(&registry).read(|_| stand()).unwrap(),
        "a writer" => attach(&registry).enter(|_| stand()).unwrap(),
        order => {
            let words: Vec<&str> = order.split(' ').collect();
            fault::arm(words[1], Action::Kill, words[2].parse().unwrap());
            let _ = perform(words[0], &registry);
        }
    }
}

/// A segment in which somebody has died.
fn scene(before: &str) -> Scene {
    let scene = Scene::new();
    let _ = scene.create("s");
    if before != "nobody" {
        visitor::start(&scene, before).kill();
    }
    scene
}

/// Whether the next process must get `Poisoned`; `None` if either is right, because it depends on
/// how far the recovery was.
fn must_be_poisoned(before: &str, work: &str, point: &str) -> Option<bool> {
    match (before, work) {
        (_, "rebuild") => is_of_sections(point).then_some(true),
        ("a writer", _) => Some(true),
        _ => Some(["space.enter.begun", "space.enter.done"].contains(&point)),
    }
}

fn afterwards(scene: &Scene, poisoned: Option<bool>, context: &str) {
    let at = attach(&scene.registry);
    match at.enter(|_| ()) {
        Ok(()) => assert_ne!(poisoned, Some(true), "{context}"),
        Err(EnterError::Poisoned { .. }) => {
            assert_ne!(poisoned, Some(false), "{context}");
            at.rebuild("s").unwrap();
        }
        Err(other) => panic!("{context}: {other}"),
    }
    at.read(|_| ()).unwrap();
    let mapping = scene.open("s").map(Access::ReadOnly).unwrap();
    let stats = mapping.stats();
    assert_eq!((stats.processes, stats.slots), (1, 1), "{context}");
    assert_eq!(scene.findings(), Vec::<String>::new(), "{context}");
}

#[test]
fn the_next_process_is_let_in_or_gets_an_error_after_a_death_at_any_point_of_a_hand_over() {
    let mut passed_ever = BTreeSet::new();
    for (before, work) in BEFORE.iter().flat_map(|b| WORKS.map(|w| (*b, w))) {
        // Finds the fault points on the way, and how often they are passed.
        let census = scene(before);
        let registry = census.registry.clone();
        let passed = std::thread::spawn(move || {
            // From here on they are counted.
            fault::passed();
            let _ = perform(work, &registry);
            fault::passed()
        });
        for (point, times) in passed.join().unwrap() {
            passed_ever.insert(point.to_owned());
            for nth in 1..=times.min(2) {
                let scene = scene(before);
                let context = format!("{work} after {before}, killed at passing {nth} of {point}");
                assert!(
                    visitor::is_killed(&scene, &format!("{work} {point} {nth}"), "role"),
                    "{context}: it lived"
                );
                afterwards(&scene, must_be_poisoned(before, work, point), &context);
            }
        }
    }
    let own = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let below = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../sync/src")).unwrap();
    let of_locks = ["attach", "slot", "fenced", "lock", "reap", "vacate"];
    let of_locks = of_locks.map(|part| format!("sync.{part}."));
    let unproved: Vec<_> = own
        .iter()
        .filter(|name| is_of_sections(name))
        .chain(
            below
                .iter()
                .filter(|name| of_locks.iter().any(|part| name.starts_with(part))),
        )
        .filter(|name| !passed_ever.contains(*name))
        // Slots that idle successors of dead processes have: covered by `mneme-sync`'s tests.
        .filter(|name| *name != "sync.reap.orphans")
        .collect();
    assert_eq!(
        unproved,
        Vec::<&String>::new(),
        "points at which nobody died"
    );
}
