//! A registry for one test: with its own directory and addresses, removed at the end.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod toy;
pub mod visitor;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use mneme_space::{Mapping, Registry, RegistryOptions, Segment, Space};
use mneme_sys::{PagePolicy, Region};

/// Whether a fault point lies in sections and recoveries: `lock_takeover.rs` tests those,
/// `deaths.rs` all others.
pub fn is_of_sections(point: &str) -> bool {
    let parts = ["space.enter.", "space.recover."];
    parts.iter().any(|part| point.starts_with(part))
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A registry on tmpfs with its data beside it, in a window of 64 GiB that no other test of this
/// process uses.
pub struct Scene {
    pub registry: Registry,
    pub root: PathBuf,
}

impl Scene {
    pub fn new() -> Scene {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = format!("/dev/shm/mneme-space-test-{}-{number}", std::process::id());
        let root = PathBuf::from(root);
        // Left by a killed process that had the same process id.
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(root.join("memory")).unwrap();
        Scene::at(root, number)
    }

    pub fn at(root: PathBuf, number: usize) -> Scene {
        // `cargo xtask kernel vas` has them where the kernel module shows segments.
        let is_usual = std::env::var_os("MNEME_USUAL_WINDOW").is_some();
        let base = [0x2000_0000_0000, 0x4000_0000_0000][usize::from(is_usual)];
        let options = RegistryOptions {
            window_base: base + number * (64 << 30),
            window_slots: 64,
            shared_directory: Some(root.join("memory")),
        };
        let registry = Registry::open_with(root.join("registry"), &options).unwrap();
        Scene { registry, root }
    }

    pub fn create(&self, name: &str) -> Segment {
        let pages = PagePolicy::Small;
        self.registry.segment(name).pages(pages).create().unwrap()
    }

    pub fn open(&self, name: &str) -> Segment {
        Segment::open(&self.registry, name).unwrap()
    }

    pub fn space(&self, name: &str) -> Space {
        Space::open(&self.registry, name).unwrap()
    }

    /// The findings of `check`, as text.
    pub fn findings(&self) -> Vec<String> {
        let found = self.registry.check().unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    /// Checks that the damage is reported with these words, that cleaning leaves it, and that
    /// `remove` ends it.
    pub fn is_reported_and_removable(&self, words: &str, remove: impl FnOnce(&Registry)) {
        let found = self.findings();
        assert!(
            found.iter().any(|f| f.contains(words)),
            "{words}: {found:?}"
        );
        self.registry.clean().unwrap();
        assert_eq!(self.findings(), found, "cleaning is not repairing");
        remove(&self.registry);
        assert_eq!(self.findings(), Vec::<String>::new());
    }

    /// Everything below a directory of the scene, sorted.
    pub fn files(&self, below: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.root.join(below), &mut found);
        found.sort();
        found
    }
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        }
        found.push(path);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// The region of a segment in which nobody enters sections.
pub fn region(mapping: &Mapping) -> &Region {
    // SAFETY: the tests that use this have written its contents themselves.
    unsafe { mapping.region() }
}
