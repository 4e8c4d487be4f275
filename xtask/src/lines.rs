//! Lines of `crates/*/src` without comments and blank lines, by crate: how much there is to read.
//! Unit tests in these files count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::steps::{Outcome, printed};
use crate::workspace::Workspace;

/// Prints the lines of each crate, and beside them those at the revision named, if one is.
///
/// # Errors
/// In words: an unknown revision, a file that cannot be read.
pub fn run(workspace: &Workspace, revision: Option<&str>) -> Outcome {
    let root = &workspace.root;
    let now = by_crate(&git(root, &["ls-files", "crates"])?, |file| {
        fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
    })?;
    let then = revision.map(|revision| {
        let files = git(root, &["ls-tree", "-r", "--name-only", revision, "crates"])?;
        let text = |file: &str| git(root, &["show", &format!("{revision}:{file}")]);
        Ok::<_, String>((revision, by_crate(&files, text)?))
    });
    let then = then.transpose()?;
    print(
        &now,
        then.as_ref().map(|(revision, lines)| (*revision, lines)),
    );
    Ok(())
}

fn print(now: &BTreeMap<String, usize>, then: Option<(&str, &BTreeMap<String, usize>)>) {
    let line = |name: &str, lines: usize, before: Option<usize>| match before {
        Some(before) => println!("{name:10} {lines:7} {before:9}"),
        None => println!("{name:10} {lines:7}"),
    };
    if let Some((revision, _)) = then {
        println!("{:10} {:>7} {revision:>9.9}", "crate", "lines");
    }
    for (name, lines) in now {
        let before = then.map(|(_, before)| before.get(name).copied().unwrap_or(0));
        line(name, *lines, before);
    }
    let before = then.map(|(_, before)| before.values().sum());
    line("all", now.values().sum(), before);
}

/// The lines of each crate's sources among `files`, a path a line.
fn by_crate(
    files: &str,
    text: impl Fn(&str) -> Result<String, String>,
) -> Result<BTreeMap<String, usize>, String> {
    let mut lines = BTreeMap::new();
    for file in files.lines().filter(|file| file.ends_with(".rs")) {
        let mut parts = file.split('/').skip(1);
        if let Some(name) = parts.next()
            && parts.any(|part| part == "src")
        {
            *lines.entry(name.to_owned()).or_default() += code_lines(&text(file)?);
        }
    }
    Ok(lines)
}

/// How many lines are neither blank nor a comment.
fn code_lines(text: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(is_code).count()
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    printed(Command::new("git").args(arguments).current_dir(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_outside_of_src_do_not_count() {
        let text = "//! Docs.\n\nfn f() {\n    // Why.\n    g(); // here\n}\n";
        assert_eq!(code_lines(text), 3);
        let files = "crates/a/src/lib.rs\ncrates/a/tests/t.rs\ncrates/b/derive/src/lib.rs\n";
        let lines = by_crate(files, |_| Ok(text.to_owned()));
        let expected = [("a".to_owned(), 3), ("b".to_owned(), 3)];
        assert_eq!(lines, Ok(BTreeMap::from(expected)));
    }
}
