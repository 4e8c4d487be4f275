//! `cargo xtask ci`: everything that must hold before a change lands.

use crate::api;
use crate::check_c;
use crate::errors;
use crate::files;
use crate::layering;
use crate::package;
use crate::proof::{Item, Proof};
use crate::prose;
use crate::python;
use crate::redis_suite;
use crate::steps::{
    self, Outcome, Steps, all, run, run_side_by_side, run_together, skipped, succeeds,
};
use crate::workspace::Workspace;
use clap::builder::PossibleValuesParser;
use std::process::Command;

/// The other architecture that the published crates and libmneme must compile for.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

/// What is built for AddressSanitizer.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Seconds that each fuzz target runs. The targets run side by side, one on each processor: eight
/// of them take a minute on two.
const FUZZ_SECONDS: u64 = 5;

/// A step's name and what it does.
pub type Step = (&'static str, fn(&Workspace) -> Outcome);

const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("layering", |workspace| layering::run(workspace, false)),
    ("prose", |workspace| prose::run(workspace, None)),
    ("errors", errors::check),
    ("clippy", clippy),
    ("features", features),
    ("test", test),
    ("python", python::check),
    ("check-c", check_c::check),
    ("redis-suite", redis),
    ("deny", deny),
    ("interleavings", interleavings),
    ("miri", miri),
    ("fuzz", fuzz),
    ("doc", doc),
    ("api", api::check),
    ("package", package::check),
    ("other-target", other_target),
];

/// Which steps to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Steps to run, separated by commas; all unless given
    #[arg(long, value_delimiter = ',', value_parser = steps())]
    only: Vec<String>,
    /// Steps to leave out, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = steps())]
    skip: Vec<String>,
    /// Print the steps instead
    #[arg(long)]
    list: bool,
}

/// Names of steps: a misspelt one is an error and not an empty success.
fn steps() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().map(|(name, _)| *name))
}

impl Options {
    fn wants(&self, step: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == step);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Runs the steps.
///
/// # Errors
/// Some failed.
pub fn run_all(workspace: &Workspace, options: &Options) -> Outcome {
    if options.list {
        STEPS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    }
    let mut steps = Steps::default();
    for (name, step) in STEPS {
        if options.wants(name) {
            steps.run(name, || step(workspace));
        }
    }
    steps.summary()
}

/// A cargo command in the workspace's root.
fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = steps::cargo();
    command.args(arguments).current_dir(&workspace.root);
    command
}

/// A nightly cargo command, free of the toolchain that runs this program.
fn nightly(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments);
    command.current_dir(&workspace.root);
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    steps::forget_package(&mut command);
    command
}

/// A missing tool fails where nobody reads the words, and is skipped on a developer's machine.
fn missing(what: &str) -> Outcome {
    match std::env::var_os("CI") {
        Some(_) => Err(what.into()),
        None => skipped(what),
    }
}

fn fmt(workspace: &Workspace) -> Outcome {
    run(&mut cargo(workspace, &["fmt", "--all", "--check"]))
}

/// With the fault points, as tests are built. `features` looks at a library without them.
fn clippy(workspace: &Workspace) -> Outcome {
    let mut command = cargo(workspace, &["clippy", "--workspace", "--all-targets"]);
    run(command.args(["--", "-D", "warnings"]))
}

/// Redis' own tests against our server.
fn redis(workspace: &Workspace) -> Outcome {
    redis_suite::check(workspace, missing)
}

