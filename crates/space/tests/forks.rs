//! A forked child is not its parent: every call of the child is refused, and it neither releases,
//! changes nor keeps anything that its parent holds.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::toy::Toy;
use common::visitor::{self, here, stand};
use common::{Scene, region};
use mneme_space::{
    Attachment, Backing, EnterError, HeapError, MapError, Mapping, Schema, SegVec, Segment,
};
use mneme_sync::{Participants, SlotError};
use mneme_sys::{Access, FRAME};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

/// A forked child, seen from its parent.
#[must_use]
struct Child(i32);

impl Child {
    /// Forks: `None` in the child.
    fn fork() -> Option<Child> {
        // SAFETY: glibc's allocator may be used after `fork`, and no child here takes a lock that
        // another thread may have held.
        let pid = unsafe { fork() };
        assert!(pid >= 0);
        (pid != 0).then_some(Child(pid))
    }

    /// Runs `f` in a child; if the child panics or faults, this thread panics.
    fn runs(f: impl FnOnce()) {
        match Self::fork() {
            Some(child) => child.ended_well(),
            None => end(catch_unwind(AssertUnwindSafe(f)).is_ok()),
        }
    }

    fn ended_well(self) {
        let mut status = -1;
        // SAFETY: the status is a local variable.
        let waited = unsafe { waitpid(self.0, &raw mut status, 0) };
        assert_eq!((waited, status), (self.0, 0), "the child's end");
    }
}

/// Ends a child, without the destructors that its parent runs at its own end.
fn end(well: bool) -> ! {
    // SAFETY: ends this process.
    unsafe { _exit(i32::from(!well)) }
}

fn is_forked<T>(result: Result<T, EnterError>) -> bool {
    matches!(result, Err(EnterError::Slot(SlotError::Forked)))
}

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

/// Creates the segment's root, or adds to it; returns its length.
fn add(at: &Attachment) -> Result<usize, EnterError> {
    at.enter(|here| {
        if here.root::<Numbers>("s").is_err() {
            here.create_root::<Numbers>("s", SegVec::new_in).unwrap();
        }
        let numbers = here.root_mut::<Numbers>("s").unwrap();
        numbers.push(1);
        numbers.len()
    })
}

/// The numbers of participating processes and threads.
fn attended(mapping: &Mapping) -> (u32, u32) {
    let stats = mapping.stats();
    (stats.processes, stats.slots)
}

/// The locks of a segment in which nobody is in a section.
fn participants(mapping: &Mapping) -> &Participants {
    // SAFETY: this test does not touch the words of the locks itself.
    unsafe { mapping.participants() }
}

