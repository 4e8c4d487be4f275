//! An attachment of a space follows its changes: each section has the members that the space had
//! when it began.

use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Scene;
use mneme_space::{Attachment, EnterError, Schema, Segment, Space, SpaceError};
use mneme_sys::Access::{self, ReadOnly, ReadWrite};

struct Number;

impl Schema for Number {
    type Root<'s> = u64;
}

/// A segment that contains its number.
fn numbered(scene: &Scene, name: &str, number: u64) -> Segment {
    let segment = scene.create(name);
    let at = Attachment::new([(&segment, ReadWrite)]).unwrap();
    at.enter(|here| here.create_root::<Number>(name, |_| number).map(|_| ()))
        .unwrap()
        .unwrap();
    segment
}

/// The segments that a section finds, and whether it may change them.
fn found(at: &Attachment) -> Vec<(String, bool)> {
    let found = at.enter(|here| {
        let segments = here.segments();
        segments
            .map(|(name, alone)| (name.to_owned(), alone))
            .collect()
    });
    let mut found: Vec<_> = found.unwrap();
    found.sort();
    found
}

fn owned(found: &[(&str, bool)]) -> Vec<(String, bool)> {
    found
        .iter()
        .map(|(name, alone)| (name.to_string(), *alone))
        .collect()
}

fn space(scene: &Scene, members: &[(&Segment, Access)]) -> Space {
    let space = scene.registry.space("w").create().unwrap();
    for (segment, access) in members {
        space.add(segment, *access).unwrap();
    }
    space
}

#[test]
fn a_section_has_the_members_of_its_beginning() {
    let scene = Scene::new();
    let (a, b, c) = (scene.create("a"), scene.create("b"), scene.create("c"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    // A separate handle, as another process has.
    let at = scene.space("w").attach().unwrap();
    let reader = scene.space("w").attach_read_only().unwrap();
    assert_eq!(found(&at), owned(&[("a", true)]));
    space.add(&b, ReadOnly).unwrap();
    assert_eq!(found(&at), owned(&[("a", true), ("b", false)]));
    assert_eq!(found(&reader), owned(&[("a", false), ("b", false)]));
    space.set_access("b", ReadWrite).unwrap();
    assert_eq!(found(&at), owned(&[("a", true), ("b", true)]));
    assert_eq!(found(&reader), owned(&[("a", false), ("b", false)]));
    // Segments attached individually are added to the space's.
    at.add(&c, ReadWrite).unwrap();
    space.remove_segment("a").unwrap();
    assert_eq!(found(&at), owned(&[("b", true), ("c", true)]));
    assert_eq!(found(&reader), owned(&[("b", false)]));
    at.remove(&c).unwrap();

    let (inside, changed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            reader.read(|here| {
                inside.wait();
                changed.wait();
                assert_eq!(here.segments().next(), Some(("b", false)));
            })
        });
        inside.wait();
        space.remove_segment("b").unwrap();
        assert_eq!(found(&reader), []);
        changed.wait();
    });
    assert_eq!(found(&at), []);
    // Nobody keeps the segments that the space no longer has.
    for segment in [a, b, c] {
        segment.remove().unwrap();
    }
}

#[test]
fn a_change_that_cannot_be_followed_is_reported_until_it_is_repaired() {
    let scene = Scene::new();
    let (a, b) = (scene.create("a"), scene.create("b"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    let at = space.attach().unwrap();
    space.add(&b, ReadWrite).unwrap();
    // Removed before the attachment has followed the change.
    b.remove().unwrap();
    for _ in 0..2 {
        let refused = at.enter(|_| ()).unwrap_err();
        let EnterError::Follow(reason) = &refused else {
            panic!("{refused}");
        };
        let EnterError::Space(SpaceError::Member { name, .. }) = &**reason else {
            panic!("{refused:?}");
        };
        assert_eq!(name.as_str(), "b");
    }
    space.remove_segment("b").unwrap();
    assert_eq!(found(&at), owned(&[("a", true)]));

    // A clone cannot be mapped beside its original; a clone instead of the original can.
    let clone = a.clone_as("clone").unwrap();
    assert!(space.add(&clone, ReadOnly).is_err());
    assert!(matches!(
        at.add(&clone, ReadOnly),
        Err(EnterError::Overlap { .. })
    ));
    space.remove_segment("a").unwrap();
    space.add(&clone, ReadOnly).unwrap();
    assert_eq!(found(&at), owned(&[("clone", false)]));
}

#[test]
fn a_replaced_control_file_is_followed_too() {
    let scene = Scene::new();
    let (a, b) = (scene.create("a"), scene.create("b"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    let control = scene.registry.root().join("spaces/w/control");
    let at = space.attach().unwrap();
    // A file in use is not replaced while anybody is attached, even if it is damaged. Its length is
    // kept: if it were truncated, processes that map it would lose the memory.
    let file = std::fs::File::options().write(true).open(&control).unwrap();
    file.write_all_at(b"damage", 0).unwrap();
    drop(at);
    assert_eq!(scene.registry.clean().unwrap().len(), 1);
    let at = space.attach().unwrap();
    space.add(&b, ReadOnly).unwrap();
    assert_eq!(found(&at), owned(&[("a", true), ("b", false)]));
}

#[test]
fn many_enter_while_the_space_changes() {
    let scene = Scene::new();
    let a = numbered(&scene, "a", 1);
    let b = numbered(&scene, "b", 2);
    // It has the same address as `b`: the space has one or the other.
    let rival = b.clone_as("rival").unwrap();
    let space = space(&scene, &[(&a, ReadOnly), (&b, ReadOnly)]);
    let at = space.attach().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    at.read(|here| {
                        assert_eq!(*here.root::<Number>("a").unwrap(), 1);
                        let names: Vec<_> = here.segments().map(|it| it.0.to_owned()).collect();
                        assert!(names.len() <= 2, "{names:?}");
                        for other in names.iter().filter(|name| *name != "a") {
                            // A `Section` stands for one segment: `beside` creates another.
                            here.beside(other, |_, there| {
                                assert_eq!(*there.root::<Number>(other).unwrap(), 2);
                            })
                            .unwrap();
                        }
                    })
                    .unwrap();
                }
            });
        }
        for _ in 0..50 {
            space.remove_segment("b").unwrap();
            space.add(&rival, ReadOnly).unwrap();
            space.remove_segment("rival").unwrap();
            space.add(&b, ReadOnly).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
