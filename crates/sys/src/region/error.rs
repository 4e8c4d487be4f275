//! Why a region could not be created, grown or accessed.

use std::io;

/// What went wrong with a region. Nothing changed, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The sizes are impossible: zero, or more than the address space can hold.
    #[error("a region of {len} bytes growing to {max} is impossible")]
    Size {
        /// The number of bytes to commit.
        len: usize,
        /// The number of bytes to reserve.
        max: usize,
    },
    /// The address space for the region could not be reserved.
    #[error("cannot reserve {bytes} bytes of address space (is there a limit, `ulimit -v`?)")]
    Reserve {
        /// The number of bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel has no memory left for this, or may not give it to this process.
    #[error("no memory for {bytes} more bytes")]
    NoMemory {
        /// The number of bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file system is full, or the quota is used up.
    #[error("no space in the file system for {bytes} more bytes")]
    NoSpace {
        /// The number of bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The request exceeds the maximum declared when the region was opened.
    #[error("{wanted} bytes exceed the region's maximum of {max}")]
    BeyondMax {
        /// The number of bytes requested.
        wanted: usize,
        /// The number of bytes reserved.
        max: usize,
    },
    /// The range is not inside the committed part.
    #[error("{bytes} bytes at offset {offset} lie outside the region of {len} bytes")]
    OutOfBounds {
        /// The offset of the range from the base, in bytes.
        offset: u64,
        /// Its length in bytes; `u64::MAX` if that overflows.
        bytes: u64,
        /// The committed length in bytes.
        len: usize,
    },
    /// The offset is not aligned for the type.
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
        /// The requested address.
        address: usize,
        /// The number of bytes to reserve.
        bytes: usize,
        /// The reason.
        why: &'static str,
    },
    /// The region is parked: none of it is at its addresses.
    #[error("the region is parked, and another may have its addresses")]
    Parked,
    /// The region was opened for reading only.
    #[error("the region is mapped read-only")]
    ReadOnly,
    /// The file has become shorter than the mapping: touching the rest would be fatal.
    #[error("the file behind the region shrank from {was} to {now} bytes")]
    Shrunk {
        /// The committed length.
        was: usize,
        /// The file's length.
        now: usize,
    },
    /// This kernel, file system or interpreter does not support it.
    #[error("not supported here: {what}")]
    Unsupported {
        /// The operation.
        what: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("cannot {what}")]
    Os {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl RegionError {
    /// Converts the kernel's error for a request of `bytes` bytes.
    #[cfg(not(miri))]
    pub(super) fn from_os(what: &'static str, bytes: usize, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN) => Self::NoMemory { bytes, source },
            // `madvise(POPULATE)` returns EFAULT where a touch would raise SIGBUS, EHWPOISON for a
            // broken page.
            Some(libc::EFAULT | libc::EHWPOISON) => Self::NoMemory { bytes, source },
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpace { bytes, source },
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Self::Unsupported { what },
            _ => Self::Os { what, source },
        }
    }
}
