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
use crate::steps::{Outcome, failed, run, succeeds};
use crate::workspace::Workspace;

/// Bytes that a wheel may have.
const LARGEST_WHEEL: u64 = 5 << 20;

/// The oldest Python that the wheel is for.
const CHECK_VERSION: &str = "import sys; sys.exit(sys.version_info < (3, 9))";

/// `cargo xtask python`.
///
/// # Errors
/// In words, why it could not be tried.
pub fn run_check(workspace: &Workspace) -> Result<bool, String> {
    check(workspace).answer()
}

/// Builds the module and runs its tests.
pub fn check(workspace: &Workspace) -> Outcome {
    let Some(python) = interpreter() else {
        return Outcome::Skipped("there is no python3, of 3.9 or later".to_owned());
    };
    match build(workspace).and_then(|built| stage(workspace, &built)) {
        Ok(staged) => run(tests(workspace, python).env("PYTHONPATH", staged)),
        Err(why) => Outcome::Failed(why),
    }
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
    fs::create_dir_all(&package).map_err(failed("create", &package))?;
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

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A running program keeps the file that it has mapped.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map_err(failed("write", to))?;
    Ok(())
}

/// Builds the wheel, says how large it is, installs it elsewhere and runs the tests with it.
///
/// # Errors
/// In words, for arguments that it has not.
pub fn wheel(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    if !arguments.is_empty() {
        return Err(format!("`wheel` has no flags `{}`", arguments.join(" ")));
    }
    check_wheel(workspace).answer()
}

/// The wheel, built and tried; skipped where there is no virtual environment or no maturin.
pub fn check_wheel(workspace: &Workspace) -> Outcome {
    let place = std::env::temp_dir().join(format!("mneme-wheel-{}", std::process::id()));
    let outcome = build_and_try(workspace, &place);
    let _ = fs::remove_dir_all(&place);
    outcome
}

fn build_and_try(workspace: &Workspace, place: &Path) -> Outcome {
    let wheel = match build_wheel(workspace, place) {
        Ok(wheel) => wheel,
        Err(outcome) => return outcome,
    };
    let bytes = fs::metadata(&wheel).map_or(u64::MAX, |found| found.len());
    println!("{}: {bytes} bytes", wheel.display());
    if bytes > LARGEST_WHEEL {
        return Outcome::Failed(format!(
            "the wheel has {bytes} bytes, above {LARGEST_WHEEL}"
        ));
    }
    let python = match install(&wheel, &place.join("try"), &["numpy", "pyarrow", "mypy"]) {
        Ok(python) => python,
        Err(outcome) => return outcome,
    };
    match run(&mut tests(workspace, &python)) {
        Outcome::Passed => check_stubs(&python),
        other => other,
    }
}

/// What mypy says of the type stubs beside the module that they describe.
fn check_stubs(python: &Path) -> Outcome {
    if !succeeds(Command::new(python).args(["-c", "import mypy"])) {
        return Outcome::Passed;
    }
    run(Command::new(python).args(["-m", "mypy.stubtest", "mneme"]))
}

/// A virtual environment.
fn environment(place: &Path) -> Result<(), Outcome> {
    let mut venv = Command::new("python3");
    if succeeds(venv.args(["-m", "venv"]).arg(place)) {
        return Ok(());
    }
    Err(Outcome::Skipped(
        "`python3 -m venv` does not work here".to_owned(),
    ))
}

/// Builds the wheel, with maturin in an environment of its own.
fn build_wheel(workspace: &Workspace, place: &Path) -> Result<PathBuf, Outcome> {
    let building = place.join("build");
    environment(&building)?;
    let mut install = Command::new(building.join("bin/pip"));
    if !succeeds(install.args(["install", "--quiet", "maturin>=1.9,<2"])) {
        return Err(Outcome::Skipped("pip cannot have maturin here".to_owned()));
    }
    let wheels = workspace.root.join("target/wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut build = Command::new(building.join("bin/maturin"));
    build.args(["build", "--release", "--out"]).arg(&wheels);
    match run(build.current_dir(directory(workspace))) {
        Outcome::Passed => one_of(&wheels).map_err(Outcome::Failed),
        other => Err(other),
    }
}

/// Installs the wheel into an environment, beside what of `others` pip can have; its interpreter.
fn install(wheel: &Path, place: &Path, others: &[&str]) -> Result<PathBuf, Outcome> {
    environment(place)?;
    let pip = place.join("bin/pip");
    for other in others {
        if !succeeds(Command::new(&pip).args(["install", "--quiet", other])) {
            println!("pip cannot have {other} here: without it");
        }
    }
    let mut install = Command::new(&pip);
    match run(install.args(["install", "--quiet", "--no-deps"]).arg(wheel)) {
        Outcome::Passed => Ok(place.join("bin/python")),
        other => Err(other),
    }
}

/// `cargo xtask python-bench`: the wheel beside its peers.
///
/// # Errors
/// In words, why it could not be tried.
pub fn bench(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let place = std::env::temp_dir().join(format!("mneme-python-bench-{}", std::process::id()));
    let peers = ["numpy", "redis", "hiredis", "lmdb"];
    let built = build_wheel(workspace, &place);
    let installed = built.and_then(|wheel| install(&wheel, &place.join("try"), &peers));
    let outcome = installed.map_or_else(
        |outcome| outcome,
        |python| {
            let script = directory(workspace).join("bench/bench.py");
            run(Command::new(python).arg(script).args(arguments))
        },
    );
    let _ = fs::remove_dir_all(&place);
    outcome.answer()
}

/// The only file of a directory.
fn one_of(directory: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(directory).map_err(failed("read", directory))?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let one = files.next().ok_or("maturin built no wheel")?;
    match files.next() {
        None => Ok(one),
        Some(_) => Err("maturin built more than one wheel".to_owned()),
    }
}
