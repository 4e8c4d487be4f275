//! An attachment of a space follows it: each section has the members that the space had when it
//! began.

use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Scene;
use mneme_space::{AttachError, Attachment, EnterError, Schema, Segment, Space, SpaceOpenError};
use mneme_sys::Access::{self, ReadOnly, ReadWrite};

struct Number;

impl Schema for Number {
    type Root<'s> = u64;
}

/// A segment that knows its number.
fn numbered(scene: &Scene, name: &str, number: u64) -> Segment {
    let segment = scene.create(name);
    let at = Attachment::new([(&segment, ReadWrite)]).unwrap();
    at.enter(|here| here.create_root::<Number>(name, |_| number).map(|_| ()))
        .unwrap()
        .unwrap();
    segment
}

/// What a section finds, and whether it may be changed.
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
fn sections_have_the_members_of_their_beginning() {
    let scene = Scene::new();
    let (a, b, c) = (scene.create("a"), scene.create("b"), scene.create("c"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    // A handle of its own, as another process has.
    let at = scene.space("w").attach().unwrap();
    let reader = scene.space("w").attach_read_only().unwrap();
    assert_eq!(found(&at), owned(&[("a", true)]));
    space.add(&b, ReadOnly).unwrap();
    assert_eq!(found(&at), owned(&[("a", true), ("b", false)]));
    assert_eq!(found(&reader), owned(&[("a", false), ("b", false)]));
    space.set_access("b", ReadWrite).unwrap();
    assert_eq!(found(&at), owned(&[("a", true), ("b", true)]));
    assert_eq!(found(&reader), owned(&[("a", false), ("b", false)]));
    // One's own come on top.
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
    // Nobody keeps what the space no longer has.
    for segment in [a, b, c] {
        segment.remove().unwrap();
    }
}

#[test]
fn what_cannot_be_followed_is_reported_until_it_is_mended() {
    let scene = Scene::new();
    let (a, b) = (scene.create("a"), scene.create("b"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    let at = space.attach().unwrap();
    space.add(&b, ReadWrite).unwrap();
    // Before the attachment has looked.
    b.remove().unwrap();
    for _ in 0..2 {
        let refused = at.enter(|_| ()).unwrap_err();
        let EnterError::Follow(AttachError::Space(SpaceOpenError::Member { name, .. })) = &refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(name.as_str(), "b");
    }
    space.remove_segment("b").unwrap();
    assert_eq!(found(&at), owned(&[("a", true)]));

    // A clone cannot be there beside its original; one for the other it can.
    let clone = a.clone_as("clone").unwrap();
    assert!(space.add(&clone, ReadOnly).is_err());
    assert!(matches!(
        at.add(&clone, ReadOnly),
        Err(AttachError::Overlap { .. })
    ));
    space.remove_segment("a").unwrap();
    space.add(&clone, ReadOnly).unwrap();
    assert_eq!(found(&at), owned(&[("clone", false)]));
}

#[test]
fn a_control_file_that_was_made_anew_is_followed_too() {
    let scene = Scene::new();
    let (a, b) = (scene.create("a"), scene.create("b"));
    let space = space(&scene, &[(&a, ReadWrite)]);
    let control = scene.registry.root().join("spaces/w/control");
    let at = space.attach().unwrap();
    // In use: it is not made anew while anybody is attached, even damaged.
    // Its length stays: to processes that map it, a file that is cut off is memory that is gone.
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
    // Where `b` is, too: the space has one or the other.
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
                            // A `Section` speaks of one segment: `beside` makes another.
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
