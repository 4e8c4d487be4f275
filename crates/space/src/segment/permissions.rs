//! The permissions of a segment's data file, and those of the files beside it, which follow from
//! them.
//!
//! A user who may read the data may also write `control`, because readers have slots there too,
//! enter the directory and read the description. Only the owner may change either. The group is the
//! registry's, wherever the data are stored. For spaces, see `space::permissions`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use crate::FileError;
use mneme_sys::files::set_mode;

/// The mode of the segment's description.
pub(crate) fn meta(mode: u32) -> u32 {
    0o600 | mode & 0o444
}

/// The mode of the control file.
pub(crate) fn control(mode: u32) -> u32 {
    let readers = mode & 0o444;
    0o600 | readers | readers >> 1
}

/// Those of a lock that excludes writers from one another: a reader cannot make them wait.
pub(crate) fn lock(mode: u32) -> u32 {
    let writers = mode & 0o222;
    0o600 | writers | writers << 1
}

/// Those of the segment's directory.
fn directory(mode: u32) -> u32 {
    let readers = mode & 0o444;
    0o700 | readers | readers >> 2
}

/// Gives new data the group of their directory in the registry: a file elsewhere would get its
/// creator's group, and the registry may have another. The group is left unchanged if the creator
/// may not give files to the registry's.
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

/// Sets all permissions, those of the data first: if it is interrupted, nobody can do more with the
/// data than the new permissions say.
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
    fn only_users_who_may_read_the_data_may_take_locks() {
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
