//! The boundary to C. Arguments are checked, results become return values or recorded failures, and
//! panics are caught.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use mneme_sys::Access;

use crate::code::{Code, Failure};
use crate::process;

/// Calls `f` and returns its result. On failure, records the reason and returns `failed`.
pub(crate) fn answer<T>(failed: T, f: impl FnOnce() -> Result<T, Failure>) -> T {
    // A panic can interrupt a change of a table or of a section; both remain valid then.
    let done = catch_unwind(AssertUnwindSafe(|| {
        process::check_not_forked()?;
        f()
    }));
    let failure = match done {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().copied();
            let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = said.unwrap_or("no word of it");
            Failure::new(Code::Internal, format!("a defect of mneme: {text}"))
        }
    };
    failure.record();
    failed
}

/// The return value of a function without another result: 0 or -1.
pub(crate) fn done(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(-1, || f().map(|()| 0))
}

/// The bytes before the NUL.
///
/// # Safety
/// `text` must be NULL or point to a NUL-terminated string that does not change during `'a`.
unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        let text = format!("the {what} is NULL");
        return Err(Failure::new(Code::Invalid, text));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A name argument.
///
/// # Safety
/// `text` must be NULL or point to a NUL-terminated string that does not change during `'a`.
pub(crate) unsafe fn name<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { bytes(text, "name") }?;
    let not_utf8 = |_| Failure::new(Code::Name, format!("a name is UTF-8, {text:?} is not"));
    text.to_str().map_err(not_utf8)
}

/// A directory argument.
///
/// # Safety
/// `text` must be NULL or point to a NUL-terminated string.
pub(crate) unsafe fn directory(text: *const c_char) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: guaranteed by the caller.
    let text = unsafe { bytes(text, "directory") }?;
    Ok(std::ffi::OsStr::from_bytes(text.to_bytes()).into())
}

/// A key or value argument.
///
/// # Safety
/// `at` must be NULL or point to `length` bytes that do not change during `'a`.
pub(crate) unsafe fn slice<'a>(
    at: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { items(at.cast::<u8>(), length, what) }
}

/// Refuses output arguments that overlap the key, since the key is read while they are written.
pub(crate) fn apart(
    (key, key_length): (*const c_void, usize),
    buffer: (*mut c_void, usize),
    length: *mut usize,
) -> Result<(), Failure> {
    let key = key.addr()..key.addr().saturating_add(key_length);
    let length = (length.cast::<c_void>(), size_of::<usize>());
    for (what, (at, bytes)) in [("buffer", buffer), ("place for the length", length)] {
        let end = at.addr().saturating_add(bytes);
        if !at.is_null() && key.start < end && at.addr() < key.end {
            let text = format!("the key lies in the {what}: it has to stay as it is meanwhile");
            return Err(Failure::new(Code::Invalid, text));
        }
    }
    Ok(())
}

/// An array argument.
///
/// # Safety
/// `at` must be NULL or point to `count` elements that do not change during `'a`.
pub(crate) unsafe fn items<'a, T>(
    at: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || count > isize::MAX as usize / size_of::<T>() {
        let text = match at.is_null() {
            true => format!("the {what} is NULL, and not empty"),
            false => format!("there is no {what} of length {count}"),
        };
        return Err(Failure::new(Code::Invalid, text));
    }
    // SAFETY: guaranteed by the caller; the length was checked against the maximum size of an
    // object.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Stores `what` unless `to` is NULL.
///
/// # Safety
/// `to` must be NULL or point to a `T`.
pub(crate) unsafe fn write_to<T>(to: *mut T, what: T) {
    if !to.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(what) };
    }
}

const READ: c_int = 1;
const WRITE: c_int = 2;

/// The access for `READ` or `READ|WRITE`.
pub(crate) fn access(flags: c_int) -> Result<Access, Failure> {
    match flags {
        READ => Ok(Access::ReadOnly),
        flags if flags == READ | WRITE => Ok(Access::ReadWrite),
        other => Err(Failure::new(
            Code::Invalid,
            format!("an access is READ or READ|WRITE, not {other}"),
        )),
    }
}

/// The flags for an access.
pub(crate) fn flags(access: Access) -> c_int {
    match access {
        Access::ReadOnly => READ,
        Access::ReadWrite => READ | WRITE,
    }
}

/// A file mode, from permissions in the paper's notation: `READ|WRITE`, `0660`, or `660` in
/// decimal.
///
/// This is unambiguous: no valid mode is also the decimal spelling of another, since those numbers
/// are above 0777.
pub(crate) fn mode(perms: c_uint) -> Result<u32, Failure> {
    // Valid modes: whoever can write can read, the owner can read, and nobody can execute.
    let makes_sense = |mode: u32| {
        let sensible = |bits| matches!(bits & 7, 0 | 4 | 6);
        (0o400..=0o777).contains(&mode) && [mode, mode >> 3, mode >> 6].into_iter().all(sensible)
    };
    let as_digits = || u32::from_str_radix(&perms.to_string(), 8).ok();
    match perms {
        1 => Some(0o400),
        3 => Some(0o600),
        mode if makes_sense(mode) => Some(mode),
        0o1000.. => as_digits().filter(|mode| makes_sense(*mode)),
        _ => None,
    }
    .ok_or_else(|| {
        let text = format!(
            "{perms} (octal {perms:#o}) is no permission: READ, READ|WRITE, or octal like 0660, with 0, 4 or 6 for each"
        );
        Failure::new(Code::Invalid, text)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The paper's notations have the paper's meaning, and no notation grants more than it says.
    #[test]
    fn permissions_as_the_papers_write_them() {
        for (perms, expected) in [
            (0o660, 0o660),
            (660, 0o660),
            (0o600, 0o600),
            (600, 0o600),
            (666, 0o666),
            (0o644, 0o644),
            (644, 0o644),
            (0o400, 0o400),
            (1 | 2, 0o600),
            (1, 0o400),
        ] {
            assert_eq!(mode(perms).unwrap(), expected, "{perms}");
        }
        // 440 and 400 in decimal are unusual modes in octal; rights to execute and to write without
        // reading are refused too.
        for wrong in [
            0,
            2,
            4,
            6,
            0o60,
            0o66,
            440,
            444,
            400,
            0o777,
            777,
            0o620,
            0o602,
            0o755,
            755,
            680,
            668,
            1660,
            0o1660,
            u32::MAX,
        ] {
            assert_eq!(mode(wrong).unwrap_err().code, Code::Invalid, "{wrong}");
        }
    }

    #[test]
    fn a_panic_becomes_an_error_code() {
        assert_eq!(done(|| panic!("in the middle")), -1);
        assert_eq!(crate::code::mneme_code(), Code::Internal as c_int);
    }
}
