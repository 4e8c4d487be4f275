//! A medium of plain memory: it survives nothing.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Medium, MediumError, inside, store, store_word};
use crate::region::RegionError;
use crate::{PagePolicy, Region};

/// Memory of this process, for structures that need no durability, and for tests.
///
/// ```
/// use mneme_sys::medium::{Medium, MemoryMedium};
/// let medium = MemoryMedium::new(1 << 20)?;
/// medium.grow(4096)?;
/// medium.store_word(8, 7);
/// medium.sync()?;
/// assert_eq!(medium.len(), 4096);
/// # Ok::<(), mneme_sys::medium::MediumError>(())
/// ```
#[derive(Debug)]
pub struct MemoryMedium {
    region: Region,
    /// The requested length; the region rounds it up to frames.
    len: AtomicU64,
}

impl MemoryMedium {
    /// An empty medium that may grow to `max` bytes.
    ///
    /// # Errors
    /// [`MediumError::Region`]: there is no address space.
    pub fn new(max: u64) -> Result<Self, MediumError> {
        let bytes = usize::try_from(max).map_err(|_| RegionError::Unsupported {
            what: "a medium beyond the address space",
        })?;
        Ok(Self {
            region: Region::private(1, bytes, PagePolicy::Small)?,
            len: AtomicU64::new(0),
        })
    }

    /// Makes all memory accessible that it has ever grown into.
    pub(super) fn set_committed(&self) {
        self.set_len(self.region.len() as u64);
    }

    /// Forgets lengths above `to`, when the crash harness writes another image into the same
    /// memory.
    pub(super) fn set_len(&self, to: u64) {
        // SYNC: no partner; the caller has exclusive use of the medium.
        self.len.store(to, Ordering::Relaxed);
    }
}

impl Medium for MemoryMedium {
    #[inline]
    fn base(&self) -> NonNull<u8> {
        self.region.first_byte()
    }

    #[inline]
    fn len(&self) -> u64 {
        // SYNC: pairs with the Release update in `grow`: the length implies the mapping.
        self.len.load(Ordering::Acquire)
    }

    fn max(&self) -> u64 {
        self.region.max() as u64
    }

    #[inline]
    fn store(&self, at: u64, bytes: &[u8]) {
        // SAFETY: the region has `len` committed bytes, in whole pages.
        unsafe { store(self.base(), self.len(), at, bytes) }
    }

    #[inline]
    fn store_word(&self, at: u64, word: u64) {
        // SAFETY: the region has `len` committed bytes, in whole pages.
        unsafe { store_word(self.base(), self.len(), at, word) }
    }

    fn flush(&self, _: Range<u64>) {}

    fn fence(&self) {}

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        inside(at, bytes.len(), self.len())?;
        self.store(at, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        Ok(())
    }

    fn grow(&self, to: u64) -> Result<(), MediumError> {
        if to > self.max() {
            return Err(MediumError::NoSpace { wanted: to });
        }
        if to > self.region.len() as u64 {
            self.region.grow(to as usize)?;
        }
        // SYNC: pairs with the Acquire load in `len`.
        self.len.fetch_max(to, Ordering::Release);
        Ok(())
    }
}
