//! Recovery from a clone: the whole content is restored, or the segment stays poisoned.

use crate::common::Scene;
use mneme_space::{Attachment, CloneError, Condition, EnterError, Schema, SegVec, Segment};
use mneme_sys::{Access, FRAME};

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

fn filled(scene: &Scene, name: &str, last: u64) -> Segment {
    let segment = scene.create(name);
    let fill = |at: &Attachment| {
        at.enter(|here| {
            let root = here.create_root::<Numbers>(name, SegVec::new_in);
            root.unwrap().extend(0..last);
        })
        .unwrap();
    };
    fill(&attach(&segment));
    segment
}

fn read(at: &Attachment, name: &str) -> Vec<u64> {
    at.read(|here| here.root::<Numbers>(name).unwrap().to_vec())
        .unwrap()
}

fn poison(at: &Attachment, name: &str) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        at.enter(|here| {
            here.root_mut::<Numbers>(name).unwrap().extend(0..600_000);
            panic!("half-way");
        })
        .unwrap();
    }));
    assert!(result.is_err());
    let refused = at.read(|_| ()).unwrap_err();
    assert!(matches!(refused, EnterError::Poisoned { .. }), "{refused}");
}

#[test]
fn a_poisoned_segment_is_restored_from_its_clone_while_it_is_attached() {
    let scene = Scene::new();
    let segment = filled(&scene, "s", 1000);
    let clone = segment.clone_as("t").unwrap();
    assert_eq!(segment.condition().unwrap(), Condition::Whole);
    let at = attach(&segment);
    poison(&at, "s");
    assert_eq!(segment.condition().unwrap(), Condition::Poisoned);
    let grown = segment.info().unwrap().size;
    assert!(grown > clone.info().unwrap().size);
    segment.restore_from(&clone).unwrap();
    assert_eq!(segment.condition().unwrap(), Condition::Whole);
    assert_eq!(read(&at, "s"), Vec::from_iter(0..1000));
    // The heap grows into the memory behind the content, which is zero.
    at.enter(|here| {
        let root = here.root_mut::<Numbers>("s").unwrap();
        root.extend(1000..600_000);
        here.heap("s").unwrap().check().unwrap();
    })
    .unwrap();
    assert_eq!(read(&at, "s"), Vec::from_iter(0..600_000));
}

#[test]
fn a_longer_clone_restores_its_original_and_the_original_its_clone() {
    let scene = Scene::new();
    let segment = filled(&scene, "s", 10);
    let clone = segment.clone_as("t").unwrap();
    let at = attach(&clone);
    at.enter(|here| here.root_mut::<Numbers>("t").unwrap().extend(10..600_000))
        .unwrap();
    drop(at);
    assert!(clone.info().unwrap().size > FRAME);
    segment.restore_from(&clone).unwrap();
    let at = attach(&segment);
    assert_eq!(read(&at, "s"), Vec::from_iter(0..600_000));
    drop(at);
    let again = filled(&scene, "u", 5).clone_as("v").unwrap();
    let original = scene.open("u");
    again.restore_from(&original).unwrap();
}

#[test]
fn a_segment_that_is_no_clone_or_is_poisoned_is_refused() {
    let scene = Scene::new();
    let (segment, other) = (filled(&scene, "s", 1), filled(&scene, "o", 1));
    let clone = segment.clone_as("t").unwrap();
    for refused in [
        segment.restore_from(&other).unwrap_err(),
        segment.restore_from(&segment).unwrap_err(),
    ] {
        assert!(matches!(refused, CloneError::Unlike { .. }), "{refused}");
    }
    let at = attach(&segment);
    let refused = at.read(|_| segment.restore_from(&clone).unwrap_err());
    assert!(matches!(refused.unwrap(), CloneError::Nested));
    drop(at);
    let at = attach(&clone);
    poison(&at, "t");
    let refused = segment.restore_from(&clone).unwrap_err();
    assert!(matches!(refused, CloneError::Poisoned { .. }), "{refused}");
    assert_eq!(segment.condition().unwrap(), Condition::Whole);
}

#[test]
fn the_process_inside_is_named() {
    let scene = Scene::new();
    let segment = filled(&scene, "s", 1);
    let at = attach(&segment);
    let pid = std::process::id();
    let inside = at.enter(|_| segment.condition().unwrap()).unwrap();
    assert_eq!(inside, Condition::Held { pid, alone: true });
    let inside = at.read(|_| segment.condition().unwrap()).unwrap();
    assert_eq!(inside, Condition::Held { pid, alone: false });
    let clone = segment.clone_as("t").unwrap();
    let refused = at.read(|_| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| segment.restore_from(&clone));
            other.join().unwrap().unwrap_err()
        })
    });
    assert!(matches!(refused.unwrap(), CloneError::Stalled(stalled) if stalled.pid == pid));
    assert_eq!(segment.condition().unwrap(), Condition::Whole);
}

/// A process that has a segment mapped is one participant, whatever it does with the segment.
#[test]
fn a_process_that_restores_or_clones_is_one_participant() {
    let scene = Scene::new();
    let segment = filled(&scene, "s", 1000);
    let clone = segment.clone_as("t").unwrap();
    let at = [attach(&segment), attach(&clone)];
    let taking_part = |of: &Segment| {
        let mapping = of.map(Access::ReadOnly).unwrap();
        // SAFETY: only used to list the participants.
        unsafe { mapping.participants() }.attached().len()
    };
    let alone = || {
        assert_eq!([taking_part(&segment), taking_part(&clone)], [1, 1]);
        Ok::<_, CloneError>(())
    };
    segment.restore_from_if(&clone, alone).unwrap();
    clone.restore_from_if(&segment, alone).unwrap();
    drop(at);
    // Works because nobody has the two mapped; this process is a participant only during the call.
    segment.restore_from(&clone).unwrap();
    segment.clone_as("u").unwrap();
    scene.registry.remove_segment("s").unwrap();
    scene.registry.remove_segment("t").unwrap();
}
