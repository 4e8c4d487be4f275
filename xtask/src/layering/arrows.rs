//! Which crate may know which: the picture of `docs/architecture.md` as a table.

use crate::workspace::{Package, Workspace};

/// A layer and the crates right below it. It may use these and all that they may use; a derive
/// macro is used by its own layer only.
const ARROWS: &[(&str, &[&str])] = &[
    ("mneme-sys", &[]),
    ("mneme-sync", &["mneme-sys"]),
    // Its derive macro runs in the compiler and knows no crate.
    ("mneme-space-derive", &[]),
    ("mneme-space", &["mneme-sync", "mneme-space-derive"]),
    ("mneme-arena", &["mneme-sync"]),
    ("mneme-log", &["mneme-arena"]),
    // Types of values, over records.
    ("mneme-collections", &["mneme-log"]),
    ("mneme-tree", &["mneme-arena"]),
    // It sees bytes and positions, never what they mean.
    ("mneme-journal", &["mneme-sys"]),
    // What both a server and a program without one need: stores in segments.
    ("mneme-shared", &["mneme-space", "mneme-log"]),
    // It joins a journal, or a tree, to a store. It knows records, never what a list is.
    (
        "mneme-durable",
        &[
            "mneme-shared",
            "mneme-tree",
            "mneme-journal",
            // What an element of a value comes to, which the feed says instead of the whole value.
            "mneme-collections",
        ],
    ),
    ("mneme-server", &["mneme-durable", "mneme-collections"]),
    ("mneme", &["mneme-server"]),
    // The papers' laboratory, beside the product: what its locks are measured with.
    ("mneme-rcx", &["mneme-sync"]),
    ("mneme-rcu-peers", &["mneme-rcx"]),
    ("mneme-bench", &["mneme"]),
    ("mneme-paper-bench", &["mneme-rcu-peers", "mneme-bench"]),
    // It may use segments, as any embedder may, and nothing knows it.
    ("mneme-genomics", &["mneme-space"]),
    // The same for programs in C: a shell around segments and stores, which nothing in Rust knows.
    // It has a code for every error, the arena's too.
    ("mneme-c", &["mneme-shared", "mneme-collections"]),
    // For programs in Python, likewise.
    ("mneme-python", &["mneme-shared", "mneme-collections"]),
    ("xtask", &[]),
    (TESTKIT, &[]),
];

/// What tests of all crates may use: it knows no crate, and no crate but for its tests.
pub(super) const TESTKIT: &str = "mneme-testkit";

const SYS: &[&str] = &["mneme-sys"];
const BENCH: &[&str] = &["mneme-bench"];
const PROGRAMS: &[&str] = &["mneme", "mneme-bench", "mneme-paper-bench", "xtask"];

/// Crates of others that some layers alone may depend on: they, those layers, and why.
const CONFINED: &[(&[&str], &[&str], &str)] = &[
    (
        &["libc", "rustix", "nix"],
        SYS,
        "the operating system is `sys`' business",
    ),
    (&["memmap2"], SYS, "regions of memory are `sys`' business"),
    (
        &["num_cpus", "core_affinity"],
        SYS,
        "the topology is `sys`' business",
    ),
    (
        &["anyhow"],
        PROGRAMS,
        "errors below the command line are typed",
    ),
    (
        &["dashmap", "papaya", "scc", "moka", "heed"],
        BENCH,
        "peers are measured, not used",
    ),
];

/// What is wrong with a crate's dependencies, in words.
pub fn check(name: &str, dependencies: &[String]) -> Vec<String> {
    let Some(allowed) = below(name) else {
        return vec![format!(
            "`{name}` has no place among the layers: give it one in xtask/src/layering/arrows.rs and docs/architecture.md"
        )];
    };
    let mut messages = Vec::new();
    for dependency in dependencies {
        let is_allowed = dependency == TESTKIT || allowed.contains(&dependency.as_str());
        if is_layer(dependency) && !is_allowed {
            messages.push(format!(
                "`{name}` may not depend on `{dependency}`: an arrow goes down only"
            ));
        }
        for (confined, homes, why) in CONFINED {
            if confined.contains(&dependency.as_str()) && !homes.contains(&name) {
                messages.push(format!("`{name}` may not depend on `{dependency}`: {why}"));
            }
        }
    }
    messages
}

