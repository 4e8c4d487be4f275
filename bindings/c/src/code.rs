//! Why a call failed: a code that is stable across releases, and a text for people.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;

use mneme_sys::{Classified, ErrorKind, with_causes};

/// The header's `MNEME_E...`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    Invalid = 1,
    Handle = 2,
    Name = 3,
    NotFound = 4,
    Exists = 5,
    Address = 6,
    Overlap = 7,
    NoMemory = 8,
    Permission = 9,
    ReadOnly = 10,
    Busy = 11,
    Stalled = 12,
    Poisoned = 13,
    Outside = 14,
    Inside = 15,
    Ambiguous = 16,
    Root = 17,
    Stale = 18,
    Forked = 19,
    Damaged = 20,
    Registry = 21,
    Backing = 22,
    Io = 23,
    Internal = 24,
    Short = 25,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    text: String,
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Code::Invalid,
            ErrorKind::Name => Code::Name,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Exists => Code::Exists,
            ErrorKind::Address => Code::Address,
            ErrorKind::Overlap => Code::Overlap,
            ErrorKind::NoMemory => Code::NoMemory,
            ErrorKind::Permission => Code::Permission,
            ErrorKind::ReadOnly => Code::ReadOnly,
            ErrorKind::Busy => Code::Busy,
            ErrorKind::Stalled => Code::Stalled,
            ErrorKind::Poisoned => Code::Poisoned,
            ErrorKind::Outside => Code::Outside,
            ErrorKind::Inside => Code::Inside,
            ErrorKind::Root => Code::Root,
            ErrorKind::Stale => Code::Stale,
            ErrorKind::Forked => Code::Forked,
            ErrorKind::Damaged => Code::Damaged,
            ErrorKind::Registry => Code::Registry,
            ErrorKind::Backing => Code::Backing,
            ErrorKind::Io => Code::Io,
            ErrorKind::Internal => Code::Internal,
        }
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.kind().into(), with_causes(&error))
    }
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// Makes this the calling thread's last failure.
    pub(crate) fn record(mut self) {
        // A file name in the text may contain line breaks.
        if self.text.contains(char::is_control) {
            let escaped = |at: char| match at.is_control() && at != '\0' {
                true => at.escape_default().to_string(),
                false => at.to_string(),
            };
            self.text = self.text.chars().map(escaped).collect();
        }
        // A text is cut at its first NUL.
        let text = CString::new(self.text).unwrap_or_else(|cut| {
            let (at, mut bytes) = (cut.nul_position(), cut.into_vec());
            bytes.truncate(at);
            CString::new(bytes).unwrap_or_default()
        });
        // While the thread's last destructors run, the failure cannot be recorded.
        let _ = LAST.try_with(|last| *last.borrow_mut() = (self.code, text));
    }
}

thread_local! {
    static LAST: RefCell<(Code, CString)> = RefCell::new((Code::Ok, CString::default()));
}

/// Resets the last failure, for calls that can return an empty result without failing.
pub(crate) fn clear() {
    let _ = LAST.try_with(|last| last.borrow_mut().0 = Code::Ok);
}

const ENDING: &CStr = c"the thread is running its last destructors";

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_code() -> c_int {
    LAST.try_with(|last| last.borrow().0)
        .unwrap_or(Code::Invalid) as c_int
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_error() -> *const c_char {
    let text = |last: &RefCell<(Code, CString)>| match &*last.borrow() {
        // A text that the program has obtained before stays valid.
        (Code::Ok, _) => c"".as_ptr(),
        (_, text) => text.as_ptr(),
    };
    LAST.try_with(text).unwrap_or(ENDING.as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_version() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0) & 0xff;
    part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | part(env!("CARGO_PKG_VERSION_PATCH"))
}
