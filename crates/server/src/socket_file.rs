//! The file of a unix socket that a server listens on.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of a unix socket, as it was when the server was bound to it. Dropping this removes it,
/// unless another file has taken its place: the socket of another server.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// `None` if it was gone already, or is to stay.
    metadata: Option<Metadata>,
}

impl SocketFile {
    pub fn new(path: PathBuf) -> Self {
        let metadata = std::fs::symlink_metadata(&path).ok();
        Self { path, metadata }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it to a successor.
    pub fn keep(mut self) {
        self.metadata = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).ok();
        if let (Some(own), Some(now)) = (&self.metadata, now)
            && is_same(own, &now)
        {
            // It may be removed at this moment; nothing depends on it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether both are of one file. The inode alone does not tell: once a file is gone, the next one
/// may have its number. It is born later, where the file system says when.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let inode = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    inode(one) == inode(other) && one.created().ok() == other.created().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_successor_keeps_its_socket_file_even_with_the_same_inode() {
        let path = std::env::temp_dir().join(format!("mneme-successor-{}", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        let born = || std::fs::symlink_metadata(&path).unwrap().created().ok();
        let first_born = born();
        let first = SocketFile::new(path.clone());
        // The kernel's clock for files ticks every few milliseconds; servers live longer.
        loop {
            std::fs::remove_file(&path).unwrap();
            drop(UnixListener::bind(&path).unwrap());
            if first_born.is_none() || born() != first_born {
                break;
            }
        }
        drop(first);
        assert!(path.exists() || first_born.is_none());
        SocketFile::new(path.clone()).keep();
        assert!(path.exists());
        drop(SocketFile::new(path.clone()));
        assert!(!path.exists());
    }
}
