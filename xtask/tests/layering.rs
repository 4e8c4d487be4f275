//! The layers hold in this workspace, and the check would see it if they did not.

#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::collections::BTreeSet;
use std::path::PathBuf;
use xtask::layering::{arrows, check, modules, names, rules, sources};
use xtask::workspace::{Package, Workspace};

#[test]
fn the_workspace_keeps_its_layers() {
    let workspace = Workspace::load().expect("cargo metadata");
    assert!(
        workspace.packages.len() > 3,
        "cargo metadata shows the members"
    );
    let violations = check(&workspace);
    let shown: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

fn seen(package: &str, file: &str, text: &str) -> Vec<String> {
    let violations = sources::check_text(package, file, text);
    violations.iter().map(ToString::to_string).collect()
}

fn log(text: &str) -> Vec<String> {
    seen("mneme-log", "crates/log/src/x.rs", text)
}

#[test]
fn an_upward_dependency_is_seen() {
    let messages = arrows::check(
        "mneme-sync",
        &["mneme-arena".to_owned(), "thiserror".to_owned()],
    );
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("mneme-arena"), "{messages:?}");
}

#[test]
fn a_product_crate_that_depends_on_the_papers_is_seen() {
    let package = |directory: &str, dependencies: &[&str]| Package {
        name: format!("mneme-{}", directory.rsplit('/').next().unwrap()),
        directory: PathBuf::from("/root").join(directory),
        dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        ..Package::default()
    };
    let workspace = Workspace {
        root: PathBuf::from("/root"),
        packages: vec![
            package("papers/rcx", &["mneme-sync"]),
            package("papers/rcu-peers", &["mneme-rcx"]),
            package("bench", &["mneme-log", "mneme-rcx"]),
            package("crates/log", &["mneme-sync", "mneme-rcx"]),
            package("bindings/c", &["mneme-rcu-peers"]),
        ],
    };
    let wrong = workspace.packages.iter();
    let wrong: Vec<_> = wrong
        .flat_map(|package| arrows::check_papers(package, &workspace))
        .collect();
    let named = ["`mneme-bench`", "`mneme-log`", "`mneme-c`"];
    assert_eq!(wrong.len(), named.len(), "{wrong:?}");
    assert!(
        wrong
            .iter()
            .zip(named)
            .all(|(wrong, name)| wrong.starts_with(name))
    );
}

#[test]
fn a_crate_without_a_place_is_seen() {
    assert_eq!(arrows::check("mneme-extra", &[]).len(), 1);
}

#[test]
fn the_tests_kit_is_for_tests_only() {
    let package = |dependencies: &[&str], dev_dependencies: &[&str]| Package {
        name: "mneme-log".to_owned(),
        version: String::new(),
        directory: PathBuf::new(),
        dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        dev_dependencies: dev_dependencies
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
        is_published: false,
    };
    let kit = "mneme-testkit";
    assert!(arrows::check("mneme-log", &[kit.to_owned()]).is_empty());
    assert_eq!(arrows::check_testkit(&package(&[kit], &[kit])), None);
    assert!(arrows::check_testkit(&package(&[kit], &[])).is_some());
    assert!(arrows::check_testkit(&package(&[kit, kit], &[kit])).is_some());
}

#[test]
fn a_peer_or_the_operating_system_in_the_wrong_crate_is_seen() {
    assert_eq!(arrows::check("mneme-log", &["dashmap".to_owned()]).len(), 1);
    assert_eq!(arrows::check("mneme-arena", &["libc".to_owned()]).len(), 1);
    assert!(arrows::check("mneme-sys", &["libc".to_owned()]).is_empty());
}

