//! C programs: compiled against the header and the library of this tree, run in a registry of their
//! own.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use mneme_space::{Registry, RegistryOptions};

/// How a program finds the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    Shared,
    Static,
}

pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The C compiler, or for `++` that of C++; `None`, with a word about it, if there is none.
pub fn compiler(plus: &str) -> Option<String> {
    // The checks' compiler has variables of its own: build scripts read `CC`, too, and cargo builds
    // everything again when it changes.
    let (variable, usual) = match (plus, checks()) {
        ("", None) => ("CC", "cc"),
        (_, None) => ("CXX", "c++"),
        ("", Some(_)) => ("MNEME_C_CHECK_CLANG", "clang"),
        (_, Some(_)) => ("MNEME_C_CHECK_CLANGXX", "clang++"),
    };
    let name = std::env::var(variable).unwrap_or(usual.to_owned());
    let found = Command::new(&name)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Some(name);
    }
    eprintln!("skipped: there is no compiler {name:?} (set {variable})");
    None
}

/// Where the checks of pointers are, if programs are compiled with them: `cargo xtask check-c` says
/// so, and which compilers have them.
pub fn checks() -> Option<PathBuf> {
    std::env::var_os("MNEME_C_CHECK").map(Into::into)
}

/// The libraries and the `mneme` command of this tree, built now: cargo builds none for tests of
/// what Rust cannot link. Both at once, for what they share is built once then.
fn built() -> &'static [PathBuf] {
    static BUILT: OnceLock<Vec<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--lib", "--bin", "mneme"]);
        // Not the build's own environment: with it, cargo would build again what build scripts have
        // built that read these.
        for (name, _) in std::env::vars_os() {
            let says = |begin: &str| name.to_string_lossy().starts_with(begin);
            if says("CARGO_PKG_") || says("CARGO_MANIFEST_") || name == "OUT_DIR" {
                build.env_remove(name);
            }
        }
        // With a test and all packages selected, dependencies are built with the features they have
        // in `cargo test --workspace`, so that its build is reused.
        build.args(["--workspace", "--test", "header"]);
        build.args(["--message-format", "json"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.stderr(Stdio::inherit()).output().unwrap();
        assert!(built.status.success());
        let messages = String::from_utf8(built.stdout).unwrap();
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == "mneme")
            .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
            .filter_map(|file| Some(file.as_str()?.into()))
            .collect()
    })
}

/// Where the libraries are.
fn libraries() -> &'static Path {
    let shared = built().iter().find(|file| file.ends_with("libmneme.so"));
    shared.unwrap().parent().unwrap()
}

/// The `mneme` command.
pub fn server() -> &'static Path {
    built().iter().find(|file| file.ends_with("mneme")).unwrap()
}

/// What a static link needs besides, as `rustc --print native-static-libs` says.
pub const STATIC_NEEDS: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// A directory with a registry whose data lie beside it, and programs. Gone with the test.
pub struct Scene {
    root: PathBuf,
}

impl Scene {
    pub fn new() -> Scene {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = format!("/dev/shm/mneme-c-test-{}-{number}", std::process::id());
        let root = PathBuf::from(root);
        std::fs::create_dir_all(root.join("memory")).unwrap();
        let options = RegistryOptions {
            shared_directory: Some(root.join("memory")),
            ..RegistryOptions::default()
        };
        Registry::open_with(root.join("registry"), &options).unwrap();
        Scene { root }
    }

    pub fn registry(&self) -> Registry {
        Registry::open(self.root.join("registry")).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Compiles a source, strictly, and links it. No compiler may warn of it.
    pub fn build(&self, compiler: &str, source: &Path, link: Link) -> Program<'_> {
        let (program, said) = self.build_with(compiler, &[source], link, &["-O1", "-Werror"]);
        assert_eq!(said, "", "{}", source.display());
        program
    }

    /// Compiles sources with some more arguments, and links them; what the compiler said.
    pub fn build_with(
        &self,
        compiler: &str,
        sources: &[&Path],
        link: Link,
        arguments: &[&str],
    ) -> (Program<'_>, String) {
        let libraries = libraries();
        let [source, ..] = sources else {
            panic!("no sources")
        };
        // Under the name by which programs look for it.
        let shared = self.root.join("libmneme.so.0");
        if !shared.exists() {
            std::os::unix::fs::symlink(libraries.join("libmneme.so"), &shared).unwrap();
        }
        let stem = source.file_stem().unwrap().display();
        let name = format!("{stem}-{link:?}{}", arguments.concat().replace('/', "-"));
        let program = self.root.join(name);
        let standard = match source.extension().unwrap().to_str().unwrap() {
            "cpp" => "-std=c++11",
            _ => "-std=c11",
        };
        let mut build = Command::new(compiler);
        build.args([standard, "-Wall", "-Wextra", "-pedantic", "-g"]);
        build.args(arguments);
        build.arg("-I").arg(home().join("include"));
        build.args(sources).args(["-x", "none", "-o"]).arg(&program);
        if let Some(checks) = checks() {
            let plugin = checks.join("mneme-check.so");
            build.arg(format!("-fpass-plugin={}", plugin.display()));
            build.arg("-I").arg(home().join("check"));
            build.arg(checks.join("libmneme-check.a"));
        }
        match link {
            Link::Shared => {
                build.arg(&shared).arg("-lpthread");
                build.arg(format!("-Wl,-rpath,{}", self.root.display()));
            }
            Link::Static => {
                build.arg(libraries.join("libmneme.a")).args(STATIC_NEEDS);
            }
        }
        let built = build.output().unwrap();
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(built.status.success(), "{}: {said}", source.display());
        let built = Program {
            scene: self,
            path: program,
        };
        (built, said)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A program that was built.
pub struct Program<'a> {
    scene: &'a Scene,
    path: PathBuf,
}

impl Program<'_> {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        command.env("MNEME_DIR", self.scene.root.join("registry"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The program's output; it must succeed.
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let how = (&self.path, arguments, output.status);
        assert!(output.status.success(), "{how:?}: {complaint}");
        assert_eq!(complaint, "", "{how:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}
