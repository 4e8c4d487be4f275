//! The boundary to C: arguments are checked, results are an answer or a recorded failure, and
//! panics stay inside.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use mneme_sys::Access;

use crate::code::{Code, Failure};
use crate::process;

/// The answer of `f`; or, with the reason recorded, the value that stands for failure.
pub(crate) fn answer<T>(failed: T, f: impl FnOnce() -> Result<T, Failure>) -> T {
    // What a panic leaves is in a table or a section, both of which know how to be left.
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

/// The answer of a function that does something: 0 or -1.
pub(crate) fn done(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(-1, || f().map(|()| 0))
}

/// The bytes before the NUL.
///
/// # Safety
/// NULL, or a string in C's sense that stays as it is for `'a`.
unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        let text = format!("the {what} is NULL");
        return Err(Failure::new(Code::Invalid, text));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A name.
///
/// # Safety
/// NULL, or a string in C's sense that stays as it is for `'a`.
pub(crate) unsafe fn name<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(text, "name") }?;
    let not_utf8 = |_| Failure::new(Code::Name, format!("a name is UTF-8, {text:?} is not"));
    text.to_str().map_err(not_utf8)
}

/// A directory.
///
/// # Safety
/// NULL, or a string in C's sense.
pub(crate) unsafe fn directory(text: *const c_char) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(text, "directory") }?;
    Ok(std::ffi::OsStr::from_bytes(text.to_bytes()).into())
}

/// A key or a value.
///
/// # Safety
/// `at` leads to so many bytes that stay as they are for `'a`, or is NULL.
pub(crate) unsafe fn slice<'a>(
    at: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { items(at.cast::<u8>(), length, what) }
}

/// Refuses places for an answer that the key lies in: it is read while they are written.
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

/// So many things side by side.
///
/// # Safety
/// `at` leads to so many that stay as they are for `'a`, or is NULL.
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
    // SAFETY: the caller's promise; no object is longer than that.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Stores what is asked for, unless it is not.
///
/// # Safety
/// NULL, or a place for it.
pub(crate) unsafe fn write_to<T>(to: *mut T, what: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(what) };
    }
}

const READ: c_int = 1;
const WRITE: c_int = 2;

/// What may be done, from `READ` or `READ|WRITE`.
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

/// The flags for it.
pub(crate) fn flags(access: Access) -> c_int {
    match access {
        Access::ReadOnly => READ,
        Access::ReadWrite => READ | WRITE,
    }
}

/// A file's mode, from permissions as the papers write them: `READ|WRITE`, `0660`, and `660`.
///
/// No mode that is accepted, written in octal, is a number that is accepted as decimal digits:
/// those are above 0777.
pub(crate) fn mode(perms: c_uint) -> Result<u32, Failure> {
    // Nobody writes without reading, the owner reads, and nothing is executed.
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

    /// What the papers write means what they mean, and nothing means more than it says.
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
        // 440 and 400 as decimal numbers are odd modes in octal; so are rights to execute, and
        // writing without reading.
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
