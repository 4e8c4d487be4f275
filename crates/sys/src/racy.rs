//! Copies bytes that another thread or process may be writing, without undefined behaviour: what
//! arrives may be a mixture of old and new bytes, but it is bytes.
//!
//! A reader that copies first and validates afterwards (a version, a generation, a checksum)
//! needs this, since a plain copy that races is undefined behaviour even if the copy is thrown
//! away. Both sides use it: [`load`] to read, [`store`] to write. **The race is then defined, not
//! ordered**: neither side orders anything; whoever validates does so with the fences of a
//! sequence lock (an acquire fence after the load, a release fence before the store).
//!
//! * `portable` is the definition: every access is a relaxed atomic access of an aligned word of
//!   8 bytes, so that two racing copies never use different sizes for the same bytes (which Rust
//!   leaves undefined too). Bytes of the first and last word that are not in the range are read
//!   but not used, or put back by compare-and-swap. Miri and other architectures run this.
//! * `x86_64` copies in bulk by inline assembly. An assembly block may do what some Rust code in
//!   its place could do; here that is what `portable` does, or the same with smaller words. The
//!   compiler sees neither, cannot assume that the bytes stay the same, and the hardware never
//!   tears below a byte. This is the argument by which the kernel's and C++'s `atomic_memcpy`
//!   implementations stand as well.
//!
//! All racing accesses to the same bytes must go through this module, or be atomic accesses of
//! aligned 8-byte words.

use std::mem::MaybeUninit;

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(any(miri, not(target_arch = "x86_64")))]
use portable as chosen;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as chosen;

/// Copies `dst.len()` bytes from `src`, which others may be writing with [`store`].
///
/// No alignment is asked for. Orders nothing.
///
/// # Safety
/// The aligned 8-byte words that cover `src..src + dst.len()` must be readable memory for the
/// whole call (inside a region they are: it begins and ends on a page), and whoever writes to
/// them meanwhile must do it by [`store`] or by atomic 8-byte accesses.
#[inline]
pub unsafe fn load(src: *const u8, dst: &mut [u8]) {
    // SAFETY: the caller's promise is the callee's condition.
    unsafe { chosen::load(src, dst) }
}

/// [`load`] to memory that need not be initialised; all of `dst` is afterwards.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub unsafe fn load_uninit(src: *const u8, dst: &mut [MaybeUninit<u8>]) {
    // SAFETY: the caller's promise is the callee's condition.
    unsafe { chosen::load_uninit(src, dst) }
}

/// Copies `words` words of 8 bytes from `src` to `dst`, both aligned to that, which do not overlap
/// and which others may both be accessing by this module. Orders nothing.
///
/// # Safety
/// The words at `src` must be readable and those at `dst` writable memory for the whole call, and
/// whoever accesses them meanwhile must do it by this module or by atomic 8-byte accesses.
#[inline]
pub unsafe fn transfer(src: *const u64, dst: *mut u64, words: usize) {
    // SAFETY: the caller's promise is the callee's condition.
    unsafe { chosen::transfer(src, dst, words) }
}

/// Copies `src` to `dst`, which others may be reading with [`load`] or writing with this.
///
/// No alignment is asked for. Orders nothing.
///
/// # Safety
/// The aligned 8-byte words that cover `dst..dst + src.len()` must be writable memory for the
/// whole call, and whoever accesses them meanwhile must do it by this module or by atomic 8-byte
/// accesses.
#[inline]
pub unsafe fn store(src: &[u8], dst: *mut u8) {
    // SAFETY: the caller's promise is the callee's condition.
    unsafe { chosen::store(src, dst) }
}

#[cfg(test)]
mod conformance;
