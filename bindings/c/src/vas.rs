//! Spaces: the functions `vas_...` of the paper.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use mneme_space::{Name, Space, SpaceError};
use mneme_sys::Access;

use crate::attached::Attached;
use crate::boundary::{access, answer, directory, done, flags, mode, name, write_to};
use crate::code::{Code, Failure};
use crate::current;
use crate::process::{self, ATTACHED, PRIMARY, SPACES, SegId, VasHandle, VasId};
use crate::seg::member;

/// `vas_stat_t`.
#[repr(C)]
pub struct VasStat {
    version: u64,
    mode: u32,
    members: u32,
    uuid: [u8; 16],
    name: [u8; 208],
}

/// A callback that is called with each name.
pub type Each = Option<unsafe extern "C" fn(name: *const c_char, data: *mut c_void) -> c_int>;

/// As [`Each`], with the member's access too.
pub type EachMember =
    Option<unsafe extern "C" fn(name: *const c_char, access: c_int, data: *mut c_void) -> c_int>;

/// The number of a space; assigned if it has none yet.
fn known(space: Space) -> Result<VasId, Failure> {
    let uuid = space.uuid();
    let number = SPACES.enter(space, |known| known.uuid() == uuid)?;
    Ok(ptr::without_provenance_mut(number))
}

/// A text as the bytes of a `char[]` with a final NUL.
pub(crate) fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let len = text.len().min(N - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// Calls `make` with `name~1`, `name~2`... until one is not taken.
pub(crate) fn numbered<T, E>(
    name: &str,
    make: impl Fn(&str) -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut number = 1;
    loop {
        match make(&format!("{name}~{number}")) {
            Err(taken) if is_taken(&taken) && number < 100_000 => number += 1,
            other => return other,
        }
    }
}

/// Calls the callback with each name, until it returns something other than 0.
pub(crate) fn each_name<'a>(
    names: impl IntoIterator<Item = &'a str>,
    mut call: impl FnMut(&CString) -> c_int,
) -> c_int {
    let mut calls = 0;
    for name in names {
        // Names never contain a NUL.
        let name = CString::new(name).unwrap_or_default();
        calls += 1;
        if call(&name) != 0 {
            break;
        }
    }
    calls
}

pub(crate) fn null(what: &str) -> Failure {
    Failure::new(Code::Invalid, format!("{what} is NULL"))
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_registry(directory_name: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| process::choose_registry(&unsafe { directory(directory_name) }?))
}

