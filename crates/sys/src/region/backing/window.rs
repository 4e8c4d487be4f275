//! The system calls behind a window of fixed addresses.

use std::{fs, io, ptr};

use super::super::WindowError;

/// An inaccessible range at an address chosen by the caller.
pub(in super::super) struct WindowRange {
    start: *mut u8,
    len: usize,
}

// SAFETY: an address range that its only owner unmaps; the pointer is never dereferenced here.
unsafe impl Send for WindowRange {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for WindowRange {}

/// Reserved: without memory, accounting or access.
pub(super) const RESERVED: libc::c_int =
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl WindowRange {
    pub(in super::super) fn new(base: usize, len: usize) -> Result<Self, WindowError> {
        match Self::reserve(base, len) {
            Ok(range) => range.ok_or(WindowError::Unsupported),
            Err(error) if is_conflict(&error) => Err(WindowError::Conflict {
                base,
                len,
                what: in_the_way(base, base + len),
            }),
            Err(source) => Err(WindowError::Reserve { base, len, source }),
        }
    }

    /// Whether these addresses belong to user space, whatever is mapped there.
    pub(in super::super) fn exists(base: usize, len: usize) -> bool {
        match Self::reserve(base, len) {
            Ok(range) => range.is_some(),
            Err(error) => is_conflict(&error),
        }
    }

    /// `None` if the kernel treats the address as a hint.
    fn reserve(base: usize, len: usize) -> io::Result<Option<Self>> {
        let wanted = ptr::without_provenance_mut(base);
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing, and an older kernel treats the address as a
        // hint.
        let got = unsafe {
            libc::mmap(
                wanted,
                len,
                libc::PROT_NONE,
                RESERVED | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if got != wanted {
            // SAFETY: the mapping was created by the call above, and nobody else knows it.
            unsafe { libc::munmap(got, len) };
            return Ok(None);
        }
        Ok(Some(Self {
            start: got.cast(),
            len,
        }))
    }

    pub(in super::super) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(in super::super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for WindowRange {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this window, which every region inside kept alive.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Restores the reservation at a place of a window; returns whether that was possible.
///
/// # Safety
/// The range must lie in a window and belong to the caller, and nobody may refer to it any more.
pub(super) unsafe fn refill(start: *mut u8, len: usize) -> bool {
    // SAFETY: as above; one call, so there is no moment with a hole.
    let got = unsafe {
        libc::mmap(
            start.cast(),
            len,
            libc::PROT_NONE,
            RESERVED | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    got != libc::MAP_FAILED
}

/// Whether something of this process is mapped there.
fn is_conflict(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// The mapping between the two addresses, as the kernel describes it.
fn in_the_way(start: usize, end: usize) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .find(|line| bounds(line).is_some_and(|(from, to)| from < end && start < to))
        .map_or_else(|| "what, is gone by now".to_owned(), str::to_owned)
}

/// The addresses at the beginning of a line of `maps`.
fn bounds(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((
        usize::from_str_radix(from, 16).ok()?,
        usize::from_str_radix(to, 16).ok()?,
    ))
}