/// Calls everything that a child can call on what its parent had, and checks that it is refused.
fn everything_is_refused(at: &Attachment, mapping: &Mapping, floating: &Mapping) {
    let segment = mapping.segment();
    assert!(is_forked(at.enter(|_| ())));
    assert!(is_forked(at.read(|_| ())));
    assert!(is_forked(at.rebuild("s")));
    // SAFETY: it is refused.
    assert!(is_forked(unsafe { at.accept("s") }));
    assert!(is_forked(at.segments()));
    let changed = [at.add(segment, Access::ReadOnly), at.remove(segment)];
    let is_refusal = |e: &EnterError| matches!(e, EnterError::Map(MapError::Forked));
    assert!(changed.iter().all(|c| c.as_ref().is_err_and(is_refusal)));
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let refused = Attachment::new([(segment, access)]).unwrap_err();
        assert!(matches!(refused, EnterError::Map(MapError::Forked)));
        assert!(matches!(segment.map(access), Err(MapError::Forked)));
    }
    assert!(format!("{at:?} {mapping:?}").contains("\"s\""));
    for mapping in [mapping, floating] {
        let len = mapping.len();
        assert_eq!(mapping.refresh().unwrap(), len);
        let refused = mapping.grow(3 * FRAME).unwrap_err();
        assert!(matches!(refused, MapError::Forked));
        assert_eq!(participants(mapping).slot().unwrap_err(), SlotError::Forked);
        assert_eq!(attended(mapping), (0, 0));
    }
    // What needs nothing of the parent's works: names, descriptions, copies; and the child sees
    // that others are there.
    assert_eq!(segment.info().unwrap().size, FRAME);
    segment.clone_as("copy").unwrap().remove().unwrap();
    let registry = segment.registry();
    assert_eq!(registry.check().unwrap(), []);
    assert!(registry.remove_segment("s").is_err());
}

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    let open = || attach(&Segment::open(&registry, "s").unwrap());
    match role.as_str() {
        "visit" => {
            // Longer than a process is off its CPU on a busy machine.
            let at = open().timeout(Duration::from_secs(60));
            here();
            while add(&at).is_ok() {}
        }
        // Dies while a child of it lives on.
        "leave a child inside" => open()
            .enter(|_| match Child::fork() {
                Some(_) => stand(),
                None => {
                    std::thread::sleep(Duration::from_secs(5));
                    end(true);
                }
            })
            .unwrap(),
        // Forks before it has mapped anything: parent and child then attach separately.
        "fork first" => {
            Child::runs(|| assert_eq!(add(&open()).unwrap(), 1));
            let at = open();
            add(&at).unwrap();
            // From now on a child must start a new program.
            let segment = Segment::open(&registry, "s").unwrap();
            Child::runs(|| {
                let refused = Attachment::new([(&segment, Access::ReadOnly)]).unwrap_err();
                assert!(matches!(refused, EnterError::Map(MapError::Forked)));
                let scene = Scene {
                    registry: registry.clone(),
                    root: std::path::PathBuf::new(),
                };
                visitor::start(&scene, "add").end();
            });
            stand();
        }
        "add" => {
            add(&open()).unwrap();
            stand();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn every_call_of_a_child_is_refused_and_its_parent_is_unaffected() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let pages = mneme_sys::PagePolicy::Small;
    let floating = scene.registry.segment("f").pages(pages).floating();
    let floating = floating.create().unwrap().map(Access::ReadWrite).unwrap();
    let at = attach(&segment);
    let mapping = segment.map(Access::ReadWrite).unwrap();
    assert_eq!(add(&at).unwrap(), 1);
    let before = attended(&mapping);
    let child = || {
        everything_is_refused(&at, &mapping, &floating);
        // Nor do calls of a grandchild, or of a child with a mapping of its own, succeed.
        Child::runs(|| everything_is_refused(&at, &mapping, &floating));
        let own = Segment::open(&scene.registry, "f").unwrap();
        let own = own.map(Access::ReadWrite).unwrap();
        assert_eq!(attended(&own), (2, 1));
        let slot = participants(&own).slot().unwrap();
        let alone = participants(&own).fenced_gate(0).unwrap();
        let alone = alone.sole(&slot).unwrap();
        Child::runs(|| everything_is_refused(&at, &mapping, &own));
        assert_eq!(attended(&own), (2, 2));
        drop(alone);
    };
    let own = participants(&floating).slot().unwrap();
    Child::runs(child);
    assert_eq!(attended(&mapping), before);
    drop(own);

    // A child drops only its copy.
    match Child::fork() {
        Some(child) => child.ended_well(),
        None => {
            drop((at, mapping, floating));
            end(true);
        }
    }
    assert_eq!(attended(&mapping), before);
    assert_eq!(attended(&floating), (1, 1));
    assert_eq!(add(&at).unwrap(), 2);
    drop((at, mapping, floating));
    for name in ["s", "f"] {
        scene.registry.remove_segment(name).unwrap();
    }
}

#[test]
fn a_child_forked_in_a_section_leaves_it_without_ending_its_parents() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = attach(&segment);
    add(&at).unwrap();
    for panics in [false, true] {
        let mut is_child = false;
        let entered = catch_unwind(AssertUnwindSafe(|| {
            at.enter(|here| {
                let heap = here.heap("s").unwrap();
                let pointer = here.alloc(7_u64).unwrap();
                let Some(child) = Child::fork() else {
                    is_child = true;
                    // Nothing of the section remains.
                    assert!(is_forked(at.enter(|_| ())));
                    let outside = |error| matches!(error, HeapError::Outside);
                    assert!(outside(here.heap("s").unwrap_err()));
                    assert!(heap.place(1_u64).is_err());
                    assert!(here.alloc(1_u64).is_err());
                    assert!(pointer.get(here).is_err());
                    assert!(pointer.get_mut(here).is_err());
                    let refused = here.root::<Numbers>("s").map(|_| ()).unwrap_err();
                    assert!(matches!(refused, HeapError::Outside));
                    let refused = here.root_mut::<Numbers>("s").map(|_| ()).unwrap_err();
                    assert!(matches!(refused, HeapError::Outside));
                    assert_eq!(here.segments().count(), 1);
                    if panics {
                        resume_unwind(Box::new(()));
                    }
                    return;
                };
                // The lock stays held, whatever happened to the child.
                child.ended_well();
                let mut others = visitor::send(&scene, "visit");
                others.wait_for("here");
                std::thread::sleep(Duration::from_millis(20));
                assert!(others.is_running());
                assert!(!segment.info().unwrap().poisoned);
                assert_eq!(pointer.get(here), Ok(&7));
                others.kill();
            })
        }));
        if is_child {
            let well = entered.is_err() == panics && is_forked(at.enter(|_| ()));
            drop(at);
            end(well);
        }
        entered.unwrap().unwrap();
    }
    assert_eq!(add(&at).unwrap(), 2);
}

