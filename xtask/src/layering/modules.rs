//! Modules have floors too: the arrows between the source files of a crate, and its largest circle.
//!
//! A file points to another if it names something in it: `use crate::a::B`, `super::B`, `a::b()`. A
//! name that a file only passes on (`pub use`) leads to where it comes from, and passing on is no
//! arrow. A *circle* is a strongly connected component: every file in it needs every other one.
//! Tests do not count, and a method that is called shows no file: what an `impl` in one file offers
//! to another by way of a common type is not seen.

use super::sources::{self, Source};
use super::{Violation, rules};
use crate::workspace::{Package, Workspace};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The files of the largest circle of a crate; empty if there is none.
pub type Circle = Vec<Member>;

/// A file of a circle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Where it lies below `src`.
    pub file: PathBuf,
    /// The files of the circle that it names.
    pub names: Vec<PathBuf>,
}

/// How many passed-on names are followed one after the other: more is a circle of its own.
const DEPTH: usize = 8;

/// The largest circle of each package, by the package's name.
pub fn circles(workspace: &Workspace) -> Vec<(String, Circle)> {
    let packages = workspace.packages.iter();
    let circles = packages.map(|package| {
        let (sources, _) = sources::read_package(package, &workspace.root);
        (package.name.clone(), largest_circle(package, &sources))
    });
    circles.collect()
}

/// Holds every package to the limit.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let found = circles(workspace);
    let check = |(name, circle): (String, Circle)| {
        let message = judge(&name, &circle)?;
        let package = workspace.packages.iter().find(|p| p.name == name)?;
        let source = package.directory.join("src");
        let source = super::relative(&source, &workspace.root);
        Some(Violation::of_file(source, message))
    };
    found.into_iter().filter_map(check).collect()
}

/// What is wrong with a circle of more than [`rules::LARGEST_CIRCLE`] files.
pub fn judge(package: &str, circle: &Circle) -> Option<String> {
    let (count, most) = (circle.len(), rules::LARGEST_CIRCLE);
    (count > most).then(|| {
        let files = circle.iter().map(|m| m.file.display().to_string());
        let files: Vec<String> = files.collect();
        format!(
            "`{package}` has a circle of {count} files, {most} are allowed: {}",
            files.join(", ")
        )
    })
}

/// The largest circle of a package's files, by their places below `src`.
fn largest_circle(package: &Package, sources: &[Source]) -> Circle {
    let src = package.directory.join("src");
    let files = sources.iter().filter_map(|source| {
        let file = source.file.strip_prefix(&src).ok()?;
        (!file.starts_with("bin")).then_some((file.to_path_buf(), source))
    });
    let graph = Graph::new(files.collect());
    let mut circle = graph.largest_circle();
    circle.sort();
    circle
}

/// Files, their modules, and which names which.
struct Graph<'a> {
    files: Vec<(PathBuf, &'a Source)>,
    by_module: HashMap<Vec<String>, usize>,
}

