//! What fuzz targets share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mneme_space::{Registry, RegistryOptions};

/// Where targets keep files, as `PREFIX` and the number of the process.
const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "mneme-fuzz-";

unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> i32;
}

/// The registry of this process, in memory. It goes when the process exits; what killed ones have
/// left goes when the next one begins.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        remove_leftovers();
        let root = root();
        fs::create_dir_all(root.join("memory")).unwrap();
        atexit(remove_own);
        let options = RegistryOptions {
            shared_directory: Some(root.join("memory")),
            ..RegistryOptions::default()
        };
        Registry::open_with(root.join("registry"), &options).unwrap()
    })
}

fn root() -> PathBuf {
    Path::new(MEMORY).join(format!("{PREFIX}{}", std::process::id()))
}

extern "C" fn remove_own() {
    let _ = fs::remove_dir_all(root());
}

fn remove_leftovers() {
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_number = |pid: &str| pid.parse::<u32>().is_ok();
        if pid.is_some_and(|pid| is_number(pid) && !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
