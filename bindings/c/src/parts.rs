//! Reading and writing parts of values, at a cost that depends on the part's length only.

use std::ffi::{c_int, c_void};
use std::ptr;

use mneme_log::Patch;

use crate::boundary::{answer, apart, slice, write_to};
use crate::process::StoreId;
use crate::store::opened;
use crate::vas::null;

/// `MNEME_AT_END`.
const END: usize = usize::MAX;

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, and `length` must be NULL or point
/// to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_read_part(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    at: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        apart((key, key_length), (buffer, capacity), length)?;
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let key = unsafe { slice(key, key_length, "key") }?;
        if buffer.is_null() && capacity != 0 {
            return Err(null("the buffer"));
        }
        let part = |_| at..at.saturating_add(capacity);
        let found = store.database()?.read_part(key, part, |part| {
            let part = part?;
            if !part.bytes.is_empty() {
                // SAFETY: the caller guarantees that many bytes, which nothing else uses.
                unsafe {
                    ptr::copy_nonoverlapping(part.bytes.as_ptr(), buffer.cast(), part.bytes.len());
                }
            }
            Some(part.len)
        })?;
        let Some(whole) = found else { return Ok(0) };
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(length, whole) };
        Ok(1)
    })
}

/// See the header.
///
/// # Safety
/// `key` and the part must point to their bytes, and `length` must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_write_part(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    at: usize,
    part: *const c_void,
    part_length: usize,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        let nothing = (std::ptr::null_mut(), 0);
        apart((key, key_length), nothing, length)?;
        apart((part, part_length), nothing, length)?;
        // SAFETY: guaranteed by the caller; the output, which does not overlap them, is written
        // later.
        let (key, bytes) = unsafe {
            (
                slice(key, key_length, "key")?,
                slice(part, part_length, "part")?,
            )
        };
        let mut after = 0;
        store.database()?.update_part(
            key,
            |_| 0..0,
            |old| {
                let len = old.map_or(0, |old| old.len);
                let at = if at == END { len } else { at };
                after = len.max(at.saturating_add(bytes.len()));
                Patch::Write {
                    at,
                    bytes: bytes.into(),
                }
            },
        )?;
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(length, after) };
        Ok(0)
    })
}
