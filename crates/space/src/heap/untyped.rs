//! The heap for programs without types: blocks of bytes, and a root that is a block's address.
//!
//! **An untyped root is never mistaken for a typed one, nor a typed root for an untyped one**: an
//! untyped root has a layout hash that no schema has, and requesting the other kind is an error.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;

use super::check::in_block;
use super::{Heap, HeapError, PAGE, RootRecord, classes, slabs};
use crate::heap::layout::PageUse;
use crate::heap::raw::RawHeap;
use crate::process_mapping::{self, ProcessMapping};

/// The layout hash of a root without a type.
pub(super) const UNTYPED: u64 = u64::from_le_bytes(*b"untyped\0");

/// The heap of a segment that the calling thread has entered, for untyped blocks. Created by
/// [`SectionGuard::heap`](crate::SectionGuard::heap).
///
/// Like [`Heap`], it works in the thread that entered the segment until that thread leaves; in
/// other threads, and afterwards, every call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UntypedHeap(Heap<'static>);

impl UntypedHeap {
    pub(crate) fn new(base: NonNull<u8>) -> Self {
        Self(Heap::new(base))
    }

    /// Allocates a block of at least `layout.size()` bytes, or of one byte if that is zero;
    /// [`usable`](Self::usable) returns its actual size. `None` if the segment is full, was entered
    /// for reading only, or is not entered.
    #[must_use]
    pub fn allocate(self, layout: Layout) -> Option<NonNull<u8>> {
        Some(self.0.allocate(not_empty(layout)?).ok()?.cast())
    }

    /// Allocates a block filled with zeros; otherwise as [`allocate`](Self::allocate).
    #[must_use]
    pub fn allocate_zeroed(self, layout: Layout) -> Option<NonNull<u8>> {
        Some(self.0.allocate_zeroed(not_empty(layout)?).ok()?.cast())
    }

    /// The size of a block; `None` if `block` is not the address of an allocated one.
    #[must_use]
    pub fn usable(self, block: NonNull<u8>) -> Option<usize> {
        self.present(|present| {
            let at = block.addr().get().checked_sub(present.base.addr().get())?;
            usable(present.raw()?, at as u64)
        })?
    }

    /// Frees a block. Returns whether it was an allocated one.
    ///
    /// # Safety
    /// The block must not be used any more.
    pub unsafe fn free(self, block: NonNull<u8>) -> bool {
        let Some(size) = self.usable(block).filter(|_| self.is_writable()) else {
            return false;
        };
        let Ok(layout) = Layout::from_size_align(size, 1) else {
            return false;
        };
        // SAFETY: an allocated block; nobody uses it, by the caller's promise.
        unsafe { self.0.deallocate(block, layout) };
        true
    }

    /// Resizes a block, in place or by moving it; its content is kept up to the smaller of the two
    /// sizes. Returns `None`, with nothing changed, if `block` is not allocated or there is no
    /// memory.
    ///
    /// # Safety
    /// If the block has moved, its old address must not be used any more.
    #[must_use]
    pub unsafe fn resize(self, block: NonNull<u8>, layout: Layout) -> Option<NonNull<u8>> {
        let size = self.usable(block).filter(|_| self.is_writable())?;
        let (old, new) = (
            Layout::from_size_align(size, layout.align()).ok()?,
            not_empty(layout)?,
        );
        // SAFETY: an allocated block of that size, and the caller's promise.
        let moved = unsafe {
            if new.size() > size {
                self.0.grow(block, old, new)
            } else {
                self.0.shrink(block, old, new)
            }
        };
        Some(moved.ok()?.cast())
    }

    /// The root; `None` if there is none.
    ///
    /// # Errors
    /// [`HeapError::Layout`] if it was created with a type, [`HeapError::RootDamaged`], and as
    /// [`Heap::stats`].
    pub fn root(self) -> Result<Option<NonNull<u8>>, HeapError> {
        let record = self.record()?;
        if record.at == 0 {
            return Ok(None);
        }
        let damaged = || HeapError::RootDamaged {
            segment: self.name(),
            at: record.at,
        };
        let at = usize::try_from(record.at).map_err(|_| damaged())?;
        let address = self.0.base.addr().checked_add(at).ok_or_else(damaged)?;
        let root = self.0.base.with_addr(address);
        match self.usable(root) {
            Some(_) => Ok(Some(root)),
            None => Err(damaged()),
        }
    }

    /// Makes a block the root, or removes the root. The previous root is not freed.
    ///
    /// # Errors
    /// [`HeapError::Layout`] if there is a root with a type, [`HeapError::ReadOnly`],
    /// [`HeapError::NoBlock`], and as [`Heap::stats`].
    pub fn set_root(self, block: Option<NonNull<u8>>) -> Result<(), HeapError> {
        self.record()?;
        let segment = || self.name();
        if !self.is_writable() {
            return Err(HeapError::ReadOnly { segment: segment() });
        }
        let record = match block {
            None => RootRecord::default(),
            Some(block) => {
                let size = self.usable(block);
                let size = size.ok_or_else(|| HeapError::NoBlock { segment: segment() })?;
                RootRecord {
                    at: (block.addr().get() - self.0.base.addr().get()) as u64,
                    layout: UNTYPED,
                    size: size as u64,
                }
            }
        };
        self.present(|present| present.set_root_record(record));
        Ok(())
    }

    /// The root's record, if the root is untyped or there is none.
    fn record(self) -> Result<RootRecord, HeapError> {
        let record = self.present(|present| {
            present.has_heap()?;
            Ok::<_, HeapError>(present.root_record().unwrap_or_default())
        });
        let record = record.ok_or(HeapError::Outside)??;
        if record.at != 0 && record.layout != UNTYPED {
            return Err(HeapError::Layout {
                segment: self.name(),
                expected: UNTYPED,
                found: record.layout,
            });
        }
        Ok(record)
    }

    fn is_writable(self) -> bool {
        self.present(|present| present.exclusive).unwrap_or(false)
    }

    fn name(self) -> Box<str> {
        let name = self.present(|present| present.name.clone());
        name.unwrap_or_default()
    }

    fn present<R>(self, f: impl FnOnce(&ProcessMapping) -> R) -> Option<R> {
        process_mapping::with(self.0.base, f)
    }
}

/// Makes the size at least one byte, so that each block has an address of its own.
fn not_empty(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().max(1), layout.align()).ok()
}

/// The size of the block that begins `at` bytes into the segment; `None` if no allocated one does.
pub(super) fn usable(raw: RawHeap, at: u64) -> Option<usize> {
    if !in_block(raw, at) {
        return None;
    }
    // Both fit, as `in_block` has checked.
    let (page, offset) = ((at / PAGE as u64) as u32, (at % PAGE as u64) as u32);
    let entry = raw.entry(page).ok()?;
    let state = entry.state();
    if state.kind == PageUse::Large {
        return Some(state.pages as usize * PAGE);
    }
    let found = slabs::find(raw, page, entry, offset).ok()?;
    Some(classes::TABLE[found.class as usize].size as usize)
}
