//! Sets: byte strings, each once, under one key. They are the sets that Redis commands of a server
//! use.

use std::ffi::{c_int, c_void};

use mneme_collections::Set;

use crate::batches::{Bytes, bytes_of};
use crate::boundary::{answer, done, slice, write_to};
use crate::code::Failure;
use crate::collections::{EachElement, call_each, with_key};
use crate::process::StoreId;
use crate::vas::null;

/// Calls `run` with the set under the key.
///
/// # Safety
/// `key` must point to its bytes, which must not change meanwhile.
unsafe fn with<R>(
    store: StoreId,
    key: (*const c_void, usize),
    run: impl FnOnce(Set<'_, '_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { with_key(store, key, |database, key| run(Set::new(database, key))) }
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_add(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        with(store, (key, key_length), |set| Ok(set.add(member)?.into()))
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `all` to `count` members with valid bytes, and `added` must be
/// NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_add_many(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    all: *const Bytes,
    count: usize,
    added: *mut usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let members = bytes_of(all, count, "member")?;
        let new = with(store, (key, key_length), |set| Ok(set.add_many(&members)?))?;
        write_to(added, new);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_remove(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        with(store, (key, key_length), |set| {
            Ok(set.remove(member)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_contains(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        with(store, (key, key_length), |set| {
            Ok(set.contains(member)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_length(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        with(store, (key, key_length), |set| Ok(set.len()? as i64))
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_set_each(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    each: EachElement,
    data: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let each = each.ok_or_else(|| null("the function"))?;
        let members = with(store, (key, key_length), |set| Ok(set.members()?))?;
        call_each(&members, each, data);
        Ok(())
    })
}
