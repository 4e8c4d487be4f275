//! A participant of a segment holds a lock on the data too. Whatever becomes of the control file,
//! no process gets in beside it by another one, and none removes the data. Nor does a process get
//! in to other data by its control file.
//!
//! A segment's lock lies in its control file. Deleted and made anew, or copied with its directory,
//! that would be two locks for one content; and data that were replaced by a copy under their name
//! would be two contents for one lock. So a participant holds a byte of the data file, far beyond
//! its end, together with all others: *which* byte says by which control file it came. It also
//! holds a byte of the control file, which says to which data. A process that finds another byte
//! held does not come in.

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

/// Which byte stands for a file: two have different ones, but for one pair in 2^48.
fn byte_of(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    let mixed = found.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ found.dev().wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    Ok(FIRST + (mixed >> 16))
}

/// The control file by which a participant comes.
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

/// As long as this lives, it is known that this process takes part in a segment's data: nobody
/// removes them, or comes in by another control file. `Send + Sync`; a forked child has no part in
/// it.
///
/// Of a segment that [another crate lays out](crate::Contents), on a backing that outlives the
/// machine: if it was the last that had the segment open for writing, dropping it writes all
/// through to the medium and waits for that.
#[derive(Debug)]
pub struct Presence {
    /// Ends before the rest.
    _writing: Option<Writing>,
    _on_data: SharedByte,
    _on_control: SharedByte,
}

impl Presence {
    /// Takes part in the data, having come that way.
    pub(crate) fn announce(data: &File, path: &Path, way: Way) -> Result<Self, MapError> {
        let refused = |source| MapError::Liveness {
            path: path.to_owned(),
            source,
        };
        // First it takes its own byte, and then it asks for the others: of two processes that come
        // by different ways at once, no more than one gets in.
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

    /// This presence for a process that may write contents without a lock of this crate's.
    pub(super) fn writing(self, writing: Writing) -> Self {
        Self {
            _writing: Some(writing),
            ..self
        }
    }
}

/// Whether somebody holds another byte than this.
fn others_than(byte: u64, held: &SharedByte) -> Result<bool, LivenessError> {
    let elsewhere: [RangeInclusive<u64>; 2] = [FIRST..=byte - 1, byte + 1..=LAST];
    for bytes in elsewhere {
        if held.others_hold(bytes)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether anybody takes part in the data, by whatever control file. Only of a file that is not
/// there nobody does.
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
