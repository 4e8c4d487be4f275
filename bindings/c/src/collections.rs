//! What the functions for hashes, lists, sets and sorted sets share.

use std::ffi::{c_int, c_void};

use mneme_collections::End;
use mneme_log::Database;

use crate::boundary::slice;
use crate::code::{Code, Failure};
use crate::process::StoreId;
use crate::store::opened;

/// A callback that is called with each element.
pub type EachElement =
    Option<unsafe extern "C" fn(element: *const c_void, length: usize, data: *mut c_void) -> c_int>;

/// Calls `run` with the database and the key.
///
/// # Safety
/// `key` must point to its bytes, which must not change meanwhile.
pub(crate) unsafe fn with_key<R>(
    store: StoreId,
    (key, key_length): (*const c_void, usize),
    run: impl FnOnce(Database<'_>, &[u8]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let store = opened(store)?;
    // SAFETY: guaranteed by the caller.
    let key = unsafe { slice(key, key_length, "key") }?;
    run(store.database()?, key)
}

/// `MNEME_FRONT` or `MNEME_BACK`.
pub(crate) fn end(number: c_int) -> Result<End, Failure> {
    match number {
        0 => Ok(End::Front),
        1 => Ok(End::Back),
        other => {
            let text = format!("an end is MNEME_FRONT or MNEME_BACK, not {other}");
            Err(Failure::new(Code::Invalid, text))
        }
    }
}

/// Calls `each` with copies of elements until it does not return 0. The caller keeps no store
/// attached, since `each` may leave by `longjmp`.
///
/// # Safety
/// `each` must have the type in the header and accept `data`.
pub(crate) unsafe fn call_each(
    elements: &[Vec<u8>],
    each: unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> c_int,
    data: *mut c_void,
) {
    for element in elements {
        // SAFETY: guaranteed by the caller.
        if unsafe { each(element.as_ptr().cast(), element.len(), data) } != 0 {
            break;
        }
    }
}