/// See the header.
///
/// # Safety
/// Each argument must be NULL or point to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_window(base: *mut *mut c_void, bytes: *mut usize) -> c_int {
    done(|| {
        let (first, len) = process::registry()?.window();
        // SAFETY: guaranteed by the caller.
        unsafe {
            write_to(base, ptr::without_provenance_mut(first));
            write_to(bytes, len);
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_timeout(milliseconds: u32) -> c_int {
    done(|| {
        process::set_timeout(milliseconds);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_find(of: *const c_char) -> VasId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name(of) }?;
        known(Space::open(&process::registry()?, name)?)
    })
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_create(of: *const c_char, perms: c_uint) -> VasId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name(of) }?;
        let mode = mode(perms)?;
        known(process::registry()?.space(name).mode(mode).create()?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_clone(vid: VasId) -> VasId {
    answer(ptr::null_mut(), || {
        let space = SPACES.get(vid.addr())?;
        let is_taken = |error: &_| matches!(error, SpaceError::Exists { .. });
        let name = space.name().as_str();
        known(numbered(name, |name| space.clone_as(name), is_taken)?)
    })
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_clone_as(vid: VasId, to: *const c_char) -> VasId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name(to) }?;
        known(SPACES.get(vid.addr())?.clone_as(name)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_delete(vid: VasId) -> c_int {
    done(|| {
        let space = SPACES.get(vid.addr())?;
        // Fails if the name belongs to another space by now.
        space.info()?;
        space.remove()?;
        // Another thread may have removed the number already.
        let _ = SPACES.remove(vid.addr());
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_attach(vid: VasId) -> VasHandle {
    vas_attach_as(vid, flags(Access::ReadWrite))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_attach_as(vid: VasId, access_flags: c_int) -> VasHandle {
    answer(ptr::null_mut(), || {
        let most = access(access_flags)?;
        let attached = Attached::of_space(&SPACES.get(vid.addr())?, most)?;
        let number = ATTACHED.enter(Arc::new(attached), |_| false)?;
        Ok(ptr::without_provenance_mut(number))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_detach(vh: VasHandle) -> c_int {
    done(|| {
        let attached = current::with(|current| {
            if current.handle() == vh.addr() {
                let text = "the calling thread is inside: switch to PRIMARY first";
                return Err(Failure::new(Code::Inside, text));
            }
            ATTACHED.remove(vh.addr())
        });
        // The segments are unmapped now, unless other threads are inside.
        attached?.close();
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_switch(vh: VasHandle) -> c_int {
    vas_switch_as(vh, flags(Access::ReadWrite))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_switch_as(vh: VasHandle, access_flags: c_int) -> c_int {
    done(|| {
        let access = access(access_flags)?;
        if vh.addr() == PRIMARY {
            return current::with(|current| current.switch_to_primary());
        }
        current::with(|current| {
            let attached = current.attached(vh.addr())?;
            current.switch(vh.addr(), attached, access)
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_current() -> VasHandle {
    answer(ptr::null_mut(), || {
        current::with(|current| Ok(ptr::without_provenance_mut(current.handle())))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_access(vid: VasId, sid: SegId, access_flags: c_int) -> c_int {
    done(|| {
        let space = SPACES.get(vid.addr())?;
        let segment = member(&space, sid)?;
        space.set_access(segment.name().as_str(), access(access_flags)?)?;
        current::with(|current| current.follow(space.uuid()))
    })
}

/// See the header.
///
/// # Safety
/// `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_list(each: Each, data: *mut c_void) -> c_int {
    answer(-1, || {
        let each = each.ok_or_else(|| null("the function"))?;
        let names = process::registry()?.spaces()?;
        // SAFETY: guaranteed by the caller.
        Ok(each_name(names.iter().map(Name::as_str), |name| unsafe {
            each(name.as_ptr(), data)
        }))
    })
}

/// See the header.
///
/// # Safety
/// `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_members(vid: VasId, each: EachMember, data: *mut c_void) -> c_int {
    answer(-1, || {
        let each = each.ok_or_else(|| null("the function"))?;
        let members = SPACES.get(vid.addr())?.members()?;
        let mut accesses = members.iter().map(|member| flags(member.access));
        let names = members.iter().map(|member| member.name.as_str());
        Ok(each_name(names, |name| {
            let access = accesses.next().unwrap_or(0);
            // SAFETY: guaranteed by the caller.
            unsafe { each(name.as_ptr(), access, data) }
        }))
    })
}

const STAT: c_int = 1;
const CHMOD: c_int = 2;

/// See the header.
///
/// # Safety
/// For `VAS_STAT`, the argument must be NULL or point to a `vas_stat_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_control(command: c_int, vid: VasId, argument: usize) -> c_int {
    done(|| {
        let space = SPACES.get(vid.addr())?;
        match command {
            STAT => {
                let stat: *mut VasStat = ptr::with_exposed_provenance_mut(argument);
                if stat.is_null() {
                    return Err(null("the vas_stat_t"));
                }
                let info = space.info()?;
                let filled = VasStat {
                    version: info.version,
                    mode: info.mode,
                    members: u32::try_from(info.members.len()).unwrap_or(u32::MAX),
                    uuid: space.uuid().to_bytes(),
                    name: text(space.name().as_str()),
                };
                // SAFETY: guaranteed by the caller.
                unsafe { stat.write(filled) };
                Ok(())
            }
            CHMOD => {
                let perms = c_uint::try_from(argument).unwrap_or(c_uint::MAX);
                space.set_mode(mode(perms)?)?;
                current::with(|current| current.follow(space.uuid()))
            }
            other => {
                let text = format!("vas_ctl has no command {other}");
                Err(Failure::new(Code::Invalid, text))
            }
        }
    })
}
