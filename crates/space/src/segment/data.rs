//! A segment's data file: its header, and mapping it where nobody relies on its address.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use mneme_sys::{Access, HEADER_LEN, PagePolicy, Region, RegionError, RegionHeader, files};

use super::durable;
use super::meta::SegmentMeta;
use crate::{FileError, MapError, OpenError, Uuid};

/// Magic of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"MNEMSEG\0";
/// Version of the format.
pub(crate) const FORMAT: u32 = 1;
/// Changes whenever what this crate lays out in a segment does.
pub(crate) const LAYOUT_HASH: u64 = 0x6d6e_656d_7365_6731;

/// The header's words that this crate gives a meaning.
pub(crate) mod word {
    /// Whether the segment is whole: one of [`state`].
    pub(crate) const POISON: usize = 0;
    /// Of a segment on a medium that outlives the machine: in which boot it was changed since all
    /// of it was on the medium, or 0. Another boot's word says that the machine went down with
    /// changes that nobody had written through. [`LOST`] if a medium failed to take changes: no
    /// later success of another write makes up for that. The one word that means the same where
    /// another crate lays the segment out.
    pub(crate) const UNSYNCED: usize = 1;
    /// The boot for which `UNSYNCED` is known to be on the medium. The process that writes
    /// `UNSYNCED` may die before the medium has it; then this word still says something else.
    pub(crate) const NOTED: usize = 2;
    /// The address at which the pointers inside are true; 0 of a segment that floats, or that a
    /// build made which did not note it. The description has it too, and may be lost.
    pub(crate) const BASE: usize = 3;

    /// In [`UNSYNCED`], of no boot: changes were lost.
    pub(crate) const LOST: u64 = u64::MAX;

    /// What that word says. `CHANGING` without a holder of the lock says that the holder died.
    pub(crate) mod state {
        /// Nobody is changing it, and nobody has left it half changed.
        pub(crate) const WHOLE: u64 = 0;
        /// The holder of the lock may be changing it.
        pub(crate) const CHANGING: u64 = 1;
        /// A panic ended a section that could change it.
        pub(crate) const PANICKED: u64 = 2;
        /// Somebody died while changing it, or nobody can know.
        pub(crate) const DIED: u64 = 3;
    }
}

/// Reads and checks the header without mapping anything.
pub(crate) fn examine(meta: &SegmentMeta) -> Result<RegionHeader, OpenError> {
    examine_file(&open(&meta.data, Access::ReadOnly)?, meta)
}

/// Reads and checks the header of a file that was opened already.
pub(crate) fn examine_file(file: &File, meta: &SegmentMeta) -> Result<RegionHeader, OpenError> {
    let path = &meta.data;
    let found = file.metadata().map_err(FileError::at("examine", path))?;
    if !found.is_file() {
        return Err(mismatch(path, "it is not a file"));
    }
    let len = found.len();
    let mut bytes = [0; HEADER_LEN];
    let header = |source| OpenError::Header {
        path: path.clone(),
        source,
    };
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            return Err(header(
                RegionError::OutOfBounds {
                    offset: 0,
                    bytes: HEADER_LEN as u64,
                    len: usize::try_from(len).unwrap_or(usize::MAX),
                }
                .into(),
            ));
        }
        Err(e) => return Err(FileError::at("read", path)(e).into()),
    }
    let found = RegionHeader::from_bytes(&bytes);
    let (magic, format, layout) = meta.layout();
    found.validate(magic, format, layout).map_err(header)?;
    agree(&found, meta)?;
    // A machine that went down may have written the header and not yet the length: the segment is
    // poisoned then, and recovery makes it whole.
    if found.committed_len > len && durable::is_of_this_boot(found.client[word::UNSYNCED], meta) {
        return Err(OpenError::Truncated {
            path: path.clone(),
            len,
            committed: found.committed_len,
        });
    }
    Ok(found)
}

/// Whether a header is that of the segment described.
pub(crate) fn agree(header: &RegionHeader, meta: &SegmentMeta) -> Result<(), OpenError> {
    if Uuid::from_bytes(header.uuid) != meta.uuid {
        return Err(mismatch(&meta.data, "it is another segment's"));
    }
    if header.max_len != meta.max_size as u64 {
        return Err(mismatch(&meta.data, "the greatest sizes differ"));
    }
    Ok(())
}

fn mismatch(path: &Path, why: &'static str) -> OpenError {
    OpenError::Mismatch {
        path: path.to_owned(),
        why,
    }
}

/// Whether the header's words say that nobody left the segment half changed, neither a process nor
/// a machine.
pub(crate) fn is_whole(client: &[u64; 8], meta: &SegmentMeta) -> bool {
    client[word::POISON] == word::state::WHOLE
        && durable::is_of_this_boot(client[word::UNSYNCED], meta)
}

/// Opens a data file.
pub(crate) fn open(path: &Path, access: Access) -> Result<File, OpenError> {
    let mut options = File::options();
    options.read(true).write(access == Access::ReadWrite);
    files::open_linked(path, &mut options).map_err(|e| match e.kind() {
        ErrorKind::InvalidInput => mismatch(path, "it is not a file"),
        ErrorKind::NotFound => OpenError::DataGone {
            path: path.to_owned(),
        },
        _ => FileError::at("open", path)(e).into(),
    })
}

/// Makes a data file for its owner alone.
pub(crate) fn create(path: &Path) -> Result<File, FileError> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(FileError::at("create", path))
}

/// Maps a data file at any free address.
pub(crate) fn map_floating(
    file: File,
    access: Access,
    max: usize,
    pages: PagePolicy,
) -> Result<Region, RegionError> {
    Region::map(file.into(), access, max, pages)
}

/// Writes the header of a new segment, or that of a clone over its original's, whose words of the
/// heap and its types it keeps.
pub(crate) fn write_header(
    region: &Region,
    uuid: Uuid,
    client: [u64; 8],
) -> Result<(), RegionError> {
    let header = RegionHeader {
        magic: MAGIC,
        format: FORMAT,
        header_len: HEADER_LEN as u32,
        layout_hash: LAYOUT_HASH,
        uuid: uuid.to_bytes(),
        max_len: region.max() as u64,
        committed_len: region.len() as u64,
        client,
        checksum: 0,
    };
    header.write(region)
}

/// Writes a data file and its length through to their medium, where they have one.
pub(crate) fn make_durable(region: &Region, path: &Path) -> Result<(), RegionError> {
    region.sync()?;
    if let Some(directory) = path.parent()
        && let Ok(directory) = fs::File::open(directory)
    {
        // tmpfs and hugetlbfs have nothing to do here, and some do not know the call.
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Opens the data file of a segment for what shall be done with it.
pub(crate) fn open_for(meta: &SegmentMeta, access: Access) -> Result<File, MapError> {
    open(&meta.data, access).map_err(|refused| match refused {
        OpenError::File(FileError { source, .. })
            if access == Access::ReadWrite && source.kind() == ErrorKind::PermissionDenied =>
        {
            MapError::NotWritable {
                path: meta.data.clone(),
                source,
            }
        }
        other => other.into(),
    })
}
