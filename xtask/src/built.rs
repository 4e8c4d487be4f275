//! Programs, tests and libraries as cargo has built them, to be run or copied afterwards.
//!
//! **Each is built as a part of the whole workspace**, so that its dependencies have the features
//! that they have in `cargo test --workspace`. Cargo chooses features for the packages that a
//! command selects: to select one package alone would build most of its dependencies again.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::steps::{self, printed};
use crate::workspace::{Package, Workspace};

/// A target that has been built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name in the manifest.
    pub target: String,
    /// The directory of its package.
    pub directory: PathBuf,
    /// The program, if it is one.
    pub executable: Option<PathBuf>,
    /// All its files.
    pub files: Vec<PathBuf>,
}

/// Builds the selected targets of the workspace with those arguments of `cargo test`, and runs
/// nothing.
///
/// # Errors
/// In words, when cargo cannot be run or the build fails.
pub fn tests(workspace: &Workspace, arguments: &[&str]) -> Result<Vec<Artifact>, String> {
    let command = ["test", "--no-run", "--workspace"];
    build(workspace, &[&command, arguments].concat())
}

/// Builds all libraries of the workspace, for programs and not for tests, and the example that
/// reads what Python's module has written.
///
/// # Errors
/// In words, when cargo cannot be run or the build fails.
pub fn libraries(workspace: &Workspace) -> Result<Vec<Artifact>, String> {
    // Without a test among the targets, cargo leaves out the features that tests ask for.
    let any_test = ["--test", "server_storm"];
    let command = ["build", "--workspace", "--lib", "--example", "arrays"];
    build(workspace, &[&command[..], &any_test].concat())
}

/// The command `mneme`.
///
/// # Errors
/// In words, when it cannot be built.
pub fn command(workspace: &Workspace) -> Result<PathBuf, String> {
    // A test of its package, which needs it.
    let built = tests(workspace, &["--test", "server_storm"])?;
    let mut programs = built.into_iter().filter(|built| built.target == "mneme");
    let program = programs.find_map(|built| built.executable);
    program.ok_or_else(|| "no `mneme` was built".to_owned())
}

/// The test of that name in that package.
pub fn test_of<'a>(built: &'a [Artifact], package: &Package, name: &str) -> Option<&'a Path> {
    let is_it = |built: &&Artifact| built.target == name && built.directory == package.directory;
    built.iter().find(is_it)?.executable.as_deref()
}

/// Has cargo build something, by that command of its.
///
/// # Errors
/// In words, when cargo cannot be run or the build fails.
pub fn build(workspace: &Workspace, arguments: &[&str]) -> Result<Vec<Artifact>, String> {
    let mut cargo = steps::cargo();
    cargo.args(arguments).current_dir(&workspace.root);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    println!("$ cargo {}", arguments.join(" "));
    printed(cargo.stderr(Stdio::inherit())).map(|messages| artifacts(&messages))
}

/// What cargo's messages, a line each, say was built.
fn artifacts(messages: &str) -> Vec<Artifact> {
    let messages = messages.lines();
    let messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| artifact(&message)).collect()
}

fn artifact(message: &Value) -> Option<Artifact> {
    let path = |value: &Value| Some(PathBuf::from(value.as_str()?));
    let manifest = path(&message["manifest_path"])?;
    Some(Artifact {
        target: message["target"]["name"].as_str()?.to_owned(),
        directory: manifest.parent()?.to_path_buf(),
        executable: path(&message["executable"]),
        files: (message["filenames"].as_array()?.iter())
            .filter_map(path)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_one_name_are_known_by_their_package() {
        let line = |package: &str, executable: &str| {
            format!(r#"{{"reason":"compiler-artifact","manifest_path":"/w/{package}/Cargo.toml","#)
                + &format!(
                    r#""target":{{"name":"storm"}},"filenames":["{executable}"],"executable":"{executable}"}}"#
                )
        };
        let messages = [
            line("log", "/t/storm-1"),
            r#"{"reason":"build-script-executed","package_id":"x"}"#.to_owned(),
            "not JSON".to_owned(),
            line("shared", "/t/storm-2"),
        ];
        let built = artifacts(&messages.join("\n"));
        assert_eq!(built.len(), 2);
        let package = |name: &str| Package {
            directory: format!("/w/{name}").into(),
            ..Package::default()
        };
        let of = |package: &Package| test_of(&built, package, "storm").map(Path::to_path_buf);
        assert_eq!(of(&package("shared")), Some("/t/storm-2".into()));
        assert_eq!(of(&package("log")), Some("/t/storm-1".into()));
        assert_eq!(of(&package("arena")), None);
        assert_eq!(test_of(&built, &package("log"), "other"), None);
    }
}
