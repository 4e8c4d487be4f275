//! Why a region could not be made, grown or accessed.

use std::io;

/// What went wrong with a region. Nothing changed, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The sizes make no sense: zero, or more than the address space can hold.
    #[error("a region of {len} bytes growing to {max} is impossible")]
    Size {
        /// Bytes to commit.
        len: usize,
        /// Bytes to reserve.
        max: usize,
    },
    /// The address space for the region could not be reserved.
    #[error("cannot reserve {bytes} bytes of address space (is there a limit, `ulimit -v`?)")]
    Reserve {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel has no memory left for this, or may not give it to this process.
    #[error("no memory for {bytes} more bytes")]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The file system is full, or the quota is used up.
    #[error("no space in the file system for {bytes} more bytes")]
    NoSpace {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// More was asked for than was declared when the region was opened.
    #[error("{wanted} bytes exceed the region's maximum of {max}")]
    BeyondMax {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes reserved.
        max: usize,
    },
    /// The range is not inside the committed part.
    #[error("{bytes} bytes at offset {offset} lie outside the region of {len} bytes")]
    OutOfBounds {
        /// Where the range begins, in bytes from the base.
        offset: u64,
        /// Its length in bytes; `u64::MAX` where that overflows.
        bytes: u64,
        /// The committed length in bytes.
        len: usize,
    },
    /// The offset does not suit the type.
    #[error("offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// The offset, in bytes from the base.
        offset: u64,
        /// The alignment that the type needs, in bytes.
        align: usize,
    },
    /// The region may not lie at that address.
    #[error("no place for {bytes} bytes at {address:#x}: {why}")]
    Place {
        /// The first address asked for.
        address: usize,
        /// Bytes to reserve.
        bytes: usize,
        /// What forbids it.
        why: &'static str,
    },
    /// The region is parked: none of it is at its addresses.
    #[error("the region is parked, and another may have its addresses")]
    Parked,
    /// The region was opened for reading only.
    #[error("the region is mapped read-only")]
    ReadOnly,
    /// The file has become shorter than what is mapped: touching the rest would be fatal.
    #[error("the file behind the region shrank from {was} to {now} bytes")]
    Shrunk {
        /// The committed length.
        was: usize,
        /// The file's length.
        now: usize,
    },
    /// This kernel, file system or interpreter cannot do it.
    #[error("not supported here: {what}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl RegionError {
    /// Sorts the kernel's answer to a request for `bytes` bytes.
    #[cfg(not(miri))]
    pub(super) fn from_os(what: &'static str, bytes: usize, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN) => Self::NoMemory { bytes, source },
            // `madvise(POPULATE)` says EFAULT where a touch would raise SIGBUS, EHWPOISON for a
            // broken page.
            Some(libc::EFAULT | libc::EHWPOISON) => Self::NoMemory { bytes, source },
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpace { bytes, source },
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Self::Unsupported { what },
            _ => Self::Os { what, source },
        }
    }
}
