//! Finds the segment of a pointer, for `vas_cast` and for the pointer checks (`bindings/c/check`).
//!
//! **An answer is valid until the thread's section counter changes.** A check stores the last
//! answer with the counter, so that most checks need no call.

use std::ffi::{c_int, c_void};
use std::ptr;

use mneme_space::Uuid;

use crate::boundary::{answer, write_to};
use crate::check_state::{BOUNDS, SECTIONS, is_in_a_window};
use crate::code::{Code, Failure};
use crate::current::{self, Current};
use crate::process::{PRIMARY, VasHandle};

/// `mneme_place_t`.
#[repr(C)]
pub struct Place {
    base: *mut c_void,
    bytes: usize,
    segment: u64,
    access: i32,
    reserved: i32,
}

/// `MNEME_COMMON`, `MNEME_INSIDE`, `MNEME_OUTSIDE`.
const COMMON: c_int = 0;
const INSIDE: c_int = 1;
const OUTSIDE: c_int = 2;

/// A UUID folded to 64 bits, never 0.
fn folded(uuid: Uuid) -> u64 {
    let bytes = u128::from_le_bytes(uuid.to_bytes());
    #[allow(clippy::cast_possible_truncation, reason = "both halves are in it")]
    let folded = (bytes ^ (bytes >> 64)) as u64;
    folded.max(1)
}

/// See the header.
///
/// # Safety
/// `place` must be NULL or point to a `mneme_place_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_place(address: *const c_void, place: *mut Place) -> c_int {
    let address = address.addr();
    if !is_in_a_window(address) {
        return COMMON;
    }
    let found = current::with(|current| {
        let mut entered = current.inside()?.segments();
        let lies_in = |base: usize, len| address.checked_sub(base).is_some_and(|at| at < len);
        let found = entered.find(|entered| lies_in(entered.base.addr().get(), entered.len));
        Ok(found.map(|entered| Place {
            base: entered.base.as_ptr().cast(),
            bytes: entered.len,
            segment: folded(entered.uuid),
            access: if entered.writable { 3 } else { 1 },
            reserved: 0,
        }))
    });
    match found {
        Ok(Some(found)) => {
            // SAFETY: guaranteed by the caller.
            unsafe { write_to(place, found) };
            INSIDE
        }
        _ => OUTSIDE,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_segment_at(vh: VasHandle, address: *const c_void) -> u64 {
    let found = current::with(|current| segment_of(current, vh, address.addr()));
    found.ok().flatten().map_or(0, folded)
}

/// The segment that the space of a handle has at an address.
fn segment_of(
    current: &mut Current,
    vh: VasHandle,
    address: usize,
) -> Result<Option<Uuid>, Failure> {
    match vh.addr() {
        PRIMARY => Ok(current.primary_segment_at(address)),
        handle => Ok(current.attached(handle)?.attachment.segment_at(address)),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_sections() -> *const u64 {
    SECTIONS
        .try_with(|sections| sections.as_ptr().cast_const())
        .unwrap_or(ptr::null())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_bounds() -> *const u64 {
    BOUNDS[0].as_ptr().cast_const()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_cast(pointer: *mut c_void, vh: VasHandle) -> *mut c_void {
    if pointer.is_null() {
        return pointer;
    }
    answer(ptr::null_mut(), || {
        let address = pointer.addr();
        let found = current::with(|current| segment_of(current, vh, address))?;
        if found.is_some() || (vh.addr() == PRIMARY && !is_in_a_window(address)) {
            return Ok(pointer);
        }
        let text = format!("the address {pointer:p} belongs to no segment of that space");
        Err(Failure::new(Code::Outside, text))
    })
}
