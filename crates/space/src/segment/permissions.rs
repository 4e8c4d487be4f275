//! Permissions: those of the data file, and what follows from them for the files beside it.
//!
//! A user who may read the data may write `control`, for even a reader has a slot there; and may
//! enter the directory and read the description. Only the owner may change either. The group is
//! that of the registry, wherever the data lie. Spaces have their own rules, in `space::modes`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use crate::FileError;
use mneme_sys::files::set_mode;

/// Of the description.
pub(crate) fn meta(mode: u32) -> u32 {
    0o600 | mode & 0o444
}

/// Of the control file.
pub(crate) fn control(mode: u32) -> u32 {
    let readers = mode & 0o444;
    0o600 | readers | readers >> 1
}

/// Of a lock that excludes writers from one another: a reader cannot keep them waiting.
pub(crate) fn lock(mode: u32) -> u32 {
    let writers = mode & 0o222;
    0o600 | writers | writers << 1
}

/// Of the segment's directory.
fn directory(mode: u32) -> u32 {
    let readers = mode & 0o444;
    0o700 | readers | readers >> 2
}

/// Gives new data to the group of their directory in the registry: data that lie elsewhere are
/// their maker's group's, and the registry may be another's. Left alone where the maker may not
/// give anything to that group.
pub(crate) fn give_to_group(here: &Path, data: &Path) -> Result<(), FileError> {
    let group = |path: &Path| {
        let found = fs::metadata(path).map_err(FileError::at("examine", path))?;
        Ok::<_, FileError>(found.gid())
    };
    let of_registry = group(here)?;
    if group(data)? == of_registry {
        return Ok(());
    }
    match chown(data, None, Some(of_registry)) {
        Err(refused) if refused.kind() != ErrorKind::PermissionDenied => {
            Err(FileError::at("share", data)(refused))
        }
        _ => Ok(()),
    }
}

/// Sets all of them, the data first: if it ends half-way, nobody can do more with the data than the
/// new permissions say.
pub(crate) fn apply(here: &Path, data: &Path, mode: u32) -> Result<(), FileError> {
    let set = |path: &Path, mode| set_mode(path, mode).map_err(FileError::at("share", path));
    set(data, mode)?;
    mneme_sys::fault!("space.share.data");
    set(&here.join("control"), control(mode))?;
    mneme_sys::fault!("space.share.control");
    set(&here.join("meta"), meta(mode))?;
    set(here, directory(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_may_take_locks_and_nobody_else_may() {
        for (mode, expected) in [
            (0o600, (0o600, 0o600, 0o700)),
            (0o660, (0o640, 0o660, 0o750)),
            (0o640, (0o640, 0o660, 0o750)),
            (0o644, (0o644, 0o666, 0o755)),
            (0o400, (0o600, 0o600, 0o700)),
        ] {
            assert_eq!(
                (meta(mode), control(mode), directory(mode)),
                expected,
                "{mode:o}"
            );
        }
    }
}
