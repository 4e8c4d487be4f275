//! Operations on the files and directories of a registry.

use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use mneme_sys::files;

use crate::{FileError, RegistryError};

/// The entries of a directory; none if it does not exist.
pub(crate) fn entries(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = || FileError::at("list", directory);
    let listed = match fs::read_dir(directory) {
        Ok(listed) => listed,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed()(e)),
    };
    listed
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed()))
        .collect()
}

/// A directory of this user inside one that everybody may write to. It is created if necessary, and
/// refused if it belongs to another user.
pub(crate) fn own_directory(path: &Path, mode: u32) -> Result<PathBuf, RegistryError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => files::set_mode(path, mode).map_err(FileError::at("share", path))?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(FileError::at("create", path)(e).into()),
    }
    let found = fs::symlink_metadata(path).map_err(FileError::at("examine", path))?;
    if !is_own(&found) {
        return Err(RegistryError::NotOurs {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    Ok(path.to_owned())
}

/// Whether a path that any user could have created is a directory of this user.
pub(super) fn is_own_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| is_own(&found))
}

/// Examines the name itself and not the target of a link, whose creator could point it anywhere.
fn is_own(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == files::user()
}

/// Treats a file that somebody else has already removed as removed.
pub(crate) fn gone(path: &Path, removed: std::io::Result<()>) -> Result<(), FileError> {
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(FileError::at("remove", path)(e)),
        _ => Ok(()),
    }
}
