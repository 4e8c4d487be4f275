//! `cargo xtask deb`: packages for Debian, in `target/packages`, by cargo-deb.
//!
//! `mneme` has the command with its manual pages, completions, configuration file and systemd unit;
//! `libmneme0` the library for C programs; `libmneme-dev` what compiling them takes. The manifests
//! of `mneme` and `mneme-c` list the files. `--try` installs, upgrades, removes and purges them in
//! a chroot that mmdebstrap makes: `packaging/debian/try.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install_c;
use crate::steps::{Outcome, run, succeeds};
use crate::workspace::Workspace;

/// Where the files are that no build leaves: pages, completions, libraries.
const FILES: &str = "target/debian-files";

/// Completions: the shell, and the name under which it looks.
const SHELLS: &[(&str, &str)] = &[("bash", "mneme"), ("zsh", "_mneme"), ("fish", "mneme.fish")];

/// The library's packages, whose files lie in the directory of the architecture.
const LIBRARY: &[&str] = &["--package", "mneme-c", "--multiarch", "same"];

/// `cargo xtask deb [--try]`.
///
/// # Errors
/// In words, for other flags, or what failed or is absent.
pub fn run_all(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let outcome = match arguments {
        [] => build(workspace).map_or_else(|outcome| outcome, |_| Outcome::Passed),
        [flag] if flag == "--try" => try_packages(workspace),
        _ => return Err(format!("`deb` has no flags `{}`", arguments.join(" "))),
    };
    outcome.answer()
}

/// The packages, built.
struct Packages {
    command: PathBuf,
    library: PathBuf,
    development: PathBuf,
}

fn build(workspace: &Workspace) -> Result<Packages, Outcome> {
    if !succeeds(Command::new("cargo").args(["deb", "--version"])) {
        let why = "there is no cargo-deb; `cargo install --locked cargo-deb`";
        return Err(Outcome::Skipped(why.to_owned()));
    }
    prepare(workspace)?;
    let to = workspace.root.join("target/packages");
    Ok(Packages {
        command: pack(workspace, &["--package", "mneme"], 1, &to)?,
        library: pack(workspace, LIBRARY, 1, &to)?,
        development: pack(
            workspace,
            &[LIBRARY, &["--variant", "dev"]].concat(),
            1,
            &to,
        )?,
    })
}

/// Builds the command and the library, and lays out what cargo-deb packs besides.
fn prepare(workspace: &Workspace) -> Result<(), Outcome> {
    let files = workspace.root.join(FILES);
    let _ = fs::remove_dir_all(&files);
    let destdir = files.join("c").display().to_string();
    let arguments = ["--prefix", "/usr", "--destdir", &destdir].map(str::to_owned);
    let options = install_c::Options::parse(&arguments).map_err(Outcome::Failed)?;
    install_c::run_beside(workspace, &options, &["mneme"]).map_err(Outcome::Failed)?;
    let mneme = || Command::new(workspace.root.join("target/release/mneme"));
    run(mneme().args(["man", "--to"]).arg(files.join("man"))).passed()?;
    for (shell, name) in SHELLS {
        let output = mneme().args(["completions", shell]).output();
        let output = output.map_err(|error| Outcome::Failed(format!("mneme: {error}")))?;
        let to = files.join("completions").join(name);
        write(&to, &output.stdout).map_err(Outcome::Failed)?;
    }
    let lib = files.join("c/usr/lib");
    let pc = lib.join("pkgconfig/mneme.pc");
    let text = fs::read_to_string(&pc).map_err(|error| Outcome::Failed(error.to_string()))?;
    let libdir = format!(
        "libdir=${{prefix}}/lib/{}-linux-gnu",
        std::env::consts::ARCH
    );
    let text = text.replace("libdir=${prefix}/lib", &libdir);
    write(&pc, text.as_bytes()).map_err(Outcome::Failed)?;
    // cargo-deb strips what cargo has built alone.
    let library = lib.join("libmneme.so.0");
    run(Command::new("strip").arg("--strip-unneeded").arg(library)).passed()
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |error| format!("cannot write {}: {error}", file.display());
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(file, bytes).map_err(failed)
}

