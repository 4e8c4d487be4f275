//! Several records a call. **The program's functions run with nothing held**, on copies: they may
//! take their time, and nobody waits for them. Nor is the store kept attached meanwhile, because
//! they may jump away.

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

/// A function of the program that is called with the value of each key, NULL if it is not there.
pub type EachValue = Option<
    unsafe extern "C" fn(
        index: usize,
        value: *const c_void,
        length: usize,
        data: *mut c_void,
    ) -> c_int,
>;

/// One that is called with each record.
pub type EachRecord = Option<
    unsafe extern "C" fn(
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        length: usize,
        data: *mut c_void,
    ) -> c_int,
>;

/// Keys whose values are copied at a time: as many as the store looks up side by side.
const STEP: usize = 32;

impl Bytes {
    /// # Safety
    /// It leads to so many bytes that stay as they are for `'a`.
    unsafe fn get<'a>(&self, what: &str) -> Result<&'a [u8], Failure> {
        // SAFETY: the caller's promise.
        unsafe { slice(self.at, self.length, what) }
    }
}

/// The bytes of all keys.
///
/// # Safety
/// So many keys, whose bytes stay as they are for `'a`.
unsafe fn keys<'a>(keys: *const Bytes, count: usize) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: the caller's promise.
    let keys = unsafe { items(keys, count, "array of keys") }?;
    let mut all = Vec::new();
    all.try_reserve(count).map_err(|_| no_memory(count))?;
    for key in keys {
        // SAFETY: the caller's promise.
        all.push(unsafe { key.get("key") }?);
    }
    Ok(all)
}

/// See the header.
///
/// # Safety
/// So many keys with their bytes; a function of that kind, for which `data` is right.
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
        // SAFETY: the caller's promise.
        let keys = unsafe { keys(all, count) }?;
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
                // SAFETY: the caller's promise.
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
/// So many pairs, whose bytes stay as they are for `'a`.
pub(crate) unsafe fn pairs<'a>(pairs: *const Pair, count: usize) -> Result<Pairs<'a>, Failure> {
    // SAFETY: the caller's promise.
    let pairs = unsafe { items(pairs, count, "array of pairs") }?;
    let mut all = Vec::new();
    all.try_reserve(count).map_err(|_| no_memory(count))?;
    for pair in pairs {
        // SAFETY: the caller's promise.
        all.push(unsafe { (pair.key.get("key")?, pair.value.get("value")?) });
    }
    Ok(all)
}

/// Reports how much of a batch that failed took place, before the failure.
///
/// # Safety
/// NULL, or a place for a number.
unsafe fn batch<T>(
    result: Result<T, BatchError>,
    count: usize,
    done: *mut usize,
) -> Result<T, Failure> {
    let stored = result.as_ref().map_or_else(|failed| failed.done, |_| count);
    // SAFETY: the caller's promise.
    unsafe { write_to(done, stored) };
    Ok(result?)
}

/// See the header.
///
/// # Safety
/// So many pairs with their bytes; NULL, or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_put_many(
    store: StoreId,
    pairs: *const Pair,
    count: usize,
    stored: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe { write_to(stored, 0) };
        let store = opened(store)?;
        // SAFETY: the caller's promise.
        let all = unsafe { self::pairs(pairs, count) }?;
        let put = store.database()?.put_many(&all);
        // SAFETY: the caller's promise.
        unsafe { batch(put, count, stored) }
    })
}

/// See the header.
///
/// # Safety
/// So many keys with their bytes; each NULL, or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_remove_many(
    store: StoreId,
    all: *const Bytes,
    count: usize,
    removed: *mut usize,
    tried: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe { write_to(tried, 0) };
        let store = opened(store)?;
        // SAFETY: the caller's promise.
        let keys = unsafe { keys(all, count) }?;
        let there = store.database()?.remove_many(&keys);
        // SAFETY: the caller's promise.
        unsafe { write_to(removed, batch(there, count, tried)?) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// A cursor; a function of that kind, for which `data` is right.
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
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            if unsafe { each(key_at, at.len(), value_at, value.len(), data) } != 0 {
                return Ok(());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { cursor.write(next.to_u64()) };
        Ok(())
    })
}