#[test]
fn a_child_forked_while_another_thread_is_inside_does_not_disturb_that_thread() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = attach(&segment);
    add(&at).unwrap();
    let (tell, reported) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let at = &at;
        scope.spawn(move || {
            at.enter(|here| {
                let numbers = here.root_mut::<Numbers>("s").unwrap();
                numbers.push(2);
                tell.send(()).unwrap();
                wait.recv().unwrap();
                numbers.push(3);
            })
            .unwrap();
        });
        reported.recv().unwrap();
        Child::runs(|| {
            assert!(is_forked(at.enter(|_| ())));
            assert!(is_forked(at.read(|_| ())));
        });
        go.send(()).unwrap();
    });
    assert_eq!(add(&at).unwrap(), 4);
}

/// What the child inherited must not make its parent look alive.
#[test]
fn a_parent_that_dies_inside_counts_as_dead_though_its_child_lives() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = attach(&segment);
    add(&at).unwrap();
    visitor::start(&scene, "leave a child inside").kill();
    let refused = at.enter(|_| ()).unwrap_err();
    assert!(matches!(refused, EnterError::Poisoned { .. }), "{refused}");
    assert_eq!(attended(&segment.map(Access::ReadOnly).unwrap()), (1, 1));
}

#[test]
fn a_forked_child_attaches_for_itself_only_if_its_parent_had_nothing_mapped() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = attach(&segment);
    visitor::start(&scene, "fork first").end();
    assert_eq!(add(&at).unwrap(), 4);
}

/// A child does not inherit the memory. Dropping its copies of its parent's values releases
/// nothing, and does not record that the parent has left.
#[test]
fn a_child_does_not_inherit_a_segment_that_another_crate_laid_out() {
    let scene = Scene::new();
    let directory = scene.root.join("disk");
    std::fs::create_dir(&directory).unwrap();
    let segment = Toy::create(&scene, Backing::File { directory }).unwrap();
    let toy = Toy::open(&segment, Access::ReadWrite).unwrap();
    let header = || std::fs::read(segment.info().unwrap().data).unwrap()[..128].to_vec();
    let open = header();
    for part in [toy.data.base(), toy.participants.region().base()] {
        let Some(child) = Child::fork() else {
            // SAFETY: this line or the next ends the process.
            std::hint::black_box(unsafe { part.read_volatile() });
            end(true);
        };
        let mut status = 0;
        // SAFETY: the status is a local variable.
        unsafe { waitpid(child.0, &raw mut status, 0) };
        assert_eq!(status & 0x7f, 11, "it is mapped in the child");
    }
    match Child::fork() {
        Some(child) => child.ended_well(),
        None => {
            drop(toy);
            end(true);
        }
    }
    assert_eq!(header(), open, "the child has left for its parent");
    assert!(segment.clone().remove().is_err());
    drop(toy);
    assert_ne!(header(), open);
    segment.remove().unwrap();
}

#[test]
fn a_forked_child_gets_the_error_that_it_must_start_a_new_program() {
    let scene = Scene::new();
    let (segment, other) = (scene.create("s"), scene.create("other"));
    let pages = mneme_sys::PagePolicy::Small;
    let floating = scene
        .registry
        .segment("f")
        .pages(pages)
        .floating()
        .create()
        .unwrap();
    let mapping = segment.map(Access::ReadWrite).unwrap();
    let in_child = move || {
        let is_named =
            |segment: &Segment| matches!(segment.map(Access::ReadOnly), Err(MapError::Forked));
        let right =
            is_named(&segment) && is_named(&other) && floating.map(Access::ReadWrite).is_ok();
        // 1 stands for any error; the parent sees that there was one.
        right
            .then_some(())
            .ok_or_else(|| std::io::Error::from_raw_os_error(1))
    };
    let mut command = Command::new("true");
    // SAFETY: only this thread uses what the closure uses, and glibc's allocator may be called
    // after `fork`.
    let status = unsafe { command.pre_exec(in_child) }.status();
    assert!(
        status
            .expect("something was not right in the child")
            .success()
    );
    // The parent's mapping is unchanged.
    region(&mapping)
        .at::<AtomicU64>(4096)
        .unwrap()
        .store(1, Ordering::Relaxed);
    let shared = scene.open("s").map(Access::ReadOnly).unwrap();
    assert_eq!(region(&shared).load_u64(4096).unwrap(), 1);
}
