//! Bare memory: what every store stands on, with nothing of a store about it.

use crate::error::BenchError;
use mneme_sys::{PagePolicy, PageReport, Region};
use std::sync::atomic::AtomicU64;

/// A region of memory, touched from end to end, read and written at offsets.
#[derive(Debug)]
pub struct Bare {
    region: Region,
}

impl Bare {
    /// At least `bytes` of memory with pages as the policy says, all of it present.
    ///
    /// # Errors
    /// [`BenchError::Memory`].
    pub fn new(bytes: usize, policy: PagePolicy) -> Result<Self, BenchError> {
        let region = Region::private(bytes, bytes, policy)?;
        region.prefault(0..region.len())?;
        Ok(Self { region })
    }

    /// Bytes there are.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// The pages it was given.
    pub fn pages(&self) -> PageReport {
        self.region.pages()
    }

    /// Copies from `offset` on. Panics beyond the end, as a slice does.
    ///
    /// # Safety
    /// Nobody may be writing to these bytes.
    #[inline]
    pub unsafe fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.within(offset, into.len());
        // SAFETY: the range is inside the region, which is mapped while `self` lives; the caller
        // keeps writers away.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.region.base().add(offset),
                into.as_mut_ptr(),
                into.len(),
            )
        }
    }

    /// Copies to `offset` on. Panics beyond the end, as a slice does.
    ///
    /// # Safety
    /// Nobody else may be reading or writing these bytes.
    #[inline]
    pub unsafe fn copy_in(&self, offset: usize, from: &[u8]) {
        self.within(offset, from.len());
        // SAFETY: the range is inside the region, which is mapped while `self` lives; the caller
        // keeps others away.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.region.base().add(offset), from.len())
        }
    }

    /// Copies `bytes` bytes within the memory, as `copy` does it. Panics beyond the end, as a slice
    /// does.
    ///
    /// # Safety
    /// Nobody else may be using these bytes, and the two ranges are apart; `copy` writes the bytes
    /// at its first argument with those at its second, as many as its third says, and nothing else.
    #[inline]
    pub unsafe fn copy_within(
        &self,
        from: usize,
        to: usize,
        bytes: usize,
        copy: unsafe fn(*mut u8, *const u8, usize),
    ) {
        self.within(from, bytes);
        self.within(to, bytes);
        // SAFETY: both ranges are inside the region, which is mapped while `self` lives; the rest
        // is the caller's promise.
        unsafe {
            copy(
                self.region.base().add(to),
                self.region.base().add(from),
                bytes,
            )
        }
    }

    /// The memory as words.
    ///
    /// # Errors
    /// [`BenchError::Memory`] when they do not fit.
    pub fn words(&self, offset: usize, count: usize) -> Result<&[AtomicU64], BenchError> {
        Ok(self.region.slice_at(offset as u64, count)?)
    }

    #[inline]
    fn within(&self, offset: usize, bytes: usize) {
        assert!(
            offset + bytes <= self.region.len(),
            "{offset} + {bytes} is beyond the end"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_copied_in_are_copied_out_unchanged() {
        let bare = Bare::new(1 << 20, PagePolicy::Small).unwrap();
        let record: Vec<u8> = (0..100).collect();
        let mut out = vec![0; 100];
        // SAFETY: nobody else has this memory.
        unsafe {
            bare.copy_in(4096 + 8, &record);
            bare.copy_out(4096 + 8, &mut out);
        }
        assert_eq!(out, record);
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn beyond_the_end_is_refused() {
        let bare = Bare::new(1 << 20, PagePolicy::Small).unwrap();
        // SAFETY: nobody else has this memory.
        unsafe { bare.copy_in(bare.bytes() - 4, &[0; 8]) };
    }
}
