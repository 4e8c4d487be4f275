//! [`Mount`].

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::directory::remove_regions;

/// A file system of the test's own over a directory, unmounted when this is dropped.
#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// A tmpfs of that size, as `64m`. `None`, which it says, where none can be mounted: the test
    /// is skipped.
    pub fn tmpfs(directory: &Path, size: &str) -> Option<Mount> {
        Mount::of("tmpfs", directory, &format!("size={size}"))
    }

    /// One of another kind, with these options.
    pub fn of(kind: &str, directory: &Path, options: &str) -> Option<Mount> {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", kind, "-o", options, "none"])
            .arg(directory);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("skipped: no {kind} can be mounted here");
        }
        is_mounted.then(|| Mount(directory.to_owned()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Mounts it again, with other options.
    pub fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Takes all the space that is left, until it is freed.
    pub fn fill(&self) {
        let mut ballast = std::fs::File::options();
        let ballast = ballast.create(true).append(true);
        let mut ballast = ballast.open(self.0.join("ballast")).unwrap();
        let piece = vec![1; 64 << 10];
        while ballast.write_all(&piece).is_ok() {}
    }

    /// Gives back the space that it took.
    pub fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // They are found by the files, which are gone with the mount.
        remove_regions(&self.0);
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
