//! The version word, through which processes attached to a space notice that its members have
//! changed, with one load and no system call.
//!
//! The word lies in the header of the space's control region. **It is never ahead of the
//! description:** a process that changes the members replaces the description first and then raises
//! the word. If it dies in between, the word is behind until the next reader of the description
//! raises it. So if the word is not greater than the version that a process has read, that version
//! is current; if it is greater, the members must be read again.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Release};

use mneme_sync::Participants;
use mneme_sys::{Access, HEADER_LEN, PagePolicy, Region, RegionHeader, files};

use crate::segment::control;
use crate::{FileError, MapError, Uuid};

/// The index of the word in the header.
const VERSION: usize = 0;

/// The word of a control region that is out of use: the space was removed, or has another control
/// region. It is greater than every version.
pub(crate) const RETIRED: u64 = u64::MAX;

/// The word of a space, kept mapped. `Send + Sync`; it must not be used in a forked child.
pub(crate) struct VersionWord(Kept);

enum Kept {
    /// A participant, which prevents the space's removal and the replacement of its control file.
    Participant(Participants),
    /// A process that may not write and only reads the word.
    Onlooker(Box<Region>),
}

impl VersionWord {
    /// Maps the word of a space.
    pub(super) fn open(control: &Path, of: Uuid) -> Result<Self, MapError> {
        match control::open_control(control, of) {
            Ok(participants) => Ok(Self(Kept::Participant(participants))),
            Err(MapError::File(e)) if e.source.kind() == ErrorKind::PermissionDenied => {
                Self::look(control)
            }
            Err(other) => Err(other),
        }
    }

    /// Maps the word for reading only.
    pub(super) fn look(control: &Path) -> Result<Self, MapError> {
        let file = files::open_plain(control, File::options().read(true))
            .map_err(FileError::at("open", control))?;
        let region = Region::map(file.into(), Access::ReadOnly, 1, PagePolicy::Small)?;
        // Checks once that the word exists; otherwise each load would fail.
        RegionHeader::client_word(&region, VERSION)?;
        Ok(Self(Kept::Onlooker(Box::new(region))))
    }

    /// The space's participants; `None` for a process that only reads.
    pub(crate) fn participants(&self) -> Option<&Participants> {
        match &self.0 {
            Kept::Participant(participants) => Some(participants),
            Kept::Onlooker(_) => None,
        }
    }

    /// The current word: [`RETIRED`], or the version of a description that existed. Acquire: a
    /// description that is read afterwards has at least that version.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        let region = match &self.0 {
            Kept::Participant(participants) => participants.region(),
            Kept::Onlooker(region) => region,
        };
        // SYNC: pairs with `raise`. A header that is mapped stays mapped, so the access cannot
        // fail.
        let word = RegionHeader::client_word(region, VERSION);
        word.unwrap_or(RETIRED)
    }

    /// Raises the word to the description's version, if this process may write it.
    pub(super) fn raise(&self, version: u64) {
        if let Some(participants) = self.participants() {
            // Cannot fail: the region is mapped for writing, and has a header.
            let _ = raise(participants, version);
        }
    }
}

impl std::fmt::Debug for VersionWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VersionWord").field(&self.load()).finish()
    }
}

/// Raises the word of a control region to a version that the description has.
pub(super) fn raise(
    participants: &Participants,
    version: u64,
) -> Result<(), mneme_sys::RegionError> {
    let words = RegionHeader::client(participants.region())?;
    // SYNC: pairs with the Acquire load in `load`; if two threads raise the word, the greater
    // version stays.
    words[VERSION].fetch_max(version, AcqRel);
    Ok(())
}

/// Whether the file is a control file: nothing is written to anything else that somebody has put in
/// its place.
fn is_control(file: &File) -> bool {
    let mut bytes = [0; HEADER_LEN];
    let has_one_name = file.metadata().is_ok_and(|found| found.nlink() == 1);
    has_one_name
        && file.read_exact_at(&mut bytes, 0).is_ok()
        && Participants::are_described_by(&RegionHeader::from_bytes(&bytes))
}

/// Tells the processes that watch this control file that it is out of use. If that fails, no
/// process watches it, or it has no word.
pub(crate) fn retire(control: &Path) {
    let opened = files::open_plain(control, File::options().read(true).write(true));
    if let Ok(file) = opened
        && is_control(&file)
        && let Ok(region) = Region::map(file.into(), Access::ReadWrite, 1, PagePolicy::Small)
        && let Ok(words) = RegionHeader::client(&region)
    {
        // SYNC: pairs with the Acquire load in `VersionWord::load`.
        words[VERSION].store(RETIRED, Release);
    }
}
