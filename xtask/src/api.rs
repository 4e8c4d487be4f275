//! `cargo xtask api`: the public interface of each published crate is what its listing in
//! `xtask/public-api` says.
//!
//! The listing has a line for each public item, by path, with its signature. A change of an
//! interface is thus seen in review; `--write` accepts it. rustdoc describes the crates as JSON,
//! and `public-api` reads that. Only rustdoc runs with unstable options, not the compiler, so
//! that nothing is built anew for it, and the toolchain is the one that builds everything else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{Outcome, failed, run};
use crate::workspace::{Package, Workspace};

/// cargo runs this as rustdoc.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// Lines of a difference that are shown.
const SHOWN: usize = 20;

/// `cargo xtask api [--write]`.
///
/// # Errors
/// In words, for other flags, or what could not be described or written.
pub fn run_all(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    match arguments {
        [] => check(workspace).answer(),
        [flag] if flag == "--write" => write(workspace).map(|()| true),
        _ => Err(format!("`api` has no flags `{}`", arguments.join(" "))),
    }
}

/// Compares every interface with its listing, and every listing with the crates.
pub fn check(workspace: &Workspace) -> Outcome {
    let described = match document(workspace) {
        Ok(described) => described,
        Err(why) => return Outcome::Failed(why),
    };
    let mut differing = Vec::new();
    for package in workspace.published() {
        let found = match interface(&described, package) {
            Ok(found) => found,
            Err(why) => return Outcome::Failed(why),
        };
        let listed = fs::read_to_string(listing(workspace, &package.name)).unwrap_or_default();
        let difference = difference(&listed, &found);
        if !difference.is_empty() {
            println!("{}: {} line(s) differ", package.name, difference.len());
            for line in difference.iter().take(SHOWN) {
                println!("    {line}");
            }
            differing.push(package.name.clone());
        }
    }
    differing.extend(left_over(workspace));
    if differing.is_empty() {
        return Outcome::Passed;
    }
    let names = differing.join(", ");
    Outcome::Failed(format!(
        "the public interface is not the listed one: {names}; is that meant? Then \
         `cargo xtask api --write`, and commit the listings"
    ))
}

fn write(workspace: &Workspace) -> Result<(), String> {
    for name in left_over(workspace) {
        let file = listing(workspace, &name);
        fs::remove_file(&file).map_err(failed("remove", &file))?;
    }
    let described = document(workspace)?;
    for package in workspace.published() {
        let file = listing(workspace, &package.name);
        fs::write(&file, interface(&described, package)?).map_err(failed("write", &file))?;
    }
    Ok(())
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.root.join("xtask/public-api")
}

fn listing(workspace: &Workspace, name: &str) -> PathBuf {
    directory(workspace).join(format!("{name}.txt"))
}

/// Listings of packages that are published no more.
fn left_over(workspace: &Workspace) -> Vec<String> {
    let files = fs::read_dir(directory(workspace)).into_iter().flatten();
    let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let is_published = |name: &String| workspace.published().any(|package| package.name == *name);
    names.filter(|name| !is_published(name)).collect()
}

/// The public interface of a crate with its default features, one item a line, from the folder of
/// what [`document`] made.
fn interface(described: &Path, package: &Package) -> Result<String, String> {
    let json = described.join(package.name.replace('-', "_") + ".json");
    let interface = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let interface = interface.map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(interface.items().map(|item| format!("{item}\n")).collect())
}

/// Has rustdoc describe the published crates as JSON, and returns the folder of the files. All at
/// once: one by one, their dependencies would have other features, and be compiled anew.
fn document(workspace: &Workspace) -> Result<PathBuf, String> {
    let target = workspace.root.join("target");
    let rustdoc = target.join("rustdoc-json");
    fs::write(&rustdoc, RUSTDOC).map_err(failed("write", &rustdoc))?;
    let executable = fs::set_permissions(&rustdoc, Permissions::from_mode(0o755));
    executable.map_err(failed("make executable", &rustdoc))?;

    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--quiet", "--no-deps"]);
    for package in workspace.published() {
        cargo.args(["--package", &package.name]);
    }
    cargo.arg("--target-dir").arg(&target);
    cargo.current_dir(&workspace.root).env("RUSTDOC", rustdoc);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    run(&mut cargo).answer().map(|_| target.join("doc"))
}

/// The lines of one text that the other has not, with `-` and `+`.
fn difference(listed: &str, found: &str) -> Vec<String> {
    let missing = |lines: &str, in_which: &str, sign: char| -> Vec<String> {
        let lines = lines.lines();
        let lines = lines.filter(|line| !in_which.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    let mut lines = missing(listed, found, '-');
    lines.extend(missing(found, listed, '+'));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_an_item_less_and_an_item_more() {
        let listed = "pub fn a::b()\npub fn a::c()\n";
        assert!(difference(listed, listed).is_empty());
        assert_eq!(
            difference(listed, "pub fn a::b(u8)\npub fn a::c()\n"),
            ["- pub fn a::b()", "+ pub fn a::b(u8)"]
        );
    }
}
