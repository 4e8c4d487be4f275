//! Segments: the functions `seg_...` of the paper.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use mneme_space::{Backing, CloneError, CreateError, Name, Segment, Space, Uuid};

use crate::attached::usual_access;
use crate::boundary::{answer, directory, done, mode, name};
use crate::code::{Code, Failure};
use crate::current;
use crate::process::{self, ATTACHED, CURRENT, PRIMARY, SEGMENTS, SPACES, SegId, VasHandle, VasId};
use crate::vas::{Each, each_name, null, numbered};

/// The minimum size of a segment with a heap.
const LEAST: usize = 1 << 20;
/// The initial size of a segment.
const FIRST: usize = 2 << 20;

/// The number of a segment; assigned if it has none yet.
fn known(segment: Segment) -> Result<SegId, Failure> {
    let uuid = segment.uuid();
    let number = SEGMENTS.enter(segment, |known| known.uuid() == uuid)?;
    Ok(ptr::without_provenance_mut(number))
}

/// The segment with a number, if its name still belongs to it.
pub(crate) fn existing(sid: SegId) -> Result<Segment, Failure> {
    let segment = SEGMENTS.get(sid.addr())?;
    let named = Segment::open(segment.registry(), segment.name().as_str())?;
    is_same(&segment, named.uuid())?;
    Ok(segment)
}

/// Checks that the segment with this name is the one meant, and not a later one of the same name.
fn is_same(segment: &Segment, named: Uuid) -> Result<(), Failure> {
    if named == segment.uuid() {
        return Ok(());
    }
    let text = format!("segment {} was removed and made anew", segment.name());
    Err(Failure::new(Code::Stale, text))
}

/// The segment with a number, if the space has that segment as a member under its name. The segment
/// itself may have been removed.
pub(crate) fn member(space: &Space, sid: SegId) -> Result<Segment, Failure> {
    let segment = SEGMENTS.get(sid.addr())?;
    let members = space.members()?;
    if let Some(member) = members.iter().find(|member| member.name == *segment.name()) {
        is_same(&segment, member.uuid)?;
    }
    Ok(segment)
}

/// The backing for `SEG_SHARED` and the other constants.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
pub(crate) unsafe fn backing(kind: c_int, place: *const c_char) -> Result<Backing, Failure> {
    // SAFETY: guaranteed by the caller.
    let directory = || unsafe { directory(place) };
    match kind {
        0 => Ok(Backing::Shared),
        1 => Ok(Backing::Huge),
        2 => Ok(Backing::File {
            directory: directory()?,
        }),
        3 => Ok(Backing::Dax {
            directory: directory()?,
        }),
        other => {
            let text = format!("{other} is none of SEG_SHARED, SEG_HUGE, SEG_FILE, SEG_DAX");
            Err(Failure::new(Code::Invalid, text))
        }
    }
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_alloc(
    of: *const c_char,
    base: *const c_void,
    bytes: usize,
    perms: c_uint,
) -> SegId {
    // SAFETY: guaranteed by the caller.
    unsafe { seg_alloc_in(of, base, bytes, perms, 0, ptr::null()) }
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_alloc_in(
    of: *const c_char,
    base: *const c_void,
    bytes: usize,
    perms: c_uint,
    kind: c_int,
    place: *const c_char,
) -> SegId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let (name, backing) = unsafe { (name(of)?, backing(kind, place)?) };
        let mode = mode(perms)?;
        if bytes < LEAST {
            let text = format!("a segment of {bytes} bytes is too small: 1 MiB at least");
            return Err(Failure::new(Code::Invalid, text));
        }
        let registry = process::registry()?;
        let new = registry.segment(name).mode(mode).backing(backing);
        let new = new.size(FIRST).max_size(bytes.max(FIRST));
        let new = match base.addr() {
            0 => new,
            address => new.base(address),
        };
        known(new.create()?)
    })
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_find(of: *const c_char) -> SegId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name(of) }?;
        known(Segment::open(&process::registry()?, name)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_clone(sid: SegId) -> SegId {
    answer(ptr::null_mut(), || {
        let segment = existing(sid)?;
        let is_taken = |error: &_| matches!(error, CloneError::Create(CreateError::Exists { .. }));
        let name = segment.name().as_str();
        known(numbered(name, |name| segment.clone_as(name), is_taken)?)
    })
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_clone_as(sid: SegId, to: *const c_char) -> SegId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { name(to) }?;
        known(existing(sid)?.clone_as(name)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_delete(sid: SegId) -> c_int {
    done(|| {
        existing(sid)?.remove()?;
        // Another thread may have removed the number already.
        let _ = SEGMENTS.remove(sid.addr());
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_attach_vas(vid: VasId, sid: SegId) -> c_int {
    done(|| {
        let (space, segment) = (SPACES.get(vid.addr())?, existing(sid)?);
        space.add(&segment, usual_access(&segment)?)?;
        current::with(|current| current.follow(space.uuid()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_detach_vas(vid: VasId, sid: SegId) -> c_int {
    done(|| {
        let space = SPACES.get(vid.addr())?;
        let segment = member(&space, sid)?;
        space.remove_segment(segment.name().as_str())?;
        current::with(|current| current.follow(space.uuid()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_attach_handle(vh: VasHandle, sid: SegId) -> c_int {
    done(|| {
        let segment = existing(sid)?;
        current::with(|current| match vh.addr() {
            CURRENT => current.attach_here(&segment),
            PRIMARY if current.handle() == PRIMARY => current.attach_here(&segment),
            number => current.attach(&ATTACHED.get(number)?, &segment),
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_detach_handle(vh: VasHandle, sid: SegId) -> c_int {
    done(|| {
        let segment = SEGMENTS.get(sid.addr())?;
        current::with(|current| match vh.addr() {
            CURRENT => current.detach_here(&segment),
            PRIMARY if current.handle() == PRIMARY => current.detach_here(&segment),
            number => current.detach(&ATTACHED.get(number)?, &segment),
        })
    })
}

/// See the header.
///
/// # Safety
/// `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_list(each: Each, data: *mut c_void) -> c_int {
    answer(-1, || {
        let each = each.ok_or_else(|| null("the function"))?;
        let names = process::registry()?.segments()?;
        // SAFETY: guaranteed by the caller.
        Ok(each_name(names.iter().map(Name::as_str), |name| unsafe {
            each(name.as_ptr(), data)
        }))
    })
}
