//! Permissions: those of the description, and what follows from them for the files beside it.
//!
//! A user who may read a space may see its members, and take part in it, for which `control` and
//! `calls` are written; a user who may write it may change the members, for which the description
//! is replaced. What anybody may do with the segments themselves is these segments' own affair.

use std::fs;
use std::path::Path;

use crate::FileError;
use crate::segment::permissions;
use mneme_sys::files::set_mode;

/// Of the description.
pub(super) fn meta(mode: u32) -> u32 {
    0o600 | mode & 0o666
}

/// Of what participants write, and of the lock that excludes changers from one another.
pub(super) use permissions::{control, lock};

/// Of the directory. Where a group may replace the description, what it writes belongs to the
/// group.
fn directory(mode: u32) -> u32 {
    let readers = mode & 0o444;
    let group = if mode & 0o020 == 0 { 0 } else { 0o2000 };
    0o700 | readers | readers >> 2 | mode & 0o222 | group
}

/// Sets all of them but the description's, which is replaced with `describe` in between. What the
/// caller may not change is refused before anything is changed.
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
    fn readers_take_part_and_writers_change() {
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
