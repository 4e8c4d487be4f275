//! `cargo xtask container`: the root file system of the container image, in `target/container`.
//!
//! `packaging/container/Containerfile` builds the image where there is a builder. Here its one
//! program is built for musl, linked statically, and laid out with the image's other files. `--try`
//! runs that in a chroot as the Containerfile says: `packaging/container/try.sh`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::files::copy;
use crate::steps::{self, Outcome, run, skipped, succeeds};
use crate::workspace::Workspace;

/// Bytes that the image may have.
const LARGEST: u64 = 30 << 20;

/// Builds the program and lays the image out; where.
///
/// # Errors
/// In words, what failed or is absent.
pub fn lay_out(workspace: &Workspace) -> Outcome<PathBuf> {
    // The target that is linked statically.
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if !workspace.has_target(&target) {
        return skipped(format!("`rustup target add {target}` first"));
    }
    let mut cargo = steps::cargo();
    cargo.args(["build", "--release", "--package", "mneme"]);
    cargo.args(["--target", &target]);
    run(cargo.current_dir(&workspace.root))?;

    let root = workspace.root.join("target/container/root");
    let _ = fs::remove_dir_all(&root);
    let program = root.join("usr/bin/mneme");
    let built = workspace.root.join("target").join(target);
    copy(&built.join("release/mneme"), &program)?;
    run(Command::new("strip").arg(&program))?;
    for name in ["passwd", "group"] {
        let from = workspace.root.join("packaging/container").join(name);
        copy(&from, &root.join("etc").join(name))?;
    }
    let bytes = fs::metadata(&program).map_or(u64::MAX, |found| found.len());
    println!("{}: {bytes} bytes", root.display());
    match bytes {
        ..LARGEST => Ok(root),
        _ => Err(format!("{bytes} bytes, above {LARGEST}").into()),
    }
}

/// Lays the image out and tries it.
///
/// # Errors
/// In words, what failed; it is skipped where a chroot cannot be made.
pub fn try_image(workspace: &Workspace) -> Outcome {
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    if !succeeds(Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"])) {
        return skipped("only root makes namespaces and a chroot");
    }
    let root = lay_out(workspace)?;
    let script = workspace.root.join("packaging/container/try.sh");
    run(namespaces.arg(script).arg(root))
}
