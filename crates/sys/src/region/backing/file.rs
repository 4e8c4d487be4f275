//! The file behind a region, a memfd or another: its length and its space.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

use super::super::{FRAME, RegionError};
use super::os;
use crate::files::{self, FsKind};

/// The kind of a file, if a region can be mapped from it.
pub(super) fn fs_kind(file: &File) -> Result<FsKind, RegionError> {
    let kind = files::fs_kind_of(file).map_err(|source| RegionError::Os {
        what: "examine the file",
        source,
    })?;
    match kind {
        FsKind::HugePages { page } if page > FRAME as u64 => Err(RegionError::Unsupported {
            what: "hugetlbfs with pages above 2 MiB",
        }),
        kind => Ok(kind),
    }
}

/// Frees the space of `range`, whose bytes are zeros afterwards. The file keeps its length.
pub(super) fn punch(file: &File, range: Range<usize>) -> Result<(), RegionError> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        let (at, n) = (offset(range.start), offset(range.len()));
        // SAFETY: a valid descriptor; offsets and lengths fit.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, at, n) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::EPERM) => {
                return Err(RegionError::Unsupported {
                    what: "giving back the space of this file",
                });
            }
            _ => {
                return Err(RegionError::from_os(
                    "give memory back",
                    range.len(),
                    source,
                ));
            }
        }
    }
}

/// Allocates the file's space in `range`, extending it if necessary; the content is kept.
pub(super) fn allocate(file: &File, range: Range<usize>) -> Result<(), RegionError> {
    // On tmpfs, an interrupted call starts from scratch. If signals arrive continuously (from a
    // profiler's timer), only small steps ever finish.
    let mut step = range.len();
    let mut at = range.start;
    while at < range.end {
        let n = step.min(range.end - at);
        // SAFETY: a valid descriptor; offsets and lengths fit.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset(at), offset(n)) };
        if result == 0 {
            at += n;
            continue;
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(RegionError::from_os(
                "reserve space in the file",
                range.len(),
                source,
            ));
        }
        step = (step / 4).max(FRAME);
    }
    Ok(())
}

pub(super) fn create_memfd(name: &str, flags: libc::c_uint) -> Result<File, RegionError> {
    // The kernel accepts 249 bytes without NUL; the name is only informative.
    let mut bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).take(200).collect();
    bytes.push(0);
    let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `bytes` ends with a NUL.
    let fd = unsafe { libc::memfd_create(bytes.as_ptr().cast(), flags) };
    if fd < 0 {
        return Err(os("create a memfd", 0));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Seals the file against shrinking; returns whether it is sealed now. Files other than memfds
/// refuse.
pub(super) fn seal(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: a valid descriptor and an integer.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } == 0 {
        return true;
    }
    // SAFETY: as above.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

pub(super) fn length(file: &File) -> Result<usize, RegionError> {
    let meta = file.metadata().map_err(|source| RegionError::Os {
        what: "find out the file's length",
        source,
    })?;
    usize::try_from(meta.len()).map_err(|_| RegionError::Unsupported {
        what: "a file beyond the address space",
    })
}

/// Sizes are at most 2^46 (see `sizes`) and file lengths fit by `length`.
pub(super) fn offset(bytes: usize) -> libc::off_t {
    bytes as libc::off_t
}
