//! A space's control file that is gone or damaged is made anew, while no process uses it. All
//! that it held is the participants, and the version, which the description has too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::meta::{LAST_VERSION, SpaceMeta};
use super::permissions;
use super::version::{self, VersionWord};
use crate::segment::control::in_use;
use crate::segment::mend;
use crate::{CreateError, FileError};

/// What is wrong with a space's control file, if that is known.
pub(crate) fn control_damage(directory: &Path, meta: &SpaceMeta) -> Option<String> {
    let control = directory.join("control");
    mend::control_damage(&control, meta.uuid).or_else(|| {
        let seen = VersionWord::open(&control, meta.uuid).ok()?.load();
        (seen > LAST_VERSION)
            .then(|| "its version is impossible, so that nobody notices changes".to_owned())
    })
}

/// Makes the control file anew; says whether it did. The registry is locked.
pub(crate) fn mend_control(directory: &Path, meta: &SpaceMeta) -> Result<bool, CreateError> {
    let control = directory.join("control");
    if in_use(&control)? {
        return Ok(false);
    }
    let description = directory.join("meta");
    let found = fs::metadata(&description).map_err(FileError::at("examine", &description))?;
    let mode = permissions::control(found.permissions().mode());
    // Processes that only look at the old one are no participants.
    version::retire(&control);
    mneme_sys::fault!("space.space-mend.retired");
    mend::replace_control(&control, meta.uuid, mode, |made| {
        version::raise(made, meta.version)
    })?;
    Ok(true)
}
