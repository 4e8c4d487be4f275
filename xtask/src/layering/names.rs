//! Names of types: in the product, a type that leaves its file has a name of its own.
//!
//! Counted are structs, enums, unions, traits and aliases in `crates/*/src` that are `pub`,
//! `pub(crate)` or `pub(super)`. A type that stays in its file may have any name, and so may one of
//! a program beside the product or of a test. [`rules::SAME_NAMES`] lists the exceptions, and
//! [`rules::STAND_INS`] the files that are another module's second form.

use super::sources::{self, Source};
use super::{Violation, arrows, relative, rules};
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The names of types that leave their files, and where each is defined: file and line.
pub type Definitions = BTreeMap<String, Vec<(PathBuf, usize)>>;

/// The folder of the product's crates.
const PRODUCT: &str = "crates";

/// Holds the names of the product's types to the rule.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut definitions = Definitions::new();
    let product = workspace.root.join(PRODUCT);
    let packages = workspace.packages.iter();
    let packages = packages.filter(|package| package.directory.starts_with(&product));
    for package in packages.filter(|package| package.name != arrows::TESTKIT) {
        let (sources, _) = sources::read_package(package, &workspace.root);
        collect(&sources, &workspace.root, &mut definitions);
    }
    let exceptions = rules::SAME_NAMES.iter().flat_map(|(names, _)| *names);
    judge(&definitions, &exceptions.copied().collect())
}

/// Adds what the sources define.
fn collect(sources: &[Source], root: &Path, definitions: &mut Definitions) {
    let stands_in = |file: &Path| {
        let mut stand_ins = rules::STAND_INS.iter();
        stand_ins.any(|(path, _)| file == Path::new(path))
    };
    for source in sources {
        if stands_in(&relative(&source.file, root)) {
            continue;
        }
        for (name, line) in &source.named.types {
            let places = definitions.entry(name.clone()).or_default();
            places.push((relative(&source.file, root), *line));
        }
    }
}

/// What is wrong with the definitions: a name that several types have and that is no exception, and
/// an exception that is none any more.
pub fn judge(definitions: &Definitions, exceptions: &BTreeSet<&str>) -> Vec<Violation> {
    let several = definitions.iter().filter(|(_, places)| places.len() > 1);
    let several: Vec<_> = several.collect();
    let shared = several
        .iter()
        .filter(|(name, _)| !exceptions.contains(name.as_str()))
        .map(|(name, places)| {
            let (file, line) = places[places.len() - 1].clone();
            let others = places[..places.len() - 1].iter();
            let others = others.map(|(file, line)| format!("{}:{line}", file.display()));
            let others: Vec<String> = others.collect();
            let message = format!(
                "`{name}` is also the name of a type in {}: give one of them another",
                others.join(", ")
            );
            Violation {
                file,
                line,
                message,
            }
        });
    let is_shared = |name: &str| several.iter().any(|(shared, _)| *shared == name);
    let stale = exceptions.iter().filter(|name| !is_shared(name));
    let stale = stale.map(|name| {
        let message = format!("`{name}` is the name of one type now: take it from the exceptions");
        Violation::of_file("xtask/src/layering/rules.rs".into(), message)
    });
    shared.chain(stale).collect()
}

/// What these files define, for tests: place and text.
///
/// # Errors
/// In words, when one is not made of Rust's tokens.
pub fn defined_in(files: &[(&str, &str)]) -> Result<Definitions, String> {
    let mut definitions = Definitions::new();
    for (file, text) in files {
        let named = super::paths::Named::read(text)?;
        let file = PathBuf::from(file);
        collect(&[Source { file, named }], Path::new(""), &mut definitions);
    }
    Ok(definitions)
}
