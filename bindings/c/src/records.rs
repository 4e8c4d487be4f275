//! Calls that handle one record. **A value that is read is copied to the program's buffer, or to
//! memory that the program owns and frees.**

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use mneme_log::{Expiry, MAX_VALUE};

use crate::boundary::{answer, apart, done, slice, write_to};
use crate::code::{Code, Failure};
use crate::process::StoreId;
use crate::store::opened;
use crate::vas::null;

/// `MNEME_NEVER`, or wall-clock milliseconds since 1970.
pub(crate) fn expiry(number: u64) -> Expiry {
    match number {
        0 => Expiry::Never,
        ms => Expiry::At(ms),
    }
}

/// The inverse of [`expiry`].
pub(crate) fn expiry_number(expiry: Expiry) -> u64 {
    match expiry {
        Expiry::Never => 0,
        Expiry::At(ms) => ms,
    }
}

/// A copy of the bytes, or an error if there is no memory for it.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut copy = Vec::new();
    append(&mut copy, bytes)?;
    Ok(copy)
}

/// Appends the bytes, or returns an error if there is no memory for them.
pub(crate) fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Failure> {
    to.try_reserve(bytes.len())
        .map_err(|_| no_memory(bytes.len()))?;
    to.extend_from_slice(bytes);
    Ok(())
}

pub(crate) fn no_memory(bytes: usize) -> Failure {
    let text = format!("this process has no memory for {bytes} bytes more");
    Failure::new(Code::NoMemory, text)
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, and `length` must be NULL or point
/// to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_get(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
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
        if buffer.is_null() && (capacity != 0 || length.is_null()) {
            return Err(null("the buffer"));
        }
        let database = store.database()?;
        if buffer.is_null() {
            let found = database.read_part(key, |_| 0..0, |part| part.map(|part| part.len))?;
            let Some(whole) = found else { return Ok(0) };
            // SAFETY: guaranteed by the caller.
            unsafe { write_to(length, whole) };
            return Ok(1);
        }
        let Some(value) = database.get(key)? else {
            return Ok(0);
        };
        // SAFETY: guaranteed by the caller.
        unsafe { give(&value, buffer, capacity, length) }
    })
}

/// Copies a value to the caller's buffer, and reports its length. If the buffer is NULL, only the
/// length is reported.
///
/// # Safety
/// `length` must be NULL or point to a number; `buffer` must be NULL or point to `capacity` bytes
/// that nothing else uses.
pub(crate) unsafe fn give(
    value: &[u8],
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> Result<c_int, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { write_to(length, value.len()) };
    if buffer.is_null() {
        return Ok(1);
    }
    if value.len() > capacity {
        let text = format!("the value has {} bytes, the buffer {capacity}", value.len());
        return Err(Failure::new(Code::Short, text));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len()) };
    Ok(1)
}

/// The size of the header before the bytes that `mneme_get_alloc` returns; it holds their number.
const PREFIX: usize = 16;

/// The layout of a block for such bytes: the header, the bytes and a final NUL.
fn block(length: usize) -> Option<Layout> {
    Layout::from_size_align(length.checked_add(PREFIX + 1)?, PREFIX).ok()
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, and `value` and `length` must each be NULL or point to their
/// output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_get_alloc(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    value: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        let place = (value.cast::<c_void>(), size_of::<*mut c_void>());
        apart((key, key_length), place, length)?;
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let key = unsafe { slice(key, key_length, "key") }?;
        if value.is_null() {
            return Err(null("the place for the value's address"));
        }
        let Some(found) = store.database()?.get(key)? else {
            // SAFETY: guaranteed by the caller.
            unsafe { write_to(value, ptr::null_mut()) };
            return Ok(0);
        };
        let layout = block(found.len()).ok_or_else(|| no_memory(found.len()))?;
        // SAFETY: the layout's size is not 0.
        let block = unsafe { alloc(layout) };
        if block.is_null() {
            return Err(no_memory(found.len()));
        }
        // SAFETY: the block has space for the aligned header, the value after it, and a NUL. The
        // outputs are guaranteed by the caller.
        unsafe {
            block.cast::<usize>().write(found.len());
            let bytes = block.add(PREFIX);
            ptr::copy_nonoverlapping(found.as_ptr(), bytes, found.len());
            bytes.add(found.len()).write(0);
            value.write(bytes.cast());
            write_to(length, found.len());
        }
        Ok(1)
    })
}

/// See the header. A forked child may also free its copies of the parent's blocks.
///
/// # Safety
/// `value` must be NULL or a block of `mneme_get_alloc` that was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_free(value: *mut c_void) {
    if value.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller; the header with the length precedes the value.
    unsafe {
        let start = value.cast::<u8>().sub(PREFIX);
        let length = start.cast::<usize>().read();
        debug_assert!(length <= MAX_VALUE);
        if let Some(layout) = block(length) {
            dealloc(start, layout);
        }
    }
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_contains(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let key = unsafe { slice(key, key_length, "key") }?;
        Ok(store.database()?.contains(key)?.into())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `value` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_put(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { mneme_put_until(store, key, key_length, value, length, 0) }
}

/// See the header.
///
/// # Safety
/// `key` and `value` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_put_until(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
    expires: u64,
) -> c_int {
    done(|| {
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe {
            (
                slice(key, key_length, "key")?,
                slice(value, length, "value")?,
            )
        };
        store.database()?.put_until(key, value, expiry(expires))?;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_remove(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let key = unsafe { slice(key, key_length, "key") }?;
        Ok(store.database()?.remove(key)?.into())
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, and `expires` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_expiry(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    expires: *mut u64,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        let place = (expires.cast::<c_void>(), size_of::<u64>());
        apart((key, key_length), place, ptr::null_mut())?;
        // SAFETY: guaranteed by the caller; the output, which does not overlap the key, is written
        // later.
        let key = unsafe { slice(key, key_length, "key") }?;
        if expires.is_null() {
            return Err(null("the place for the time"));
        }
        let Some(found) = store.database()?.expiry(key)? else {
            return Ok(0);
        };
        // SAFETY: guaranteed by the caller.
        unsafe { expires.write(expiry_number(found)) };
        Ok(1)
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_expiry(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    expires: u64,
) -> c_int {
    answer(-1, || {
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let key = unsafe { slice(key, key_length, "key") }?;
        Ok(store.database()?.set_expiry(key, expiry(expires))?.into())
    })
}
