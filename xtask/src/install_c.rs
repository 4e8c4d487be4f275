//! `cargo xtask install-c`: libmneme, its header and its pkg-config file, where C programs look for
//! them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::built;
use crate::files::{copy, write};
use crate::steps::{Outcome, failed};
use crate::workspace::Workspace;

/// What a program needs besides that links libmneme.a, as `rustc --print native-static-libs` says.
const STATIC_NEEDS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl";

/// Where to.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// An absolute path, below which `include` and `lib` are
    #[arg(long, default_value = "/usr/local")]
    pub prefix: PathBuf,
    /// Put before every path that is written, for packagers
    #[arg(long)]
    pub destdir: Option<PathBuf>,
}

impl Options {
    /// Where a file goes that is `below` the prefix.
    fn to(&self, below: &str) -> PathBuf {
        let path = self.prefix.join(below);
        match (&self.destdir, path.strip_prefix("/")) {
            (Some(destdir), Ok(relative)) => destdir.join(relative),
            _ => path,
        }
    }
}

/// Builds the libraries in one command with other packages, and copies the libraries. Cargo chooses
/// features for the packages of a command: two commands would compile the lower crates twice.
///
/// # Errors
/// In words, what could not be built or written; a prefix that is not absolute.
pub fn run(workspace: &Workspace, options: &Options, beside: &[&str]) -> Outcome {
    let prefix = &options.prefix;
    if !prefix.is_absolute() {
        return Err(format!("--prefix wants an absolute path, not {prefix:?}").into());
    }
    let package = workspace.package("mneme-c")?;
    let mut command = vec!["build", "--release", "--package", "mneme-c"];
    command.extend(beside.iter().flat_map(|package| ["--package", package]));
    let built = built::build(workspace, &command)?.into_iter();
    let built = built.filter(|built| built.target == "mneme");
    let built: Vec<_> = built.flat_map(|built| built.files).collect();
    let header = package.directory.join("include/mneme.h");
    let name = format!("lib/{}", soname(&package.version));
    let pc = pkg_config(&options.prefix, &package.version);

    copy(&header, &options.to("include/mneme.h"))?;
    copy(find(&built, "libmneme.a")?, &options.to("lib/libmneme.a"))?;
    copy(find(&built, "libmneme.so")?, &options.to(&name))?;
    let link = options.to("lib/libmneme.so");
    let _ = fs::remove_file(&link);
    symlink(soname(&package.version), &link).map_err(failed("link", &link))?;
    write(&options.to("lib/pkgconfig/mneme.pc"), pc)?;
    println!("installed below {}", options.to("").display());
    Ok(())
}

fn find<'a>(built: &'a [PathBuf], name: &str) -> Result<&'a Path, String> {
    let found = built.iter().find(|file| file.ends_with(name));
    let found = found.map(PathBuf::as_path);
    found.ok_or_else(|| format!("no {name} was built"))
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

    #[test]
    fn files_go_below_the_prefix_and_the_staging_directory() {
        let options = |prefix: &str, destdir: Option<&str>| Options {
            prefix: prefix.into(),
            destdir: destdir.map(Into::into),
        };
        let plain = options("/opt/m", None);
        assert_eq!(plain.to("lib/x"), Path::new("/opt/m/lib/x"));
        let staged = options("/usr", Some("/tmp/stage"));
        assert_eq!(staged.to("lib/x"), Path::new("/tmp/stage/usr/lib/x"));
        // What is installed names the prefix, not the staging directory.
        assert!(pkg_config(&staged.prefix, "0.1.0").starts_with("prefix=/usr\n"));
        let workspace = Workspace::load().unwrap();
        assert!(run(&workspace, &options("here", None), &[]).is_err());
    }

    /// Programs that were linked look for the name that is installed.
    #[test]
    fn the_installed_name_is_the_one_in_the_library() {
        let workspace = Workspace::load().unwrap();
        let package = workspace.package("mneme-c").unwrap();
        let script = fs::read_to_string(package.directory.join("build.rs")).unwrap();
        assert!(script.contains(&format!("-soname,{}", soname(&package.version))));
    }
}
