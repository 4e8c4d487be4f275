//! A range of fixed addresses that a process keeps free, and regions mapped at places inside it.
//!
//! **Only regions mapped by [`Region::map_at`] ever lie in a window, and no two of them overlap.**
//! The range is reserved in one piece without memory (`PROT_NONE`), so that neither the allocator
//! nor a library's `mmap` uses it. A region that is dropped leaves the reservation behind, never a
//! hole. SpaceJMP keeps its segments in address ranges disjoint from the process's own in the same
//! way (§4.1).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use super::{Access, FRAME, PagePolicy, Region, RegionError, Reserve, backing, sizes};

/// Why a window could not be reserved. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The bounds are not multiples of 2 MiB, or empty, or beyond user space.
    #[error("a window of {len:#x} bytes at {base:#x} is impossible")]
    Bounds {
        /// The window's first address.
        base: usize,
        /// The window's length in bytes.
        len: usize,
    },
    /// Something of this process is already mapped in the range: another window, a library, a
    /// sanitizer's shadow, or a mapping at a fixed address.
    #[error("the addresses {base:#x} to {end:#x} are not free in this process: {what}", end = base + len)]
    Conflict {
        /// The first address of the window.
        base: usize,
        /// The window's length in bytes.
        len: usize,
        /// The conflicting line of `/proc/self/maps`.
        what: String,
    },
    /// The kernel refused the address space.
    #[error(
        "cannot reserve {len} bytes of address space at {base:#x} (is there a limit, `ulimit -v`?)"
    )]
    Reserve {
        /// The window's first address.
        base: usize,
        /// The window's length in bytes.
        len: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel (before Linux 4.17) or the interpreter cannot reserve a given range.
    #[error("fixed addresses cannot be reserved here")]
    Unsupported,
}

/// A process's reservation of the addresses `base..base + len`, for [`Region::map_at`].
///
/// A clone is another handle to the same reservation, which ends when the last handle and the last
/// region inside are gone. `Send + Sync`. A forked child has the reservation too.
#[derive(Clone)]
pub struct Window(Arc<Held>);

struct Held {
    range: backing::WindowRange,
    /// Places begin and end at multiples of this.
    unit: usize,
    /// The places that are taken: first address and length.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl Held {
    /// Each change of the table is one step, so a panic cannot leave it half done.
    fn taken(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("base", &format_args!("{:#x}", self.base()))
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Window {
    /// Reserves `len` bytes from `base`, both multiples of 2 MiB, `len` at most 2^46. Allocates no
    /// memory; takes microseconds.
    ///
    /// # Errors
    /// [`WindowError::Conflict`] if anything of this process is mapped there, including another
    /// window.
    pub fn reserve(base: usize, len: usize) -> Result<Self, WindowError> {
        Self::reserve_units(base, len, FRAME)
    }

    /// Reserves a window whose places consist of whole units: `unit` bytes, a multiple of 2 MiB of
    /// which `base` and `len` are multiples. A region that needs less gets all of its last unit,
    /// and its file is mapped over the whole place at once (touching a part that the file does not
    /// have is fatal, as it is beyond any region's length). With units of 1 GiB, whole GiB are
    /// moved when a region is [parked](Region::park).
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_units(base: usize, len: usize, unit: usize) -> Result<Self, WindowError> {
        let whole = unit.is_multiple_of(FRAME)
            && unit > 0
            && base.is_multiple_of(unit)
            && len.is_multiple_of(unit);
        let possible = base > 0 && len > 0 && len <= 1 << 46 && base.checked_add(len).is_some();
        if !(whole && possible) {
            return Err(WindowError::Bounds { base, len });
        }
        Ok(Self(Arc::new(Held {
            range: backing::WindowRange::new(base, len)?,
            unit,
            taken: Mutex::default(),
        })))
    }

    /// Whether this machine's user space includes the frame at `address`, a multiple of 2 MiB,
    /// whatever is mapped there. Kernels differ in the number of address bits.
    #[must_use]
    pub fn is_in_user_space(address: usize) -> bool {
        backing::WindowRange::exists(address, FRAME)
    }

    /// The window's first address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.0.range.start().addr()
    }

    /// The window's length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// A place inside the window, which is not claimed by this call.
    pub(super) fn place(&self, address: usize, bytes: usize) -> Result<WindowClaim, RegionError> {
        let refused = |why| RegionError::Place {
            address,
            bytes,
            why,
        };
        let offset = address.checked_sub(self.base());
        let inside = offset.is_some_and(|at| at <= self.len() && bytes <= self.len() - at);
        let Some(offset) = offset.filter(|_| inside) else {
            return Err(refused("it is not inside the window"));
        };
        if !address.is_multiple_of(self.0.unit) {
            return Err(refused("it is not a multiple of the window's unit"));
        }
        Ok(WindowClaim {
            start: self.0.range.start().wrapping_add(offset),
            // Not beyond the window, whose length is a number of units too.
            bytes: bytes.next_multiple_of(self.0.unit),
            window: Arc::clone(&self.0),
            held: AtomicBool::new(false),
        })
    }
}

/// A place inside a window, which one region at a time can have. Dropping it releases the place.
pub(super) struct WindowClaim {
    window: Arc<Held>,
    start: *mut u8,
    bytes: usize,
    /// Changes under the window's lock.
    held: AtomicBool,
}

// SAFETY: an address of a range that nobody else uses; it is never dereferenced here.
unsafe impl Send for WindowClaim {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for WindowClaim {}

impl WindowClaim {
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The place's length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// [`bytes`](Self::bytes), if they are to be mapped all at once.
    pub(super) fn whole(&self) -> Option<usize> {
        (self.window.unit > FRAME).then_some(self.bytes)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Reserves the place for this region; fails if another region has a part of it.
    pub(super) fn take(&self) -> Result<(), RegionError> {
        let address = self.start.addr();
        let mut taken = self.window.taken();
        // Places do not overlap, so only the last one before the end matters.
        let before = taken.range(..address + self.bytes).next_back();
        if before.is_some_and(|(start, len)| start + len > address) {
            return Err(RegionError::Place {
                address,
                bytes: self.bytes,
                why: "another region lies there",
            });
        }
        taken.insert(address, self.bytes);
        self.held.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the place, which is reserved and empty, for others.
    pub(super) fn give_up(&self) {
        let mut taken = self.window.taken();
        if self.held.swap(false, Ordering::Relaxed) {
            taken.remove(&self.start.addr());
        }
    }
}

impl Drop for WindowClaim {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Region {
    /// Maps an existing file as [`Region::map_with`] does, with its first byte at `address`, a
    /// multiple of 2 MiB, and the `max` bytes reserved for it inside `window`. There is no guard
    /// page after them. Dropping the region leaves the range reserved.
    ///
    /// # Errors
    /// [`RegionError::Place`] if the range leaves the window or another region lies there;
    /// otherwise as [`Region::map_with`].
    pub fn map_at(
        file: OwnedFd,
        access: Access,
        max: usize,
        policy: PagePolicy,
        reserve: Reserve,
        window: &Window,
        address: usize,
    ) -> Result<Self, RegionError> {
        let (backing, len) = backing::RegionBacking::file(file, access, reserve)?;
        let (_, max) = sizes(1, max.max(len))?;
        let claim = window.place(address, max)?;
        claim.take()?;
        let place = backing::Reservation::inside(claim);
        let region = Self::build(place, backing, access, max, policy);
        region.follow(&mut region.lock(), len)?;
        Ok(region)
    }
}
