//! Checked, typed access: the only way in which other crates turn offsets into references.

use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
};

use super::{Access, Region, RegionError};

/// Types that may be referenced in memory which other threads and processes write, whatever its
/// bytes are.
///
/// # Safety
/// The type must be `#[repr(C)]` or `#[repr(transparent)]`, consist *only* of atomics (or arrays or
/// such structures of them), without padding, and need no `Drop`. Then every bit pattern is valid,
/// all access through `&T` is atomic, and none of its bytes is plain memory.
pub unsafe trait InRegion: Sized + Sync {}

macro_rules! shared {
    ($($atomic:ty),*) => {
        $(
            // SAFETY: an atomic integer: any bits are valid, no padding, no drop.
            unsafe impl InRegion for $atomic {}
        )*
    };
}
shared!(
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicI8, AtomicI16, AtomicI32, AtomicI64
);

// SAFETY: an array adds nothing to its elements, neither padding nor plain bytes.
unsafe impl<T: InRegion, const N: usize> InRegion for [T; N] {}

impl Region {
    /// The `count` values of type `T` at `offset` bytes from the base.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`] unless all lie in the committed part,
    /// [`RegionError::Misaligned`] if `offset` is not aligned for `T`, [`RegionError::ReadOnly`] if
    /// the region may not be written (a store through the reference would be fatal; see
    /// [`view_slice_at`](Self::view_slice_at)).
    #[inline]
    pub fn slice_at<T: InRegion>(&self, offset: u64, count: usize) -> Result<&[T], RegionError> {
        self.may_be_written()?;
        self.view_slice_at(offset, count)
    }

    /// As [`slice_at`](Self::slice_at), for a region that may be mapped read-only. The result may
    /// only be loaded from, at most 8 bytes at a time: a store would kill the process.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], [`RegionError::Misaligned`].
    #[inline]
    pub fn view_slice_at<T: InRegion>(
        &self,
        offset: u64,
        count: usize,
    ) -> Result<&[T], RegionError> {
        let bytes = size_of::<T>().checked_mul(count);
        let place = self.checked(offset, bytes, align_of::<T>())?;
        // SAFETY: the range is committed, and stays so as long as the region, which the returned
        // lifetime guarantees. It is aligned (the base is aligned to 2 MiB, which no `InRegion`
        // type exceeds). `T: InRegion` makes any content valid, and any concurrent access by others
        // that follow the same rule defined.
        Ok(unsafe { std::slice::from_raw_parts(place.cast::<T>(), count) })
    }

    /// The value of type `T` at `offset` bytes from the base.
    ///
    /// # Errors
    /// As [`slice_at`](Self::slice_at).
    #[inline]
    pub fn at<T: InRegion>(&self, offset: u64) -> Result<&T, RegionError> {
        self.may_be_written()?;
        self.view_at(offset)
    }

    /// As [`at`](Self::at), for a region that may be mapped read-only, like
    /// [`view_slice_at`](Self::view_slice_at).
    ///
    /// # Errors
    /// As [`view_slice_at`](Self::view_slice_at).
    #[inline]
    pub fn view_at<T: InRegion>(&self, offset: u64) -> Result<&T, RegionError> {
        let place = self.checked(offset, Some(size_of::<T>()), align_of::<T>())?;
        // SAFETY: as in `slice_at`.
        Ok(unsafe { &*place.cast::<T>() })
    }

    #[inline]
    fn may_be_written(&self) -> Result<(), RegionError> {
        match self.access() {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(RegionError::ReadOnly),
        }
    }

    /// Loads the 8 bytes at `offset`, with Acquire order. Works on read-only regions too.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], [`RegionError::Misaligned`].
    #[inline]
    pub fn load_u64(&self, offset: u64) -> Result<u64, RegionError> {
        let place = self.checked(offset, Some(8), 8)?;
        // SYNC: pairs with the Release store that published the word. SAFETY: as in `slice_at`; an
        // atomic load of this size is allowed on read-only memory.
        Ok(unsafe { (*place.cast::<AtomicU64>()).load(std::sync::atomic::Ordering::Acquire) })
    }

    /// The address of `bytes` bytes at `offset`, all of them committed. For raw copies
    /// ([`crate::racy`]), whose other conditions the caller must ensure.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`].
    #[inline]
    pub fn bytes_at(&self, offset: u64, bytes: usize) -> Result<*mut u8, RegionError> {
        self.checked(offset, Some(bytes), 1)
    }

    #[inline]
    fn checked(
        &self,
        offset: u64,
        bytes: Option<usize>,
        align: usize,
    ) -> Result<*mut u8, RegionError> {
        let len = self.len();
        let inside = bytes.is_some_and(|bytes| bytes <= len && offset <= (len - bytes) as u64);
        if !inside || !offset.is_multiple_of(align as u64) {
            return Err(refusal(offset, bytes, align, len));
        }
        // In bounds, so it fits.
        Ok(self.base().wrapping_add(offset as usize))
    }
}

/// Separate from the path of calls that are in bounds.
#[cold]
#[inline(never)]
fn refusal(offset: u64, bytes: Option<usize>, align: usize, len: usize) -> RegionError {
    match bytes {
        Some(n) if n <= len && offset <= (len - n) as u64 => {
            RegionError::Misaligned { offset, align }
        }
        _ => RegionError::OutOfBounds {
            offset,
            bytes: bytes.map_or(u64::MAX, |bytes| bytes as u64),
            len,
        },
    }
}
