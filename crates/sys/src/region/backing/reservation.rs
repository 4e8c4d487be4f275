//! The address range that a region owns from the beginning, without any memory.

use std::{io, ptr};

use super::super::window::WindowClaim;
use super::super::{FRAME, RegionError};
use super::window::{RESERVED, refill};

/// An inaccessible address range. Either the kernel chose the address, with a guard of at least a
/// page on either side, so that it never merges with a neighbour and overruns are caught; or it is
/// a place in a window.
pub(in super::super) struct Reservation {
    base: *mut u8,
    home: Home,
    /// The length in bytes from the base, if files are mapped over all of it at once.
    whole: Option<usize>,
}

enum Home {
    /// A separate mapping, including its guards.
    Own { start: *mut u8, total: usize },
    /// A place in a window; `None` if it must not be released any more.
    Window { claim: Option<WindowClaim> },
}

// SAFETY: an address range that its only owner unmaps; the pointers are never dereferenced here.
unsafe impl Send for Reservation {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub(in super::super) fn new(max: usize) -> Result<Self, RegionError> {
        let total = max + 2 * FRAME;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                total,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(RegionError::Reserve {
                bytes: max,
                source: io::Error::last_os_error(),
            });
        }
        let start = start.cast::<u8>();
        // The first multiple of 2 MiB at least one page after the start. This skips less than a
        // frame and a page of the two frames of slack, so some is left after `max` as well.
        let skip = FRAME - start.addr() % FRAME;
        Ok(Self {
            base: start.wrapping_add(skip),
            home: Home::Own { start, total },
            whole: None,
        })
    }

    /// Address space for as many bytes as `like`, which is for `max` bytes, at the same offset
    /// within a GiB: between two such places whole page tables are moved instead of entries.
    pub(in super::super) fn congruent(max: usize, like: &Self) -> Result<Self, RegionError> {
        const UNIT: usize = 1 << 30;
        let bytes = like.whole.unwrap_or(max);
        let total = bytes + UNIT + FRAME;
        // SAFETY: as in `new`.
        let start = unsafe { libc::mmap(ptr::null_mut(), total, libc::PROT_NONE, RESERVED, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(RegionError::Reserve {
                bytes,
                source: io::Error::last_os_error(),
            });
        }
        let start = start.cast::<u8>();
        let skip = like.base.addr().wrapping_sub(start.addr()) % UNIT;
        Ok(Self {
            base: start.wrapping_add(skip),
            home: Home::Own { start, total },
            whole: like.whole,
        })
    }

    /// The length in bytes from the base, if files are mapped over all of it at once.
    pub(super) fn whole(&self) -> Option<usize> {
        self.whole
    }

    /// The place in a window, if the range is one.
    pub(in super::super) fn claim(&self) -> Option<&WindowClaim> {
        match &self.home {
            Home::Own { .. } => None,
            Home::Window { claim } => claim.as_ref(),
        }
    }

    /// A reservation of the claimed place.
    pub(in super::super) fn inside(claim: WindowClaim) -> Self {
        Self {
            base: claim.start(),
            whole: claim.whole(),
            home: Home::Window { claim: Some(claim) },
        }
    }

    #[inline]
    pub(in super::super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Makes the first `len` bytes inaccessible; nobody may use them. If the kernel has no mapping
    /// left for that, they are left unchanged.
    pub(in super::super) fn clear(&self, len: usize) {
        if len > 0 {
            // SAFETY: the range belongs to this reservation, and nobody refers to it.
            unsafe { refill(self.base, len) };
        }
    }

    /// The address of a byte of the range.
    pub(super) fn at(&self, offset: usize) -> *mut libc::c_void {
        self.base.wrapping_add(offset).cast()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match &mut self.home {
            Home::Own { start, total } => {
                // SAFETY: the range belongs to this reservation, and the region that lent
                // references into it is gone.
                unsafe { libc::munmap(start.cast(), *total) };
            }
            Home::Window { claim } => {
                let Some(held) = claim.as_ref().filter(|claim| claim.is_held()) else {
                    return;
                };
                // SAFETY: as above; the claim proves that the range belongs to this reservation.
                if !unsafe { refill(self.base, held.bytes()) } {
                    // There are too many mappings: what was mapped stays, and nobody else gets the
                    // place.
                    std::mem::forget(claim.take());
                }
            }
        }
    }
}