/// The store for programs that embed it and serve nothing: alone, and with the durable ones.
fn features(workspace: &Workspace) -> Outcome {
    for features in ["", "durable,tree"] {
        let mut command = cargo(workspace, &["clippy", "-p", "mneme", "--lib"]);
        command.args(["--no-default-features", "--features", features]);
        run(command.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// All tests, to the end.
fn tests(workspace: &Workspace) -> Command {
    cargo(workspace, &["test", "--workspace", "--no-fail-fast"])
}

fn test(workspace: &Workspace) -> Outcome {
    run(&mut tests(workspace))
}

fn doc(workspace: &Workspace) -> Outcome {
    let mut command = cargo(workspace, &["doc", "--workspace", "--no-deps"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn other_target(workspace: &Workspace) -> Outcome {
    if !workspace.has_target(OTHER_TARGET) {
        return missing(&format!("`rustup target add {OTHER_TARGET}` first"));
    }
    let mut command = cargo(workspace, &["check", "--lib", "--target", OTHER_TARGET]);
    // Nothing is linked, so that what is C or assembler (ring's) need not be compiled for it.
    for tool in ["CC", "AR"] {
        command.env(format!("{tool}_{}", OTHER_TARGET.replace('-', "_")), "true");
    }
    command.args(["-p", "mneme-c"]);
    for package in workspace.published() {
        command.args(["-p", &package.name]);
    }
    run(&mut command)
}

/// Licences, bans and sources; advisories need a database from the network and are asked for apart.
fn deny(workspace: &Workspace) -> Outcome {
    if !succeeds(&mut cargo(workspace, &["deny", "--version"])) {
        let install = ["install", "--locked", "--debug", "cargo-deny"];
        if run(&mut cargo(workspace, &install)).is_err() {
            return missing("cargo-deny is absent and could not be installed");
        }
    }
    let mut command = cargo(workspace, &["deny", "--all-features", "check"]);
    run(command.args(["bans", "licenses", "sources"]))
}

/// The items of one list of `docs/proof.md`, each made a command, and run.
fn listed(
    workspace: &Workspace,
    list: fn(Proof) -> Vec<Item>,
    command: impl Fn(&Item) -> Command,
    run_all: fn(Vec<Command>) -> Outcome,
) -> Outcome {
    let items = list(Proof::read(&workspace.root)?);
    match items.is_empty() {
        true => skipped("docs/proof.md lists none"),
        false => run_all(items.iter().map(command).collect()),
    }
}

fn one_by_one(commands: Vec<Command>) -> Outcome {
    all(commands.into_iter().map(|mut command| run(&mut command)))
}

fn interleavings(workspace: &Workspace) -> Outcome {
    listed(
        workspace,
        |proof| proof.interleavings,
        |item| item.test(&workspace.root),
        one_by_one,
    )
}

fn miri(workspace: &Workspace) -> Outcome {
    if !succeeds(&mut nightly(workspace, &["miri", "--version"])) {
        return missing("`rustup +nightly component add miri rust-src` first");
    }
    listed(
        workspace,
        |proof| proof.miri,
        |item| {
            let mut command = nightly(workspace, &["miri", "test", "-p", &item.package]);
            command.args(item.arguments[1].split_whitespace());
            let flags = match item.arguments[0].as_str() {
                "-" => "",
                flags => flags,
            };
            command.env("MIRIFLAGS", format!("-Zmiri-disable-isolation {flags}"));
            command
        },
        run_together,
    )
}

/// Whether there is a toolchain that takes `-Zsanitizer`.
pub fn has_sanitizer(workspace: &Workspace) -> bool {
    succeeds(&mut nightly(workspace, &["--version"]))
}

/// `cargo test` of a package under AddressSanitizer. It names a target, so that what runs while it
/// builds is built without.
pub fn sanitized(workspace: &Workspace, package: &str, arguments: &str) -> Command {
    let mut command = nightly(workspace, &["test", "-p", package]);
    command.args(["--target", SANITIZED_TARGET]);
    command.args(arguments.split_whitespace());
    command.env("RUSTFLAGS", "-Zsanitizer=address");
    // A thread that dies in a test gives nothing back.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command.env("CARGO_TARGET_DIR", workspace.root.join("target/asan"));
    command
}

fn fuzz(workspace: &Workspace) -> Outcome {
    fuzz_for(workspace, FUZZ_SECONDS)
}

/// Runs every fuzz target for that long.
pub fn fuzz_for(workspace: &Workspace, seconds: u64) -> Outcome {
    let targets = fuzz_targets(workspace);
    if targets.is_empty() {
        return skipped("there are no fuzz targets");
    }
    if !succeeds(&mut nightly(workspace, &["fuzz", "--version"])) {
        return missing("needs nightly and `cargo install cargo-fuzz`");
    }
    run(&mut nightly(workspace, &["fuzz", "build"]))?;
    let limit = format!("-max_total_time={seconds}");
    let run_one = |target: &String| {
        let mut command = nightly(workspace, &["fuzz", "run", target, "--", &limit]);
        command.args(["-print_final_stats=1", "-verbosity=0"]);
        command
    };
    run_side_by_side(targets.iter().map(run_one).collect())
}

/// Names of the fuzz targets: the files of `fuzz/fuzz_targets`.
fn fuzz_targets(workspace: &Workspace) -> Vec<String> {
    let files = files::below(&workspace.root.join("fuzz/fuzz_targets"), &["rs"]);
    let names = files.iter().filter_map(|path| path.file_stem()?.to_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &str) -> Result<Options, clap::Error> {
        let words = ["ci"].into_iter().chain(words.split_whitespace());
        Ok(<Line as clap::Parser>::try_parse_from(words)?.options)
    }

    #[test]
    fn steps_are_chosen_and_left_out_by_name() {
        let options = parse("--only fmt,deny --skip deny").unwrap();
        assert!(options.wants("fmt"));
        assert!(!options.wants("deny"));
        assert!(!options.wants("clippy"));
        assert!(parse("").unwrap().wants("clippy"));
        assert!(parse("--only clipy").is_err());
    }
}