impl<'a> Graph<'a> {
    fn new(files: Vec<(PathBuf, &'a Source)>) -> Self {
        let mut by_module = HashMap::new();
        for (place, (file, _)) in files.iter().enumerate() {
            // A library's root before a program's.
            by_module.entry(module_of(file)).or_insert(place);
        }
        Graph { files, by_module }
    }

    /// The files that file `from` names.
    fn arrows(&self, from: usize) -> BTreeSet<usize> {
        let (file, source) = &self.files[from];
        let module = module_of(file);
        let paths = source.named.paths.iter().enumerate();
        let paths = paths.filter(|(place, _)| !source.named.exports.contains(place));
        let named = paths.flat_map(|(_, (path, _))| self.named(&module, path));
        named.filter(|to| *to != from).collect()
    }

    /// The files that a path written in `module` leads to: one, or for `a::*` all from which `a`
    /// passes something on.
    fn named(&self, module: &[String], path: &[String]) -> Vec<usize> {
        let whole = self.resolve(module, path, DEPTH);
        let Some((_, before)) = path.split_last().filter(|(last, _)| *last == "*") else {
            return whole.into_iter().collect();
        };
        let exports = whole.into_iter().flat_map(|file| {
            let named = &self.files[file].1.named;
            named.exports.iter().map(|&at| &named.paths[at].0)
        });
        let passed_on = exports.filter_map(|export| {
            let path: Vec<String> = before.iter().chain(export.last()).cloned().collect();
            self.resolve(module, &path, DEPTH)
        });
        whole.into_iter().chain(passed_on).collect()
    }

    /// The file that a path written in `module` leads to, if it is one of this crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<usize> {
        // `pub(super)`, `pub(crate)`: who may see something, not what is needed.
        let is_step = |name: &String| ["crate", "self", "super"].contains(&name.as_str());
        if path.iter().all(is_step) {
            return None;
        }
        let mut at = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => at.clear(),
            "self" | "super" => {}
            first => {
                at.push(first.to_owned());
                if path.len() < 2 || !self.by_module.contains_key(&at) {
                    return None;
                }
                at.pop();
            }
        }
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()?),
                name => {
                    at.push(name.to_owned());
                    if !self.by_module.contains_key(&at) {
                        at.pop();
                        return self.passed_on(&at, rest, depth);
                    }
                }
            }
            rest = others;
        }
        self.by_module.get(&at).copied()
    }

    /// The file that `names`, said of `module`, leads to: that from which the module has the first
    /// of them, or the module's own.
    fn passed_on(&self, module: &[String], names: &[String], depth: usize) -> Option<usize> {
        let own = *self.by_module.get(module)?;
        let aliases = &self.files[own].1.named.aliases;
        let (Some(whole), Some(depth)) = (aliases.get(&names[0]), depth.checked_sub(1)) else {
            return Some(own);
        };
        let whole: Vec<String> = whole.iter().chain(&names[1..]).cloned().collect();
        // Another crate's, passed on: whoever names it needs the module.
        self.resolve(module, &whole, depth).or(Some(own))
    }

    /// Tarjan's strongly connected components; the largest of more than one file.
    fn largest_circle(&self) -> Circle {
        let arrows: Vec<Vec<usize>> = (0..self.files.len())
            .map(|from| self.arrows(from).into_iter().collect())
            .collect();
        let mut search = Search::new(&arrows);
        for file in 0..arrows.len() {
            if search.number[file].is_none() {
                search.visit(file);
            }
        }
        let circle = &search.largest;
        let shown = |places: &mut dyn Iterator<Item = &usize>| {
            places.map(|place| self.files[*place].0.clone()).collect()
        };
        let members = circle.iter().map(|&place| Member {
            file: self.files[place].0.clone(),
            names: shown(&mut arrows[place].iter().filter(|to| circle.contains(to))),
        });
        members.collect()
    }
}

struct Search<'a> {
    arrows: &'a [Vec<usize>],
    number: Vec<Option<usize>>,
    lowest: Vec<usize>,
    path: Vec<usize>,
    on_path: Vec<bool>,
    next: usize,
    largest: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(arrows: &'a [Vec<usize>]) -> Self {
        Search {
            arrows,
            number: vec![None; arrows.len()],
            lowest: vec![0; arrows.len()],
            path: Vec::new(),
            on_path: vec![false; arrows.len()],
            next: 0,
            largest: Vec::new(),
        }
    }

    /// A crate has some hundred files: the recursion is no deeper.
    fn visit(&mut self, file: usize) {
        (self.number[file], self.lowest[file]) = (Some(self.next), self.next);
        self.next += 1;
        self.path.push(file);
        self.on_path[file] = true;
        let arrows = self.arrows;
        for &to in &arrows[file] {
            match self.number[to] {
                None => {
                    self.visit(to);
                    self.lowest[file] = self.lowest[file].min(self.lowest[to]);
                }
                Some(number) if self.on_path[to] => {
                    self.lowest[file] = self.lowest[file].min(number);
                }
                Some(_) => {}
            }
        }
        if self.number[file] != Some(self.lowest[file]) {
            return;
        }
        let first = self.path.iter().rposition(|&on| on == file).unwrap_or(0);
        let circle = self.path.split_off(first);
        for &of in &circle {
            self.on_path[of] = false;
        }
        if circle.len() > self.largest.len().max(1) {
            self.largest = circle;
        }
    }
}

/// The module that a file below `src` is, from the crate's root.
fn module_of(file: &Path) -> Vec<String> {
    let module = file.with_extension("");
    let mut names: Vec<String> = module
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let is_root = names.len() == 1 && ["lib", "main"].contains(&names[0].as_str());
    if is_root || names.last().is_some_and(|last| last == "mod") {
        names.pop();
    }
    names
}

/// The largest circle of a crate that consists of these files, for tests: place below `src`, text.
///
/// # Errors
/// In words, when one is not made of Rust's tokens.
pub fn circle_of(files: &[(&str, &str)]) -> Result<Circle, String> {
    let mut sources = Vec::new();
    for (file, text) in files {
        sources.push(Source {
            file: PathBuf::from(file),
            named: super::paths::Named::read(text)?,
        });
    }
    let files = sources.iter().map(|source| (source.file.clone(), source));
    let mut circle = Graph::new(files.collect()).largest_circle();
    circle.sort();
    Ok(circle)
}
