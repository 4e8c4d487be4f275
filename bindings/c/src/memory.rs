//! Memory blocks in segments, and segments' roots.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use mneme_space::UntypedHeap;

use crate::boundary::{answer, done};
use crate::code::{self, Code, Failure};
use crate::current::{self, Current};
use crate::process::{SEGMENTS, SegId};

/// The alignment of `malloc`.
const ALIGN: usize = 16;
/// The maximum alignment that can be requested.
const MOST_ALIGN: usize = 2 << 20;

fn layout(bytes: usize, align: usize) -> Result<Layout, Failure> {
    if !align.is_power_of_two() || align > MOST_ALIGN {
        let text = format!("an alignment is a power of two up to 2 MiB, not {align}");
        return Err(Failure::new(Code::Invalid, text));
    }
    Layout::from_size_align(bytes, align).map_err(|_| full(bytes))
}

fn array(count: usize, bytes: usize) -> Result<Layout, Failure> {
    let all = count.checked_mul(bytes).ok_or_else(|| full(usize::MAX))?;
    layout(all, ALIGN)
}

#[cold]
fn full(bytes: usize) -> Failure {
    let text = format!("the segment has no free space for {bytes} more bytes");
    Failure::new(Code::NoMemory, text)
}

#[cold]
fn no_block(block: *const c_void) -> Failure {
    let text = format!(
        "no block begins at {block:p}, or it was freed, or its segment is not entered for this"
    );
    Failure::new(Code::Invalid, text)
}

/// Allocates a block in the segment that is used if a call names none.
#[inline]
fn take(f: impl FnOnce(UntypedHeap) -> Result<NonNull<u8>, Failure>) -> *mut c_void {
    answer(ptr::null_mut(), || {
        current::with(|current| {
            let heap = current.inside()?.heap(current.default_segment()?);
            Ok(f(heap.ok_or_else(|| full(0))?)?.as_ptr().cast())
        })
    })
}

/// Allocates a block in a given segment.
fn take_of(sid: SegId, f: impl FnOnce(UntypedHeap) -> Result<NonNull<u8>, Failure>) -> *mut c_void {
    answer(ptr::null_mut(), || {
        of_segment(sid, |heap, writable| {
            if !writable {
                let text = "the segment was entered for reading only";
                return Err(Failure::new(Code::ReadOnly, text));
            }
            Ok(f(heap)?.as_ptr().cast())
        })
    })
}

/// Calls `f` with the heap of a segment that the thread is inside of, and with whether it may
/// change it.
fn of_segment<R>(
    sid: SegId,
    f: impl FnOnce(UntypedHeap, bool) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let segment = SEGMENTS.get(sid.addr())?;
    current::with(|current| {
        let outside = || {
            let text = format!("the thread is not inside of segment {}", segment.name());
            Failure::new(Code::Outside, text)
        };
        let base = segment.base().ok_or_else(outside)?;
        let inside = current.inside()?;
        // Several segments may share this address; the one that was entered is mapped there.
        let found = inside
            .segments()
            .find(|entered| entered.uuid == segment.uuid());
        let found = found.ok_or_else(outside)?;
        f(inside.heap(base).ok_or_else(outside)?, found.writable)
    })
}

/// The heap that contains a block.
fn heap_of(current: &Current, block: NonNull<u8>) -> Result<UntypedHeap, Failure> {
    let heap = current.inside()?.heap(block.addr().get());
    heap.ok_or_else(|| no_block(block.as_ptr().cast()))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_malloc(bytes: usize) -> *mut c_void {
    take(|heap| {
        heap.allocate(layout(bytes, ALIGN)?)
            .ok_or_else(|| full(bytes))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_calloc(count: usize, bytes: usize) -> *mut c_void {
    take(|heap| {
        let layout = array(count, bytes)?;
        let block = heap.allocate_zeroed(layout);
        block.ok_or_else(|| full(layout.size()))
    })
}

/// See the header.
///
/// # Safety
/// If a new address is returned, the block must not be used by its old one any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else {
        return vas_malloc(bytes);
    };
    answer(ptr::null_mut(), || {
        current::with(|current| {
            let heap = heap_of(current, old)?;
            if heap.usable(old).is_none() {
                return Err(no_block(block));
            }
            // SAFETY: guaranteed by the caller.
            let moved = unsafe { heap.resize(old, layout(bytes, ALIGN)?) };
            Ok(moved.ok_or_else(|| full(bytes))?.as_ptr().cast())
        })
    })
}

/// See the header.
///
/// # Safety
/// The block must not be used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vas_free(block: *mut c_void) -> c_int {
    let Some(old) = NonNull::new(block.cast::<u8>()) else {
        return 0;
    };
    done(|| {
        current::with(|current| {
            // SAFETY: guaranteed by the caller.
            let was_one = unsafe { heap_of(current, old)?.free(old) };
            was_one.then_some(()).ok_or_else(|| no_block(block))
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vas_usable_size(block: *const c_void) -> usize {
    answer(0, || {
        current::with(|current| {
            let at = NonNull::new(block.cast_mut().cast::<u8>()).ok_or_else(|| no_block(block))?;
            let usable = heap_of(current, at)?.usable(at);
            usable.ok_or_else(|| no_block(block))
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_malloc(sid: SegId, bytes: usize) -> *mut c_void {
    seg_aligned_alloc(sid, ALIGN, bytes)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_calloc(sid: SegId, count: usize, bytes: usize) -> *mut c_void {
    take_of(sid, |heap| {
        let layout = array(count, bytes)?;
        let block = heap.allocate_zeroed(layout);
        block.ok_or_else(|| full(layout.size()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_aligned_alloc(sid: SegId, align: usize, bytes: usize) -> *mut c_void {
    take_of(sid, |heap| {
        let block = heap.allocate(layout(bytes, align)?);
        block.ok_or_else(|| full(bytes))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_root(sid: SegId) -> *mut c_void {
    answer(ptr::null_mut(), || {
        let root = of_segment(sid, |heap, _| Ok(heap.root()?))?;
        if root.is_none() {
            code::clear();
        }
        Ok(root.map_or(ptr::null_mut(), |root| root.as_ptr().cast()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn seg_set_root(sid: SegId, block: *mut c_void) -> c_int {
    done(|| {
        of_segment(
            sid,
            |heap, _| Ok(heap.set_root(NonNull::new(block.cast()))?),
        )
    })
}
