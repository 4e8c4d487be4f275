//! Processes in a role: this test binary started again, to run the test `role` of the calling file
//! in a registry of the test's.

use std::ffi::OsStr;
use std::panic::Location;
use std::path::Path;

use mneme_space::Registry;
use mneme_testkit::Process;

use super::Scene;

const ROLE: &str = "MNEME_SPACE_ROLE";
const ROOT: &str = "MNEME_SPACE_ROOT";

/// The role that this process was started in, and its registry; `None` in the tests'
/// own process.
pub fn role() -> Option<(String, Registry)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, Registry::open(std::env::var_os(ROOT)?).unwrap()))
}

/// Says that this process is where its role wants it.
pub fn here() {
    println!("here");
}

/// Says so, and stays there until the parent ends it or goes away itself.
pub fn stand() {
    here();
    let _ = std::io::stdin().lines().next();
}

/// A test's full name, which begins with its module where several files are one program.
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

/// Starts a process in a role, and waits until it says that it is [`here`].
#[track_caller]
pub fn start(scene: &Scene, role: &str) -> Process {
    let mut process = send(scene, role);
    process.wait_for("here");
    process
}

/// Starts it.
#[track_caller]
pub fn send(scene: &Scene, role: &str) -> Process {
    let test = in_module_of(Location::caller().file(), "role");
    Process::start_talking(&test, variables(scene, role))
}

/// Whether a process in a role is killed there, in a test of this name.
#[track_caller]
pub fn is_killed(scene: &Scene, role: &str, test: &str) -> bool {
    let test = in_module_of(Location::caller().file(), test);
    mneme_testkit::is_killed(&test, variables(scene, role))
}

fn variables<'a>(scene: &'a Scene, role: &'a str) -> [(&'static str, &'a OsStr); 2] {
    let root = scene.registry.root().as_os_str();
    [(ROLE, role.as_ref()), (ROOT, root)]
}
