//! What several of these test programs need.

use std::path::Path;

use mneme_space::{Registry, RegistryOptions};

/// A registry all of which goes with the directory, whatever becomes of its users.
pub fn registry(root: &Path) -> Registry {
    let memory = root.join("memory");
    std::fs::create_dir_all(&memory).unwrap();
    let options = RegistryOptions {
        shared_directory: Some(memory),
        ..RegistryOptions::default()
    };
    Registry::open_with(root.join("registry"), &options).unwrap()
}
