//! `mneme segment`; each test has a registry of its own.

use std::path::PathBuf;
use std::process::Command;

use crate::common::Registry;
use mneme_space::{Attachment, Contents, Parts, Segment};
use mneme_sys::{Access, RegionHeader};

#[test]
fn a_segment_is_created_shown_grown_cloned_and_removed() {
    let registry = Registry::new("segment", "life");
    assert!(registry.done(&["ls"]).starts_with("no segments"));
    let made = registry.done(&[
        "create",
        "genome",
        "--size",
        "4mb",
        "--max-size",
        "64mb",
        "--mode",
        "640",
    ]);
    assert!(made.contains("4.0 MiB") && made.contains("640"), "{made}");
    // A reader without write permission could corrupt the lock.
    assert!(made.contains("\nwarning "), "{made}");
    let shown = registry.json(&["show", "genome", "--json"]);
    assert_eq!(
        (shown["size"].as_u64(), shown["max_size"].as_u64()),
        (Some(4 << 20), Some(64 << 20))
    );
    assert_eq!(shown["mode"], "640");
    assert_eq!(shown["base"].as_u64().unwrap() % (1 << 30), 0);
    let data = PathBuf::from(shown["data"].as_str().unwrap());
    assert_eq!(std::fs::metadata(&data).unwrap().len(), 4 << 20);

    assert!(
        registry
            .done(&["grow", "genome", "8mb"])
            .contains("8.0 MiB")
    );
    registry.done(&["clone", "genome", "genome@monday"]);
    registry.done(&["create", "log", "--floating"]);
    let list = registry.done(&["ls"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 4, "{list}");
    assert!(
        lines[1].starts_with("genome ")
            && lines[1].contains("8.0 MiB")
            && lines[1].contains("whole")
    );
    let clone = registry.json(&["show", "genome@monday", "--json"]);
    assert_eq!(
        (&clone["cloned_from"], &clone["base"]),
        (&shown["uuid"], &shown["base"])
    );
    assert!(registry.json(&["show", "log", "--json"])["base"].is_null());

    assert!(registry.done(&["check"]).ends_with("0 thing(s) found\n"));
    assert!(
        registry
            .done(&["check", "genome"])
            .ends_with("0 thing(s) found\n")
    );
    registry.done(&["rm", "genome", "log"]);
    assert!(!data.exists());
    assert_eq!(
        registry.json(&["ls", "--json"]).as_array().unwrap().len(),
        1
    );
}

#[test]
fn data_without_a_name_is_imported() {
    let registry = Registry::new("segment", "import");
    let made = registry.done(&["create", "s", "--mode", "600"]);
    assert!(!made.contains("warning"), "{made}");
    let shown = registry.json(&["show", "s", "--json"]);
    let data = shown["data"].as_str().unwrap();
    std::fs::remove_dir_all(registry.root.join("segments/s")).unwrap();
    registry.done(&["import", data, "found"]);
    let found = registry.json(&["show", "found", "--json"]);
    for same in ["uuid", "base", "mode", "poisoned"] {
        assert_eq!(found[same], shown[same]);
    }
    assert!(
        registry
            .refused(&["import", data, "twice"])
            .contains("has the data")
    );
    registry.done(&["import"]);
    registry.done(&["rm", "found"]);
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let registry = Registry::new("segment", "refused");
    registry.done(&["create", "a"]);
    assert!(registry.refused(&["create", "a"]).contains("already"));
    assert!(registry.refused(&["create", "a/b"]).contains("slashes"));
    assert!(
        registry
            .refused(&["create", &"n".repeat(300)])
            .contains("at most 200 bytes")
    );
    assert!(
        registry
            .refused(&["create", "b", "--base", "0x1234"])
            .contains("0x1234")
    );
    assert!(
        registry
            .refused(&["create", "b", "--size", "1000tb"])
            .contains("impossible")
    );
    assert!(
        registry
            .refused(&["create", "b", "--backing", "file:/no/such/place"])
            .contains("/no/such/place")
    );
    assert!(registry.refused(&["grow", "a", "2gb"]).contains("grow"));
    assert!(registry.refused(&["show", "b"]).contains("no segment"));
    assert!(registry.refused(&["clone", "a", "a"]).contains("already"));
    assert!(registry.refused(&["rm", "b"]).contains("no segment"));
    assert!(registry.refused(&["check", "b"]).contains("no segment"));
    assert_eq!(
        registry.json(&["ls", "--json"]).as_array().unwrap().len(),
        1
    );
}

#[test]
fn a_damaged_segment_is_listed_with_its_reason_beside_the_others() {
    let registry = Registry::new("segment", "damaged");
    registry.done(&["create", "good"]);
    registry.done(&["create", "bad"]);
    let meta = registry.root.join("segments/bad/meta");
    let whole = std::fs::read(&meta).unwrap();
    std::fs::write(&meta, &whole[..whole.len() / 2]).unwrap();
    let list = registry.done(&["ls"]);
    assert!(
        list.lines()
            .any(|line| line.starts_with("good") && line.ends_with("whole")),
        "{list}"
    );
    assert!(
        list.lines()
            .any(|line| line.starts_with("bad") && line.contains("damaged")),
        "{list}"
    );
    let found = registry.json(&["check", "--json"]);
    let bad = |finding: &serde_json::Value| finding["path"].as_str().unwrap().contains("bad");
    assert!(found.as_array().unwrap().iter().any(bad), "{found}");
    std::fs::write(&meta, &whole).unwrap();
}

#[test]
fn a_segment_of_another_crate_is_listed_with_its_kind() {
    let registry = Registry::new("segment", "laid-out");
    let toy = Contents {
        kind: "toy box",
        magic: *b"MnemeToy",
        format: 1,
        layout_hash: 2,
    };
    // Creates a segment with a header and an empty control file.
    let lay_out = |parts: Parts| {
        let header = RegionHeader::new(toy.magic, toy.format, toy.layout_hash, &parts.data)?;
        let uuid = parts.uuid.to_bytes();
        let written = RegionHeader { uuid, ..header }.write(&parts.data);
        Ok::<_, Box<dyn std::error::Error>>(written?)
    };
    let opened = mneme_space::Registry::open(&registry.root).unwrap();
    let made = opened.segment("toys").create_with(&toy, 4096, lay_out);
    made.unwrap();
    registry.done(&["create", "heap"]);
    registry.done(&["create", "plain", "--floating"]);

    let list = registry.done(&["ls"]);
    for (name, holds) in [("toys", "toy box"), ("heap", "heap"), ("plain", "bytes")] {
        let is_said = |line: &str| line.starts_with(name) && line.contains(holds);
        assert!(list.lines().any(is_said), "{list}");
        let shown = registry.json(&["show", name, "--json"]);
        assert_eq!(shown["contents"], holds);
    }
    assert!(registry.done(&["show", "toys"]).contains("toy box"));
    let checked = registry.done(&["check", "toys"]);
    assert!(checked.starts_with("toys: toy box, whole"), "{checked}");
    assert!(checked.contains("it is not made anew"), "{checked}");
    for refused in [
        &["grow", "toys", "8mb"][..],
        &["clone", "toys", "more"],
        &["unstick", "toys"],
    ] {
        let said = registry.refused(refused);
        assert!(said.contains("holds a toy box"), "{said}");
    }
    registry.done(&["rm", "toys"]);
}

/// A program that attaches the segment and panics in the middle of a change.
fn poison(registry: &Registry, name: &str) {
    let attached = attach(registry, name);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        attached.enter(|_| panic!("half-way")).unwrap();
    }));
    assert!(panicked.is_err());
}

