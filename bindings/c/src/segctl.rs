//! `seg_ctl`: further operations on a segment.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use mneme_space::{Attachment, Segment};
use mneme_sys::Access;

use crate::boundary::{done, mode};
use crate::code::{Code, Failure};
use crate::process::{self, SegId};
use crate::seg::existing;
use crate::vas::{null, text};

/// `seg_stat_t`.
#[repr(C)]
pub struct SegStat {
    base: *mut c_void,
    size: u64,
    max_size: u64,
    mode: u32,
    poisoned: i32,
    uuid: [u8; 16],
    name: [u8; 208],
}

const STAT: c_int = 1;
const CHMOD: c_int = 2;
const GROW: c_int = 3;
const ACCEPT: c_int = 4;
const REBUILD: c_int = 5;
const CHECK: c_int = 6;
const RESTORE: c_int = 7;
const SYNC: c_int = 8;

/// See the header.
///
/// # Safety
/// For `SEG_STAT`, the argument must be NULL or point to a `seg_stat_t`. With `SEG_ACCEPT`, the
/// caller guarantees that the segment's contents are whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seg_control(sid: SegId, command: c_int, argument: usize) -> c_int {
    done(|| {
        let segment = existing(sid)?;
        let name = segment.name().as_str();
        match command {
            STAT => {
                let stat: *mut SegStat = ptr::with_exposed_provenance_mut(argument);
                if stat.is_null() {
                    return Err(null("the seg_stat_t"));
                }
                let filled = look(&segment)?;
                // SAFETY: guaranteed by the caller.
                unsafe { stat.write(filled) };
            }
            CHMOD => {
                let perms = c_uint::try_from(argument).unwrap_or(c_uint::MAX);
                segment.set_mode(mode(perms)?)?;
            }
            GROW => {
                segment.grow(argument)?;
            }
            // SAFETY: by this command, the program guarantees that the segment's contents are
            // whole.
            ACCEPT => unsafe { attach(&segment, Access::ReadWrite)?.accept(name) }?,
            REBUILD => attach(&segment, Access::ReadWrite)?.rebuild(name)?,
            CHECK => {
                let at = attach(&segment, Access::ReadOnly)?;
                let checked = at.read(|here| here.heap(name)?.check())?;
                if let Some(problem) = checked?.problems.first() {
                    let text = format!("the heap of segment {name} is damaged: {problem}");
                    return Err(Failure::new(Code::Damaged, text));
                }
            }
            RESTORE => {
                let clone: SegId = ptr::without_provenance_mut(argument);
                segment.restore_from(&existing(clone)?)?;
            }
            SYNC => attach(&segment, Access::ReadWrite)?.sync()?,
            other => {
                let text = format!("seg_ctl has no command {other}");
                return Err(Failure::new(Code::Invalid, text));
            }
        }
        Ok(())
    })
}

fn attach(segment: &Segment, access: Access) -> Result<Attachment, Failure> {
    let attachment = Attachment::new([(segment, access)])?;
    Ok(attachment.timeout(process::timeout()))
}

fn look(segment: &Segment) -> Result<SegStat, Failure> {
    let info = segment.info()?;
    Ok(SegStat {
        base: ptr::without_provenance_mut(info.base.unwrap_or(0)),
        size: info.size as u64,
        max_size: info.max_size as u64,
        mode: info.mode,
        poisoned: i32::from(info.poisoned),
        uuid: segment.uuid().to_bytes(),
        name: text(segment.name().as_str()),
    })
}
