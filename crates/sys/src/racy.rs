//! Copies bytes that another thread or process may be writing, without undefined behaviour: the
//! result may be a mixture of old and new bytes, but the race is defined.
//!
//! A reader that copies first and validates afterwards (a version, a generation, a checksum) needs
//! this, because a plain racing copy is undefined behaviour even if the copy is discarded. Both
//! sides use this module: [`load`] to read, [`store`] to write. **The race is defined but not
//! ordered**: a reader that validates must use the fences of a sequence lock (an acquire fence
//! after the load, a release fence before the store).
//!
//! * `portable` is the definition: every access is a relaxed atomic access of an aligned 8-byte
//!   word, so that two racing copies never use different sizes for the same bytes (which Rust
//!   leaves undefined too). Bytes of the first and last word outside the range are read and
//!   ignored, or preserved by compare-and-swap. It is used by Miri and on other architectures.
//! * `x86_64` copies in bulk by inline assembly. An assembly block may do what some Rust code in
//!   its place could do; here that is what `portable` does, or the same with smaller words. The
//!   compiler cannot see inside and cannot assume that the bytes stay the same, and the hardware
//!   never tears below a byte. The kernel's and C++'s `atomic_memcpy` implementations rely on the
//!   same argument.
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
/// Needs no alignment, and orders nothing.
///
/// # Safety
/// The aligned 8-byte words that cover `src..src + dst.len()` must be readable for the whole call
/// (inside a region they are, because it begins and ends on a page). Everybody who writes to them
/// meanwhile must use [`store`] or atomic 8-byte accesses.
#[inline]
pub unsafe fn load(src: *const u8, dst: &mut [u8]) {
    // SAFETY: the callee needs what the caller promises.
    unsafe { chosen::load(src, dst) }
}

/// As [`load`], to memory that need not be initialised; afterwards all of `dst` is.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub unsafe fn load_uninit(src: *const u8, dst: &mut [MaybeUninit<u8>]) {
    // SAFETY: the callee needs what the caller promises.
    unsafe { chosen::load_uninit(src, dst) }
}

/// Copies `words` words of 8 bytes from `src` to `dst`, both aligned to 8 and not overlapping, both
/// of which others may be accessing through this module. Orders nothing.
///
/// # Safety
/// The words at `src` must be readable and those at `dst` writable for the whole call. Everybody
/// who accesses them meanwhile must use this module or atomic 8-byte accesses.
#[inline]
pub unsafe fn transfer(src: *const u64, dst: *mut u64, words: usize) {
    // SAFETY: the callee needs what the caller promises.
    unsafe { chosen::transfer(src, dst, words) }
}

/// Copies `src` to `dst`, which others may be reading with [`load`] or writing with this function.
///
/// Needs no alignment, and orders nothing.
///
/// # Safety
/// The aligned 8-byte words that cover `dst..dst + src.len()` must be writable for the whole call.
/// Everybody who accesses them meanwhile must use this module or atomic 8-byte accesses.
#[inline]
pub unsafe fn store(src: &[u8], dst: *mut u8) {
    // SAFETY: the callee needs what the caller promises.
    unsafe { chosen::store(src, dst) }
}

#[cfg(test)]
mod conformance;
