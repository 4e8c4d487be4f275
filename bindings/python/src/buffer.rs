//! Memory exposed to Python through the buffer protocol.
//!
//! **Everything made from a [`Memory`] object (a `memoryview`, its slices, a numpy array, a tensor)
//! holds a reference to it, and the object holds what keeps the memory valid.** So no view outlives
//! its pin or its mapping: the memory is released when Python drops the last reference.
//!
//! The buffer protocol is in the stable ABI only since Python 3.11, so this module declares the two
//! functions that it needs. That is compatible with older versions: the slots' numbers and the
//! layout of `Py_buffer` are unchanged since 3.9, in which `PyType_FromSpec` learned to accept the
//! slots, and 3.11 froze them.

use std::any::Any;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use mneme_sys::racy;

use crate::process::Origin;

/// `Py_bf_getbuffer`.
const GET_BUFFER: c_int = 1;

/// `Py_buffer`.
#[repr(C)]
struct View {
    at: *mut c_void,
    object: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

const _: () = assert!(size_of::<View>() == 80);

/// `PyBUF_WRITABLE`, `PyBUF_FORMAT`, `PyBUF_ND`, and the additional bit of `PyBUF_STRIDES`.
const WRITABLE: c_int = 0x1;
const FORMAT: c_int = 0x4;
const SHAPE: c_int = 0x8;
const STRIDES: c_int = 0x10;

/// Bytes, with an owner that keeps them valid.
pub(crate) struct Memory {
    pub(crate) at: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) writable: bool,
    /// The process that made it: a forked child must not release the parent's resources.
    pub(crate) origin: Origin,
    /// Dropped after the last view, in any thread.
    pub(crate) owner: Box<dyn Any + Send + Sync>,
}

/// A Python object that holds a [`Memory`].
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    /// Set once by `view_of`, before the object is visible to other code. Null in objects that a
    /// program makes by calling the type.
    memory: *mut Memory,
}

