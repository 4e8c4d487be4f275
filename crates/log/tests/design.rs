//! `docs/design/log.md` describes the store as it is: its present format, and existing tests,
//! models and fault points.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mneme_log::FORMAT;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    fs::read_to_string(crates().join("../docs/design/log.md")).unwrap()
}

/// The texts between backquotes.
fn spans(page: &str) -> BTreeSet<&str> {
    page.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

fn is_name(part: &str) -> bool {
    let of_names = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    !part.is_empty() && part.chars().all(of_names)
}

/// Appends all sources in `folder` to `text`.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_page_describes_the_present_format() {
    let page = page();
    for said in [
        format!("Format of a store's region: **{FORMAT}**"),
        format!("| 8 | 1 | format: {FORMAT} |"),
    ] {
        assert!(
            page.contains(&said),
            "docs/design/log.md does not say {said:?}: bring its tables up to date"
        );
    }
}

#[test]
fn every_fault_point_on_the_page_exists() {
    let layers = ["log", "index", "compact", "evict", "txn", "arena", "sync"];
    let mut text = String::new();
    for krate in ["log", "arena", "sync"] {
        read_sources(&crates().join(krate).join("src"), &mut text);
    }
    let page = page();
    let mut found = 0;
    for span in spans(&page) {
        let parts: Vec<&str> = span.split('.').collect();
        let is_point = parts.len() > 1
            && layers.contains(&parts[0])
            && parts.iter().all(|part| is_name(part) && *part != "rs");
        if is_point {
            assert!(
                text.contains(&format!("fault!(\"{span}\")")),
                "there is no fault point {span}"
            );
            found += 1;
        }
    }
    assert!(found > 50, "{found} fault points");
}

/// `module::test` is a test of this crate, `sync::module::test`, `arena::module::test` and
/// `collections::module::test` of those; a module is a file of `tests` or of `src`.
#[test]
fn every_test_on_the_page_exists() {
    let page = page();
    let mut found = 0;
    for span in spans(&page) {
        let mut parts: Vec<&str> = span.split("::").collect();
        if parts.len() < 2 || !parts.iter().all(|part| is_name(part)) {
            continue;
        }
        let krate = match parts[0] {
            krate @ ("sync" | "arena") => {
                parts.remove(0);
                krate
            }
            // This crate has a module of that name.
            krate @ "collections" if parts.len() > 2 => {
                parts.remove(0);
                krate
            }
            _ => "log",
        };
        let name = parts.pop().unwrap();
        let module = parts.join("/");
        let exists = ["tests", "src"].iter().any(|folder| {
            let file = crates().join(krate).join(folder).join(&module);
            fs::read_to_string(file.with_extension("rs"))
                .is_ok_and(|text| text.contains(&format!("fn {name}(")))
        });
        assert!(exists, "there is no test {span}");
        found += 1;
    }
    assert!(found > 100, "{found} tests");
}
