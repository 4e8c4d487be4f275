//! Creates a space's lost or damaged control file again, if no process uses it. The file held only
//! the participants and the version, which the description has too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::meta::{LAST_VERSION, SpaceMeta};
use super::permissions;
use super::version::{self, VersionWord};
use crate::segment::control::in_use;
use crate::segment::mend;
use crate::{CreateError, FileError};

/// What is wrong with a space's control file, if that can be determined.
pub(crate) fn control_damage(directory: &Path, meta: &SpaceMeta) -> Option<String> {
    let control = directory.join("control");
    mend::control_damage(&control, meta.uuid).or_else(|| {
        let seen = VersionWord::open(&control, meta.uuid).ok()?.load();
        (seen > LAST_VERSION)
            .then(|| "its version is impossible, so that nobody notices changes".to_owned())
    })
}

/// Creates the control file again if necessary; returns whether it did. The registry must be
/// locked.
pub(crate) fn mend_control(directory: &Path, meta: &SpaceMeta) -> Result<bool, CreateError> {
    let control = directory.join("control");
    if in_use(&control)? {
        return Ok(false);
    }
    let description = directory.join("meta");
    let found = fs::metadata(&description).map_err(FileError::at("examine", &description))?;
    let mode = permissions::control(found.permissions().mode());
    // Processes that only read the old file are not participants.
    version::retire(&control);
    mneme_sys::fault!("space.space-mend.retired");
    mend::replace_control(&control, meta.uuid, mode, |made| {
        version::raise(made, meta.version)
    })?;
    Ok(true)
}
