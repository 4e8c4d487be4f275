//! `cargo xtask check-c`: the checks of pointers for programs in C and C++, built, tested and
//! installed.
//!
//! They are a plugin of clang and a library, in `target/check`. They need one version of clang,
//! with the headers of its LLVM; without them, everything else is built and tested all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built;
use crate::files::copy;
use crate::steps::{Outcome, all, failed, printed, run, skipped, succeeds};
use crate::workspace::Workspace;

/// The version of LLVM that the plugin is written for: its interface changes with each.
const LLVM: &str = "19";

/// The tests of `mneme-c` that compile programs. The first is of the checks alone; the others show
/// that right programs are left alone.
const TESTS: [&str; 3] = ["check", "programs", "stores"];

/// Where to.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Install below this path, instead of running the tests
    #[arg(long)]
    pub prefix: Option<PathBuf>,
}

/// Builds the checks; installs them, or compiles the programs of the tests with them and runs them.
///
/// # Errors
/// In words, what failed; it is skipped where clang or LLVM's headers are absent.
pub fn run_all(workspace: &Workspace, options: &Options) -> Outcome {
    let checks = build(workspace)?;
    match &options.prefix {
        Some(prefix) => install(workspace, &checks, prefix),
        None => test(workspace, &checks),
    }
}

/// Builds and tests.
///
/// # Errors
/// See [`run_all`].
pub fn check(workspace: &Workspace) -> Outcome {
    run_all(workspace, &Options { prefix: None })
}

fn compiler(plus: &str) -> String {
    format!("clang{plus}-{LLVM}")
}

fn sources(workspace: &Workspace) -> PathBuf {
    workspace.root.join("bindings/c/check")
}

/// Builds the plugin and the library; the directory in which they are.
fn build(workspace: &Workspace) -> Outcome<PathBuf> {
    let config = format!("llvm-config-{LLVM}");
    let flags = printed(Command::new(&config).arg("--cppflags"));
    let includes = printed(Command::new(&config).arg("--includedir")).unwrap_or_default();
    let has_headers = Path::new(includes.trim())
        .join("llvm/Passes/PassPlugin.h")
        .exists();
    let has_compilers =
        ["", "++"].map(|plus| succeeds(Command::new(compiler(plus)).arg("--version")));
    let (Ok(flags), true, [true, true]) = (flags, has_headers, has_compilers) else {
        return skipped(format!(
            "needs `apt-get install clang-{LLVM} llvm-{LLVM}-dev`"
        ));
    };
    let target = workspace.root.join("target/check");
    fs::create_dir_all(&target).map_err(failed("make", &target))?;

    let mut plugin = Command::new(compiler("++"));
    plugin.args([
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-fno-rtti",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    // LLVM's own headers are not ours to mend.
    plugin.args(
        flags
            .split_whitespace()
            .flat_map(|flag| match flag.strip_prefix("-I") {
                Some(directory) => vec!["-isystem", directory],
                None => vec![flag],
            }),
    );
    plugin.arg(sources(workspace).join("pass.cpp"));
    plugin.arg("-o").arg(target.join("mneme-check.so"));

    let object = target.join("runtime.o");
    let mut runtime = Command::new(compiler(""));
    runtime.args([
        "-std=c11", "-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c",
    ]);
    runtime
        .arg("-I")
        .arg(workspace.root.join("bindings/c/include"));
    runtime
        .arg(sources(workspace).join("runtime.c"))
        .arg("-o")
        .arg(&object);

    let library = target.join("libmneme-check.a");
    let _ = fs::remove_file(&library);
    let mut archive = Command::new(format!("llvm-ar-{LLVM}"));
    archive.arg("rcs").arg(&library).arg(&object);
    run(&mut plugin)?;
    run(&mut runtime)?;
    run(&mut archive)?;
    Ok(target)
}

fn test(workspace: &Workspace, checks: &Path) -> Outcome {
    let named: Vec<_> = TESTS.iter().flat_map(|name| ["--test", *name]).collect();
    let built = built::tests(workspace, &named)?;
    let package = workspace.package("mneme-c")?;
    all(TESTS.iter().map(|name| {
        let program = built::test_of(&built, package, name);
        let program = program.ok_or_else(|| format!("no test `{name}` was built"))?;
        let mut command = Command::new(program);
        command.current_dir(&package.directory);
        command.env("MNEME_C_CHECK_CLANG", compiler(""));
        command.env("MNEME_C_CHECK_CLANGXX", compiler("++"));
        command.env("MNEME_C_CHECK", checks);
        run(&mut command)
    }))
}

fn install(workspace: &Workspace, checks: &Path, prefix: &Path) -> Outcome {
    for name in ["mneme-check.so", "libmneme-check.a"] {
        copy(&checks.join(name), &prefix.join("lib").join(name))?;
    }
    let header = "mneme-check.h";
    copy(
        &sources(workspace).join(header),
        &prefix.join("include").join(header),
    )?;
    println!("installed below {}", prefix.display());
    Ok(())
}
