//! `cargo xtask python`, `wheel` and `python-bench`: the module `mneme` for Python, tested, packed
//! and measured.
//!
//! The tests need `python3` and nothing else: the extension is built by cargo and laid beside the
//! package's Python files, in `target/debug/python`. The wheel is built by maturin, in a virtual
//! environment outside of the repository, and tried in another one, with numpy and pyarrow where
//! pip can have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built;
use crate::files::{self, copy};
use crate::steps::{Outcome, failed, run, skipped, succeeds};
use crate::workspace::Workspace;

/// Bytes that a wheel may have.
const LARGEST_WHEEL: u64 = 5 << 20;

/// The oldest Python that the wheel is for.
const CHECK_VERSION: &str = "import sys; sys.exit(sys.version_info < (3, 9))";

/// Builds the module and runs its tests.
///
/// # Errors
/// In words, what failed or is absent.
pub fn check(workspace: &Workspace) -> Outcome {
    let Some(python) = interpreter() else {
        return skipped("there is no python3, of 3.9 or later");
    };
    let staged = stage(workspace, &build(workspace)?)?;
    run(tests(workspace, python).env("PYTHONPATH", staged))
}

/// The interpreter that runs the tests: one that has numpy if there is one, because the tests of
/// arrays are skipped without it. A distribution's numpy is the system's own Python's.
fn interpreter() -> Option<&'static str> {
    let candidates = ["python3", "/usr/bin/python3"];
    let runs = |python: &str, code| succeeds(Command::new(python).args(["-c", code]));
    let usable = || {
        candidates
            .into_iter()
            .filter(|python| runs(python, CHECK_VERSION))
    };
    let with_numpy = usable().find(|python| runs(python, "import numpy"));
    with_numpy.or_else(|| usable().next())
}

/// Builds the extension; where it lies.
fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let built = built::libraries(workspace)?;
    let mut files = built.into_iter().flat_map(|built| built.files);
    let found = files.find(|file| file.ends_with("lib_mneme.so"));
    found.ok_or_else(|| "no lib_mneme.so was built".to_owned())
}

/// The tests, to be run by that interpreter.
fn tests(workspace: &Workspace, python: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(python);
    command.args(["-X", "faulthandler", "-m", "unittest", "discover", "-s"]);
    command.arg(directory(workspace).join("tests"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(&workspace.root);
    command
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.root.join("bindings/python")
}

/// The package as it is installed: Python's files, and the extension beside them.
fn stage(workspace: &Workspace, built: &Path) -> Result<PathBuf, String> {
    let staged = built.with_file_name("python");
    let package = staged.join("mneme");
    let sources = directory(workspace).join("python/mneme");
    for entry in fs::read_dir(&sources).map_err(failed("read", &sources))? {
        let path = entry.map_err(failed("read", &sources))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            copy(&path, &package.join(name))?;
        }
    }
    copy(built, &package.join("_mneme.abi3.so"))?;
    Ok(staged)
}

/// Builds the wheel, says how large it is, installs it elsewhere and runs the tests with it.
///
/// # Errors
/// In words, what failed; it is skipped where there is no virtual environment or no maturin.
pub fn check_wheel(workspace: &Workspace) -> Outcome {
    let place = std::env::temp_dir().join(format!("mneme-wheel-{}", std::process::id()));
    let outcome = build_and_try(workspace, &place);
    let _ = fs::remove_dir_all(&place);
    outcome
}

fn build_and_try(workspace: &Workspace, place: &Path) -> Outcome {
    let wheel = build_wheel(workspace, place)?;
    let bytes = fs::metadata(&wheel).map_or(u64::MAX, |found| found.len());
    println!("{}: {bytes} bytes", wheel.display());
    if bytes > LARGEST_WHEEL {
        return Err(format!("the wheel has {bytes} bytes, above {LARGEST_WHEEL}").into());
    }
    let python = install(&wheel, &place.join("try"), &["numpy", "pyarrow", "mypy"])?;
    run(&mut tests(workspace, &python))?;
    // What mypy says of the type stubs beside the module that they describe.
    match succeeds(Command::new(&python).args(["-c", "import mypy"])) {
        true => run(Command::new(&python).args(["-m", "mypy.stubtest", "mneme"])),
        false => Ok(()),
    }
}

/// A virtual environment.
fn environment(place: &Path) -> Outcome {
    let mut venv = Command::new("python3");
    match succeeds(venv.args(["-m", "venv"]).arg(place)) {
        true => Ok(()),
        false => skipped("`python3 -m venv` does not work here"),
    }
}

/// Builds the wheel, with maturin in an environment of its own.
fn build_wheel(workspace: &Workspace, place: &Path) -> Outcome<PathBuf> {
    let building = place.join("build");
    environment(&building)?;
    let mut install = Command::new(building.join("bin/pip"));
    if !succeeds(install.args(["install", "--quiet", "maturin>=1.9,<2"])) {
        return skipped("pip cannot have maturin here");
    }
    let wheels = workspace.root.join("target/wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut build = Command::new(building.join("bin/maturin"));
    build.args(["build", "--release", "--out"]).arg(&wheels);
    run(build.current_dir(directory(workspace)))?;
    match &files::below(&wheels, &["whl"])[..] {
        [one] => Ok(one.clone()),
        built => Err(format!("maturin built {} wheels", built.len()).into()),
    }
}

/// Installs the wheel into an environment, beside what of `others` pip can have; its interpreter.
fn install(wheel: &Path, place: &Path, others: &[&str]) -> Outcome<PathBuf> {
    environment(place)?;
    let pip = place.join("bin/pip");
    for other in others {
        if !succeeds(Command::new(&pip).args(["install", "--quiet", other])) {
            println!("pip cannot have {other} here: without it");
        }
    }
    let mut install = Command::new(&pip);
    run(install.args(["install", "--quiet", "--no-deps"]).arg(wheel))?;
    Ok(place.join("bin/python"))
}

/// `cargo xtask python-bench`: the wheel beside its peers.
///
/// # Errors
/// In words, why it could not be tried.
pub fn bench(workspace: &Workspace, arguments: &[String]) -> Outcome {
    let place = std::env::temp_dir().join(format!("mneme-python-bench-{}", std::process::id()));
    let peers = ["numpy", "redis", "hiredis", "lmdb"];
    let built = build_wheel(workspace, &place);
    let installed = built.and_then(|wheel| install(&wheel, &place.join("try"), &peers));
    let outcome = installed.and_then(|python| {
        let script = directory(workspace).join("bench/bench.py");
        run(Command::new(python).arg(script).args(arguments))
    });
    let _ = fs::remove_dir_all(&place);
    outcome
}
