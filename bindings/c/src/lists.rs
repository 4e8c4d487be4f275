//! Lists, which hold values in an order under one key. They are the lists that Redis commands of a
//! server use.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use mneme_collections::{End, List, index_within};

use crate::batches::{Bytes, bytes_of};
use crate::boundary::{answer, apart, done, slice};
use crate::code::Failure;
use crate::collections::{EachElement, call_each, end, with_key};
use crate::process::StoreId;
use crate::records::give;
use crate::vas::null;

/// Calls `run` with the list under the key.
///
/// # Safety
/// `key` must point to its bytes, which must not change meanwhile.
unsafe fn with<R>(
    store: StoreId,
    key: (*const c_void, usize),
    run: impl FnOnce(List<'_, '_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { with_key(store, key, |database, key| run(List::new(database, key))) }
}

/// The positions from index `first` to index `last`, which belongs to them.
fn range_within(first: i64, last: i64, len: usize) -> Range<usize> {
    // An index without an item lies before all of them if it is negative, else behind them.
    let beyond = |index: i64| if index < 0 { 0 } else { len };
    let start = index_within(first, len).unwrap_or_else(|| beyond(first));
    let end = index_within(last, len).map_or_else(|| beyond(last), |last| last + 1);
    start..end.max(start)
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `all` to `count` items with valid bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_push(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    at: c_int,
    all: *const Bytes,
    count: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let (end, items) = (end(at)?, bytes_of(all, count, "item")?);
        with(store, (key, key_length), |list| {
            Ok(list.push(end, &items)? as i64)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, and `length` must be NULL or point
/// to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_pop(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    at: c_int,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        let end = end(at)?;
        apart((key, key_length), (buffer, capacity), length)?;
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        let pop = |list: List<'_, '_>| {
            let popped = list.change(|list| {
                let last = list.len()?.saturating_sub(1);
                let item = list.get(if end == End::Front { 0 } else { last })?;
                // One that does not fit stays.
                if item.as_ref().is_some_and(|item| item.len() <= capacity) {
                    list.pop(end, 1, |_| {})?;
                }
                Ok(item)
            });
            Ok(popped?)
        };
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let item = unsafe { with(store, (key, key_length), pop) }?;
        // SAFETY: guaranteed by the caller.
        item.map_or(Ok(0), |item| unsafe {
            give(&item, buffer, capacity, length)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, and `length` must be NULL or point
/// to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_get(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    index: i64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    answer(-1, || {
        apart((key, key_length), (buffer, capacity), length)?;
        if buffer.is_null() && (capacity != 0 || length.is_null()) {
            return Err(null("the buffer"));
        }
        let get = |list: List<'_, '_>| {
            let found = list.range_by_len(|len| match index_within(index, len) {
                Some(index) => index..index + 1,
                None => 0..0,
            });
            Ok(found?.pop())
        };
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let item = unsafe { with(store, (key, key_length), get) }?;
        // SAFETY: guaranteed by the caller.
        item.map_or(Ok(0), |item| unsafe {
            give(&item, buffer, capacity, length)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` and `item` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_set(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    index: i64,
    item: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let item = slice(item, length, "item")?;
        with(store, (key, key_length), |list| {
            let set = list.change(|list| match index_within(index, list.len()?) {
                Some(index) => list.set(index, item),
                None => Ok(false),
            });
            Ok(set?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` and `item` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_remove(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    from: c_int,
    count: usize,
    item: *const c_void,
    length: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let (end, item) = (end(from)?, slice(item, length, "item")?);
        with(store, (key, key_length), |list| {
            Ok(list.change(|list| list.remove(end, count, item))? as i64)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_trim(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    first: i64,
    last: i64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        with(store, (key, key_length), |list| {
            Ok(list.change(|list| {
                let kept = range_within(first, last, list.len()?);
                list.trim(kept)
            })?)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_length(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        with(store, (key, key_length), |list| Ok(list.len()? as i64))
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_list_each(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    first: i64,
    last: i64,
    each: EachElement,
    data: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let each = each.ok_or_else(|| null("the function"))?;
        let items = with(store, (key, key_length), |list| {
            Ok(list.range_by_len(|len| range_within(first, last, len))?)
        })?;
        call_each(&items, each, data);
        Ok(())
    })
}
