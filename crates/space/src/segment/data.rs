//! A segment's data file: its header, and mapping it where nobody relies on its address.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use mneme_sys::{Access, HEADER_LEN, PagePolicy, Region, RegionError, RegionHeader, files};

use super::durable;
use super::meta::SegmentMeta;
use crate::{FileError, MapError, OpenError, Uuid};

/// The magic number of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"MNEMSEG\0";
/// The version of the format.
pub(crate) const FORMAT: u32 = 1;
/// Changes whenever this crate's layout of a segment changes.
pub(crate) const LAYOUT_HASH: u64 = 0x6d6e_656d_7365_6731;

/// The header's words that this crate uses.
pub(crate) mod word {
    /// Whether the segment is consistent: one of [`state`].
    pub(crate) const POISON: usize = 0;
    /// For a segment on a medium that outlives the machine: the boot in which it was changed since
    /// all of it was on the medium, or 0. If the word names another boot, the machine went down
    /// with changes that had not been written through. [`LOST`] if the medium failed to store
    /// changes; a later successful write does not make up for that. This is the only word that has
    /// the same meaning if another crate lays out the segment.
    pub(crate) const UNSYNCED: usize = 1;
    /// The boot for which `UNSYNCED` is known to be on the medium. If the process that writes
    /// `UNSYNCED` dies before it is on the medium, this word still has another value.
    pub(crate) const NOTED: usize = 2;
    /// The address at which the pointers inside are valid; 0 for a segment that floats, or one that
    /// was created by a build that did not record it. The description has it too, but may be lost.
    pub(crate) const BASE: usize = 3;

    /// A value of [`UNSYNCED`] that is no boot: changes were lost.
    pub(crate) const LOST: u64 = u64::MAX;

    /// The values of that word. `CHANGING` while no process holds the lock means that the holder
    /// died.
    pub(crate) mod state {
        /// Nobody is changing it, and nobody has left it half changed.
        pub(crate) const WHOLE: u64 = 0;
        /// The holder of the lock may be changing it.
        pub(crate) const CHANGING: u64 = 1;
        /// A section that could change it panicked.
        pub(crate) const PANICKED: u64 = 2;
        /// A process died while changing it, or that cannot be excluded.
        pub(crate) const DIED: u64 = 3;
    }
}

/// Reads and checks the header without mapping anything.
pub(crate) fn examine(meta: &SegmentMeta) -> Result<RegionHeader, OpenError> {
    examine_file(&open(&meta.data, Access::ReadOnly)?, meta)
}

/// Reads and checks the header of a file that is already open.
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
    // If the machine goes down, the header may be on the medium but not the file's new length. The
    // segment is then poisoned, and recovery extends the file.
    if found.committed_len > len && durable::is_of_this_boot(found.client[word::UNSYNCED], meta) {
        return Err(OpenError::Truncated {
            path: path.clone(),
            len,
            committed: found.committed_len,
        });
    }
    Ok(found)
}

/// Checks that a header belongs to the segment described.
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

/// Whether the header's words say that neither a process nor the machine has left the segment half
/// changed.
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

/// Creates a data file, accessible only to its owner.
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

/// Writes the header of a new segment, or of a clone, which keeps the original's words for the heap
/// and its types.
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

/// Writes a data file and its length through to their medium, if they have one.
pub(crate) fn make_durable(region: &Region, path: &Path) -> Result<(), RegionError> {
    region.sync()?;
    if let Some(directory) = path.parent()
        && let Ok(directory) = fs::File::open(directory)
    {
        // tmpfs and hugetlbfs have nothing to do here, and some do not support the call.
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Opens the data file of a segment with the access wanted.
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
