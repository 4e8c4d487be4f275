//! The permissions of a space's description, and those of the files beside it, which follow from
//! them.
//!
//! A user who may read a space may see its members and attach it, which writes to `control` and
//! `calls`. A user who may write it may change its members, which replaces the description. The
//! permissions of the segments themselves are separate.

use std::fs;
use std::path::Path;

use crate::FileError;
use crate::segment::permissions;
use mneme_sys::files::set_mode;

/// Those of the description.
pub(super) fn meta(mode: u32) -> u32 {
    0o600 | mode & 0o666
}

/// Those of the files that participants write, and of the lock that excludes concurrent changes.
pub(super) use permissions::{control, lock};

/// Those of the directory. If a group may replace the description, the files that it writes belong
/// to the group.
fn directory(mode: u32) -> u32 {
    let readers = mode & 0o444;
    let group = if mode & 0o020 == 0 { 0 } else { 0o2000 };
    0o700 | readers | readers >> 2 | mode & 0o222 | group
}

/// Sets all permissions except the description's; `describe` replaces that in between. Changes that
/// the caller may not make are refused before anything is changed.
pub(super) fn apply<E: From<FileError>>(
    here: &Path,
    mode: u32,
    describe: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let set = |path: &Path, mode| set_mode(path, mode).map_err(FileError::at("share", path));
    set(&here.join("control"), control(mode))?;
    mneme_sys::fault!("space.space-share.control");
    for (name, mode) in [("lock", lock(mode)), ("calls", control(mode))] {
        let path = here.join(name);
        if fs::exists(&path).map_err(FileError::at("examine", &path))? {
            set(&path, mode)?;
        }
    }
    mneme_sys::fault!("space.space-share.parts");
    describe()?;
    set(here, directory(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_may_attach_a_space_and_writers_may_change_it() {
        for (mode, expected) in [
            (0o600, (0o600, 0o600, 0o600, 0o700)),
            (0o640, (0o640, 0o660, 0o600, 0o750)),
            (0o660, (0o660, 0o660, 0o660, 0o2770)),
            (0o644, (0o644, 0o666, 0o600, 0o755)),
            (0o666, (0o666, 0o666, 0o666, 0o2777)),
            (0o400, (0o600, 0o600, 0o600, 0o700)),
        ] {
            assert_eq!(
                (meta(mode), control(mode), lock(mode), directory(mode)),
                expected,
                "{mode:o}"
            );
        }
    }
}
