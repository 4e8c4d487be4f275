//! [`TestDir`].

use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of the test's own, removed with all that is in it when this is dropped.
///
/// Its name is unique among all tests of all processes.
#[derive(Debug)]
pub struct TestDir(PathBuf);

impl TestDir {
    /// Makes one in memory (`/dev/shm`) where there is such a place, else with temporary files.
    pub fn new(test: &str) -> TestDir {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => TestDir::below(memory, test),
            false => TestDir::on_disk(test),
        }
    }

    /// Makes one where temporary files are.
    pub fn on_disk(test: &str) -> TestDir {
        TestDir::below(&std::env::temp_dir(), test)
    }

    fn below(parent: &Path, test: &str) -> TestDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mneme-test-{test}-{}-{number}", std::process::id());
        let path = parent.join(name);
        // What a killed process of this number has left is gone then.
        let _ = std::fs::remove_dir_all(&path);
        // As the owner's alone, which a registry of segments wants.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .unwrap();
        TestDir(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TestDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        remove_regions(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What processes that were killed with a durable tree in this directory have left in memory:
/// regions that have the numbers of its file and file system in their names.
pub(crate) fn remove_regions(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(found) if found.is_dir() => remove_regions(&entry.path()),
            Ok(found) if found.is_file() => {
                let name = format!("mneme-tree-{:x}-{:x}-", found.dev(), found.ino());
                let regions = std::fs::read_dir("/dev/shm")
                    .into_iter()
                    .flatten()
                    .flatten();
                for region in regions {
                    if region.file_name().to_string_lossy().starts_with(&name) {
                        let _ = std::fs::remove_file(region.path());
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_name_are_two_and_go_with_their_content() {
        let (one, two) = (TestDir::new("twice"), TestDir::on_disk("twice"));
        assert_ne!(one.path(), two.path());
        std::fs::create_dir(one.join("in")).unwrap();
        std::fs::write(one.join("in/file"), "content").unwrap();
        let found = one.join("in/file").metadata().unwrap();
        let region = format!("/dev/shm/mneme-tree-{:x}-{:x}-1", found.dev(), found.ino());
        let has_region = std::fs::write(&region, "").is_ok();
        let path = one.to_path_buf();
        drop(one);
        assert!(!path.exists() && two.exists());
        assert!(!has_region || !Path::new(&region).exists());
    }
}
