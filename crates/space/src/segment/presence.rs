//! Who takes part in a segment says so on its data too: whatever becomes of the control file, nobody gets in beside him
//! by another one, and nobody removes the data.
//!
//! A segment's lock lies in its control file. Deleted and made anew, or copied with its directory, that would be two
//! locks for one content. So a participant holds a byte of the data file, far beyond its end, together with all others:
//! *which* byte says by which control file he came. Whoever finds another byte held does not come in.

use std::fs::{File, Metadata};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mneme_sys::{LivenessError, SharedByte};

use super::writers::Writing;
use crate::{MapError, RegistryError};

/// Beyond the end of any file.
const FIRST: u64 = 1 << 62;
pub(super) const LAST: u64 = FIRST + (1 << 48) - 1;

/// Which byte stands for a control file: two have different ones, but for one pair in 2^48.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way(u64);

impl Way {
    pub(crate) fn by(control: &Metadata) -> Self {
        let mixed = control.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ control.dev().wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        Self(FIRST + (mixed >> 16))
    }
}

/// As long as this lives, it is known that this process takes part in a segment's data: nobody removes them, or comes in
/// by another control file. `Send + Sync`; a forked child has no part in it.
///
/// Of a segment that [another crate lays out](crate::Contents), on a backing that outlives the machine: if it was the last
/// that had the segment open for writing, dropping it writes all through to the medium and waits for that.
#[derive(Debug)]
pub struct Presence {
    /// Ends before the rest.
    _writing: Option<Writing>,
    _held: SharedByte,
}

impl Presence {
    /// Takes part in the data, having come that way.
    pub(crate) fn announce(data: &File, path: &Path, way: Way) -> Result<Self, MapError> {
        let refused = |source| MapError::Liveness {
            path: path.to_owned(),
            source,
        };
        let held = SharedByte::take(data, way.0).map_err(refused)?;
        // First said and then asked: of two who come by different ways at once, no more than one gets in.
        let elsewhere: [RangeInclusive<u64>; 2] = [FIRST..=way.0 - 1, way.0 + 1..=LAST];
        for bytes in elsewhere {
            if held.others_hold(bytes).map_err(refused)? {
                return Err(MapError::OtherControl {
                    path: path.to_owned(),
                });
            }
        }
        Ok(Self {
            _writing: None,
            _held: held,
        })
    }

    /// The same for one who may write what has no lock of this crate's.
    pub(super) fn writing(self, writing: Writing) -> Self {
        Self {
            _writing: Some(writing),
            ..self
        }
    }
}

/// Whether anybody takes part in the data, by whatever control file. Only of a file that is not there nobody does.
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
