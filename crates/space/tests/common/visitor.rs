//! Processes with a role: this test binary, started again to run the test `role` of the calling
//! file in the test's registry.

use std::ffi::OsStr;
use std::panic::Location;
use std::path::Path;

use mneme_space::Registry;
use mneme_testkit::Process;

use super::Scene;

const ROLE: &str = "MNEME_SPACE_ROLE";
const ROOT: &str = "MNEME_SPACE_ROOT";

/// The role that this process was started with, and its registry; `None` in the tests' own process.
pub fn role() -> Option<(String, Registry)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, Registry::open(std::env::var_os(ROOT)?).unwrap()))
}

/// Reports that this process has reached the point that its role asks for.
pub fn here() {
    println!("here");
}

/// Reports that, and waits until the parent kills it or exits itself.
pub fn stand() {
    here();
    let _ = std::io::stdin().lines().next();
}

/// A test's full name, which begins with its module if several files form one program.
fn in_module_of(file: &str, test: &str) -> String {
    let file = Path::new(file);
    let is_alone = file
        .parent()
        .is_some_and(|folder| folder.ends_with("tests"));
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some(module) if !is_alone => format!("{module}::{test}"),
        _ => test.to_owned(),
    }
}

/// Starts a process with a role, and waits until it calls [`here`].
#[track_caller]
pub fn start(scene: &Scene, role: &str) -> Process {
    let mut process = send(scene, role);
    process.wait_for("here");
    process
}

/// Starts a process with a role, without waiting.
#[track_caller]
pub fn send(scene: &Scene, role: &str) -> Process {
    let test = in_module_of(Location::caller().file(), "role");
    Process::start_talking(&test, variables(scene, role))
}

/// Whether a process with a role is killed while it runs a test of this name.
#[track_caller]
pub fn is_killed(scene: &Scene, role: &str, test: &str) -> bool {
    let test = in_module_of(Location::caller().file(), test);
    mneme_testkit::is_killed(&test, variables(scene, role))
}

fn variables<'a>(scene: &'a Scene, role: &'a str) -> [(&'static str, &'a OsStr); 2] {
    let root = scene.registry.root().as_os_str();
    [(ROLE, role.as_ref()), (ROOT, root)]
}