fn attach(registry: &Registry, name: &str) -> Attachment {
    let registry = mneme_space::Registry::open(&registry.root).unwrap();
    let segment = Segment::open(&registry, name).unwrap();
    Attachment::new([(&segment, Access::ReadWrite)]).unwrap()
}

#[test]
fn an_inaccessible_segment_names_the_reason_and_is_recovered() {
    let registry = Registry::new("segment", "unstick");
    registry.done(&["create", "s"]);
    registry.done(&["create", "other"]);
    registry.done(&["clone", "s", "s@monday"]);
    assert!(registry.done(&["unstick", "s"]).contains("is whole"));
    let refused = registry.refused(&["unstick", "s", "--rebuild"]);
    assert!(refused.contains("nothing was done"), "{refused}");

    for (how, clone) in [
        ("--accept", None),
        ("--rebuild", None),
        ("--from", Some("s@monday")),
    ] {
        poison(&registry, "s");
        assert!(registry.done(&["unstick", "s"]).contains("poisoned"));
        assert!(registry.done(&["ls"]).contains("poisoned"));
        let refused = registry.refused(&["unstick", "s", "--from", "other"]);
        assert!(refused.contains("same address"), "{refused}");
        let words = ["unstick", "s", "--json", how];
        let mended = registry.json(&words.into_iter().chain(clone).collect::<Vec<_>>());
        assert_eq!(mended["state"], "whole");
        assert_eq!(mended["recovered"], how.trim_start_matches('-'));
    }
    let both = registry.refused(&["unstick", "s", "--accept", "--rebuild"]);
    assert!(both.contains("cannot be used with"), "{both}");

    let attached = attach(&registry, "s");
    let held = attached.enter(|_| registry.json(&["unstick", "s", "--json"]));
    let held = held.unwrap();
    assert_eq!(held["state"], "held");
    assert_eq!(held["pid"], std::process::id());
    assert_eq!(held["changes"], true);
    let held = attached.read(|_| registry.done(&["unstick", "s"])).unwrap();
    assert!(
        held.contains("is reading") && held.contains("kill -CONT"),
        "{held}"
    );
}

#[test]
fn shells_get_completions() {
    let output = Command::new(env!("CARGO_BIN_EXE_mneme"))
        .args(["completions", "bash"])
        .output()
        .unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(
        ["segment", "space", "doctor", "unstick"]
            .iter()
            .all(|word| script.contains(word))
    );
}

#[test]
fn a_reader_that_leaves_ends_a_command_without_a_panic() {
    let registry = Registry::new("segment", "unheard");
    registry.done(&["create", "a"]);
    let commands: [&[&str]; 10] = [
        &["segment", "ls"],
        &["segment", "ls", "--json"],
        &["segment", "show", "a"],
        &["segment", "show", "a", "--json"],
        &["segment", "check"],
        &["segment", "unstick", "a"],
        &["space", "ls"],
        &["doctor"],
        &["doctor", "--json"],
        &["completions", "bash"],
    ];
    for arguments in commands {
        let (unread, written) = std::io::pipe().unwrap();
        drop(unread);
        let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
        command.args(arguments).env("MNEME_DIR", &registry.root);
        let output = command.stdout(written).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
    }
    // A closed standard error does not matter either.
    let (unread, written) = std::io::pipe().unwrap();
    drop(unread);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
    command.args(["segment", "show", "b"]);
    command.env("MNEME_DIR", &registry.root).stderr(written);
    assert_eq!(command.status().unwrap().code(), Some(1));
}
