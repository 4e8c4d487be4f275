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

use crate::files;
use crate::steps::{self, Outcome, failed, run};
use crate::workspace::{Package, Workspace};

/// cargo runs this as rustdoc.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// Lines of a difference that are shown.
const SHOWN: usize = 20;

/// Compares every interface with its listing, and every listing with the crates.
///
/// # Errors
/// They differ, or an interface could not be described.
pub fn check(workspace: &Workspace) -> Outcome {
    let described = document(workspace)?;
    let mut differing = Vec::new();
    for package in workspace.published() {
        let found = interface(&described, package)?;
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
        return Ok(());
    }
    let names = differing.join(", ");
    let why = format!(
        "the public interface is not the listed one: {names}; is that meant? Then \
         `cargo xtask api --write`, and commit the listings"
    );
    Err(why.into())
}

/// Lists every interface anew.
///
/// # Errors
/// In words, what could not be described or written.
pub fn write(workspace: &Workspace) -> Outcome {
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

/// The file that lists the public interface of the package of that name.
pub fn listing(workspace: &Workspace, name: &str) -> PathBuf {
    directory(workspace).join(format!("{name}.txt"))
}

/// Listings of packages that are published no more.
fn left_over(workspace: &Workspace) -> Vec<String> {
    let files = files::below(&directory(workspace), &["txt"]);
    let names = files.iter().filter_map(|file| file.file_stem()?.to_str());
    let is_published = |name: &str| workspace.published().any(|package| package.name == name);
    let names = names.filter(|name| !is_published(name));
    names.map(str::to_owned).collect()
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
fn document(workspace: &Workspace) -> Outcome<PathBuf> {
    let target = workspace.root.join("target");
    let rustdoc = target.join("rustdoc-json");
    fs::write(&rustdoc, RUSTDOC).map_err(failed("write", &rustdoc))?;
    let executable = fs::set_permissions(&rustdoc, Permissions::from_mode(0o755));
    executable.map_err(failed("make executable", &rustdoc))?;

    let mut cargo = steps::cargo();
    cargo.args(["doc", "--quiet", "--no-deps"]);
    for package in workspace.published() {
        cargo.args(["--package", &package.name]);
    }
    cargo.arg("--target-dir").arg(&target);
    cargo.current_dir(&workspace.root).env("RUSTDOC", rustdoc);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    run(&mut cargo).map(|()| target.join("doc"))
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
