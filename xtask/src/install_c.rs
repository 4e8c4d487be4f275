//! `cargo xtask install-c`: libmneme, its header and its pkg-config file, where C programs look for
//! them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::steps::failed;
use crate::workspace::Workspace;

/// What a program needs besides that links libmneme.a, as `rustc --print native-static-libs` says.
const STATIC_NEEDS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl";

/// Where to.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Below which `include` and `lib` are.
    prefix: PathBuf,
    /// Put before every path that is written, for packagers.
    destdir: Option<PathBuf>,
}

impl Options {
    /// Reads the command's arguments.
    ///
    /// # Errors
    /// In words, for an unknown flag, or a prefix that is not absolute.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut prefix = PathBuf::from("/usr/local");
        let mut destdir = None;
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{flag} wants a path"));
            match flag.as_str() {
                "--prefix" => prefix = PathBuf::from(value?),
                "--destdir" => destdir = Some(PathBuf::from(value?)),
                other => return Err(format!("`install-c` has no flag `{other}`")),
            }
        }
        if !prefix.is_absolute() {
            return Err(format!("--prefix wants an absolute path, not {prefix:?}"));
        }
        Ok(Self { prefix, destdir })
    }

    /// Where a file goes that is `below` the prefix.
    fn to(&self, below: &str) -> PathBuf {
        let path = self.prefix.join(below);
        match (&self.destdir, path.strip_prefix("/")) {
            (Some(destdir), Ok(relative)) => destdir.join(relative),
            _ => path,
        }
    }
}

/// Builds the libraries and copies them.
///
/// # Errors
/// In words, what could not be built or written.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool, String> {
    run_beside(workspace, options, &[])
}

/// Builds the libraries in one command with other packages, and copies the libraries. Cargo chooses
/// features for the packages of a command: two commands would compile the lower crates twice.
///
/// # Errors
/// In words, what could not be built or written.
pub fn run_beside(
    workspace: &Workspace,
    options: &Options,
    beside: &[&str],
) -> Result<bool, String> {
    let package = workspace.packages.iter().find(|p| p.name == "mneme-c");
    let package = package.ok_or("there is no package mneme-c")?;
    let built = build(workspace, beside)?;
    let header = package.directory.join("include/mneme.h");
    let name = format!("lib/{}", soname(&package.version));
    let pc = pkg_config(&options.prefix, &package.version);

    for directory in ["include", "lib/pkgconfig"] {
        let directory = options.to(directory);
        fs::create_dir_all(&directory).map_err(failed("create", &directory))?;
    }
    copy(&header, &options.to("include/mneme.h"))?;
    copy(&find(&built, "libmneme.a")?, &options.to("lib/libmneme.a"))?;
    copy(&find(&built, "libmneme.so")?, &options.to(&name))?;
    let link = options.to("lib/libmneme.so");
    let _ = fs::remove_file(&link);
    symlink(soname(&package.version), &link).map_err(failed("link", &link))?;
    let file = options.to("lib/pkgconfig/mneme.pc");
    fs::write(&file, pc).map_err(failed("write", &file))?;
    println!("installed below {}", options.to("").display());
    Ok(true)
}

/// Builds the libraries and those packages; the libraries' files.
fn build(workspace: &Workspace, beside: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--package", "mneme-c"]);
    for package in beside {
        cargo.args(["--package", package]);
    }
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let output = cargo
        .current_dir(&workspace.root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo build ({})", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages
        .filter(|message| message["target"]["name"] == "mneme")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|file| Some(file.as_str()?.into()))
        .collect())
}

fn find(built: &[PathBuf], name: &str) -> Result<PathBuf, String> {
    let found = built.iter().find(|file| file.ends_with(name));
    found.cloned().ok_or_else(|| format!("no {name} was built"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A running program keeps the file that it has mapped.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map_err(failed("write", to))?;
    println!("{}", to.display());
    Ok(())
}

/// The name under which programs look for the library (`bindings/c/build.rs` writes it into the
/// library).
fn soname(version: &str) -> String {
    let major = version.split('.').next().unwrap_or("0");
    format!("libmneme.so.{major}")
}

fn pkg_config(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={prefix}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\
         \n\
         Name: mneme\n\
         Description: Segments and address spaces that outlive every process\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lmneme\n\
         Libs.private: {STATIC_NEEDS}\n",
        prefix = prefix.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments: Vec<_> = arguments.iter().map(|a| (*a).to_owned()).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn files_go_below_the_prefix_and_the_staging_directory() {
        let plain = parse(&["--prefix", "/opt/m"]).unwrap();
        assert_eq!(plain.to("lib/x"), Path::new("/opt/m/lib/x"));
        let staged = parse(&["--prefix", "/usr", "--destdir", "/tmp/stage"]).unwrap();
        assert_eq!(staged.to("lib/x"), Path::new("/tmp/stage/usr/lib/x"));
        // What is installed names the prefix, not the staging directory.
        assert!(pkg_config(&staged.prefix, "0.1.0").starts_with("prefix=/usr\n"));
        for wrong in [
            &["--prefix"] as &[_],
            &["--prefix", "here"],
            &["--to", "/x"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Programs that were linked look for the name that is installed.
    #[test]
    fn the_installed_name_is_the_one_in_the_library() {
        let workspace = Workspace::load().unwrap();
        let package = workspace.packages.iter().find(|p| p.name == "mneme-c");
        let package = package.unwrap();
        let script = fs::read_to_string(package.directory.join("build.rs")).unwrap();
        assert!(script.contains(&format!("-soname,{}", soname(&package.version))));
    }
}
