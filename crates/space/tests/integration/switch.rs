//! Attachments whose segments claim the same addresses are visited in turns, and an attachment's
//! segments change while it is in use. Neither loses anything, nor shows one segment's content as
//! another's.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::Scene;
use mneme_space::{Attachment, EnterError, MapError, Schema, SegVec, Segment};
use mneme_sys::Access;

/// Entries, each of which is the mark of a writer.
struct Marks;

impl Schema for Marks {
    type Root<'s> = (u64, SegVec<'s, u64>);
}

const LONG: Duration = Duration::from_secs(60);

fn attach(segment: &Segment) -> Attachment {
    let at = Attachment::new([(segment, Access::ReadWrite)]).unwrap();
    at.timeout(LONG)
}

/// Gives the segment its own mark.
fn mark(at: &Attachment, name: &str, mark: u64) {
    at.enter(|here| {
        let _ = here.create_root::<Marks>(name, |heap| (0, SegVec::new_in(heap)));
        let root = here.root_mut::<Marks>(name).unwrap();
        root.0 = mark;
        root.1.clear();
    })
    .unwrap();
}

fn push(at: &Attachment, name: &str, entries: usize) -> Result<(), EnterError> {
    at.enter(|here| {
        let (mark, marks) = here.root_mut::<Marks>(name).unwrap();
        assert!(marks.iter().all(|found| found == mark));
        marks.extend(std::iter::repeat_n(*mark, entries));
    })
}

fn count(at: &Attachment, name: &str) -> Result<usize, EnterError> {
    at.read(|here| {
        let (mark, marks) = here.root::<Marks>(name).unwrap();
        assert!(marks.iter().all(|found| found == mark));
        marks.len()
    })
}

/// Segments that claim one address: an original and its clones, each with its own mark.
fn rivals(scene: &Scene, names: [&'static str; 3]) -> [(Attachment, &'static str); 3] {
    let original = scene.create(names[0]);
    mark(&attach(&original), names[0], 0);
    for clone in &names[1..] {
        original.clone_as(clone).unwrap();
    }
    let mut number = 0;
    names.map(|name| {
        let at = attach(&scene.open(name));
        mark(&at, name, number);
        number += 1;
        (at, name)
    })
}

#[test]
fn rivals_for_one_address_are_visited_in_turns_and_grow_apart() {
    let scene = Scene::new();
    let rivals = rivals(&scene, ["a", "b", "c"]);
    for round in 1..=20 {
        for (number, (at, name)) in rivals.iter().enumerate() {
            // Beyond the 2 MiB that each began with, by different amounts.
            push(at, name, 20_000 * (number + 1)).unwrap();
            assert_eq!(count(at, name).unwrap(), round * 20_000 * (number + 1));
        }
    }
    for (_, name) in &rivals {
        let size = scene.open(name).info().unwrap().size;
        assert!(size > 2 << 20, "{name} has {size} bytes");
    }
    // The last of them lies at the address; the others are removed from where they are parked.
    drop(rivals);
    let segments = ["a", "b", "c"].map(|name| scene.open(name));
    for segment in segments {
        segment.remove().unwrap();
    }
    assert!(scene.files("memory").is_empty());
}

#[test]
fn many_threads_that_want_one_address_all_finish() {
    let scene = Scene::new();
    let rivals = rivals(&scene, ["a", "b", "c"]);
    std::thread::scope(|threads| {
        for number in 0..6 {
            let (at, name) = &rivals[number % 3];
            threads.spawn(move || {
                for i in 0..100 {
                    if (i + number) % 4 == 0 {
                        push(at, name, 1).unwrap();
                    } else {
                        count(at, name).unwrap();
                    }
                }
            });
        }
    });
    for (at, name) in &rivals {
        assert_eq!(count(at, name).unwrap(), 50);
    }
}

