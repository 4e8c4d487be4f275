//! Creates a lost or damaged control file again, if nobody uses it.
//!
//! The old file alone may have recorded that a process died while changing the segment. So the
//! segment is declared poisoned before the new file lets any process in; a program that knows its
//! contents to be consistent can accept it as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mneme_sync::Participants;
use mneme_sys::{Access, RegionError, RegionHeader};

use super::control::{self, make_control, segment_in_use};
use super::meta::SegmentMeta;
use super::{data, permissions};
use crate::registry::files::gone;
use crate::{CreateError, FileError, MapError, OpenError, Uuid};
use mneme_sys::files::set_mode;

/// What is wrong with the control file of a segment or a space, if that can be determined: a file
/// that this process may not open is not judged.
pub(crate) fn control_damage(control: &Path, of: Uuid) -> Option<String> {
    let is_file = fs::symlink_metadata(control).is_ok_and(|found| found.is_file());
    if !is_file {
        return Some("it is missing, so that nobody can attach it".to_owned());
    }
    match control::open_control(control, of) {
        Err(MapError::Control { source, .. }) => match source {
            // A file that is full or may not be opened, or whose holder is stopped, is not damaged.
            mneme_sync::OpenError::Attach(_) => None,
            damage => Some(format!("nobody can attach it: {damage}")),
        },
        _ => None,
    }
}

/// Atomically replaces a control file that nobody uses by a new one, which is first passed to
/// `ready`, before anybody else can see it.
pub(crate) fn replace_control(
    control: &Path,
    of: Uuid,
    mode: u32,
    ready: impl FnOnce(&Participants) -> Result<(), RegionError>,
) -> Result<(), CreateError> {
    let aside = control.with_extension("new");
    gone(&aside, fs::remove_file(&aside))?;
    let made = make_control(&aside, of)?;
    ready(&made).map_err(|source| CreateError::Data {
        path: aside.clone(),
        source,
    })?;
    drop(made);
    set_mode(&aside, mode).map_err(FileError::at("share", &aside))?;
    mneme_sys::fault!("space.mend.made");
    fs::rename(&aside, control).map_err(FileError::at("replace", control))?;
    mneme_sys::fault!("space.mend.named");
    Ok(())
}

/// Creates the control file again if necessary; returns whether it did. The registry must be
/// locked.
pub(crate) fn mend_control(control: &Path, meta: &SegmentMeta) -> Result<bool, CreateError> {
    if segment_in_use(control, &meta.data)? {
        return Ok(false);
    }
    let refused = |source| CreateError::Data {
        path: meta.data.clone(),
        source,
    };
    let file = data::open(&meta.data, Access::ReadWrite).map_err(|e| match e {
        OpenError::File(e) => e,
        other => FileError::at("open", &meta.data)(std::io::Error::other(other)),
    })?;
    let found = file
        .metadata()
        .map_err(FileError::at("examine", &meta.data))?;
    let mode = permissions::control(found.permissions().mode());
    let region =
        data::map_floating(file, Access::ReadWrite, meta.max_size, meta.pages).map_err(refused)?;
    let words = RegionHeader::client(&region).map_err(refused)?;
    // SYNC: pairs with the loads of processes that enter later through the new control file.
    words[data::word::POISON].store(
        data::word::state::DIED,
        std::sync::atomic::Ordering::Release,
    );
    region.sync().map_err(refused)?;
    mneme_sys::fault!("space.mend.poisoned");

    replace_control(control, meta.uuid, mode, |_| Ok(()))?;
    Ok(true)
}
