//! Racing copies as relaxed atomic accesses of aligned 8-byte words: the definition.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// The aligned word that covers `ptr`, and how far into it `ptr` lies.
fn word(ptr: *const u8) -> (*const AtomicU64, usize) {
    let inside = ptr.addr() % WORD;
    (ptr.wrapping_sub(inside).cast(), inside)
}

/// See [`super::load`].
///
/// # Safety
/// As [`super::load`].
pub unsafe fn load(src: *const u8, dst: &mut [u8]) {
    // SAFETY: the same bytes; only initialised ones are written to them.
    let dst = unsafe { &mut *(std::ptr::from_mut(dst) as *mut [MaybeUninit<u8>]) };
    // SAFETY: the caller's promise.
    unsafe { load_uninit(src, dst) }
}

/// See [`super::load_uninit`].
///
/// # Safety
/// As [`super::load_uninit`].
pub unsafe fn load_uninit(src: *const u8, dst: &mut [MaybeUninit<u8>]) {
    let (mut at, mut inside) = word(src);
    let mut rest = dst;
    while !rest.is_empty() {
        // Relaxed: this module orders nothing.
        // SAFETY: `at` is one of the words that cover the range: aligned, readable, and written
        // only by atomic accesses of this size.
        let bytes = unsafe { (*at).load(Ordering::Relaxed) }.to_ne_bytes();
        if inside == 0 && rest.len() >= WORD {
            // SAFETY: the rest has that many bytes.
            unsafe { rest.as_mut_ptr().cast::<[u8; WORD]>().write(bytes) };
            rest = &mut rest[WORD..];
            at = at.wrapping_add(1);
            continue;
        }
        let n = rest.len().min(WORD - inside);
        let (now, later) = rest.split_at_mut(n);
        now.write_copy_of_slice(&bytes[inside..inside + n]);
        rest = later;
        at = at.wrapping_add(1);
        inside = 0;
    }
}

/// See [`super::transfer`].
///
/// # Safety
/// As [`super::transfer`].
pub unsafe fn transfer(src: *const u64, dst: *mut u64, words: usize) {
    let (src, dst) = (src.cast::<AtomicU64>(), dst.cast::<AtomicU64>());
    for i in 0..words {
        // Relaxed: this module orders nothing.
        // SAFETY: aligned, mapped, and accessed only by atomic accesses of this size.
        unsafe {
            let word = (*src.wrapping_add(i)).load(Ordering::Relaxed);
            (*dst.wrapping_add(i)).store(word, Ordering::Relaxed);
        }
    }
}

/// See [`super::store`].
///
/// # Safety
/// As [`super::store`].
pub unsafe fn store(src: &[u8], dst: *mut u8) {
    let (mut at, mut inside) = word(dst);
    let mut rest = src;
    while !rest.is_empty() {
        // SAFETY: `at` is one of the words that cover the range: aligned, writable, and accessed
        // only by atomic accesses of this size.
        let place = unsafe { &*at };
        let n = rest.len().min(WORD - inside);
        let (now, later) = rest.split_at(n);
        let insert = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[inside..inside + n].copy_from_slice(now);
            u64::from_ne_bytes(bytes)
        };
        // Relaxed: this module orders nothing.
        if n == WORD {
            place.store(insert(0), Ordering::Relaxed);
        } else {
            // The other bytes belong to somebody else: their current values are written back.
            let mut old = place.load(Ordering::Relaxed);
            while let Err(now) =
                place.compare_exchange_weak(old, insert(old), Ordering::Relaxed, Ordering::Relaxed)
            {
                old = now;
            }
        }
        rest = later;
        at = at.wrapping_add(1);
        inside = 0;
    }
}
