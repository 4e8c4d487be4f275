//! Warns about file systems that are unsuitable for durable files.

use std::path::Path;

use crate::files::{Mount, mounts};

/// A reason for caution about a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caution {
    /// Other machines may see something else than a mapping of its files, and their locks may not
    /// be visible here.
    Network,
    /// Every write of a page goes to a new place.
    CopyOnWrite,
}

impl Caution {
    /// The caution for the file system that holds `path`, whose directory exists.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        Self::of_directory(parent.unwrap_or(Path::new(".")))
    }

    /// The caution for the file system that holds a directory.
    #[must_use]
    pub fn of_directory(path: &Path) -> Option<Self> {
        Self::among(mounts().into_iter(), &path.canonicalize().ok()?)
    }

    fn among(mounts: impl Iterator<Item = Mount>, directory: &Path) -> Option<Self> {
        let above = mounts.filter(|mount| directory.starts_with(&mount.point));
        // If several are mounted at one point, the last hides the others.
        let mount = above.max_by_key(|mount| mount.point.components().count())?;
        Self::of_kind(&mount.kind)
    }

    /// The caution for file systems of this type, as a list of mounts names it.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "afs" | "fuse.sshfs"
            | "fuse.glusterfs" => Some(Self::Network),
            "btrfs" | "zfs" | "bcachefs" => Some(Self::CopyOnWrite),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::files::mounts_in;

    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let text = "1 1 8:1 / / rw - btrfs /dev/sda1 rw\n\
                    2 1 0:9 / /home rw - nfs4 server:/home rw\n\
                    3 1 8:2 / /home/fast rw - ext4 /dev/sdb1 rw\n\
                    4 1 8:3 / /over rw - ext4 /dev/sdc1 rw\n\
                    5 1 0:8 / /over rw - 9p share rw\n";
        let of = |path: &str| Caution::among(mounts_in(text), Path::new(path));
        assert_eq!(of("/var"), Some(Caution::CopyOnWrite));
        assert_eq!(of("/home/a"), Some(Caution::Network));
        assert_eq!(of("/home/fast/b"), None);
        assert_eq!(of("/homeless"), Some(Caution::CopyOnWrite));
        assert_eq!(of("/over"), Some(Caution::Network));
    }
}