/// Fills a view, as `PyBuffer_FillInfo` does.
unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut View,
    flags: c_int,
) -> c_int {
    // SAFETY: an object of this type; the caller holds a reference.
    let memory = unsafe { (*object.cast::<Object>()).memory.as_ref() };
    let memory = match memory {
        Some(memory) if flags & WRITABLE == 0 || memory.writable => memory,
        refused => {
            let text = match refused {
                Some(_) => c"this memory is for reading: it belongs to a store or a segment",
                // The program has made this object by calling the type.
                None => c"this object has no memory",
            };
            // SAFETY: the view is the caller's, the thread is attached to the interpreter, and the
            // message is a constant.
            unsafe {
                (*view).object = ptr::null_mut();
                ffi::PyErr_SetString(ffi::PyExc_BufferError, text.as_ptr());
            }
            return -1;
        }
    };
    let format = match flags & FORMAT {
        0 => ptr::null_mut(),
        _ => c"B".as_ptr().cast_mut(),
    };
    // SAFETY: the view is the caller's. Its own fields serve as the arrays of shape and strides, as
    // in Python's code. It will hold a reference to the object.
    unsafe {
        ffi::Py_INCREF(object);
        view.write(View {
            at: memory.at.as_ptr().cast(),
            object,
            // No Rust object is longer than `isize::MAX`.
            len: memory.len as ffi::Py_ssize_t,
            itemsize: 1,
            readonly: c_int::from(!memory.writable),
            ndim: 1,
            format,
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        if flags & SHAPE != 0 {
            (*view).shape = &raw mut (*view).len;
        }
        if flags & STRIDES != 0 {
            (*view).strides = &raw mut (*view).itemsize;
        }
    }
    0
}

unsafe extern "C" fn deallocate(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; the memory was leaked by `view_of`, or is null. The type
    // is a heap type, to which each object holds a reference.
    unsafe {
        let memory = (*object.cast::<Object>()).memory;
        if !memory.is_null() {
            let Memory { origin, owner, .. } = *Box::from_raw(memory);
            match origin.check() {
                Ok(()) => drop(owner),
                Err(_) => std::mem::forget(owner),
            }
        }
        let of = ffi::Py_TYPE(object);
        let free = ffi::PyType_GetSlot(of, ffi::Py_tp_free);
        if !free.is_null() {
            let free: ffi::freefunc = std::mem::transmute::<*mut c_void, ffi::freefunc>(free);
            free(object.cast());
        }
        ffi::Py_DECREF(of.cast());
    }
}

// In the stable ABI since Python 3.11, and exported by the libraries of earlier versions.
unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// The bytes of another Python object, which stay at their address while this lives. The program
/// may change them meanwhile.
pub(crate) struct Source<'py> {
    view: Box<View>,
    bytes: SourceBytes,
    _py: Python<'py>,
}

/// The address and length of a [`Source`], for code that runs without the GIL.
pub(crate) struct SourceBytes {
    at: *const u8,
    len: usize,
}

// SAFETY: the bytes are only copied by `racy`, which allows concurrent writes.
unsafe impl Sync for SourceBytes {}

impl<'py> Source<'py> {
    /// Gets the contiguous bytes of an object. May run Python code.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(View {
            at: ptr::null_mut(),
            object: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: a live object, which is held; the view to fill does not move until it is
        // released.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, 0) } {
            0 => Ok(Self {
                bytes: SourceBytes {
                    at: view.at.cast::<u8>().cast_const(),
                    // The length of a buffer is never negative.
                    len: usize::try_from(view.len).unwrap_or(0),
                },
                view,
                _py: object.py(),
            }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    pub(crate) fn bytes(&self) -> &SourceBytes {
        &self.bytes
    }
}

impl SourceBytes {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes; does not need the GIL.
    ///
    /// # Safety
    /// `to` must point to as many bytes, to which no Rust reference exists.
    pub(crate) unsafe fn copy_to(&self, to: NonNull<u8>) {
        let mut piece = [0; 4096];
        let mut done = 0;
        while done < self.len {
            let piece = &mut piece[..(self.len - done).min(4096)];
            // SAFETY: inside the buffer, which its exporter keeps valid; others may write it
            // meanwhile.
            unsafe { racy::load(self.at.add(done), piece) };
            // SAFETY: inside the destination, by the caller's guarantee; views may read it
            // meanwhile.
            unsafe { racy::store(piece, to.as_ptr().add(done)) };
            done += piece.len();
        }
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        // SAFETY: filled in by `of`; the thread is attached to the interpreter.
        unsafe { PyBuffer_Release(&raw mut *self.view) }
    }
}

/// A function as a slot.
fn slot(number: c_int, function: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot {
        slot: number,
        pfunc: function,
    }
}

fn object_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = TYPE.get_or_try_init(py, || {
        let doc: &'static std::ffi::CStr = c"Memory of a store or a segment, for views of it.";
        let mut slots = [
            slot(GET_BUFFER, get_buffer as *mut c_void),
            slot(ffi::Py_tp_dealloc, deallocate as *mut c_void),
            slot(ffi::Py_tp_doc, doc.as_ptr().cast_mut().cast()),
            slot(0, ptr::null_mut()),
        ];
        let name: &'static std::ffi::CStr = c"mneme._mneme.Memory";
        let mut spec = ffi::PyType_Spec {
            name: name.as_ptr().cast::<c_char>(),
            basicsize: size_of::<Object>() as c_int,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the functions have the types that their slots require. Python copies what it
        // keeps, except the name, which is a constant.
        let made = unsafe { ffi::PyType_FromSpec(&raw mut spec) };
        // SAFETY: a new reference, or null with an exception.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    })?;
    Ok(made.bind(py))
}

/// A `memoryview` of bytes.
///
/// # Safety
/// The bytes must be mapped as long as `memory.owner` lives. Others may write them only if they
/// belong to a segment; then no Rust reference to them may exist.
pub(crate) unsafe fn view_of(py: Python<'_>, memory: Memory) -> PyResult<Bound<'_, PyAny>> {
    let of = object_type(py)?.as_type_ptr();
    // SAFETY: a type made here, in an attached thread. The object's memory is zeroed.
    let object = unsafe { ffi::PyType_GenericAlloc(of, 0) };
    // SAFETY: a new reference, or null with an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: a new `Object`, which no other code has yet.
    unsafe { (*object.as_ptr().cast::<Object>()).memory = Box::into_raw(Box::new(memory)) };
    // SAFETY: a live object, which is held; the result is a new reference, or null with an
    // exception.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(object.as_ptr())) }
}
