//! A participant of a segment also holds a lock on the data file. Whatever happens to the control
//! file, no process can participate through another control file at the same time, and none removes
//! the data.
//!
//! A segment's lock lies in its control file. If that is deleted and created again, or copied with
//! its directory, there would be two locks for one content; if the data are replaced by a copy of
//! the same name, there would be two contents for one lock. So all participants together hold a
//! byte of the data file, far beyond its end: *which* byte depends on the control file that they
//! use. They also hold a byte of the control file, which depends on the data file. A process that
//! finds another byte held is refused.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mneme_sys::{LivenessError, SharedByte};

use super::writers::Writing;
use crate::{FileError, MapError, RegistryError};

/// Beyond the end of any file.
const FIRST: u64 = 1 << 62;
pub(super) const LAST: u64 = FIRST + (1 << 48) - 1;

/// The byte that stands for a file. Two files have different bytes, except for one pair in 2^48.
fn byte_of(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    let mixed = found.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ found.dev().wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    Ok(FIRST + (mixed >> 16))
}

/// The control file through which a participant enters.
#[derive(Debug)]
pub(crate) struct Way {
    control: File,
    byte: u64,
}

impl Way {
    pub(crate) fn by(control: &File) -> io::Result<Self> {
        let byte = byte_of(control)?;
        let control = control.try_clone()?;
        Ok(Self { control, byte })
    }
}

/// As long as this exists, other processes know that this process participates in a segment's data:
/// nobody removes them, or enters through another control file. `Send + Sync`; not inherited by a
/// forked child.
///
/// For a segment that [another crate lays out](crate::Contents), on a backing that outlives the
/// machine: if this is the last process that had the segment open for writing, dropping it writes
/// everything through to the medium and waits for that.
#[derive(Debug)]
pub struct Presence {
    /// Dropped before the rest.
    _writing: Option<Writing>,
    _on_data: SharedByte,
    _on_control: SharedByte,
}

impl Presence {
    /// Participates in the data, through that control file.
    pub(crate) fn announce(data: &File, path: &Path, way: Way) -> Result<Self, MapError> {
        let refused = |source| MapError::Liveness {
            path: path.to_owned(),
            source,
        };
        // The process takes its own byte first, and then checks for others: of two processes that
        // enter through different files at once, at most one succeeds.
        let on_data = SharedByte::take(data, way.byte).map_err(refused)?;
        if others_than(way.byte, &on_data).map_err(refused)? {
            let path = path.to_owned();
            return Err(MapError::OtherControl { path });
        }
        let of_data = byte_of(data).map_err(FileError::at("examine", path))?;
        let on_control = SharedByte::take(&way.control, of_data).map_err(refused)?;
        if others_than(of_data, &on_control).map_err(refused)? {
            let path = path.to_owned();
            return Err(MapError::OtherData { path });
        }
        Ok(Self {
            _writing: None,
            _on_data: on_data,
            _on_control: on_control,
        })
    }

    /// This presence, for a process that may write the contents without this crate's lock.
    pub(super) fn writing(self, writing: Writing) -> Self {
        Self {
            _writing: Some(writing),
            ..self
        }
    }
}

/// Whether somebody holds another byte than this one.
fn others_than(byte: u64, held: &SharedByte) -> Result<bool, LivenessError> {
    let elsewhere: [RangeInclusive<u64>; 2] = [FIRST..=byte - 1, byte + 1..=LAST];
    for bytes in elsewhere {
        if held.others_hold(bytes)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether anybody participates in the data, through any control file. A missing file has no
/// participants.
pub(crate) fn is_anybody_in(data: &Path) -> Result<bool, RegistryError> {
    match SharedByte::is_any_held(data, FIRST..=LAST) {
        Err(LivenessError::Os { source, .. })
            if matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(false)
        }
        other => other.map_err(|source| RegistryError::Lock {
            path: data.to_owned(),
            source,
        }),
    }
}
