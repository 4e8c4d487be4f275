//! A segment between real processes: the same address, growth seen by others, and a visitor that is
//! killed is no visitor any more.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use common::Scene;
use mneme_space::{
    Attachment, CloneError, EnterError, Here, MapError, Registry, RemoveError, Segment,
};
use mneme_sys::{Access, FRAME};

const CHILD: &str = "MNEME_SPACE_VISITOR";

/// Starts a visitor, and waits until it has done its work and stands still.
fn visitor(scene: &Scene) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "visit", "--nocapture"])
        .env(CHILD, scene.registry.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .any(|line| line.contains("stored"));
    assert!(ready, "{:?}", child.wait());
    child
}

#[test]
fn visit() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    let registry = Registry::open(root).unwrap();
    let mapping = Segment::open(&registry, "s")
        .unwrap()
        .map(Access::ReadWrite)
        .unwrap();
    mapping.grow(3 * FRAME).unwrap();
    let far: &AtomicU64 = mapping.region().at(3 * FRAME as u64 - 8).unwrap();
    far.store(77, Ordering::Release);
    // A pointer, as a heap would store it: true wherever the segment is mapped.
    let near: &AtomicU64 = mapping.region().at(4096).unwrap();
    near.store(std::ptr::from_ref(far).addr() as u64, Ordering::Release);
    println!("stored");
    // Until the parent kills this process, or goes away itself.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn a_pointer_stored_by_one_process_is_true_in_another_and_the_killed_let_go() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let scene = Scene::new();
    let segment = scene.create("s");
    let mapping = segment.map(Access::ReadOnly).unwrap();
    assert_eq!(mapping.len(), FRAME);
    let mut child = visitor(&scene);
    let address = mapping.region().load_u64(4096).unwrap() as usize;
    assert_eq!(address, segment.base().unwrap() + 3 * FRAME - 8);
    assert_eq!(mapping.refresh().unwrap(), 3 * FRAME);
    // The address itself is followed, not an offset from a base.
    let far = std::ptr::with_exposed_provenance::<AtomicU64>(address);
    // SAFETY: committed and mapped, as was just asserted.
    assert_eq!(unsafe { (*far).load(Ordering::Acquire) }, 77);
    drop(mapping);

    let refused = scene.registry.remove_segment("s").unwrap_err();
    assert!(matches!(refused, RemoveError::InUse { .. }), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    scene.registry.remove_segment("s").unwrap();
    assert!(scene.files("memory").is_empty());
}

const WRITER: &str = "MNEME_SPACE_WRITER";

#[test]
fn stay_inside() {
    let Some(root) = std::env::var_os(WRITER) else {
        return;
    };
    let registry = Registry::open(root).unwrap();
    let segment = Segment::open(&registry, "s").unwrap();
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let stay = |_: &mut Here<'_>| {
        println!("inside");
        let _ = std::io::stdin().lines().next();
    };
    if std::env::var_os("READS").is_some() {
        at.read(stay).unwrap();
    } else {
        at.enter(stay).unwrap();
    }
}

/// A process that is inside the segment's lock.
fn inside(scene: &Scene, reads: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "stay_inside", "--nocapture"])
        .env(WRITER, scene.registry.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if reads {
        command.env("READS", "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("inside"))
    );
    child
}

#[test]
fn a_clone_waits_for_a_writer_and_not_for_readers_and_is_refused_where_a_writer_died() {
    if std::env::var_os(WRITER).is_some() {
        return;
    }
    let scene = Scene::new();
    let segment = scene.create("s");
    // A reader is no hindrance, neither alive nor dead.
    let mut reader = inside(&scene, true);
    segment.clone_as("beside a reader").unwrap();
    reader.kill().unwrap();
    reader.wait().unwrap();
    segment.clone_as("after a reader").unwrap();
    // A writer is.
    let mut writer = inside(&scene, false);
    let refused = segment.clone_as("t").unwrap_err();
    assert!(
        matches!(&refused, CloneError::Enter(EnterError::Stalled(s)) if s.pid == writer.id()),
        "{refused}"
    );
    writer.kill().unwrap();
    writer.wait().unwrap();
    for _ in 0..2 {
        // The news are not used up by being told.
        let refused = segment.clone_as("t").unwrap_err();
        assert!(matches!(refused, CloneError::Poisoned { .. }), "{refused}");
    }
    assert_eq!(scene.registry.segments().unwrap().len(), 3);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn a_forked_child_is_told_that_it_must_be_started_anew() {
    use std::os::unix::process::CommandExt;
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
        let told =
            |segment: &Segment| matches!(segment.map(Access::ReadOnly), Err(MapError::Forked));
        let right = told(&segment) && told(&other) && floating.map(Access::ReadWrite).is_ok();
        // 1: any error; the parent sees that there was one.
        right
            .then_some(())
            .ok_or_else(|| std::io::Error::from_raw_os_error(1))
    };
    let mut command = Command::new("true");
    // SAFETY: only this thread uses what the closure uses, and glibc's allocator may be called after
    // `fork`.
    let status = unsafe { command.pre_exec(in_child) }.status();
    assert!(
        status
            .expect("something was not right in the child")
            .success()
    );
    // The parent's is as it was.
    mapping
        .region()
        .at::<AtomicU64>(4096)
        .unwrap()
        .store(1, Ordering::Relaxed);
    let shared = scene.open("s").map(Access::ReadOnly).unwrap();
    assert_eq!(shared.region().load_u64(4096).unwrap(), 1);
}
