//! Hashes, which map fields to values under one key. They are the hashes that Redis commands of a
//! server use.

use std::ffi::{c_int, c_void};

use mneme_collections::{CollectionError, Hash};

use crate::batches::{EachRecord, Pair, pairs};
use crate::boundary::{answer, apart, done, slice, write_to};
use crate::code::Failure;
use crate::collections::with_key;
use crate::process::StoreId;
use crate::records::{append, give};
use crate::vas::null;

/// Calls `run` with the hash under the key.
///
/// # Safety
/// `key` must point to its bytes, which must not change meanwhile.
unsafe fn with<R>(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    run: impl FnOnce(Hash<'_, '_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_key(store, (key, key_length), |database, key| {
            run(Hash::new(database, key))
        })
    }
}

/// See the header.
///
/// # Safety
/// `key` and `field` must point to their bytes, `buffer` to `capacity` bytes, and `length` must be
/// NULL or point to a number.
#[allow(clippy::too_many_arguments, reason = "C has no slices: each takes two")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_get(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    field: *const c_void,
    field_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        apart((key, key_length), (buffer, capacity), length)?;
        apart((field, field_length), (buffer, capacity), length)?;
        if buffer.is_null() && (capacity != 0 || length.is_null()) {
            return Err(null("the buffer"));
        }
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let value = unsafe {
            let field = slice(field, field_length, "field")?;
            with(store, key, key_length, |hash| Ok(hash.get(field)?))
        }?;
        let Some(value) = value else {
            return Ok(0);
        };
        // SAFETY: guaranteed by the caller.
        unsafe { give(&value, buffer, capacity, length) }
    })
}

/// See the header.
///
/// # Safety
/// `key`, `field` and `value` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_set(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    field: *const c_void,
    field_length: usize,
    value: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let field = slice(field, field_length, "field")?;
        let value = slice(value, length, "value")?;
        with(store, key, key_length, |hash| {
            Ok(hash.set(field, value)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `pairs` to `count` pairs with valid bytes, and the output must be
/// NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_set_many(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    all: *const Pair,
    count: usize,
    added: *mut usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let set = pairs(all, count)?;
        let new = with(store, key, key_length, |hash| Ok(hash.set_many(&set)?))?;
        write_to(added, new);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `field` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_remove(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    field: *const c_void,
    field_length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let field = slice(field, field_length, "field")?;
        with(store, key, key_length, |hash| {
            Ok(hash.remove(field)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` and `field` must point to their bytes; the output must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_increment(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    field: *const c_void,
    field_length: usize,
    by: i64,
    sum: *mut i64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let field = slice(field, field_length, "field")?;
        let new = with(
            store,
            key,
            key_length,
            |hash| Ok(hash.increment(field, by)?),
        )?;
        write_to(sum, new);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_length(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        with(store, key, key_length, |hash| Ok(hash.len()? as i64))
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_hash_each(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    each: EachRecord,
    data: *mut c_void,
) -> c_int {
    done(|| {
        let each = each.ok_or_else(|| null("the function"))?;
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        let mut copied = Ok(());
        // SAFETY: guaranteed by the caller.
        unsafe {
            with(store, key, key_length, |hash| {
                let read: Result<(), CollectionError> = hash.for_each(|field, value| {
                    if copied.is_ok() {
                        copied = append(&mut bytes, field).and_then(|()| append(&mut bytes, value));
                        lengths.push((field.len(), value.len()));
                    }
                });
                Ok(read?)
            })?;
        }
        copied?;
        let mut rest = bytes.as_slice();
        for (field, value) in lengths {
            let (field, behind) = rest.split_at(field);
            let (value, behind) = behind.split_at(value);
            rest = behind;
            let (field_at, value_at) = (field.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: guaranteed by the caller.
            if unsafe { each(field_at, field.len(), value_at, value.len(), data) } != 0 {
                break;
            }
        }
        Ok(())
    })
}