/// Packs what has been built into a directory; the package.
fn pack(workspace: &Workspace, of: &[&str], revision: u32, to: &Path) -> Result<PathBuf, Outcome> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["deb", "--no-build", "--strip", "--quiet"])
        .args(of);
    cargo.args(["--deb-revision", &revision.to_string()]);
    // Not target/debian, in which it removes other revisions. A slash: a directory.
    cargo.arg("--output").arg(to.join(""));
    let output = cargo.current_dir(&workspace.root).output();
    let output = output.map_err(|error| Outcome::Failed(format!("cargo-deb: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Outcome::Failed(said));
    }
    // Its last line is the path.
    let said = String::from_utf8_lossy(&output.stdout);
    let package = PathBuf::from(said.lines().last().unwrap_or_default());
    let bytes = fs::metadata(&package).map_or(0, |found| found.len());
    println!("{}: {bytes} bytes", package.display());
    Ok(package)
}

/// Builds the packages and tries them in a chroot; skipped without root or mmdebstrap.
pub fn try_packages(workspace: &Workspace) -> Outcome {
    if !is_root() {
        return Outcome::Skipped("only root makes a chroot".to_owned());
    }
    if !succeeds(Command::new("mmdebstrap").arg("--version")) {
        return Outcome::Skipped("there is no mmdebstrap; `apt install mmdebstrap`".to_owned());
    }
    let place = std::env::temp_dir().join(format!("mneme-deb-{}", std::process::id()));
    let outcome = build(workspace).and_then(|packages| try_in(workspace, &packages, &place));
    let _ = fs::remove_dir_all(&place);
    outcome.map_or_else(|outcome| outcome, |()| Outcome::Passed)
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

fn try_in(workspace: &Workspace, packages: &Packages, place: &Path) -> Result<(), Outcome> {
    // mmdebstrap makes the last directory alone.
    fs::create_dir_all(place).map_err(|error| Outcome::Failed(error.to_string()))?;
    let root = place.join("root");
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args([
        "--quiet",
        "--variant=minbase",
        "--include=systemd-standalone-sysusers",
    ]);
    run(bootstrap.arg(release()).arg(&root)).passed()?;
    let second = pack(workspace, &["--package", "mneme"], 2, place)?;
    inspect(packages)?;

    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command.arg(workspace.root.join("packaging/debian/try.sh"));
    command.args([&root, &packages.command, &second]);
    command.args([&packages.library, &packages.development]);
    run(&mut command).passed()
}

/// What lintian shall not complain of: the workspace names no address; changelogs are the
/// project's, not Debian's; `shlibs` are for packages that are built from Debian sources; the
/// synopsis is the crate's; the variant for development has the library's triggers.
const SUPPRESSED: &str = "malformed-contact,no-changelog,syntax-error-in-debian-changelog,\
    debian-changelog-file-missing-or-wrong-name,no-shlibs,description-synopsis-starts-with-article,\
    package-has-unnecessary-activation-of-ldconfig-trigger";

/// What Debian's own inspector says of the packages: neither errors nor warnings.
fn inspect(packages: &Packages) -> Result<(), Outcome> {
    if !succeeds(Command::new("lintian").arg("--version")) {
        println!("there is no lintian: the packages are not inspected");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    lintian.args(["--suppress-tags", SUPPRESSED]);
    lintian.args([&packages.command, &packages.library, &packages.development]);
    run(&mut lintian).passed()
}

/// The release of Debian that this machine has, or else the one that is stable.
fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian = text.lines().any(|line| line == "ID=debian");
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.filter(|_| is_debian).unwrap_or("stable").to_owned()
}
