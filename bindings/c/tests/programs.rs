//! Programs in C and C++, real ones: compiled without a warning, linked in both ways, run as
//! processes of their own.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::os::unix::process::ExitStatusExt;

use common::{Link, Scene, compiler, home};

const BOTH: [Link; 2] = [Link::Shared, Link::Static];

/// What is printed in the papers compiles, and does what they say.
#[test]
fn the_programs_of_the_papers_figures_run() {
    let Some(cc) = compiler("") else { return };
    for link in BOTH {
        let scene = Scene::new();
        let build = |name: &str| scene.build(&cc, &home().join("examples").join(name), link);
        assert_eq!(build("figure4.c").says(&[]), "42 at its address\n");
        assert_eq!(build("alice.c").says(&[]), "shared\n");
        let bob = build("bob.c");
        for _ in 0..2 {
            assert_eq!(bob.says(&[]), "hello, Bob: Bob\n");
        }
        // There is one Alice.
        let again = build("alice.c").run(&[]);
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("already"));
    }
}

#[test]
fn a_list_is_there_in_the_next_run() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let list = scene.build(&cc, &home().join("examples/list.c"), Link::Shared);
    assert_eq!(list.says(&["one", "two"]), "one\ntwo\n");
    assert_eq!(list.says(&[]), "one\ntwo\n");
    let same = scene.build(&cc, &home().join("examples/list.c"), Link::Static);
    assert_eq!(same.says(&["three"]), "one\ntwo\nthree\n");
}

#[test]
fn an_argument_in_the_wrong_place_is_an_error() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let misuse = scene.build(&cc, &home().join("tests/c/misuse.c"), Link::Shared);
    misuse.says(&[]);
}

/// However a program ends in the middle of a change, the next one gets an error, and can begin anew
/// or go on.
#[test]
fn a_program_that_ends_inside_poisons_what_it_could_change() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let program = scene.build(&cc, &home().join("tests/c/deaths.c"), Link::Shared);
    program.says(&["make"]);
    assert_eq!(program.says(&["look"]), "whole, without a root\n");
    // A forked child's end is nobody's; a reader's leaves nothing half done.
    program.says(&["fork"]);
    assert_eq!(program.says(&["look"]), "whole, with a root\n");
    assert_eq!(program.run(&["reader"]).status.signal(), Some(9));
    assert_eq!(program.says(&["look"]), "whole, with a root\n");

    assert_eq!(program.run(&["kill"]).status.signal(), Some(9));
    for _ in 0..2 {
        assert_eq!(program.says(&["look"]), "poisoned\n");
    }
    program.says(&["rebuild"]);
    assert_eq!(program.says(&["look"]), "whole, without a root\n");

    for how in ["exit", "thread", "kill"] {
        assert_eq!(program.run(&[how]).status.success(), how != "kill");
        assert_eq!(program.says(&["look"]), "poisoned\n", "{how}");
        program.says(&["accept"]);
        assert!(program.says(&["look"]).starts_with("whole"), "{how}");
    }
}

/// Sections exclude each other between the threads of two processes.
#[test]
fn threads_and_processes_take_turns() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let program = scene.build(&cc, &home().join("tests/c/threads.c"), Link::Shared);
    assert_eq!(program.says(&["make"]), "0\n");
    let mut both = [(); 2].map(|()| program.command(&[]).spawn().unwrap());
    for process in &mut both {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(program.says(&["look"]), "12000\n");
    // The holder of a lock keeps others waiting until their timeout, no longer.
    program.says(&["wait"]);
}

#[test]
fn the_header_is_cplusplus_too() {
    let Some(cxx) = compiler("++") else { return };
    let scene = Scene::new();
    let program = scene.build(&cxx, &home().join("tests/c/plus.cpp"), Link::Shared);
    assert_eq!(program.says(&[]), "s\n");
}

/// A typed root, set by a Rust program, is not returned to a C program, and the other way round.
#[test]
fn roots_of_rust_and_of_c_are_kept_apart() {
    use mneme_space::{Attachment, HeapError, Schema, Segment};
    struct Number;
    impl Schema for Number {
        type Root<'s> = u64;
    }
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    scene
        .build(&cc, &home().join("examples/alice.c"), Link::Shared)
        .says(&[]);
    let segment = Segment::open(&scene.registry(), "data").unwrap();
    let at = Attachment::new([(&segment, mneme_sys::Access::ReadWrite)]).unwrap();
    at.enter(|here| {
        let asked = here.root::<Number>("data").map(|_| ());
        assert!(matches!(asked, Err(HeapError::Layout { .. })));
    })
    .unwrap();
    at.rebuild("data").unwrap();
    at.enter(|here| *here.create_root::<Number>("data", |_| 7).unwrap())
        .unwrap();
    drop(at);
    let bob = scene.build(&cc, &home().join("examples/bob.c"), Link::Shared);
    let refused = bob.run(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("layout"));
}
