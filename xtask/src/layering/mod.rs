//! The layers, checked: an arrow goes down only, and only `sys` speaks to the machine.
//!
//! Four checks. [`arrows`] compares every manifest (all kinds of dependency, so that a test cannot
//! tie a knot either) with the table of `docs/architecture.md`. [`sources`] reads every source file
//! of the layers for paths that reach above (`use mneme_server` in `log`), past `sys` to the
//! operating system (`libc`, `std::time::Instant`), or to the terminal from a library. [`modules`]
//! looks for circles of files inside each crate. [`names`] holds the product's types to names of
//! their own. What is allowed nevertheless stands in [`rules`], each with its reason.

pub mod arrows;
pub mod modules;
pub mod names;
pub mod paths;
pub mod rules;
pub mod sources;

use crate::steps::Outcome;
use crate::workspace::Workspace;
use std::fmt;
use std::path::{Path, PathBuf};

/// One place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The file, relative to the workspace's root where possible.
    pub file: PathBuf,
    /// The line, from 1; 0 where a whole file is meant.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

impl Violation {
    /// One that a whole file is.
    fn of_file(file: PathBuf, message: String) -> Self {
        Self {
            file,
            line: 0,
            message,
        }
    }
}

/// Checks the whole workspace and prints what is wrong, and, if that is asked for, the largest
/// circle of files of each crate.
///
/// # Errors
/// Something is wrong.
pub fn run(workspace: &Workspace, circles: bool) -> Outcome {
    for (package, circle) in modules::circles(workspace).iter().filter(|_| circles) {
        println!("{package}: {} files in the largest circle", circle.len());
        for member in circle {
            let names = member.names.iter().map(|to| to.display().to_string());
            let names: Vec<_> = names.collect();
            println!("    {} -> {}", member.file.display(), names.join(" "));
        }
    }
    let violations = check(workspace);
    violations.iter().for_each(|found| println!("{found}"));
    println!("layering: {} violation(s)", violations.len());
    match violations.len() {
        0 => Ok(()),
        count => Err(format!("{count} violation(s)").into()),
    }
}

/// Checks the whole workspace.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &workspace.packages {
        let manifest = package.directory.join("Cargo.toml");
        let manifest = relative(&manifest, &workspace.root);
        let arrows = arrows::check(&package.name, &package.dependencies).into_iter();
        let arrows = arrows.chain(arrows::check_testkit(package));
        let arrows = arrows.chain(arrows::check_papers(package, workspace));
        violations.extend(arrows.map(|message| Violation::of_file(manifest.clone(), message)));
        violations.extend(sources::check_package(package, &workspace.root));
    }
    violations.extend(modules::check(workspace));
    violations.extend(names::check(workspace));
    violations
}

/// `path` below `root`, or `path` itself.
fn relative(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}
