//! A segment between real processes: the same address, growth seen by others, and a visitor that is
//! killed is no visitor any more.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use common::Scene;
use mneme_space::{Registry, RemoveError, Segment};
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
