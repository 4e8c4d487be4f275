//! Which crate may know which: the picture of `docs/architecture.md` as a table.

use crate::workspace::Package;

/// A layer and the crates below it that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("mneme-sys", &[]),
    ("mneme-sync", &["mneme-sys"]),
    // Its derive macro runs in the compiler and knows no crate.
    ("mneme-space-derive", &[]),
    (
        "mneme-space",
        &["mneme-sys", "mneme-sync", "mneme-space-derive"],
    ),
    ("mneme-arena", &["mneme-sys", "mneme-sync"]),
    ("mneme-log", &["mneme-sys", "mneme-sync", "mneme-arena"]),
    ("mneme-tree", &["mneme-sys", "mneme-sync", "mneme-arena"]),
    // It sees bytes and positions, never what they mean.
    ("mneme-journal", &["mneme-sys"]),
    // What both a server and a program without one need: stores in segments.
    (
        "mneme-shared",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
        ],
    ),
    // It joins a journal, or a tree, to a store. It knows records, never what a list is.
    (
        "mneme-durable",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-tree",
            "mneme-journal",
            "mneme-shared",
        ],
    ),
    (
        "mneme-server",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-tree",
            "mneme-journal",
            "mneme-shared",
            "mneme-durable",
        ],
    ),
    (
        "mneme",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-tree",
            "mneme-journal",
            "mneme-shared",
            "mneme-durable",
            "mneme-server",
        ],
    ),
    // Beside the product: what its locks are measured with.
    ("mneme-rcu-peers", &["mneme-sys", "mneme-sync"]),
    (
        "mneme-bench",
        &[
            "mneme-rcu-peers",
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-tree",
            "mneme-journal",
            "mneme-shared",
            "mneme-durable",
            "mneme-server",
            "mneme",
        ],
    ),
    // An example: it may use segments, as any embedder may, and nothing knows it.
    (
        "mneme-genomics",
        &["mneme-sys", "mneme-sync", "mneme-space"],
    ),
    // The same for programs in C: a shell around segments and stores, which nothing in Rust knows.
    // It has a code for every error, the arena's too.
    (
        "mneme-c",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-shared",
        ],
    ),
    // For programs in Python, likewise.
    (
        "mneme-python",
        &[
            "mneme-sys",
            "mneme-sync",
            "mneme-space",
            "mneme-arena",
            "mneme-log",
            "mneme-shared",
        ],
    ),
    ("xtask", &[]),
    (TESTKIT, &[]),
];

/// What tests of all crates may use: it knows no crate, and no crate but for its tests.
const TESTKIT: &str = "mneme-testkit";

/// Crates of others that one layer alone may depend on, and why.
const CONFINED: &[(&str, &[&str], &str)] = &[
    (
        "libc",
        &["mneme-sys"],
        "the operating system is `sys`' business",
    ),
    (
        "rustix",
        &["mneme-sys"],
        "the operating system is `sys`' business",
    ),
    (
        "nix",
        &["mneme-sys"],
        "the operating system is `sys`' business",
    ),
    (
        "memmap2",
        &["mneme-sys"],
        "regions of memory are `sys`' business",
    ),
    (
        "num_cpus",
        &["mneme-sys"],
        "the topology is `sys`' business",
    ),
    (
        "core_affinity",
        &["mneme-sys"],
        "the topology is `sys`' business",
    ),
    (
        "anyhow",
        &["mneme", "mneme-bench", "xtask"],
        "errors below the command line are typed",
    ),
    ("dashmap", &["mneme-bench"], "peers are measured, not used"),
    ("papaya", &["mneme-bench"], "peers are measured, not used"),
    ("scc", &["mneme-bench"], "peers are measured, not used"),
    ("moka", &["mneme-bench"], "peers are measured, not used"),
    ("heed", &["mneme-bench"], "peers are measured, not used"),
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
            if dependency == confined && !homes.contains(&name) {
                messages.push(format!("`{name}` may not depend on `{dependency}`: {why}"));
            }
        }
    }
    messages
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
pub fn below(name: &str) -> Option<&'static [&'static str]> {
    ARROWS
        .iter()
        .find(|(layer, _)| *layer == name)
        .map(|(_, below)| *below)
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
    fn arrows_never_form_a_circle() {
        for (layer, below) in ARROWS {
            for lower in *below {
                let deeper = super::below(lower).unwrap();
                assert!(
                    !deeper.contains(layer),
                    "{layer} and {lower} know each other"
                );
                // A derive macro is its own layer's alone.
                for bottom in deeper.iter().filter(|name| !name.ends_with("-derive")) {
                    assert!(
                        below.contains(bottom),
                        "{layer} uses {lower} but not its {bottom}"
                    );
                }
            }
        }
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
