//! `cargo xtask deb`: packages for Debian, in `target/packages`, by cargo-deb.
//!
//! `mneme` has the command with its manual pages, completions, configuration file and systemd unit;
//! `libmneme0` the library for C programs; `libmneme-dev` what compiling them takes. The manifests
//! of `mneme` and `mneme-c` list the files. `--try` installs, upgrades, removes and purges them in
//! a chroot that mmdebstrap makes: `packaging/debian/try.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::write;
use crate::install_c;
use crate::steps::{self, Outcome, failed, printed, run, skipped, succeeds};
use crate::workspace::Workspace;

/// Where the files are that no build leaves: pages, completions, libraries.
const FILES: &str = "target/debian-files";

/// Completions: the shell, and the name under which it looks.
const SHELLS: &[(&str, &str)] = &[("bash", "mneme"), ("zsh", "_mneme"), ("fish", "mneme.fish")];

/// The library's packages, whose files lie in the directory of the architecture.
const LIBRARY: &[&str] = &["--package", "mneme-c", "--multiarch", "same"];

/// The packages, built.
pub struct Packages {
    command: PathBuf,
    library: PathBuf,
    development: PathBuf,
}

/// Builds the packages.
///
/// # Errors
/// In words, what failed or is absent.
pub fn build(workspace: &Workspace) -> Outcome<Packages> {
    if !succeeds(steps::cargo().args(["deb", "--version"])) {
        return skipped("there is no cargo-deb; `cargo install --locked cargo-deb`");
    }
    prepare(workspace)?;
    let to = workspace.root.join("target/packages");
    let development = [LIBRARY, &["--variant", "dev"]].concat();
    Ok(Packages {
        command: pack(workspace, &["--package", "mneme"], 1, &to)?,
        library: pack(workspace, LIBRARY, 1, &to)?,
        development: pack(workspace, &development, 1, &to)?,
    })
}

/// Builds the command and the library, and lays out what cargo-deb packs besides.
fn prepare(workspace: &Workspace) -> Outcome {
    let files = workspace.root.join(FILES);
    let _ = fs::remove_dir_all(&files);
    let options = install_c::Options {
        prefix: "/usr".into(),
        destdir: Some(files.join("c")),
    };
    install_c::run(workspace, &options, &["mneme"])?;
    let mneme = || Command::new(workspace.root.join("target/release/mneme"));
    run(mneme().args(["man", "--to"]).arg(files.join("man")))?;
    for (shell, name) in SHELLS {
        let completions = printed(mneme().args(["completions", shell]))?;
        write(&files.join("completions").join(name), completions)?;
    }
    let lib = files.join("c/usr/lib");
    let pc = lib.join("pkgconfig/mneme.pc");
    let text = fs::read_to_string(&pc).map_err(failed("read", &pc))?;
    let arch = std::env::consts::ARCH;
    let libdir = format!("libdir=${{prefix}}/lib/{arch}-linux-gnu");
    write(&pc, text.replace("libdir=${prefix}/lib", &libdir))?;
    // cargo-deb strips what cargo has built alone.
    let library = lib.join("libmneme.so.0");
    run(Command::new("strip").arg("--strip-unneeded").arg(library))
}

/// Packs what has been built into a directory; the package.
fn pack(workspace: &Workspace, of: &[&str], revision: u32, to: &Path) -> Outcome<PathBuf> {
    let mut cargo = steps::cargo();
    cargo
        .args(["deb", "--no-build", "--strip", "--quiet"])
        .args(of);
    cargo.args(["--deb-revision", &revision.to_string()]);
    // Not target/debian, in which it removes other revisions. A slash: a directory.
    cargo.arg("--output").arg(to.join(""));
    let said = printed(cargo.current_dir(&workspace.root))?;
    // Its last line is the path.
    let package = PathBuf::from(said.lines().last().unwrap_or_default());
    let bytes = fs::metadata(&package).map_or(0, |found| found.len());
    println!("{}: {bytes} bytes", package.display());
    Ok(package)
}

/// Builds the packages and tries them in a chroot.
///
/// # Errors
/// In words, what failed; it is skipped without root or mmdebstrap.
pub fn try_packages(workspace: &Workspace) -> Outcome {
    if printed(Command::new("id").arg("-u")) != Ok("0\n".to_owned()) {
        return skipped("only root makes a chroot");
    }
    if !succeeds(Command::new("mmdebstrap").arg("--version")) {
        return skipped("there is no mmdebstrap; `apt install mmdebstrap`");
    }
    let place = std::env::temp_dir().join(format!("mneme-deb-{}", std::process::id()));
    let outcome = build(workspace).and_then(|packages| try_in(workspace, &packages, &place));
    let _ = fs::remove_dir_all(&place);
    outcome
}

fn try_in(workspace: &Workspace, packages: &Packages, place: &Path) -> Outcome {
    // mmdebstrap makes the last directory alone.
    fs::create_dir_all(place).map_err(failed("make", place))?;
    let root = place.join("root");
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args(["--quiet", "--variant=minbase"]);
    bootstrap.arg("--include=systemd-standalone-sysusers");
    run(bootstrap.arg(release()).arg(&root))?;
    let second = pack(workspace, &["--package", "mneme"], 2, place)?;
    inspect(packages)?;

    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command.arg(workspace.root.join("packaging/debian/try.sh"));
    command.args([&root, &packages.command, &second]);
    command.args([&packages.library, &packages.development]);
    run(&mut command)
}

/// What lintian shall not complain of: the workspace names no address; changelogs are the
/// project's, not Debian's; `shlibs` are for packages that are built from Debian sources; the
/// synopsis is the crate's; the variant for development has the library's triggers.
const SUPPRESSED: &str = "malformed-contact,no-changelog,syntax-error-in-debian-changelog,\
    debian-changelog-file-missing-or-wrong-name,no-shlibs,description-synopsis-starts-with-article,\
    package-has-unnecessary-activation-of-ldconfig-trigger";

/// What Debian's own inspector says of the packages: neither errors nor warnings.
fn inspect(packages: &Packages) -> Outcome {
    if !succeeds(Command::new("lintian").arg("--version")) {
        println!("there is no lintian: the packages are not inspected");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    lintian.args(["--suppress-tags", SUPPRESSED]);
    lintian.args([&packages.command, &packages.library, &packages.development]);
    run(&mut lintian)
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
