//! `cargo xtask package`: every crate that may be published can be.
//!
//! A crate may be published unless its manifest says `publish = false`. It is packed by cargo,
//! which refuses a dependency without a version; with `--verify` it is also built from what was
//! packed, as users of a registry will build it. What a registry shows of it is
//! checked here.

use std::process::Command;

use crate::steps::{self, Outcome, run};
use crate::workspace::{Package, Workspace};

/// Files that lie beside the manifest of a published crate.
const FILES: &[&str] = &["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Lines that its manifest has.
const KEYS: &[&str] = &[
    "description",
    "license",
    "keywords",
    "categories",
    "documentation",
    "readme",
    "rust-version",
];

/// Packs the crates.
///
/// # Errors
/// One cannot be published.
pub fn check(workspace: &Workspace) -> Outcome {
    let missing: Vec<_> = workspace.published().flat_map(missing).collect();
    for what in &missing {
        println!("{what}");
    }
    if !missing.is_empty() {
        return Err(format!("{} thing(s) missing", missing.len()).into());
    }
    run(pack(workspace).arg("--no-verify"))
}

/// Packs the crates and builds each from what was packed.
///
/// # Errors
/// One cannot be published, or built.
pub fn verify(workspace: &Workspace) -> Outcome {
    check(workspace)?;
    run(&mut pack(workspace))
}

fn pack(workspace: &Workspace) -> Command {
    let mut cargo = steps::cargo();
    cargo.args(["package", "--quiet", "--allow-dirty"]);
    for package in workspace.published() {
        cargo.args(["--package", &package.name]);
    }
    cargo.current_dir(&workspace.root);
    cargo
}

/// What a crate lacks for a registry, in words.
fn missing(package: &Package) -> Vec<String> {
    let manifest = package.directory.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap_or_default();
    let has = |key: &str| {
        let begins = |line: &str| {
            let rest = line.strip_prefix(key);
            rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
        };
        text.lines().any(begins)
    };
    let keys = KEYS.iter().filter(|key| !has(key));
    let keys = keys.map(|key| format!("{} says no {key}", manifest.display()));
    let files = FILES.iter().map(|name| package.directory.join(name));
    let files = files.filter(|file| !file.is_file());
    keys.chain(files.map(|file| format!("there is no {}", file.display())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_published_and_all_else_is_not() {
        let workspace = Workspace::load().unwrap();
        let published: Vec<_> = workspace.published().map(|p| p.name.as_str()).collect();
        for name in ["mneme", "mneme-log", "mneme-space-derive", "mneme-sys"] {
            assert!(published.contains(&name), "{name}");
        }
        for name in [
            "mneme-bench",
            "mneme-c",
            "mneme-paper-bench",
            "mneme-python",
            "mneme-testkit",
            "xtask",
        ] {
            assert!(!published.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_crate_that_says_nothing_lacks_everything() {
        let mut workspace = Workspace::load().unwrap();
        let of = |workspace: &Workspace| missing(workspace.package("mneme-log").unwrap());
        assert_eq!(of(&workspace), [""; 0]);
        for package in &mut workspace.packages {
            package.directory = package.directory.join("src");
        }
        assert_eq!(of(&workspace).len(), KEYS.len() + FILES.len());
    }
}
