//! Every source file of a layer, held to the rules.

use super::arrows;
use super::paths::Named;
use super::rules::{self, Reach};
use super::{Violation, relative};
use crate::files;
use crate::workspace::Package;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file that is not for tests only, and what it names.
pub struct Source {
    /// Its path.
    pub file: PathBuf,
    /// What it names.
    pub named: Named,
}

/// Checks all files below a package's `src`, without those for tests only.
pub fn check_package(package: &Package, root: &Path) -> Vec<Violation> {
    let (sources, mut violations) = read_package(package, root);
    for source in &sources {
        let shown = relative(&source.file, root);
        violations.extend(check_file(&package.name, &shown, &source.named));
    }
    violations
}

/// All files below a package's `src`, without those for tests only; and which cannot be read.
pub fn read_package(package: &Package, root: &Path) -> (Vec<Source>, Vec<Violation>) {
    let mut read = Vec::new();
    let mut violations = Vec::new();
    for file in files::below(&package.directory.join("src"), &["rs"]) {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string());
        match text.and_then(|text| Named::read(&text)) {
            Ok(named) => read.push(Source { file, named }),
            Err(message) => violations.push(Violation::of_file(relative(&file, root), message)),
        }
    }
    let for_tests = read.iter().flat_map(|source| {
        let home = home_of_modules(&source.file);
        let modules = source.named.test_modules.iter();
        modules.map(move |module| home.join(module))
    });
    let for_tests: Vec<PathBuf> = for_tests.collect();
    read.retain(|source| {
        let module = source.file.with_extension("");
        !for_tests.iter().any(|test| module.starts_with(test))
    });
    (read, violations)
}

/// Checks one file's text as if it stood at `file` in the package `package`.
pub fn check_text(package: &str, file: &str, text: &str) -> Vec<Violation> {
    match Named::read(text) {
        Ok(named) => check_file(package, Path::new(file), &named),
        Err(message) => vec![Violation::of_file(file.into(), message)],
    }
}

fn check_file(package: &str, file: &Path, named: &Named) -> Vec<Violation> {
    let mut found: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut reached = |reach: Reach, line: usize, what: String| {
        if !rules::allowed(file, reach) {
            found.insert((line, format!("{what}: {}", reach.instead())));
        }
    };
    for (path, line) in &named.paths {
        for (rule, reach) in rules::PATHS {
            if matches(path, rule) {
                reached(*reach, *line, format!("`{}`", path.join("::")));
            }
        }
    }
    for (name, line) in &named.macros {
        if let Some((_, reach)) = rules::MACROS.iter().find(|(known, _)| known == name) {
            reached(*reach, *line, format!("`{name}!`"));
        }
    }
    for (written, line) in &named.strings {
        let content = written
            .trim_start_matches(['b', 'c', 'r', '#'])
            .trim_start_matches('"');
        if rules::KERNEL_FILES
            .iter()
            .any(|prefix| content.starts_with(prefix))
        {
            reached(Reach::Files, *line, written.clone());
        }
    }
    for line in &named.foreign_blocks {
        reached(Reach::System, *line, "a foreign block".to_owned());
    }
    let below = arrows::below(package).unwrap_or_default();
    for (path, line) in &named.paths {
        if let Some(layer) = arrows::layer_of(&path[0])
            && layer != package
            && path.len() > 1
            && !below.contains(&layer)
        {
            let message = format!(
                "`{}` in `{package}`: an arrow goes down only",
                path.join("::")
            );
            found.insert((*line, message));
        }
    }
    let violation = |(line, message)| Violation {
        file: file.to_path_buf(),
        line,
        message,
    };
    found.into_iter().map(violation).collect()
}

fn matches(path: &[String], rule: &[&str]) -> bool {
    let common = path.iter().zip(rule).take_while(|(a, b)| a == b).count();
    let whole = common == rule.len() && (rule.len() > 1 || path.len() > 1);
    let glob_above = common > 0 && path.len() == common + 1 && path[common] == "*";
    whole || glob_above
}

/// The directory with the files of modules declared in `file`.
fn home_of_modules(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default();
    if ["lib", "main", "mod"].iter().any(|name| stem == *name) {
        file.parent().unwrap_or(Path::new("")).to_path_buf()
    } else {
        file.with_extension("")
    }
}