#[test]
fn an_upward_use_is_seen_with_its_line() {
    let found = log("use mneme_sys::Region;\n\nuse mneme_server::Server;\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("crates/log/src/x.rs:3:"), "{found:?}");
    assert_eq!(log("fn f() { mneme_space::open() }").len(), 1);
}

#[test]
fn the_clock_is_seen_however_it_is_written() {
    for text in [
        "use std::time::Instant;",
        "use std::time::{Duration, Instant as Now};",
        "use std::{fmt, time::{Duration, SystemTime}};",
        "fn f() { let _ = std::time::Instant::now(); }",
        "use core::time;\nfn f() { time::Instant::now(); }",
        "use std::time as t;\nfn f() { t::Instant::now(); }",
        "use std::time::*;",
        "macro_rules! m { () => { ::std::time::Instant::now() } }",
        "fn f() -> u64 { unsafe { core::arch::x86_64::_rdtsc() } }",
    ] {
        assert!(!log(text).is_empty(), "{text}");
    }
    assert!(log("use std::time::Duration;").is_empty());
}

#[test]
fn memory_and_cpus_from_the_operating_system_are_seen() {
    for text in [
        "fn f() { unsafe { libc::mmap(p, 1, 2, 3, -1, 0); } }",
        "use libc::sched_getcpu;",
        "fn f() { std::thread::available_parallelism(); }",
        "use std::thread;\nfn f() { thread::available_parallelism(); }",
        "unsafe extern \"C\" { fn mmap(); }",
        "fn f() { std::arch::asm!(\"rdtsc\"); }",
        "const CPUS: &str = \"/sys/devices/system/cpu/online\";",
        "fn f() { std::fs::File::open(\"x\"); }",
    ] {
        assert_eq!(log(text).len(), 1, "{text}");
    }
}

#[test]
fn an_allowance_is_for_its_file_and_its_reach_alone() {
    let text = "fn f() { unsafe { std::arch::asm!(\"nop\") } }";
    let tags = "crates/log/src/index/tags.rs";
    assert!(seen("mneme-log", tags, text).is_empty());
    assert_eq!(seen("mneme-log", tags, "use libc::mmap;").len(), 1);
    assert_eq!(
        seen("mneme-log", "crates/log/src/index/mod.rs", text).len(),
        1
    );
}

#[test]
fn printing_and_exiting_in_a_library_is_seen() {
    for text in [
        "fn f() { println!(\"x\"); }",
        "fn f() { std::eprintln!(\"x\"); }",
        "fn f() { dbg!(1); }",
        "fn f() { std::process::exit(1); }",
        "use std::process;\nfn f() { process::abort() }",
    ] {
        assert_eq!(log(text).len(), 1, "{text}");
        assert!(seen("mneme", "crates/mneme/src/main.rs", text).len() <= 1);
    }
    assert!(
        seen(
            "mneme",
            "crates/mneme/src/main.rs",
            "fn f() { println!(\"x\"); }"
        )
        .is_empty()
    );
    assert_eq!(
        seen(
            "mneme",
            "crates/mneme/src/lib.rs",
            "fn f() { println!(\"x\"); }"
        )
        .len(),
        1
    );
}

#[test]
fn tests_comments_and_words_are_left_alone() {
    for text in [
        "#[deprecated = \"std::process::exit\"] fn f() {}",
        "#[cfg(test)]\n#[error(\"{}\", mneme_server::LIMIT)]\nstruct Small;",
        "// use mneme_server::Server;\n/// println!(\"x\") of `std::time::Instant`\nfn f() {}",
        "const S: &str = \"std::time::Instant::now()\";",
        "#[cfg(test)]\nmod tests { use std::time::Instant; fn f() { println!(\"\"); } }",
        "#[cfg(all(test, not(loom)))]\nmod tests { use std::time::Instant; }",
        "#[test]\nfn f() { std::process::exit(1) }",
        "#![cfg(test)]\nuse std::time::Instant;",
        "mod fs { pub fn open() {} }\nfn f() { fs::open(); }",
        "fn f(a: bool, b: bool) -> bool { a != (b) }",
    ] {
        assert_eq!(log(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn code_beside_a_test_module_is_still_read() {
    let text = "#[cfg(test)]\nmod tests { }\nfn f() { println!(\"x\"); }\n#[cfg(not(test))]\nfn g() { dbg!(1); }";
    assert_eq!(log(text).len(), 2);
}

#[test]
fn the_machine_layer_may_and_still_may_not_print() {
    let sys = |text| seen("mneme-sys", "crates/sys/src/clock.rs", text);
    assert!(sys("use std::time::Instant; fn f() { unsafe { libc::mmap() } }").is_empty());
    assert_eq!(sys("fn f() { println!(\"x\"); }").len(), 1);
}

/// The files of the largest circle, joined by blanks.
fn circle(files: &[(&str, &str)]) -> String {
    let circle = modules::circle_of(files).unwrap();
    let files: Vec<String> = circle
        .iter()
        .map(|m| m.file.display().to_string())
        .collect();
    files.join(" ")
}

#[test]
fn files_that_depend_on_each_other_are_a_circle_in_any_notation() {
    for back in [
        "use crate::a::A;",
        "use crate::{a as first};",
        "use super::a::A;",
        "use super::*; fn f() { crate::a::f() }",
        "fn f(a: super::a::A) {}",
        "macro_rules! m { () => { $crate::a::f() } }",
        "#[error(\"at least {}\", crate::a::LEAST)] struct Small;",
    ] {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", back),
            ("c.rs", "use crate::a::A; use crate::b::B;"),
        ];
        assert_eq!(circle(&files), "a.rs b.rs", "{back}");
    }
}

#[test]
fn a_folder_and_its_children_are_files_like_others() {
    let files = [
        ("lib.rs", "mod a; use a::A;"),
        ("a/mod.rs", "mod b; use b::B;"),
        ("a/b.rs", "use super::c::C;"),
        ("a/c.rs", "use super::A;"),
    ];
    assert_eq!(circle(&files), "a/b.rs a/c.rs a/mod.rs");
}

#[test]
fn a_name_that_is_passed_on_leads_to_where_it_comes_from() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; pub(crate) use b::B;"),
        ("a.rs", "use crate::B;"),
        ("b.rs", "use std::fmt;"),
    ];
    assert_eq!(circle(&files), "");
    let back = [files[0], files[1], ("b.rs", "use crate::A;")];
    assert_eq!(circle(&back), "a.rs b.rs");
}

#[test]
fn a_glob_of_a_module_leads_to_all_that_the_module_passes_on() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod c; pub(crate) use c::C;"),
        ("a/c.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::*;"),
    ];
    assert_eq!(circle(&files), "a/c.rs b.rs");
}

