//! `mneme space`; each test has a registry of its own.

use crate::common::Registry;
use mneme_space::Space;

fn with_segments(test: &str, names: &[&str]) -> Registry {
    let registry = Registry::new("space", test);
    for name in names {
        let (code, _, error) = registry.run_as("segment", &["create", name]);
        assert_eq!(code, Some(0), "{error}");
    }
    registry
}

#[test]
fn a_space_is_created_filled_shown_cloned_and_removed() {
    let registry = with_segments("life", &["a", "b", "c"]);
    assert!(registry.done(&["ls"]).starts_with("no spaces"));
    assert!(
        registry
            .done(&["create", "w", "--mode", "640"])
            .contains("640")
    );
    registry.done(&["add", "w", "a", "b", "--read-only"]);
    assert!(registry.done(&["add", "w", "c"]).contains("c read-write"));
    let shown = registry.json(&["show", "w", "--json"]);
    assert_eq!(
        (&shown["version"], &shown["mode"]),
        (&4.into(), &"640".into())
    );
    let members = shown["members"].as_array().unwrap();
    let rights: Vec<_> = members.iter().map(|m| (&m["name"], &m["access"])).collect();
    let expected = [("a", "read-only"), ("b", "read-only"), ("c", "read-write")];
    for (found, (name, access)) in rights.iter().zip(expected) {
        assert!(found.0 == name && found.1 == access, "{shown}");
    }
    registry.done(&["access", "w", "a", "read-write"]);
    registry.done(&["clone", "w", "v"]);
    registry.done(&["remove", "w", "b", "c"]);
    let list = registry.done(&["ls"]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[1].starts_with("v ") && lines[1].ends_with("a b c"),
        "{list}"
    );
    assert!(
        lines[2].starts_with("w ") && lines[2].ends_with("  a"),
        "{list}"
    );
    let clone = registry.json(&["show", "v", "--json"]);
    assert_eq!(clone["cloned_from"], shown["uuid"]);
    assert_eq!(clone["members"][0]["access"], "read-write");
    assert!(
        registry
            .done(&["check", "w"])
            .ends_with("0 thing(s) found\n")
    );
    registry.done(&["rm", "w", "v"]);
    assert_eq!(registry.json(&["ls", "--json"]), serde_json::json!([]));
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let registry = with_segments("refused", &["a"]);
    registry.run_as("segment", &["clone", "a", "a@monday"]);
    registry.run_as("segment", &["create", "f", "--floating"]);
    registry.done(&["create", "w"]);
    registry.done(&["add", "w", "a"]);
    for (arguments, words) in [
        (&["create", "w"][..], "already"),
        (&["create", "a/b"], "slashes"),
        (&["add", "w", "a"], "member already"),
        (&["add", "w", "a@monday"], "overlaps the member"),
        (&["add", "w", "f"], "no address"),
        (&["add", "w", "b"], "no segment"),
        (&["add", "x", "a"], "no space"),
        (&["remove", "w", "b"], "not a member"),
        (&["access", "w", "b", "read-only"], "not a member"),
        (&["access", "w", "a", "often"], "read-only, read-write"),
        (&["show", "x"], "no space"),
        (&["clone", "w", "w"], "already"),
        (&["rm", "x"], "no space"),
        (&["check", "x"], "no space"),
    ] {
        let refused = registry.refused(arguments);
        assert!(refused.contains(words), "{arguments:?}: {refused}");
    }
    let attached = mneme_space::Registry::open(&registry.root).unwrap();
    let attached = Space::open(&attached, "w").unwrap().attach().unwrap();
    // Its segments cannot be removed while they are mapped.
    let (code, _, error) = registry.run_as("segment", &["rm", "a"]);
    assert!(code == Some(1) && error.contains("mapped"), "{error}");
    drop(attached);
}

#[test]
fn stale_members_and_damage_are_listed_beside_the_others() {
    let registry = with_segments("stale", &["a", "b"]);
    registry.done(&["create", "w"]);
    registry.done(&["create", "bad"]);
    registry.done(&["add", "w", "a", "b"]);
    registry.run_as("segment", &["rm", "a", "b"]);
    registry.run_as("segment", &["create", "b"]);
    let meta = registry.root.join("spaces/bad/meta");
    std::fs::write(&meta, b"{").unwrap();
    let shown = registry.done(&["show", "w"]);
    assert!(
        shown.contains("no segment") && shown.contains("stale"),
        "{shown}"
    );
    let list = registry.done(&["ls"]);
    assert!(list.contains("a b") && list.contains("damaged"), "{list}");
    let found = registry.json(&["check", "--json"]);
    assert_eq!(found.as_array().unwrap().len(), 3, "{found}");
    let found = registry.json(&["check", "w", "--json"]);
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    registry.done(&["rm", "bad"]);
}
