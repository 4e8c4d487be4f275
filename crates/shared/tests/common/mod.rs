//! Helpers for several test programs.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;

use mneme_shared::{Opening, StoreOptions};
use mneme_space::{Registry, RegistryOptions};

/// A registry whose data all lie in the directory, so that they are removed with it.
pub fn registry(root: &Path) -> Registry {
    let memory = root.join("memory");
    std::fs::create_dir_all(&memory).unwrap();
    let options = RegistryOptions {
        shared_directory: Some(memory),
        ..RegistryOptions::default()
    };
    Registry::open_with(root.join("registry"), &options).unwrap()
}

/// Options for a store of 64 MiB that this process does not maintain.
pub fn options() -> StoreOptions {
    StoreOptions::new().capacity(64 << 20).maintainer(false)
}

/// How such a store is opened for serving.
pub fn opening() -> Opening {
    Opening {
        options: options(),
        ..Opening::default()
    }
}