/// A thread that waits for another's mapping to end checks again what is there, because other
/// threads have continued meanwhile.
#[test]
fn rivals_are_attached_and_detached_at_once() {
    let scene = Scene::new();
    let original = scene.create("a");
    let rival = original.clone_as("b").unwrap();
    std::thread::scope(|threads| {
        for segment in [&original, &original, &original, &rival, &rival] {
            threads.spawn(move || {
                for _ in 0..300 {
                    attach(segment).enter(|_| ()).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_thread_inside_is_waited_for_and_its_segment_not_moved() {
    let scene = Scene::new();
    let [(a, _), (b, _), _] = rivals(&scene, ["a", "b", "c"]);
    let inside = Barrier::new(2);
    let leave = AtomicBool::new(false);
    let waiting = b.timeout(Duration::from_millis(5));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            a.read(|here| {
                inside.wait();
                while !leave.load(Ordering::Relaxed) {
                    assert_eq!(here.root::<Marks>("a").unwrap().0, 0);
                }
            })
        });
        inside.wait();
        for _ in 0..3 {
            let refused = count(&waiting, "b").unwrap_err();
            let by = scene.open("a").uuid();
            assert!(
                matches!(refused, EnterError::Map(MapError::Busy { by: who, .. }) if who == by),
                "{refused}"
            );
            // A thread that wants the same segment is let in too.
            assert_eq!(count(&a, "a").unwrap(), 0);
        }
        leave.store(true, Ordering::Relaxed);
    });
    assert_eq!(count(&waiting, "b").unwrap(), 0);
    // A mapping that stays gives way to nobody until it is dropped.
    let mapping = scene.open("b").map(Access::ReadOnly).unwrap();
    let refused = count(&a, "a").unwrap_err();
    assert!(matches!(
        refused,
        EnterError::Map(MapError::Occupied { .. })
    ));
    drop(mapping);
    assert_eq!(count(&a, "a").unwrap(), 0);
}

#[test]
fn a_panic_frees_the_address_for_others() {
    let scene = Scene::new();
    let [(a, _), (b, _), _] = rivals(&scene, ["a", "b", "c"]);
    let inside = || a.read(|_| std::panic::panic_any("inside"));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside)).unwrap_err();
    push(&b, "b", 1).unwrap();
    assert_eq!(count(&a, "a").unwrap(), 0);
}

#[test]
fn segments_come_and_go_while_the_attachment_is_in_use() {
    let scene = Scene::new();
    let (common, own) = (scene.create("common"), scene.create("own"));
    let at = attach(&common);
    mark(&at, "common", 1);
    let names = |at: &Attachment| -> Vec<String> {
        let mut names: Vec<_> = at.segments().unwrap().into_iter().map(|it| it.0).collect();
        names.sort();
        names
    };
    at.add(&own, Access::ReadWrite).unwrap();
    mark(&at, "own", 2);
    assert_eq!(names(&at), ["common", "own"]);
    let again = at.add(&own, Access::ReadOnly);
    assert!(matches!(again, Err(EnterError::Twice { .. })));
    assert_eq!(names(&at), ["common", "own"]);

    // A section keeps the members that it began with, whatever happens to the attachment meanwhile.
    let (inside, removed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            at.read(|here| {
                inside.wait();
                removed.wait();
                assert_eq!(here.root::<Marks>("own").unwrap().0, 2);
            })
            .unwrap();
        });
        inside.wait();
        at.remove(&own).unwrap();
        assert_eq!(names(&at), ["common"]);
        at.read(|here| assert!(here.root::<Marks>("own").is_err()))
            .unwrap();
        removed.wait();
    });
    assert!(matches!(
        at.remove(&own),
        Err(EnterError::NotAttached { .. })
    ));

    // Changed and used by many threads at once.
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    at.read(|here| {
                        assert_eq!(here.root::<Marks>("common").unwrap().0, 1);
                        if let Ok(own) = here.root::<Marks>("own") {
                            assert_eq!(own.0, 2);
                        }
                    })
                    .unwrap();
                }
            });
        }
        for _ in 0..200 {
            at.add(&own, Access::ReadOnly).unwrap();
            at.remove(&own).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    // Nothing keeps it mapped, so it can be removed.
    at.add(&own, Access::ReadOnly).unwrap();
    at.remove(&own).unwrap();
    own.remove().unwrap();
}
