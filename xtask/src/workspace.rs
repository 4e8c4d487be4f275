//! What the workspace consists of, as `cargo metadata` tells it.

use crate::steps::{self, printed};
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace: its root directory and its packages.
#[derive(Debug)]
pub struct Workspace {
    /// The directory of the root manifest.
    pub root: PathBuf,
    /// The member packages, by name.
    pub packages: Vec<Package>,
}

/// One member package.
#[derive(Debug, Clone, Default)]
pub struct Package {
    /// Its name in the manifest.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The directory of its manifest.
    pub directory: PathBuf,
    /// Names of the packages it depends on in any kind: normal, build, dev.
    pub dependencies: Vec<String>,
    /// Names of those that only its tests, examples and benches depend on.
    pub dev_dependencies: Vec<String>,
    /// Whether it may be published.
    pub is_published: bool,
}

impl Workspace {
    /// Asks cargo about the workspace that this program is run in by it, or else was built from.
    ///
    /// # Errors
    /// In words, when cargo cannot be run or answers something unexpected.
    pub fn load() -> Result<Self, String> {
        // A target directory may serve several clones: what was built from one of them is run in
        // another.
        let here =
            env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&here)
            .parent()
            .ok_or("xtask has no parent directory")?
            .to_path_buf();
        let mut cargo = steps::cargo();
        cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: Value = serde_json::from_str(&printed(cargo.current_dir(&root))?)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let packages = metadata["packages"]
            .as_array()
            .ok_or("cargo metadata has no packages")?;
        Ok(Self {
            root,
            packages: packages.iter().map(Package::from_metadata).collect(),
        })
    }

    /// The packages that may be published: the libraries for Rust.
    pub fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_published)
    }

    /// Whether the workspace's toolchain can build for that target.
    pub fn has_target(&self, target: &str) -> bool {
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "list", "--installed"]);
        printed(rustup.current_dir(&self.root)).is_ok_and(|installed| installed.contains(target))
    }

    /// The package of that name.
    ///
    /// # Errors
    /// In words, when there is none.
    pub fn package(&self, name: &str) -> Result<&Package, String> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.ok_or_else(|| format!("there is no package {name}"))
    }
}

impl Package {
    fn from_metadata(package: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        // A package asks itself for features that its tests need.
        let dependencies: Vec<_> = list(&package["dependencies"])
            .into_iter()
            .filter(|dependency| dependency["name"] != package["name"])
            .collect();
        Self {
            name: text(&package["name"]),
            version: text(&package["version"]),
            directory: manifest.parent().unwrap_or(Path::new(".")).to_path_buf(),
            dependencies: dependencies
                .iter()
                .map(|dependency| text(&dependency["name"]))
                .collect(),
            dev_dependencies: dependencies
                .iter()
                .filter(|dependency| dependency["kind"] == "dev")
                .map(|dependency| text(&dependency["name"]))
                .collect(),
            // No list is every registry, an empty one is none.
            is_published: package["publish"] != Value::Array(Vec::new()),
        }
    }
}
