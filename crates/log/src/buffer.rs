//! Memory for copies of values, which the system may refuse to this process.
//!
//! **A value for which there is no memory causes an error and never ends the process**: it may have
//! a GiB. Buffers as short as a key are allocated as Rust allocates, which aborts.

use std::alloc::{Layout, alloc_zeroed};

use crate::error::{ReadError, WriteError};

/// The system refuses this process that number of further bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory(usize);

impl From<NoMemory> for ReadError {
    fn from(NoMemory(bytes): NoMemory) -> ReadError {
        ReadError::NoMemory(bytes)
    }
}

impl From<NoMemory> for WriteError {
    fn from(NoMemory(bytes): NoMemory) -> WriteError {
        WriteError::NoMemory(bytes)
    }
}

/// Makes space for `len` more bytes in `to`.
#[inline(always)]
pub(crate) fn reserve(to: &mut Vec<u8>, len: usize) -> Result<(), NoMemory> {
    to.try_reserve(len).map_err(|_| NoMemory(len))
}

/// A copy.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>, NoMemory> {
    let mut copy = Vec::new();
    (copy.try_reserve_exact(bytes.len())).map_err(|_| NoMemory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// `len` zero bytes. The system provides their pages when they are first used.
pub(crate) fn zeros(len: usize) -> Result<Vec<u8>, NoMemory> {
    let layout = Layout::array::<u8>(len).map_err(|_| NoMemory(len))?;
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout is not empty.
    let at = unsafe { alloc_zeroed(layout) };
    if at.is_null() {
        return Err(NoMemory(len));
    }
    // SAFETY: allocated just now with this layout, and all of it initialised.
    Ok(unsafe { Vec::from_raw_parts(at, len, len) })
}
