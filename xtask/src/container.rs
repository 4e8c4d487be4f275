//! `cargo xtask container`: the root file system of the container image, in `target/container`.
//!
//! `packaging/container/Containerfile` builds the image where there is a builder. Here its one
//! program is built for musl, linked statically, and laid out with the image's other files. `--try`
//! runs that in a chroot as the Containerfile says: `packaging/container/try.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{Outcome, run, succeeds};
use crate::workspace::Workspace;

/// Bytes that the image may have.
const LARGEST: u64 = 30 << 20;

/// `cargo xtask container [--try]`.
///
/// # Errors
/// In words, for other flags, or what failed or is absent.
pub fn run_all(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let outcome = match arguments {
        [] => lay_out(workspace).map_or_else(|outcome| outcome, |_| Outcome::Passed),
        [flag] if flag == "--try" => try_image(workspace),
        _ => {
            return Err(format!(
                "`container` has no flags `{}`",
                arguments.join(" ")
            ));
        }
    };
    outcome.answer()
}

/// The target that is linked statically.
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

fn lay_out(workspace: &Workspace) -> Result<PathBuf, Outcome> {
    let target = target();
    if !workspace.has_target(&target) {
        return Err(Outcome::Skipped(format!(
            "`rustup target add {target}` first"
        )));
    }
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--release",
        "--package",
        "mneme",
        "--target",
        &target,
    ]);
    run(cargo.current_dir(&workspace.root)).passed()?;

    let root = workspace.root.join("target/container/root");
    let _ = fs::remove_dir_all(&root);
    let program = root.join("usr/bin/mneme");
    let built = workspace
        .root
        .join("target")
        .join(target)
        .join("release/mneme");
    copy(&built, &program).map_err(Outcome::Failed)?;
    run(Command::new("strip").arg(&program)).passed()?;
    for name in ["passwd", "group"] {
        let from = workspace.root.join("packaging/container").join(name);
        copy(&from, &root.join("etc").join(name)).map_err(Outcome::Failed)?;
    }
    let bytes = fs::metadata(&program).map_or(u64::MAX, |found| found.len());
    println!("{}: {bytes} bytes", root.display());
    match bytes {
        ..LARGEST => Ok(root),
        _ => Err(Outcome::Failed(format!("{bytes} bytes, above {LARGEST}"))),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| {
        format!(
            "cannot copy {} to {}: {error}",
            from.display(),
            to.display()
        )
    };
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::copy(from, to).map_err(failed)?;
    Ok(())
}

/// Lays the image out and tries it; skipped where a chroot cannot be made.
pub fn try_image(workspace: &Workspace) -> Outcome {
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    if !succeeds(Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"])) {
        return Outcome::Skipped("only root makes namespaces and a chroot".to_owned());
    }
    match lay_out(workspace) {
        Ok(root) => {
            let script = workspace.root.join("packaging/container/try.sh");
            run(namespaces.arg(script).arg(root))
        }
        Err(outcome) => outcome,
    }
}