/// The folder of what reproduces or compares papers.
const PAPERS: &str = "papers";
/// Folders of the product: what an operator or an embedder runs, and what measures it.
const PRODUCT: [&str; 3] = ["bench", "bindings", "crates"];

/// The dependencies of a product crate on the papers' laboratory.
pub fn check_papers(package: &Package, workspace: &Workspace) -> Vec<String> {
    let lies_in = |package: &Package, folder: &str| {
        let inside = package.directory.strip_prefix(&workspace.root);
        inside.is_ok_and(|inside| inside.starts_with(folder))
    };
    let is_product = PRODUCT.iter().any(|folder| lies_in(package, folder));
    if !is_product {
        return Vec::new();
    }
    let of_papers = workspace
        .packages
        .iter()
        .filter(|other| lies_in(other, PAPERS) && package.dependencies.contains(&other.name));
    let message = |other: &Package| {
        let (name, other) = (&package.name, &other.name);
        format!("`{name}` may not depend on `{other}`: the product knows nothing of {PAPERS}/")
    };
    of_papers.map(message).collect()
}

/// What is wrong with how a crate depends on the tests' kit: otherwise than for its tests.
pub fn check_testkit(package: &Package) -> Option<String> {
    let depends = |on: &[String]| on.iter().filter(|name| *name == TESTKIT).count();
    let for_tests = depends(&package.dev_dependencies);
    (depends(&package.dependencies) > for_tests).then(|| {
        let name = &package.name;
        format!("`{name}` may depend on `{TESTKIT}` for its tests only (dev-dependencies)")
    })
}

/// The layers that `name` may use; none if `name` is no layer.
pub fn below(name: &str) -> Option<Vec<&'static str>> {
    let (_, direct) = ARROWS.iter().find(|(layer, _)| *layer == name)?;
    let mut all = direct.to_vec();
    for lower in direct.iter().copied() {
        let deeper = below(lower).unwrap_or_default().into_iter();
        all.extend(deeper.filter(|layer| !layer.ends_with("-derive")));
    }
    Some(all)
}

/// Whether `name` is one of the layers.
pub fn is_layer(name: &str) -> bool {
    below(name).is_some()
}

/// The layer whose crate name in sources is `identifier` (`mneme_log` for `mneme-log`).
pub fn layer_of(identifier: &str) -> Option<&'static str> {
    ARROWS
        .iter()
        .map(|(layer, _)| *layer)
        .find(|layer| layer.replace('-', "_") == identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_up_the_table_only() {
        for (at, (layer, below)) in ARROWS.iter().enumerate() {
            let above = ARROWS[..at].iter().map(|(name, _)| name);
            for lower in *below {
                assert!(above.clone().any(|name| name == lower), "{layer} {lower}");
            }
        }
        let of_log = below("mneme-log").unwrap();
        assert_eq!(of_log, ["mneme-arena", "mneme-sync", "mneme-sys"]);
        assert!(below("mneme-genomics").unwrap().contains(&"mneme-sys"));
        assert!(
            !below("mneme-genomics")
                .unwrap()
                .contains(&"mneme-space-derive")
        );
    }

    #[test]
    fn the_engines_know_neither_names_nor_the_wire() {
        for engine in ["mneme-log", "mneme-tree"] {
            for above in ["mneme-space", "mneme-server", "mneme"] {
                assert_eq!(check(engine, &[above.to_owned()]).len(), 1);
            }
        }
    }
}