#[test]
fn tests_and_names_of_variables_are_no_arrows() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;"),
        (
            "b.rs",
            "pub(crate) fn f() { let a = 1; x.a() }\n#[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
    ];
    assert_eq!(circle(&files), "");
    let files = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; use b::B;"),
        (
            "a/b.rs",
            "pub(super) struct B; pub(in super::super) struct C;",
        ),
    ];
    assert_eq!(circle(&files), "");
}

#[test]
fn a_circle_may_be_no_larger_than_allowed() {
    let member = modules::Member {
        file: "a.rs".into(),
        names: Vec::new(),
    };
    let judge = |files| modules::judge("mneme-x", &vec![member.clone(); files]);
    assert_eq!(judge(rules::LARGEST_CIRCLE), None);
    assert!(judge(9).unwrap().contains("9 files"));
}

/// What is wrong with the names of the types in these texts, a file each.
fn wrong_names(texts: [&str; 2], exceptions: &[&str]) -> Vec<String> {
    let files = [
        ("crates/log/src/a.rs", texts[0]),
        ("crates/tree/src/b.rs", texts[1]),
    ];
    let definitions = names::defined_in(&files).unwrap();
    let exceptions: BTreeSet<&str> = exceptions.iter().copied().collect();
    let violations = names::judge(&definitions, &exceptions);
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn two_types_of_one_name_that_leave_their_files_are_seen() {
    for text in [
        "pub struct Place;",
        "pub(crate) enum Place { A }",
        "mod a { pub(super) trait Place {} }",
        "pub unsafe trait Place {}",
        "pub(in crate::b) type Place = u8;",
        "pub union Place { a: u8 }",
    ] {
        let wrong = wrong_names(["\npub struct Place(u64);", text], &[]);
        assert_eq!(wrong.len(), 1, "{text}: {wrong:?}");
        assert!(
            wrong[0].starts_with("crates/tree/src/b.rs:1: `Place`"),
            "{wrong:?}"
        );
        assert!(wrong[0].contains("crates/log/src/a.rs:2"), "{wrong:?}");
        assert!(wrong_names(["pub struct Place;", text], &["Place"]).is_empty());
    }
}

#[test]
fn a_type_that_stays_in_its_file_may_have_any_name() {
    for text in [
        "struct Place;",
        "impl Iterator for A { type Place = u8; }",
        "#[cfg(test)]\nmod tests { pub struct Place; }",
        "pub use other::Place;",
        "pub fn f(place: Place) -> Place { place }",
        "pub enum Kind { Place }",
    ] {
        let wrong = wrong_names(["pub struct Place;", text], &[]);
        assert!(wrong.is_empty(), "{text}: {wrong:?}");
    }
}

#[test]
fn an_exception_for_a_name_of_one_type_is_seen() {
    let wrong = wrong_names(["pub struct Place;", "struct Place;"], &["Place"]);
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(wrong[0].contains("`Place` is the name of one type now"));
}
