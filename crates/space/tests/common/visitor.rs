//! Processes in a role: this test binary started again, to run the test `role` of the calling file
//! in a registry of the test's.

use std::io::{BufRead, BufReader};
use std::panic::Location;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use mneme_space::Registry;

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

/// A process in a role. Dropped, it is killed.
pub struct Visitor {
    pub child: Child,
    /// What it says is read to the end, or it would die of that.
    said: BufReader<ChildStdout>,
}

impl Visitor {
    /// Starts it, and waits until it says that it is [`here`].
    #[track_caller]
    pub fn start(scene: &Scene, role: &str) -> Visitor {
        let mut visitor = Self::send(scene, role);
        visitor.arrive();
        visitor
    }

    /// Starts it.
    #[track_caller]
    pub fn send(scene: &Scene, role: &str) -> Visitor {
        Self::send_to(scene, role, "role")
    }

    /// Starts it in a test of another name than `role`.
    #[track_caller]
    pub fn send_to(scene: &Scene, role: &str, test: &str) -> Visitor {
        let test = in_module_of(Location::caller().file(), test);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test, "--nocapture"])
            .env(ROLE, role)
            .env(ROOT, scene.registry.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Visitor { child, said }
    }

    /// Waits until it says that it is [`here`].
    pub fn arrive(&mut self) {
        let mut line = String::new();
        while !line.contains("here") {
            line.clear();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "{:?}", self.child.wait());
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends `KILL` and waits for its death.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it go on from where it stands, to its end.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.ended().success());
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        std::io::copy(&mut self.said, &mut std::io::sink()).unwrap();
        self.child.wait().unwrap()
    }

    /// Sends a signal by its name, as `-STOP`.
    pub fn signal(&self, name: &str) {
        mneme_testkit::signal(self.pid(), name);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
