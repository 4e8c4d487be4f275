//! Growth that reports an exhausted allocator instead of ending the process.
//!
//! A segment has an end, and its allocator refuses outside an exclusive section: both must reach
//! the caller as errors.

use crate::error::OutOfMemory;
use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;

/// Appends `value`; amortised constant time.
pub fn push<T, A: Allocator>(to: &mut Vec<T, A>, value: T) -> Result<(), OutOfMemory> {
    to.try_reserve(1).map_err(|_| OutOfMemory)?;
    to.push(value);
    Ok(())
}

/// An empty vector with space for `len` values.
pub fn with_capacity_in<T, A: Allocator>(len: usize, memory: A) -> Result<Vec<T, A>, OutOfMemory> {
    let mut values = Vec::new_in(memory);
    values.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    Ok(values)
}

/// One allocation that holds `parts` in a row.
pub fn boxed<A: Allocator>(parts: &[&[u8]], memory: A) -> Result<Box<[u8], A>, OutOfMemory> {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut bytes = with_capacity_in(len, memory)?;
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Ok(bytes.into_boxed_slice())
}
