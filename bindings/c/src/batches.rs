//! Calls that handle several records. **The program's callbacks run without any lock, on copies of
//! the data**, so they may take long without making others wait. The store is not kept attached
//! meanwhile either, since a callback may leave by `longjmp`.

use std::ffi::{c_int, c_void};

use mneme_log::{BatchError, Cursor};

use crate::boundary::{done, items, slice, write_to};
use crate::code::Failure;
use crate::process::StoreId;
use crate::records::{append, no_memory};
use crate::store::opened;
use crate::vas::null;

/// `mneme_bytes_t`.
#[repr(C)]
pub struct Bytes {
    at: *const c_void,
    length: usize,
}

/// `mneme_pair_t`.
#[repr(C)]
pub struct Pair {
    key: Bytes,
    value: Bytes,
}

/// A callback that is called with the value of each key, or with NULL if the key does not exist.
pub type EachValue = Option<
    unsafe extern "C" fn(
        index: usize,
        value: *const c_void,
        length: usize,
        data: *mut c_void,
    ) -> c_int,
>;

/// A callback that is called with each record.
pub type EachRecord = Option<
    unsafe extern "C" fn(
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        length: usize,
        data: *mut c_void,
    ) -> c_int,
>;

/// The number of keys whose values are copied at a time; the store looks up as many in parallel.
const STEP: usize = 32;

impl Bytes {
    /// # Safety
    /// `at` must point to `length` bytes that do not change during `'a`.
    pub(crate) unsafe fn get<'a>(&self, what: &str) -> Result<&'a [u8], Failure> {
        // SAFETY: guaranteed by the caller.
        unsafe { slice(self.at, self.length, what) }
    }
}

/// The bytes of all elements of an array: keys, or what `what` says.
///
/// # Safety
/// `array` must point to `count` elements whose bytes do not change during `'a`.
pub(crate) unsafe fn bytes_of<'a>(
    array: *const Bytes,
    count: usize,
    what: &str,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: guaranteed by the caller.
    let array = unsafe { items(array, count, &format!("array of {what}s")) }?;
    let mut all = Vec::new();
    all.try_reserve(count).map_err(|_| no_memory(count))?;
    for element in array {
        // SAFETY: guaranteed by the caller.
        all.push(unsafe { element.get(what) }?);
    }
    Ok(all)
}

/// See the header.
///
/// # Safety
/// `all` must point to `count` keys with valid bytes. `each` must have the type in the header and
/// accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_get_many(
    store: StoreId,
    all: *const Bytes,
    count: usize,
    each: EachValue,
    data: *mut c_void,
) -> c_int {
    done(|| {
        opened(store)?;
        let each = each.ok_or_else(|| null("the function"))?;
        // SAFETY: guaranteed by the caller.
        let keys = unsafe { bytes_of(all, count, "key") }?;
        let mut bytes = Vec::new();
        for (step, some) in keys.chunks(STEP).enumerate() {
            let mut lengths = [None; STEP];
            let mut copied = Ok(());
            bytes.clear();
            opened(store)?.database()?.get_many(some, |i, value| {
                if let (Some(value), Ok(())) = (value, &copied) {
                    copied = append(&mut bytes, value);
                    lengths[i] = Some(value.len());
                }
            })?;
            copied?;
            let mut rest = bytes.as_slice();
            for (i, length) in lengths.iter().take(some.len()).enumerate() {
                let value = length.and_then(|length| rest.split_off(..length));
                let at = value.map_or(std::ptr::null(), |value| value.as_ptr().cast());
                // SAFETY: guaranteed by the caller.
                if unsafe { each(step * STEP + i, at, length.unwrap_or(0), data) } != 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

/// Keys, each with its value.
type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The bytes of all pairs.
///
/// # Safety
/// `pairs` must point to `count` pairs whose bytes do not change during `'a`.
pub(crate) unsafe fn pairs<'a>(pairs: *const Pair, count: usize) -> Result<Pairs<'a>, Failure> {
    // SAFETY: guaranteed by the caller.
    let pairs = unsafe { items(pairs, count, "array of pairs") }?;
    let mut all = Vec::new();
    all.try_reserve(count).map_err(|_| no_memory(count))?;
    for pair in pairs {
        // SAFETY: guaranteed by the caller.
        all.push(unsafe { (pair.key.get("key")?, pair.value.get("value")?) });
    }
    Ok(all)
}

/// Reports how many records of a failed batch were handled before the failure.
///
/// # Safety
/// `done` must be NULL or point to a number.
unsafe fn batch<T>(
    result: Result<T, BatchError>,
    count: usize,
    done: *mut usize,
) -> Result<T, Failure> {
    let stored = result.as_ref().map_or_else(|failed| failed.done, |_| count);
    // SAFETY: guaranteed by the caller.
    unsafe { write_to(done, stored) };
    Ok(result?)
}

/// See the header.
///
/// # Safety
/// `pairs` must point to `count` pairs with valid bytes; `stored` must be NULL or point to a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_put_many(
    store: StoreId,
    pairs: *const Pair,
    count: usize,
    stored: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(stored, 0) };
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let all = unsafe { self::pairs(pairs, count) }?;
        let put = store.database()?.put_many(&all);
        // SAFETY: guaranteed by the caller.
        unsafe { batch(put, count, stored) }
    })
}

/// See the header.
///
/// # Safety
/// `all` must point to `count` keys with valid bytes; `removed` and `tried` must each be NULL or
/// point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_remove_many(
    store: StoreId,
    all: *const Bytes,
    count: usize,
    removed: *mut usize,
    tried: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(tried, 0) };
        let store = opened(store)?;
        // SAFETY: guaranteed by the caller.
        let keys = unsafe { bytes_of(all, count, "key") }?;
        let there = store.database()?.remove_many(&keys);
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(removed, batch(there, count, tried)?) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `cursor` must point to a number. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_scan(
    store: StoreId,
    cursor: *mut u64,
    count: usize,
    each: EachRecord,
    data: *mut c_void,
) -> c_int {
    done(|| {
        let store = opened(store)?;
        let each = each.ok_or_else(|| null("the function"))?;
        if cursor.is_null() {
            return Err(null("the cursor"));
        }
        // SAFETY: guaranteed by the caller.
        let from = Cursor::from_u64(unsafe { cursor.read() });
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        let mut copied = Ok(());
        let next = store.database()?.scan(from, count, |key, value| {
            if copied.is_ok() {
                copied = append(&mut bytes, key).and_then(|()| append(&mut bytes, value));
                lengths.push((key.len(), value.len()));
            }
        })?;
        drop(store);
        copied?;
        let mut rest = bytes.as_slice();
        for (key, value) in lengths {
            let (at, behind) = rest.split_at(key);
            let (value, behind) = behind.split_at(value);
            rest = behind;
            let (key_at, value_at) = (at.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: guaranteed by the caller.
            if unsafe { each(key_at, at.len(), value_at, value.len(), data) } != 0 {
                return Ok(());
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { cursor.write(next.to_u64()) };
        Ok(())
    })
}
